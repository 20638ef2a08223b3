package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
)

// auditRow is what audit --at --json, DescribeClusterMirrors and ReadMirrorStates
// all know of a partition.
type auditRow struct {
	Topic           string `json:"topic"`
	Partition       int32  `json:"partition"`
	State           string `json:"state"`
	LastMirrorEpoch int32  `json:"lastMirrorEpoch"`
	Retry           int16  `json:"retry"`
	Error           string `json:"error"`
	CutRecords      int64  `json:"cutRecords"`
	CutBytes        int64  `json:"cutBytes"`
	GapFrom         *int64 `json:"gapFrom"`
}

func auditRows(t *testing.T, p *pair, more ...string) ([]auditRow, error) {
	t.Helper()
	at := fmt.Sprint(time.Now().UnixMilli())
	code, out, errs := p.kagami(append([]string{"audit", "--mirror", "m", "--at", at, "--json"}, more...)...)
	if code != exitOK {
		return nil, fmt.Errorf("exit code %d: %s", code, errs) // such as: no record yet
	}
	var rows []auditRow
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var r auditRow
		require.NoError(t, dec.Decode(&r))
		rows = append(rows, r)
	}
	return rows, nil
}

func describedRows(t *testing.T, adm *client.Client) []auditRow {
	t.Helper()
	d, err := adm.DescribeClusterMirrors(t.Context(), []string{"m"}, client.DescribeOptions{})
	require.NoError(t, err)
	var rows []auditRow
	for _, d := range d.Mirrors["m"].Partitions {
		r := auditRow{
			Topic: d.Topic, Partition: d.Partition, State: d.State, LastMirrorEpoch: d.LastMirrorEpoch,
			Retry: d.RetryAttempt, Error: d.ErrorText, CutRecords: d.CutRecords, CutBytes: d.CutBytes,
		}
		if d.GapFrom >= 0 {
			r.GapFrom = &d.GapFrom
		}
		rows = append(rows, r)
	}
	return rows
}

