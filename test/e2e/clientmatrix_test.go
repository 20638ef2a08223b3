package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// Features of the table.
const (
	featProduce    = "produce"
	featIdempotent = "idempotent produce"
	featTransact   = "transactions"
	featGroup      = "group, classic protocol"
	featConsumer   = "group, consumer protocol (KIP-848)"
	featAdmin      = "admin"
	featThrottled  = "client quota"
)

// works is the result of what has been checked.
const works = "works"

// matrixClient is one client of the matrix: how to have it do the jobs that
// test/clients/golang/job.go describes.
type matrixClient struct {
	name, version string
	codecs        []string
	lacks         map[string]string // feature -> why it isn't there; the row says so
	job           func(ctx context.Context, t *testing.T, job string, args ...string) []string
	members       func(t *testing.T, args ...string) *membership
	host          *kafka.Host // of command line tools; nil: none
	survives      []int16     // requests of a transaction that it sends again when their answers get lost
	gives         string      // which lost answers are too much for it, for the row
	throttled     bool        // it can tell how long it was throttled
}

// clientFeature is a line of the table: do checks it and returns the result.
type clientFeature struct {
	name string
	do   func(*testing.T) string
}

// clientMatrix is the node that all clients use, behind a proxy that can lose answers.
type clientMatrix struct {
	node   *Node
	proxy  *answerProxy
	side   *Side // not by the proxy
	report *clientReport

	mu       sync.Mutex
	complete bool // no client was left out
}

func newClientMatrix(t *testing.T) *clientMatrix {
	t.Helper()
	m := &clientMatrix{proxy: newAnswerProxy(t), report: newClientReport(), complete: true}
	m.node = StartNode(t, NodeOptions{Properties: quickGroups(map[string]string{
		"transaction.state.log.num.partitions": "5", "quota.window.num": "2", "advertised.listeners": "PLAINTEXT://" + m.proxy.addr(),
	})})
	m.proxy.serve(m.node.Bootstrap())
	var err error
	m.side, err = m.node.Side()
	require.NoError(t, err)
	t.Cleanup(m.side.Close)
	return m
}

// address is what clients are given.
func (m *clientMatrix) address() string {
	if m.proxy == nil {
		return m.node.Bootstrap()
	}
	return m.proxy.addr()
}

func (m *clientMatrix) topic(ctx context.Context, t *testing.T, name string, partitions int32) {
	t.Helper()
	resp, err := m.side.Admin.CreateTopic(ctx, partitions, 1, nil, name)
	require.NoError(t, err)
	require.NoError(t, resp.Err)
}

// fill writes records v0, v1, ... to partition 0.
func (m *clientMatrix) fill(ctx context.Context, t *testing.T, topic string, count int) {
	t.Helper()
	var records []*kgo.Record
	for i := range count {
		records = append(records, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "v%d", i)})
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.node.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.ProduceSync(ctx, records...).FirstErr())
}

// TestClientMatrix: each client does what it offers, on one node, with nothing changed
// but the address; docs/clients.md is what this test has seen.
func TestClientMatrix(t *testing.T) {
	kafka.RequireProgram(t, "kcat") // reads back
	m := newClientMatrix(t)
	makers := []func(*testing.T, string) []matrixClient{javaClients, kcatClients, nodeClients, goClients}
	ok := t.Run("clients", func(t *testing.T) {
		for _, make := range makers {
			m.clients(t, make)
		}
	})
	if ok {
		m.report.check(t, m.complete)
	}
}

// clients runs the clients of one maker. One that the machine lacks is skipped, and its
// rows aren't compared.
func (m *clientMatrix) clients(t *testing.T, make func(*testing.T, string) []matrixClient) {
	t.Helper()
	var made []matrixClient
	dir := t.TempDir() // lives longer than the next subtest
	t.Run("made", func(t *testing.T) {
		m.mu.Lock()
		was := m.complete
		m.complete = false
		m.mu.Unlock()
		made = make(t, dir) // may skip
		m.mu.Lock()
		m.complete = was
		m.mu.Unlock()
	})
	for _, c := range made {
		m.report.expect(c.name, c.version)
		t.Run(plainName(c), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			m.client(ctx, t, c)
		})
	}
}

// plainName is a client's name for topics, groups and tests.
func plainName(c matrixClient) string {
	return regexp.MustCompile(`[^a-zA-Z0-9.]+`).ReplaceAllString(strings.TrimRight(c.name+"-"+c.version, ")"), "-")
}

// client does all features of one client. What later ones need is there from earlier ones.
func (m *clientMatrix) client(ctx context.Context, t *testing.T, c matrixClient) {
	t.Helper()
	prefix := plainName(c)
	use := matrixUse{clientMatrix: m, ctx: ctx, c: c, prefix: prefix}
	var rows []clientRow
	features := []clientFeature{
		{featProduce, use.produce}, {featIdempotent, use.idempotent}, {featTransact, use.transact},
		{featGroup, use.classicGroup}, {featConsumer, use.consumerGroup},
		{featAdmin, use.admin},
	}
	if c.throttled {
		features = append(features, clientFeature{featThrottled, use.throttled})
	}
	for _, f := range append(features, use.toolFeatures()...) {
		result, lacks := c.lacks[f.name]
		if lacks {
			result = "not offered: " + result
		} else if !t.Run(f.name, func(t *testing.T) { result = f.do(t) }) {
			return
		}
		if result == "" { // -run left it out: the client isn't compared
			return
		}
		rows = append(rows, clientRow{c.name, c.version, f.name, result})
	}
	m.report.add(rows)
}

// lines are what a program has printed, without empty lines.
func lines(out string) []string {
	return kafka.Result{Stdout: out}.Lines()
}

// jobTimeout bounds one job of a client; the usual one takes a second.
const jobTimeout = 90 * time.Second

// program is a client that is a program with the jobs as its first argument.
func program(command ...string) func(context.Context, *testing.T, string, ...string) []string {
	return func(ctx context.Context, t *testing.T, job string, args ...string) []string {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, jobTimeout)
		defer cancel()
		return lines(runIn(ctx, t, ".", command[0], append(append(command[1:len(command):len(command)], job), args...)...))
	}
}

// runIn runs a program in a folder and returns what it printed.
func runIn(ctx context.Context, t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s %v: %s%s", name, args, out.String(), errs.String())
	return out.String()
}

// committed is where a group stands.
func (m *clientMatrix) committed(ctx context.Context, t *testing.T, group, topic string) map[int32]int64 {
	t.Helper()
	offsets, err := m.side.Admin.FetchOffsets(ctx, group)
	require.NoError(t, err)
	out := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) {
		require.NoError(t, o.Err)
		if o.Topic == topic {
			out[o.Partition] = o.At
		}
	})
	return out
}

// produceKey is the request whose answers get lost.
const produceKey = int16(0)
