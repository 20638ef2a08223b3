package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages"
	"kagami/test/e2e"
	"kagami/test/kafka"
	"kagami/test/kafka/stub"
)

// ClusterIdle is what three nodes cost while nothing happens.
type ClusterIdle struct {
	Partitions, Replicas int
	Before, After        [3]int64      // resident bytes of each node without and with them
	Heap                 [3]int64      // bytes of objects with them, garbage included
	CPUBefore            [3]float64    // of a core, without and with them
	CPU                  [3]float64    // of a core
	StartAnswered        time.Duration // the start request
	Mirroring            time.Duration // from the start until all are MIRRORING and have the source's record
	Refresh              time.Duration // the longest refresh cycle
	Describe, Query      time.Duration // of everything, by the admin request and by one node's JSON
	Stopped              time.Duration // from the stop request until all are STOPPED
}

func writeClusterIdle(w io.Writer, all []ClusterIdle) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| mirrored partitions | replicas of each | start answered | all MIRRORING | KiB a replica | resident MiB a node without | with | heap MiB with | CPU % a node without | with | refresh cycle | describe | query of a node | all STOPPED |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, i := range all {
		var before, after, heap int64
		cpuBefore, cpu := make([]string, 3), make([]string, 3)
		for n := range 3 {
			before, after, heap = before+i.Before[n], after+i.After[n], heap+i.Heap[n]
			cpuBefore[n], cpu[n] = fmt.Sprintf("%.1f", 100*i.CPUBefore[n]), fmt.Sprintf("%.1f", 100*i.CPU[n])
		}
		fmt.Fprintf(w, "| %d | %d | %s | %s | %.1f | %d | %d | %d | %s | %s | %s | %s | %s | %s |\n", i.Partitions, i.Replicas,
			seconds(i.StartAnswered), seconds(i.Mirroring), float64(after-before)/1024/float64(i.Replicas*i.Partitions),
			before/3>>20, after/3>>20, heap/3>>20, strings.Join(cpuBefore, ", "), strings.Join(cpu, ", "),
			seconds(i.Refresh), seconds(i.Describe), seconds(i.Query), seconds(i.Stopped))
	}
	fmt.Fprintln(w)
}

// TestClusterIdle (scenario K14, with a source of a given size) measures three nodes with idle mirrored partitions, one record each,
// of a source of three stub brokers in this process. Settings: KAGAMI_BENCH_CLUSTER_IDLE
// (partitions, default 10000; "none"), KAGAMI_BENCH_CLUSTER_RF (replicas, default 3),
// KAGAMI_BENCH_CLUSTER_PER_TOPIC (default 100), KAGAMI_BENCH_CLUSTER_SECONDS (of each
// look, default 35, more than a refresh cycle), KAGAMI_BENCH_CLUSTER_STOP ("none": the
// mirror isn't stopped), KAGAMI_BENCH_CLUSTER_SETTINGS, KAGAMI_BENCH_PROFILE.
func TestClusterIdle(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	var all []ClusterIdle
	defer func() { writeClusterIdle(os.Stdout, all) }()
	for _, n := range list(t, "KAGAMI_BENCH_CLUSTER_IDLE", "10000") {
		for _, rf := range list(t, "KAGAMI_BENCH_CLUSTER_RF", "3") {
			t.Run(fmt.Sprintf("%d/rf=%d", n, rf), func(t *testing.T) {
				i := ClusterIdle{Partitions: n, Replicas: rf}
				measureIdle(ctx, t, &i)
				all = append(all, i)
				t.Logf("%+v", i)
			})
		}
	}
}