// readRows asks the coordinator itself. One that has just begun may not serve yet.
func readRows(t *testing.T, n *node, like []auditRow) ([]auditRow, error) {
	t.Helper()
	req := wire.NewPtrReadMirrorStatesRequest()
	req.MirrorName = "m"
	for _, r := range like {
		rt := wire.NewReadMirrorStatesRequestTopicStates()
		rt.Name = r.Topic
		rp := wire.NewReadMirrorStatesRequestPartitionRef()
		rp.PartitionIndex = r.Partition
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	states := n.store.Image().Topic(messages.MirrorStateTopic)
	shard := messages.CoordinatorShard("m", int32(len(states.Partitions)))
	body, err := n.bus.Request(t.Context(), n.bus.MirrorRead(shard, states.Partitions[shard].LeaderEpoch), req.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	resp := wire.NewPtrReadMirrorStatesResponse()
	require.NoError(t, resp.ReadFrom(body))
	var rows []auditRow
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return nil, err
			}
			r := auditRow{
				Topic: rt.Name, Partition: rp.PartitionIndex, State: messages.State(rp.State).String(), LastMirrorEpoch: rp.LastMirrorEpoch,
				Retry: rp.RetryAttempt, Error: rp.ErrorText, CutRecords: rp.CutRecords, CutBytes: rp.CutBytes,
			}
			if rp.GapFrom >= 0 {
				r.GapFrom = &rp.GapFrom
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// requireAuditEqual compares audit, from the protocol and from the files, with
// the live state. Partitions that are being retried move, hence the repetition.
func requireAuditEqual(t *testing.T, p *pair, adm *client.Client, wantStates ...string) {
	t.Helper()
	await(t, "audit equals the live state", func() error {
		live := describedRows(t, adm)
		stored, err := readRows(t, p.dst, live)
		if err != nil {
			return err
		}
		byProtocol, err1 := auditRows(t, p, "--bootstrap-server", p.dst.kafka())
		byFiles, err2 := auditRows(t, p, "--data", p.dst.settings.dataDir)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		var states []string
		for _, r := range live {
			states = append(states, r.State)
		}
		if !slices.Equal(states, wantStates) {
			return fmt.Errorf("states are %v, want %v", states, wantStates)
		}
		return errors.Join(
			differ("describe", live, "protocol", byProtocol), differ("read", stored, "protocol", byProtocol),
			differ("describe", live, "files", byFiles),
		)
	})
}

// requireSameOutput compares what audit prints from files and over the protocol:
// the history as text and JSON, and the state now.
func requireSameOutput(t *testing.T, p *pair) {
	t.Helper()
	for _, more := range [][]string{nil, {"--json"}, {"--at", fmt.Sprint(time.Now().UnixMilli())}} {
		await(t, fmt.Sprintf("the same output %v", more), func() error { // the node goes on between the two
			args := append([]string{"audit", "--mirror", "m"}, more...)
			code1, files, notes1 := p.kagami(append(args, "--data", p.dst.settings.dataDir)...)
			code2, protocol, notes2 := p.kagami(append(args, "--bootstrap-server", p.dst.kafka())...)
			if code1 != exitOK || code2 != exitOK {
				return fmt.Errorf("exit codes %d and %d: %s%s", code1, code2, notes1, notes2)
			}
			if d := cmp.Diff(strings.Split(files, "\n"), strings.Split(protocol, "\n")); d != "" || notes1 != notes2 {
				return fmt.Errorf("notes %q and %q, files against protocol: %s", notes1, notes2, d)
			}
			return nil
		})
	}
}

func differ(what string, a []auditRow, with string, b []auditRow) error {
	if d := cmp.Diff(a, b); d != "" {
		return fmt.Errorf("%s against %s: %s", what, with, d)
	}
	return nil
}

func ask(t *testing.T, f func(context.Context, string, []string) (client.TopicResults, error), topics ...string) {
	t.Helper()
	res, err := f(t.Context(), "m", topics)
	require.NoError(t, errors.Join(err, res.Err()))
}

// TestAuditIsTheLiveState: a replay of what is stored is what the node says, in
// every state and after a restart.
func TestAuditIsTheLiveState(t *testing.T) {
	p := startPair(t)
	adm := p.adm
	requireAuditEqual(t, p, adm, "MIRRORING", "MIRRORING", "MIRRORING")
	ask(t, adm.PauseMirrorTopics, "t")
	requireAuditEqual(t, p, adm, "MIRRORING", "PAUSED", "PAUSED")
	paused := time.Now().UnixMilli()
	for time.Now().UnixMilli() == paused { // what comes next isn't of the same millisecond
		runtime.Gosched()
	}
	ask(t, adm.ResumeMirrorTopics, "t")
	requireAuditEqual(t, p, adm, "MIRRORING", "MIRRORING", "MIRRORING")
	addr := p.src.kafka()
	stopTestNode(t, p.src)
	other := startTestNode(t, t.TempDir(), "listeners=PLAINTEXT://"+addr) // a cluster that isn't the source (row 23)
	requireAuditEqual(t, p, adm, "FAILED", "FAILED", "FAILED")
	stopTestNode(t, other)
	stop := func(ctx context.Context, m string, topics []string) (client.TopicResults, error) {
		return adm.StopMirrorTopics(ctx, m, topics)
	}
	ask(t, stop, "t")
	requireAuditEqual(t, p, adm, "FAILED", "STOPPED", "STOPPED")
	requireSameOutput(t, p)

	dir := p.dst.settings.dataDir
	stopTestNode(t, p.dst)
	code, out, errs := p.kagami("audit", "--mirror", "m", "--data", dir)
	require.Equal(t, exitOK, code, errs)
	require.Empty(t, errs, "the whole history is there")
	for _, want := range []string{
		"mirror m                  created                           bootstrap.servers=127.0.0.1:",
		"start requested", "pause requested", "resume requested", "stop requested", "topic created, id ", "partitions: 2",
		"UNKNOWN -> LOG_TRUNCATION", "LOG_TRUNCATION -> MIRRORING", "MIRRORING -> PAUSING", "PAUSING -> PAUSED", "PAUSED -> MIRRORING",
		"MIRRORING -> FAILED", "attempt=1", "FAILED -> STOPPING", "last mirror epoch", "STOPPING -> STOPPED",
		`cause="desired stopped (row 11 FAILED)"`, "for=User:ANONYMOUS",
	} {
		require.Contains(t, out, want)
	}
	code, out, errs = p.kagami("audit", "--mirror", "m", "--data", dir, "--at", fmt.Sprint(paused))
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, 2, strings.Count(out, "PAUSED"), out)
	require.Equal(t, 1, strings.Count(out, "MIRRORING"), out)

	p.dst = startTestNode(t, dir)
	adm, _, _ = connectTo(t, p.dst.kafka())
	requireAuditEqual(t, p, adm, "FAILED", "STOPPED", "STOPPED")
}

func TestAuditRefuses(t *testing.T) {
	p := startPair(t)
	dir, future := p.dst.settings.dataDir, fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no mirror", nil, "--mirror must be specified"},
		{"unknown mirror", []string{"--mirror", "x", "--bootstrap-server", p.dst.kafka()}, "nothing is recorded of x (there are: m)"},
		{"unknown mirror in files", []string{"--mirror", "x", "--data", dir}, "nothing is recorded of x (there are: m)"},
		{"both places", []string{"--mirror", "m", "--data", dir, "--bootstrap-server", p.dst.kafka()}, "exactly one of"},
		{"no data folder", []string{"--mirror", "m", "--data", t.TempDir()}, "is not the data folder of a node"},
		{"nobody there", []string{"--mirror", "m", "--bootstrap-server", "127.0.0.1:1"}, "127.0.0.1:1"},
		{"no time", []string{"--mirror", "m", "--data", dir, "--at", "yesterday"}, "want RFC 3339"},
		{"too early", []string{"--mirror", "m", "--data", dir, "--at", "1000"}, "the history of mirror m begins at"},
		{"too early by protocol", []string{"--mirror", "m", "--bootstrap-server", p.dst.kafka(), "--at", "1970-01-01T00:00:00Z"}, "begins at"},
		{"future", []string{"--mirror", "m", "--data", dir, "--at", future}, "is in the future"},
		{"at and follow", []string{"--mirror", "m", "--data", dir, "--at", "1000", "--follow"}, "exclude each other"},
		{"option of the other place", []string{"--mirror", "m", "--data", dir, "--command-config", "x"}, "only valid with"},
		{"unknown option", []string{"--x"}, "unknown flag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := p.kagami(append([]string{"audit"}, tc.args...)...)
			require.Equal(t, exitFailed, code)
			require.Empty(t, out)
			require.Contains(t, errs, tc.want)
		})
	}
}

