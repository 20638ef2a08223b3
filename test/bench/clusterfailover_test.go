package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/test/e2e"
	"kagami/test/kafka"
)

// clusterTimeout bounds one measurement with three nodes.
const clusterTimeout = 10 * time.Minute

// TestClusterFailover measures how long after a kill -9 of one of three nodes every
// partition is led and fetching again. The victim is a node that leads no journal
// stream (it was restarted, which moves them away), and the one that leads most of
// them, that of the metadata log included. Settings: KAGAMI_BENCH_CLUSTER_FAILOVER (partitions, default 1000; "none"),
// KAGAMI_BENCH_CLUSTER_RUNS (default 3), KAGAMI_BENCH_CLUSTER_VICTIM (part of a
// victim's name; default all), KAGAMI_BENCH_CLUSTER_SETTINGS (key=value, separated
// by commas, of every node), KAGAMI_BENCH_PROFILE.
func TestClusterFailover(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	var all Losses
	defer func() { all.Write(os.Stdout) }()
	for _, n := range list(t, "KAGAMI_BENCH_CLUSTER_FAILOVER", "1000") {
		t.Run(fmt.Sprintf("partitions=%d", n), func(t *testing.T) {
			w := newClusterWorld(ctx, t, newFailoverSource(ctx, t, n), nil)
			for run := range number(t, "KAGAMI_BENCH_CLUSTER_RUNS", 3) {
				for _, victim := range []string{victimFollower, victimLeader} {
					if strings.Contains(victim, os.Getenv("KAGAMI_BENCH_CLUSTER_VICTIM")) {
						t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(victim, " ", "-"), run), func(t *testing.T) {
							l := w.lose(ctx, t, victim)
							all = append(all, l)
							t.Logf("%+v", l)
						})
					}
				}
			}
		})
	}
}

// Victims.
const (
	victimFollower = "leads no journal stream"
	victimLeader   = "leads journal streams"
)

// clusterWorld is three nodes that mirror a source.
type clusterWorld struct {
	source *failoverSource
	nodes  *e2e.Cluster
	adm    *client.Client
	topics []string
	n      int
}

// clusterProperties are the settings of every node.
func clusterProperties(more map[string]string) map[string]string {
	props := map[string]string{"kagami.pprof.enable": strconv.FormatBool(os.Getenv("KAGAMI_BENCH_PROFILE") != "")}
	maps.Copy(props, more)
	for pair := range strings.SplitSeq(os.Getenv("KAGAMI_BENCH_CLUSTER_SETTINGS"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			props[k] = v
		}
	}
	return props
}

func newClusterWorld(ctx context.Context, t *testing.T, source *failoverSource, props map[string]string) *clusterWorld {
	t.Helper()
	return mirrorWith(ctx, t, source, e2e.StartCluster(t, e2e.ClusterOptions{Properties: clusterProperties(props)}))
}

// mirrorWith has the nodes mirror everything and waits until it is copied.
func mirrorWith(ctx context.Context, t *testing.T, source *failoverSource, nodes *e2e.Cluster) *clusterWorld {
	t.Helper()
	w := &clusterWorld{source: source, topics: source.topics, n: source.n, nodes: nodes}
	var err error
	w.adm, err = w.nodes.Admin()
	require.NoError(t, err)
	t.Cleanup(w.adm.Close)
	bootstrap := source.node.Bootstrap()
	require.NoError(t, w.adm.CreateClusterMirror(ctx, failoverMirror, map[string]*string{"bootstrap.servers": &bootstrap}))
	from := map[string]client.TopicMetadata{}
	for _, d := range details(ctx, t, source.side, w.topics) {
		from[d.Topic] = client.TopicMetadata{ID: [16]byte(d.ID), Partitions: int32(len(d.Partitions))}
	}
	begun := time.Now()
	for chunk := range slices.Chunk(w.topics, 100) {
		res, err := w.adm.StartMirrorTopics(ctx, failoverMirror, chunk, client.StartOptions{TopicMetadata: from})
		require.NoError(t, err)
		require.NoError(t, res.Err())
	}
	t.Logf("start answered after %s", seconds(time.Since(begun)))
	w.mirrored(ctx, t)
	t.Logf("all copied after %s", seconds(time.Since(begun)))
	return w
}

// mirrored waits until the nodes have what the source has.
func (w *clusterWorld) mirrored(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, clusterTimeout, errors.New("it takes too long"))
	defer cancel()
	want, err := wantedEnds(ctx, w.source.node, details(ctx, t, w.source.side, w.topics))
	require.NoError(t, err)
	watch, err := newWatch(w.running(), -2, w.topics, want, &Loss{})
	require.NoError(t, err)
	defer watch.close()
	require.NoError(t, watch.run(ctx, time.Now()))
}

