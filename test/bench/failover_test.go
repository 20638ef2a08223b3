package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/client"
	"kagami/test/e2e"
)

const (
	failoverPerTopic = 500
	failoverMirror   = "m"
	failoverTimeout  = 3 * time.Minute // of one run's steps; far above the aim
)

// TestFailover measures how long a stop takes, with the source alive and dead.
// The source is a second Kagami process with one record per partition; each run
// has a new node as the destination. Settings: KAGAMI_BENCH_FAILOVER (partitions,
// default 1,1000,10000; "none"), KAGAMI_BENCH_FAILOVER_RUNS (per size and kind of
// source, default 5, from 5,000 partitions on 3), KAGAMI_BENCH_FAILOVER_SOURCE
// (part of a kind's name; default all), KAGAMI_BENCH_PROFILE (an existing folder
// for CPU profiles of the stops).
func TestFailover(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	var all Failovers
	defer func() { all.Write(os.Stdout) }()
	for _, n := range list(t, "KAGAMI_BENCH_FAILOVER", "1,1000,10000") {
		t.Run(fmt.Sprintf("partitions=%d", n), func(t *testing.T) {
			s := newFailoverSource(ctx, t, n)
			runs := 5
			if n >= 5000 {
				runs = 3
			}
			runs = number(t, "KAGAMI_BENCH_FAILOVER_RUNS", runs)
			for _, kind := range []Source{SourceLive, SourceKilled, SourceBlackHole} {
				if !strings.Contains(string(kind), os.Getenv("KAGAMI_BENCH_FAILOVER_SOURCE")) {
					continue
				}
				for run := range runs {
					t.Run(fmt.Sprintf("%s/%d", strings.Fields(string(kind))[0], run), func(t *testing.T) {
						f := s.failover(ctx, t, kind)
						all = append(all, f)
						t.Logf("%+v", f)
					})
				}
			}
		})
	}
}

// failoverSource is the node that is mirrored.
type failoverSource struct {
	node   *e2e.Node
	side   *e2e.Side
	n      int
	topics []string
}

func newFailoverSource(ctx context.Context, t *testing.T, n int) *failoverSource {
	t.Helper()
	s := &failoverSource{node: e2e.StartNode(t, e2e.NodeOptions{}), n: n}
	var err error
	s.side, err = e2e.NewSide("A", s.node.Bootstrap())
	require.NoError(t, err)
	t.Cleanup(s.side.Close)
	for made := 0; made < n; made += failoverPerTopic {
		topic := fmt.Sprintf("failover-%03d", made/failoverPerTopic)
		s.topics = append(s.topics, topic)
		_, err := s.side.Admin.CreateTopic(ctx, int32(min(failoverPerTopic, n-made)), 1, nil, topic)
		require.NoError(t, err)
	}
	_, err = Probe(ctx, ProbeOptions{Bootstrap: s.node.Bootstrap(), Topics: details(ctx, t, s.side, s.topics), Begun: time.Now()})
	require.NoError(t, err)
	return s
}

func details(ctx context.Context, t *testing.T, side *e2e.Side, topics []string) []kadm.TopicDetail {
	t.Helper()
	listed, err := side.Admin.ListTopics(ctx, topics...)
	require.NoError(t, err)
	require.NoError(t, listed.Error())
	var out []kadm.TopicDetail
	for _, topic := range topics {
		out = append(out, listed[topic])
	}
	return out
}

// die makes the source what kind says; the result brings it back.
func (s *failoverSource) die(ctx context.Context, t *testing.T, kind Source) (revive func()) {
	t.Helper()
	switch kind {
	case SourceKilled:
		require.NoError(t, s.node.Kill9())
		return func() { require.NoError(t, s.node.Start(ctx)) }
	case SourceBlackHole:
		require.NoError(t, s.node.Process().Signal(syscall.SIGSTOP))
		return func() { require.NoError(t, s.node.Process().Signal(syscall.SIGCONT)) }
	case SourceLive:
	}
	return func() {}
}

func (s *failoverSource) failover(ctx context.Context, t *testing.T, kind Source) Failover {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, failoverTimeout, errors.New("the run takes too long"))
	defer cancel()
	f := Failover{Partitions: s.n, Source: kind}
	node := e2e.StartNode(t, e2e.NodeOptions{Properties: map[string]string{"kagami.pprof.enable": strconv.FormatBool(os.Getenv("KAGAMI_BENCH_PROFILE") != "")}})
	adm, err := node.Admin()
	require.NoError(t, err)
	defer adm.Close()
	side, err := node.Side()
	require.NoError(t, err)
	defer side.Close()
	s.mirror(ctx, t, node, adm, side, &f)
	topics := details(ctx, t, side, s.topics)
	defer s.die(ctx, t, kind)()
	s.settle(ctx, t, node)
	s.stop(ctx, t, node, adm, topics, &f)
	began := time.Now()
	require.NoError(t, node.Stop())
	f.Closed = time.Since(began)
	return f
}

