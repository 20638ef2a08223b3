package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/client"
	"kagami/test/kafka"
)

// testTimeout bounds one test; the usual one takes seconds.
const testTimeout = 5 * time.Minute

// convergeTimeout bounds one wait for a state or for equal logs.
const convergeTimeout = time.Minute

// sharedSource is the one real Kafka of all tests: two brokers, so that every
// mirror has two source brokers and leaders can move. Topics carry the test's name.
var sharedSource = sync.OnceValues(func() (*kafka.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := kafka.New(ctx, kafka.Options{Brokers: 2})
	started = c
	return c, err
})

var started *kafka.Cluster

func TestMain(m *testing.M) {
	code := m.Run()
	if started != nil {
		if err := started.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "end Kafka:", err)
			code = 1
		}
	}
	endToolHosts()
	if err := RemovePrograms(); err != nil {
		fmt.Fprintln(os.Stderr, "remove programs:", err)
		code = 1
	}
	kafka.PrintSkipped(os.Stderr)
	os.Exit(code)
}

// world is one source, one node and the clients of both.
type world struct {
	t      *testing.T
	ctx    context.Context
	source *kafka.Cluster
	node   *Node
	nodes  *Cluster       // instead of the node
	adm    *client.Client // of the node
	a, b   *Side
}

func sourceOf(t *testing.T) *kafka.Cluster {
	t.Helper()
	kafka.Require(t)
	c, err := sharedSource()
	require.NoError(t, err)
	return c
}

func newWorld(t *testing.T, opts NodeOptions) *world {
	t.Helper()
	return newWorldOf(t, sourceOf(t), opts)
}

// newWorldOf is a world with a source of its own.
func newWorldOf(t *testing.T, source *kafka.Cluster, opts NodeOptions) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, source: source}
	w.node = StartNode(t, opts)
	var err error
	w.adm, err = w.node.Admin()
	require.NoError(t, err)
	t.Cleanup(w.adm.Close)
	w.a, err = NewSide("A", w.source.Bootstrap())
	require.NoError(t, err)
	t.Cleanup(w.a.Close)
	w.b, err = w.node.Side()
	require.NoError(t, err)
	t.Cleanup(w.b.Close)
	return w
}

// topic makes a topic on A. Configs are key=value.
func (w *world) topic(name string, partitions int32, replicas int16, configs ...string) {
	w.t.Helper()
	m := map[string]*string{}
	for _, c := range configs {
		k, v, _ := strings.Cut(c, "=")
		m[k] = &v
	}
	_, err := w.a.Admin.CreateTopic(w.ctx, partitions, replicas, m, name)
	require.NoError(w.t, err)
	// The controller answers before the brokers know the topic.
	require.NoError(w.t, kafka.Poll(w.ctx, func() error {
		_, err := w.a.Topic(w.ctx, name)
		return err
	}))
}

// load writes records to a topic of A.
func (w *world) load(topic string, records Records) {
	w.t.Helper()
	require.NoError(w.t, Produce(w.ctx, w.source.Bootstrap(), topic, records))
}

// mirrors runs kafka-cluster-mirrors against the node, or the cluster.
func (w *world) mirrors(args ...string) (kafka.Result, error) {
	if w.nodes == nil {
		return w.node.Mirrors(w.ctx, args...)
	}
	return Run(w.ctx, "kafka-cluster-mirrors", append([]string{"--bootstrap-server", w.nodes.Bootstrap()}, args...)...)
}

// run runs kafka-cluster-mirrors, wants exit code 0, and returns its output.
func (w *world) run(args ...string) string {
	w.t.Helper()
	res, err := w.mirrors(args...)
	require.NoError(w.t, err)
	require.Zero(w.t, res.Code, "%v: %s%s", args, res.Stdout, res.Stderr)
	return strings.TrimRight(res.Stdout, "\n")
}

// fails runs kafka-cluster-mirrors, wants exit code 1 and the text on stderr.
func (w *world) fails(text string, args ...string) {
	w.t.Helper()
	res, err := w.mirrors(args...)
	require.NoError(w.t, err)
	require.Equal(w.t, 1, res.Code, "%v: %s%s", args, res.Stdout, res.Stderr)
	require.Contains(w.t, res.Stderr, text, "%v", args)
}

// mirrorFile writes the property file of a mirror whose source is bootstrap.
func (w *world) mirrorFile(lines ...string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "mirror.properties")
	require.NoError(w.t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	return file
}

// create makes a mirror of A.
func (w *world) create(mirror string, lines ...string) {
	w.t.Helper()
	file := w.mirrorFile(append([]string{"bootstrap.servers=" + w.source.Bootstrap()}, lines...)...)
	require.Equal(w.t, "Created mirror "+mirror, w.run("--create", "--mirror", mirror, "--mirror-config", file))
}

// start starts topics and waits until all their partitions are MIRRORING.
func (w *world) start(mirror string, topics ...string) {
	w.t.Helper()
	out := w.run("--start", "--mirror", mirror, "--topics", strings.Join(topics, ","))
	require.Contains(w.t, out, fmt.Sprintf("Started %d mirror topic(s) in mirror %s: [", len(topics), mirror))
	w.await(mirror, "MIRRORING", topics...)
}

func (w *world) await(mirror, state string, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, AwaitStates(ctx, w.adm, mirror, topics, 0, state))
}

// equal waits until B holds the topics as A does. Leaderships of a cluster may move while
// that is looked at.
func (w *world) equal(topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	for {
		err := AwaitEqual(ctx, w.a, w.b, topics...)
		if moved := (*kerr.Error)(nil); w.nodes != nil && errors.As(err, &moved) && moved.Retriable && ctx.Err() == nil {
			w.runFor(100 * time.Millisecond)
			continue
		}
		require.NoError(w.t, err)
		return
	}
}

// config is a topic config on one side; empty if it isn't set.
func (w *world) config(side *Side, topic, key string) (string, bool) {
	w.t.Helper()
	rc, err := side.Admin.DescribeTopicConfigs(w.ctx, topic)
	require.NoError(w.t, err)
	r, err := rc.On(topic, nil)
	require.NoError(w.t, err)
	require.NoError(w.t, r.Err)
	for _, c := range r.Configs {
		if c.Key == key && c.Value != nil {
			return *c.Value, true
		}
	}
	return "", false
}

func (w *world) end(side *Side, topic string, partition int32) int64 {
	w.t.Helper()
	ends, err := side.TopicEnds(w.ctx, topic)
	require.NoError(w.t, err)
	return ends[partition].End
}

// deleteRecords raises the log start of a partition on A.
func (w *world) deleteRecords(topic string, partition int32, before int64) {
	w.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, partition, before, -1)
	res, err := w.a.Admin.DeleteRecords(w.ctx, offsets)
	require.NoError(w.t, err)
	require.NoError(w.t, res.Error())
}