func measureIdle(ctx context.Context, t *testing.T, i *ClusterIdle) {
	t.Helper()
	source := newIdleSource(t, i.Partitions, number(t, "KAGAMI_BENCH_CLUSTER_PER_TOPIC", 100))
	// Its refresh cycles and their times are told at debug level.
	c := e2e.StartCluster(t, e2e.ClusterOptions{Properties: clusterProperties(map[string]string{
		"mirror.metadata.refresh.interval.ms": "30000", "kagami.log.level": "debug", "default.replication.factor": fmt.Sprint(i.Replicas),
		"log.retention.ms": "-1", // the source's records are old: retention would be at work
	})})
	defer func() {
		for at, id := range c.IDs() {
			keepLog(t, c.Node(id), fmt.Sprintf("idle-%d-%d", i.Partitions, at+1))
		}
	}()
	look := time.Duration(number(t, "KAGAMI_BENCH_CLUSTER_SECONDS", 35)) * time.Second
	i.Before, i.CPUBefore = lookAt(ctx, t, c, min(look, 20*time.Second))
	adm, err := c.Admin()
	require.NoError(t, err)
	defer adm.Close()
	profiled := profileAll(ctx, t, c, fmt.Sprintf("start-%d", i.Partitions), "profile?seconds=30")
	source.mirror(ctx, t, adm, i)
	profiled()
	settle(ctx, t, c)
	profiled = profileAll(ctx, t, c, fmt.Sprintf("idle-%d", i.Partitions), fmt.Sprintf("profile?seconds=%d", int(look.Seconds())))
	i.After, i.CPU = lookAt(ctx, t, c, look)
	profiled()
	profileAll(ctx, t, c, fmt.Sprintf("heap-%d", i.Partitions), "heap?gc=1")()
	begun := time.Now()
	_, err = e2e.Partitions(ctx, adm, failoverMirror)
	require.NoError(t, err)
	i.Describe = time.Since(begun)
	begun = time.Now()
	_, err = c.Node(c.IDs()[0]).Query(ctx, "partitions")
	require.NoError(t, err)
	i.Query = time.Since(begun)
	for at, id := range c.IDs() {
		i.Heap[at] = heap(ctx, t, c.Node(id))
		for line := range strings.Lines(c.Node(id).Process().Log()) {
			if _, rest, ok := strings.Cut(line, "refresh cycle"); ok {
				i.Refresh = max(i.Refresh, tookOf(rest))
			}
		}
	}
	if os.Getenv("KAGAMI_BENCH_CLUSTER_STOP") == "none" {
		return
	}
	profiled = profileAll(ctx, t, c, fmt.Sprintf("stop-%d", i.Partitions), "profile?seconds=10")
	source.stop(ctx, t, adm, i)
	profiled()
}

// profileAll keeps something of every node's profiles, if that is asked for.
func profileAll(ctx context.Context, t *testing.T, c *e2e.Cluster, name, what string) (wait func()) {
	t.Helper()
	dir := os.Getenv("KAGAMI_BENCH_PROFILE")
	if dir == "" {
		return func() {}
	}
	done := make(chan error, len(c.IDs()))
	for _, id := range c.IDs() {
		go func() {
			body, err := c.Node(id).Get(ctx, "/debug/pprof/"+what)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-node%d.pprof", name, id)), body, 0o600)
			}
			done <- err
		}()
	}
	return func() {
		for range c.IDs() {
			if err := <-done; err != nil {
				t.Logf("no profile: %v", err)
			}
		}
	}
}

// settle waits until the nodes have done what the start left them: checkpoints, flushes.
func settle(ctx context.Context, t *testing.T, c *e2e.Cluster) {
	t.Helper()
	const looks, calm = 10, 0.15 // of all nodes together, of a core, above what they took before
	last := [3]float64{100}
	for range looks {
		_, cores := lookAt(ctx, t, c, 3*time.Second)
		if was, now := last[0]+last[1]+last[2], cores[0]+cores[1]+cores[2]; was-now < calm && now < 1 {
			return
		}
		last = cores
	}
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

// idleSource is three brokers that each lead a third of the partitions.
type idleSource struct {
	brokers *stub.Cluster
	topics  []string
	from    map[string]client.TopicMetadata
	n       int
}

func newIdleSource(t *testing.T, n, perTopic int) *idleSource {
	t.Helper()
	const brokers = 3
	s := &idleSource{n: n, from: map[string]client.TopicMetadata{}}
	var err error
	s.brokers, err = stub.Start(stub.Options{Brokers: brokers})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.brokers.Close()) })
	s.brokers.Update(func(state *stub.State) {
		for made := 0; made < n; made += perTopic {
			name, size := fmt.Sprintf("idle-%05d", made/perTopic), min(perTopic, n-made)
			topic := state.NewTopic(name, messages.NewTopicID(), size)
			for p, partition := range topic.Partitions {
				partition.Leader = int32((made + p) % brokers)
				partition.Fill(1)
			}
			s.topics = append(s.topics, name)
			s.from[name] = client.TopicMetadata{ID: topic.ID, Partitions: int32(size)}
		}
	})
	return s
}

