package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/e2e"
)

// ClusterIdle is what three nodes cost while nothing happens.
type ClusterIdle struct {
	Partitions    int
	Before, After [3]int64      // resident bytes of each node without and with them
	CPUBefore     [3]float64    // of a core, without and with them
	CPU           [3]float64    // of a core
	Copied        time.Duration // from the start of the mirror until all is copied
	Refresh       time.Duration // the longest refresh cycle
}

func writeClusterIdle(w io.Writer, all []ClusterIdle) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| idle mirrored partitions on three nodes | KiB a replica | resident MiB a node without | with | CPU % a node without | with | refresh cycle | all copied after |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, i := range all {
		var before, after int64
		cpuBefore, cpu := make([]string, 3), make([]string, 3)
		for n := range 3 {
			before, after = before+i.Before[n], after+i.After[n]
			cpuBefore[n], cpu[n] = fmt.Sprintf("%.1f", 100*i.CPUBefore[n]), fmt.Sprintf("%.1f", 100*i.CPU[n])
		}
		fmt.Fprintf(w, "| %d | %.1f | %d | %d | %s | %s | %s | %s |\n", i.Partitions, float64(after-before)/1024/float64(3*i.Partitions),
			before/3>>20, after/3>>20, strings.Join(cpuBefore, ", "), strings.Join(cpu, ", "), seconds(i.Refresh), seconds(i.Copied))
	}
	fmt.Fprintln(w)
}

// TestClusterIdle measures memory and processor time of three nodes with idle mirrored
// partitions, one record each. Settings: KAGAMI_BENCH_CLUSTER_IDLE (partitions, default
// 10000; "none"), KAGAMI_BENCH_CLUSTER_PER_TOPIC (default 10), KAGAMI_BENCH_CLUSTER_SECONDS
// (of each look, default 30), KAGAMI_BENCH_CLUSTER_SETTINGS, KAGAMI_BENCH_PROFILE.
func TestClusterIdle(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	var all []ClusterIdle
	defer func() { writeClusterIdle(os.Stdout, all) }()
	for _, n := range list(t, "KAGAMI_BENCH_CLUSTER_IDLE", "10000") {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			i := clusterIdle(ctx, t, n)
			all = append(all, i)
			t.Logf("%+v", i)
		})
	}
}

func clusterIdle(ctx context.Context, t *testing.T, n int) ClusterIdle {
	t.Helper()
	i := ClusterIdle{Partitions: n}
	source := newClusterSource(ctx, t, n, number(t, "KAGAMI_BENCH_CLUSTER_PER_TOPIC", 10))
	// Its refresh cycles and their times are told at debug level.
	c := e2e.StartCluster(t, e2e.ClusterOptions{Properties: clusterProperties(map[string]string{
		"mirror.metadata.refresh.interval.ms": "30000", "kagami.log.level": "debug",
	})})
	look := time.Duration(number(t, "KAGAMI_BENCH_CLUSTER_SECONDS", 30)) * time.Second
	i.Before, i.CPUBefore = lookAt(ctx, t, c, look)
	begun := time.Now()
	w := mirrorWith(ctx, t, source, c)
	i.Copied = time.Since(begun)
	for _, node := range w.running() {
		source.settle(ctx, t, node)
	}
	for at, node := range w.running() {
		defer profileNode(ctx, t, node, fmt.Sprintf("idle-%d-%d", n, at+1))()
	}
	i.After, i.CPU = lookAt(ctx, t, c, look)
	for _, node := range w.running() {
		for line := range strings.Lines(node.Process().Log()) {
			if _, rest, ok := strings.Cut(line, "refresh cycle"); ok {
				i.Refresh = max(i.Refresh, tookOf(rest))
			}
		}
	}
	return i
}

// tookOf reads "took": "1.5s" out of a log line's fields.
func tookOf(fields string) time.Duration {
	_, rest, _ := strings.Cut(fields, `"took": "`)
	text, _, _ := strings.Cut(rest, `"`)
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}

// lookAt tells the least memory and the processor time of each node over a while.
func lookAt(ctx context.Context, t *testing.T, c *e2e.Cluster, while time.Duration) (memory [3]int64, cores [3]float64) {
	t.Helper()
	var before [3]time.Duration
	for at, id := range c.IDs() {
		cpu, err := c.Node(id).Process().CPU()
		require.NoError(t, err)
		before[at], memory[at] = cpu, 1<<62
	}
	begun := time.Now()
	for time.Since(begun) < while {
		for at, id := range c.IDs() {
			m, err := c.Node(id).Process().Memory()
			require.NoError(t, err)
			memory[at] = min(memory[at], m)
		}
		require.NoError(t, pause(ctx, time.Second))
	}
	for at, id := range c.IDs() {
		cpu, err := c.Node(id).Process().CPU()
		require.NoError(t, err)
		cores[at] = (cpu - before[at]).Seconds() / time.Since(begun).Seconds()
	}
	return memory, cores
}

// newClusterSource is a node with n partitions of one record each.
func newClusterSource(ctx context.Context, t *testing.T, n, perTopic int) *failoverSource {
	t.Helper()
	s := &failoverSource{node: e2e.StartNode(t, e2e.NodeOptions{}), n: n}
	var err error
	s.side, err = e2e.NewSide("A", s.node.Bootstrap())
	require.NoError(t, err)
	t.Cleanup(s.side.Close)
	for made := 0; made < n; made += perTopic {
		s.topics = append(s.topics, fmt.Sprintf("idle-%05d", made/perTopic))
	}
	for i := 0; i < len(s.topics); i += 100 {
		created, err := s.side.Admin.CreateTopics(ctx, int32(perTopic), 1, nil, s.topics[i:min(i+100, len(s.topics))]...)
		require.NoError(t, err)
		for _, r := range created {
			require.NoError(t, r.Err)
		}
	}
	_, err = Probe(ctx, ProbeOptions{Bootstrap: s.node.Bootstrap(), Topics: details(ctx, t, s.side, s.topics), Begun: time.Now()})
	require.NoError(t, err)
	return s
}