// TestAuditShowsNoSecrets, neither as text nor as JSON.
func TestAuditShowsNoSecrets(t *testing.T) {
	n := startTestNode(t, t.TempDir())
	adm, _, _ := connectTo(t, n.kafka())
	bootstrap, jaas := "127.0.0.1:1", `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="s3cret";`
	require.NoError(t, adm.CreateClusterMirror(t.Context(), "m", map[string]*string{"bootstrap.servers": &bootstrap, "sasl.jaas.config": &jaas}))
	for _, more := range [][]string{nil, {"--json"}} {
		var out, errs bytes.Buffer
		require.Equal(t, exitOK, run(t.Context(), append([]string{"audit", "--mirror", "m", "--data", n.settings.dataDir}, more...), &out, &errs), errs.String())
		require.Contains(t, out.String(), "127.0.0.1:1")
		require.Contains(t, out.String(), "(hidden)")
		require.NotContains(t, out.String()+errs.String(), "s3cret")
	}
}

// lineWriter hands lines over to the test.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// wait skips lines until one has text.
func (w lineWriter) wait(t *testing.T, text string) {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case line := <-w:
			if strings.Contains(line, text) {
				return
			}
		case <-end:
			t.Fatalf("no line with %s", text)
		}
	}
}

func TestAuditFollows(t *testing.T) {
	p := startPair(t)
	for _, place := range [][]string{{"--bootstrap-server", p.dst.kafka()}, {"--data", p.dst.settings.dataDir}} {
		t.Run(place[0], func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			lines, ended := make(lineWriter, 1000), make(chan int, 1)
			go func() {
				ended <- run(ctx, append([]string{"audit", "--mirror", "m", "--follow"}, place...), lines, &bytes.Buffer{})
			}()
			lines.wait(t, "LOG_TRUNCATION -> MIRRORING")
			ask(t, p.adm.PauseMirrorTopics, "c")
			lines.wait(t, "PAUSING -> PAUSED")
			ask(t, p.adm.ResumeMirrorTopics, "c")
			lines.wait(t, "PAUSED -> MIRRORING")
			interrupt()
			require.Equal(t, exitOK, <-ended, "an interrupt is how it ends")
		})
	}
}