func (w *clusterWorld) running() []*e2e.Node {
	var out []*e2e.Node
	for _, id := range w.nodes.Running() {
		out = append(out, w.nodes.Node(id))
	}
	return out
}

// leads counts the partitions of each node.
func (w *clusterWorld) leads(ctx context.Context, t *testing.T) map[int]int {
	t.Helper()
	side, err := w.nodes.Side()
	require.NoError(t, err)
	defer side.Close()
	led := map[int]int{}
	for _, d := range details(ctx, t, side, w.topics) {
		for _, p := range d.Partitions {
			led[int(p.Leader)]++
		}
	}
	return led
}

// balanced waits until the node leads about its share again.
func (w *clusterWorld) balanced(ctx context.Context, t *testing.T, id int) int {
	t.Helper()
	led := 0
	require.NoError(t, kafka.Poll(ctx, func() error {
		if led = w.leads(ctx, t)[id]; led < w.n/4 {
			return fmt.Errorf("node %d leads %d of %d partitions", id, led, w.n)
		}
		return nil
	}))
	return led
}

// mostStreams is the node that leads most journal streams: the stream of the metadata log
// counts more than all others.
func (w *clusterWorld) mostStreams(ctx context.Context, t *testing.T) int {
	t.Helper()
	rows, err := w.running()[0].Query(ctx, "journal")
	require.NoError(t, err)
	leads, most := map[int]int{}, 0
	for _, row := range rows {
		node, ok := row["streamLeader"].(float64)
		require.True(t, ok, "%v", row)
		if leads[int(node)]++; row["shard"] == "meta" {
			leads[int(node)] += len(rows)
		}
	}
	for node, n := range leads {
		if most == 0 || n > leads[most] {
			most = node
		}
	}
	t.Logf("streams led, with %d for that of the metadata log: %v", len(rows), leads)
	return most
}

// lose kills a node and brings it back when all is well again.
func (w *clusterWorld) lose(ctx context.Context, t *testing.T, victim string) Loss {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, clusterTimeout, errors.New("the run takes too long"))
	defer cancel()
	const lazy = 3
	// A clean stop hands over all that the node leads in the journal, and nothing
	// goes back.
	require.NoError(t, w.nodes.Node(lazy).Stop())
	require.NoError(t, w.nodes.Start(ctx, lazy))
	w.mirrored(ctx, t)
	dead := lazy
	if victim == victimLeader {
		dead = w.mostStreams(ctx, t)
	}
	l := Loss{Partitions: w.n, Victim: victim, Led: w.balanced(ctx, t, dead)}
	settle(ctx, t, w.nodes)
	survivors := slices.DeleteFunc(w.running(), func(n *e2e.Node) bool { return n == w.nodes.Node(dead) })
	topics := details(ctx, t, w.source.side, w.topics)
	want, err := wantedEnds(ctx, w.source.node, topics)
	require.NoError(t, err)
	for _, ps := range want {
		for n := range ps {
			ps[n]++
		}
	}
	watch, err := newWatch(survivors, dead, w.topics, want, &l)
	require.NoError(t, err)
	defer watch.close()
	before := cpuOf(t, survivors)
	profiled := profileNode(ctx, t, survivors[0], fmt.Sprintf("loss-%d", w.n))
	begun := time.Now()
	require.NoError(t, w.nodes.Node(dead).Kill9())
	_, err = Probe(ctx, ProbeOptions{Bootstrap: w.source.node.Bootstrap(), Topics: topics, Begun: begun})
	require.NoError(t, err)
	require.NoError(t, watch.run(ctx, begun))
	l.CPU = cpuOf(t, survivors) - before
	for _, n := range survivors {
		if at := logged(n.Process().Log(), begun, "live nodes"); !at.IsZero() && (l.Noticed == 0 || at.Sub(begun) < l.Noticed) {
			l.Noticed = at.Sub(begun)
		}
	}
	profiled()
	for i, n := range survivors {
		keepLog(t, n, fmt.Sprintf("loss-%d", i))
	}
	require.NoError(t, w.nodes.Start(ctx, dead))
	w.mirrored(ctx, t)
	return l
}

// keepLog keeps a node's log beside the profiles, if those are asked for.
func keepLog(t *testing.T, n *e2e.Node, name string) {
	t.Helper()
	if dir := os.Getenv("KAGAMI_BENCH_PROFILE"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".log"), []byte(n.Process().Log()), 0o600))
	}
}

func cpuOf(t *testing.T, nodes []*e2e.Node) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, n := range nodes {
		cpu, err := n.Process().CPU()
		require.NoError(t, err)
		sum += cpu
	}
	return sum
}

// profileNode keeps a CPU profile of the next seconds of a node, if that is asked
// for; the result waits for it.
func profileNode(ctx context.Context, t *testing.T, node *e2e.Node, name string) (wait func()) {
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