// mirror starts the mirror and waits until every partition is MIRRORING and has all.
func (s *idleSource) mirror(ctx context.Context, t *testing.T, adm *client.Client, i *ClusterIdle) {
	t.Helper()
	bootstrap := s.brokers.Address()
	require.NoError(t, adm.CreateClusterMirror(ctx, failoverMirror, map[string]*string{"bootstrap.servers": &bootstrap}))
	begun := time.Now()
	for chunk := range slices.Chunk(s.topics, 100) {
		// Again, as an operator would, if the controller was lost or didn't answer in time.
		require.NoError(t, kafka.Poll(ctx, func() error {
			if time.Since(begun) > clusterTimeout {
				return nil // await tells what is missing
			}
			res, err := adm.StartMirrorTopics(ctx, failoverMirror, chunk, client.StartOptions{TopicMetadata: s.from})
			res = slices.DeleteFunc(res, func(r client.TopicResult) bool { return errors.Is(r.Err, messages.ErrTopicInMirror) }) // by the request before
			if err = errors.Join(err, res.Err()); err != nil {
				t.Logf("start is asked for again: %v", err)
			}
			return err
		}))
	}
	i.StartAnswered = time.Since(begun)
	t.Logf("start answered after %s", seconds(i.StartAnswered))
	i.Mirroring = s.await(ctx, t, adm, begun, func(p client.DescribedPartition) bool { return p.State == "MIRRORING" && p.LogEnd == 1 })
}

func (s *idleSource) stop(ctx context.Context, t *testing.T, adm *client.Client, i *ClusterIdle) {
	t.Helper()
	begun := time.Now()
	for chunk := range slices.Chunk(s.topics, 100) {
		res, err := adm.StopMirrorTopics(ctx, failoverMirror, chunk)
		require.NoError(t, err)
		require.NoError(t, res.Err())
	}
	t.Logf("stop answered after %s", seconds(time.Since(begun)))
	i.Stopped = s.await(ctx, t, adm, begun, func(p client.DescribedPartition) bool { return p.State == "STOPPED" })
}

// await asks for all partitions until they are as wanted. Asking takes time itself, so
// it waits three times as long as the last answer took in between.
func (s *idleSource) await(ctx context.Context, t *testing.T, adm *client.Client, begun time.Time, ok func(client.DescribedPartition) bool) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, clusterTimeout, errors.New("it takes too long"))
	defer cancel()
	const stuck = 90 * time.Second
	told, best, bestAt := begun, 0, begun
	for {
		asked := time.Now()
		partitions, err := e2e.Partitions(ctx, adm, failoverMirror)
		since := time.Since(begun)
		require.NoError(t, context.Cause(ctx))
		good, states := 0, map[string]int{}
		for _, p := range partitions {
			if states[p.State]++; ok(p) {
				good++
			}
		}
		if good > best {
			best, bestAt = good, time.Now()
		}
		require.Less(t, time.Since(bestAt), stuck, "nothing moves: %d of %d, %v, %v", good, s.n, states, err)
		if err == nil && good == s.n {
			t.Logf("all of %d after %s", good, seconds(since))
			return since
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			t.Logf("%d of %d after %s: %v (%v, asked for %s)", good, s.n, seconds(since), states, err, seconds(time.Since(asked)))
		}
		require.NoError(t, pause(ctx, max(50*time.Millisecond, 3*time.Since(asked))))
	}
}