// TestAuditShowsCuts: what a failback removed is in the history and in the state.
func TestAuditShowsCuts(t *testing.T) {
	p := startPair(t)
	ask(t, func(ctx context.Context, m string, topics []string) (client.TopicResults, error) {
		return p.adm.StopMirrorTopics(ctx, m, topics)
	}, "t")
	requireAuditEqual(t, p, p.adm, "MIRRORING", "STOPPED", "STOPPED")
	produce(t, p.srcCl, "t", 7) // never reached the other side

	back, _, _ := connectTo(t, p.src.kafka())
	q := &pair{t: t, src: p.dst, dst: p.src}
	bootstrap := p.dst.kafka()
	require.NoError(t, back.CreateClusterMirror(t.Context(), "m", map[string]*string{"bootstrap.servers": &bootstrap}))
	res, err := back.StartMirrorTopics(t.Context(), "m", []string{"t"}, client.StartOptions{})
	require.NoError(t, errors.Join(err, res.Err()))
	requireAuditEqual(t, q, back, "MIRRORING", "MIRRORING")
	await(t, "the cut is stored", func() error { // found by the first fetch: same epoch, other records
		rows, err := auditRows(t, q, "--data", p.src.settings.dataDir)
		if slices.ContainsFunc(rows, func(r auditRow) bool { return r.CutRecords == 7 }) {
			return nil
		}
		return errors.Join(err, errors.New("no cut of 7 records"))
	})
	requireAuditEqual(t, q, back, "MIRRORING", "MIRRORING")
	_, out, _ := q.kagami("audit", "--mirror", "m", "--bootstrap-server", p.src.kafka())
	require.Contains(t, out, `cut="7 records, `)
}

// TestAuditFollowsOverARestart: a node that is away for a while is waited for.
func TestAuditFollowsOverARestart(t *testing.T) {
	p := startPair(t)
	addr, dir := p.dst.kafka(), p.dst.settings.dataDir
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	lines, notes, ended := make(lineWriter, 1000), make(lineWriter, 1000), make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"audit", "--mirror", "m", "--follow", "--bootstrap-server", addr}, lines, notes)
	}()
	lines.wait(t, "LOG_TRUNCATION -> MIRRORING")
	stopTestNode(t, p.dst)
	notes.wait(t, "waiting for the cluster")
	p.dst = startTestNode(t, dir, "listeners=PLAINTEXT://"+addr)
	adm, _, _ := connectTo(t, addr)
	ask(t, adm.PauseMirrorTopics, "c")
	lines.wait(t, "PAUSING -> PAUSED")
	interrupt()
	require.Equal(t, exitOK, <-ended)
}