// mirror starts the mirror and waits until everything is copied.
func (s *failoverSource) mirror(ctx context.Context, t *testing.T, node *e2e.Node, adm *client.Client, side *e2e.Side, f *Failover) {
	t.Helper()
	bootstrap := s.node.Bootstrap()
	require.NoError(t, adm.CreateClusterMirror(ctx, failoverMirror, map[string]*string{"bootstrap.servers": &bootstrap}))
	from := map[string]client.TopicMetadata{}
	for _, d := range details(ctx, t, s.side, s.topics) {
		from[d.Topic] = client.TopicMetadata{ID: [16]byte(d.ID), Partitions: int32(len(d.Partitions))}
	}
	begun := time.Now()
	res, err := adm.StartMirrorTopics(ctx, failoverMirror, s.topics, client.StartOptions{TopicMetadata: from})
	require.NoError(t, err)
	require.NoError(t, res.Err())
	f.StartAnswered = time.Since(begun)
	require.NoError(t, e2e.AwaitStates(ctx, adm, failoverMirror, s.topics, s.n, "MIRRORING"))
	require.NoError(t, e2e.AwaitEnds(ctx, s.side, side, s.topics...))
	f.Mirroring = time.Since(begun)
	begun = time.Now()
	rows, err := node.Query(ctx, "partitions")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(rows), s.n)
	f.Query = time.Since(begun)
}

// settle lets the node finish what the start left to do: a flush of every log is
// due a second after its last append, and it isn't what is measured.
func (s *failoverSource) settle(ctx context.Context, t *testing.T, node *e2e.Node) {
	t.Helper()
	const quiet, atMost = 20 * time.Millisecond, 15 // CPU time in a second; seconds
	last, err := node.Process().CPU()
	require.NoError(t, err)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range atMost {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, err := node.Process().CPU()
		require.NoError(t, err)
		if now-last <= quiet {
			return
		}
		last = now
	}
}

// stop is what is measured.
func (s *failoverSource) stop(ctx context.Context, t *testing.T, node *e2e.Node, adm *client.Client, topics []kadm.TopicDetail, f *Failover) {
	t.Helper()
	p := node.Process()
	f.HeapBefore = heap(ctx, t, node)
	var err error
	f.RSSBefore, err = p.Memory()
	require.NoError(t, err)
	// The highest mark so far is that of the start: 5 resets it.
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0o600))
	cpu, err := p.CPU()
	require.NoError(t, err)
	profiled := profileStop(ctx, t, node, fmt.Sprintf("failover-%d", s.n))
	begun := time.Now()
	answered := make(chan error, 1)
	go func() {
		res, err := adm.StopMirrorTopics(ctx, failoverMirror, s.topics)
		f.StopAnswered = time.Since(begun)
		answered <- errors.Join(err, res.Err())
	}()
	f.Accepted, err = Probe(ctx, ProbeOptions{Bootstrap: node.Bootstrap(), Topics: topics, Begun: begun})
	require.NoError(t, err)
	require.NoError(t, <-answered)
	after, err := p.CPU()
	require.NoError(t, err)
	f.CPU = after - cpu
	f.RSSPeak, err = p.MemoryPeak()
	require.NoError(t, err)
	f.HeapAfter = heap(ctx, t, node)
	profiled()
	require.NoError(t, e2e.AwaitStates(ctx, adm, failoverMirror, s.topics, s.n, "STOPPED"))
}

// heap is the memory of objects, garbage that isn't collected yet included.
func heap(ctx context.Context, t *testing.T, node *e2e.Node) int64 {
	t.Helper()
	const name = "go_memstats_heap_alloc_bytes "
	body, err := node.Get(ctx, "/metrics")
	require.NoError(t, err)
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(t, err)
			return int64(bytes)
		}
	}
	t.Fatalf("no %sin the metrics", name)
	return 0
}

// profileStop keeps a CPU profile of the first seconds of a stop, if that is
// asked for; the result waits for it.
func profileStop(ctx context.Context, t *testing.T, node *e2e.Node, name string) (wait func()) {
	t.Helper()
	dir := os.Getenv("KAGAMI_BENCH_PROFILE")
	if dir == "" {
		return func() {}
	}
	done := make(chan error, 1)
	go func() {
		body, err := node.Get(ctx, "/debug/pprof/profile?seconds=8")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".cpu"), body, 0o600)
		}
		done <- err
	}()
	return func() { require.NoError(t, <-done) }
}
