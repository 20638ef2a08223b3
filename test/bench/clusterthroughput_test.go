package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/test/e2e"
)

// TestClusterThroughput measures a mirror of three nodes, with three replicas of
// everything and with one, against one node and against the journal alone, and producers.
// The source is another Kagami. Settings: KAGAMI_BENCH_CLUSTER_MB (per topic, default 512),
// KAGAMI_BENCH_CLUSTER_PARTITIONS (of the mirrored topic, default 1,16,64; "none"),
// KAGAMI_BENCH_CLUSTER_PRODUCE (partitions, default 1,64; "none"),
// KAGAMI_BENCH_CLUSTER_WHO (of one node, three nodes, one replica, raw journal, by name;
// default all), KAGAMI_BENCH_CLUSTER_SETTINGS, KAGAMI_BENCH_PROFILE.
func TestClusterThroughput(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	b := &clusterBench{ctx: ctx}
	defer func() { b.runs.Write(os.Stdout); b.produced.Write(os.Stdout) }()
	if sizes := list(t, "KAGAMI_BENCH_CLUSTER_PARTITIONS", "1,16,64"); len(sizes) > 0 {
		t.Run("mirror", func(t *testing.T) { b.mirror(t, sizes, int64(number(t, "KAGAMI_BENCH_CLUSTER_MB", 512))<<20) })
	}
	if sizes := list(t, "KAGAMI_BENCH_CLUSTER_PRODUCE", "1,64"); len(sizes) > 0 {
		t.Run("produce", func(t *testing.T) { b.produce(t, sizes) })
	}
}

type clusterBench struct {
	ctx      context.Context
	runs     ClusterRuns
	produced ProducedTable
}

func wants(who string) bool {
	only := os.Getenv("KAGAMI_BENCH_CLUSTER_WHO")
	return only == "" || strings.Contains(only, who)
}

func (b *clusterBench) mirror(t *testing.T, sizes []int, bytes int64) {
	t.Helper()
	source := e2e.StartNode(t, e2e.NodeOptions{})
	a, err := source.Side()
	require.NoError(t, err)
	t.Cleanup(a.Close)
	for _, n := range sizes {
		topic := fmt.Sprintf("cluster-%d", n)
		_, err := a.Admin.CreateTopic(b.ctx, int32(n), 1, nil, topic)
		require.NoError(t, err)
		records := e2e.Records{Count: int(bytes / recordBytes), Size: recordBytes, PerFlush: 20_000}
		require.NoError(t, e2e.Produce(b.ctx, source.Bootstrap(), topic, records, kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(5*time.Millisecond)))
		for _, who := range []string{oneNode, threeNodes, oneReplica, rawJournal} {
			if wants(who) {
				t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(who, " ", "-"), n), func(t *testing.T) {
					run := Run{Who: who, Partitions: n, Bytes: bytes}
					if who == rawJournal {
						b.raw(t, &run)
					} else {
						b.copy(t, &run, a, source, topic)
					}
					b.runs = append(b.runs, run)
					t.Logf("%d partitions, %s: %.0f MB/s, %.1f CPU s/GB %s", n, who, run.MBps(), run.CPUPerGB(), run.Note)
				})
			}
		}
	}
}

func (b *clusterBench) raw(t *testing.T, run *Run) {
	t.Helper()
	const message, inFlight = 256 << 10, 8 // as the proposer gathers and sends ahead
	var err error
	run.Time, run.CPU, err = RawJournal(b.ctx, RawOptions{Dir: t.TempDir(), Streams: min(run.Partitions, 16), Bytes: run.Bytes, Message: message, InFlight: inFlight})
	require.NoError(t, err)
}

// nodesOf starts one node or three.
func nodesOf(t *testing.T, who string) []*e2e.Node {
	t.Helper()
	if who == oneNode {
		return []*e2e.Node{e2e.StartNode(t, e2e.NodeOptions{Properties: clusterProperties(nil)})}
	}
	more := map[string]string{}
	if who == oneReplica {
		more["default.replication.factor"] = "1"
	}
	c := e2e.StartCluster(t, e2e.ClusterOptions{Properties: clusterProperties(more)})
	var nodes []*e2e.Node
	for _, id := range c.IDs() {
		nodes = append(nodes, c.Node(id))
	}
	return nodes
}

func bootstrapOf(nodes []*e2e.Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Bootstrap())
	}
	return strings.Join(all, ",")
}

func (b *clusterBench) copy(t *testing.T, run *Run, a *e2e.Side, source *e2e.Node, topic string) {
	t.Helper()
	nodes := nodesOf(t, run.Who)
	adm, err := client.New(kgo.SeedBrokers(strings.Split(bootstrapOf(nodes), ",")...))
	require.NoError(t, err)
	defer adm.Close()
	side, err := e2e.NewSide("B", bootstrapOf(nodes))
	require.NoError(t, err)
	defer side.Close()
	bootstrap := source.Bootstrap()
	require.NoError(t, adm.CreateClusterMirror(b.ctx, "m", map[string]*string{"bootstrap.servers": &bootstrap}))
	detail, err := a.Topic(b.ctx, topic)
	require.NoError(t, err)
	before := cpuOf(t, nodes)
	for i, n := range nodes {
		defer profileNode(b.ctx, t, n, fmt.Sprintf("copy-%d-%d-of-%d", run.Partitions, i+1, len(nodes)))()
	}
	begun := time.Now()
	res, err := adm.StartMirrorTopics(b.ctx, "m", []string{topic}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{
		topic: {ID: [16]byte(detail.ID), Partitions: int32(len(detail.Partitions))},
	}})
	require.NoError(t, err)
	require.NoError(t, res.Err())
	require.NoError(t, e2e.AwaitEnds(b.ctx, a, side, topic))
	run.Time, run.CPU = time.Since(begun), cpuOf(t, nodes)-before
	var peak int64
	for _, n := range nodes {
		p, err := n.Process().MemoryPeak()
		require.NoError(t, err)
		peak = max(peak, p)
	}
	for i, n := range nodes {
		keepLog(t, n, fmt.Sprintf("copy-%d-%d-of-%d", run.Partitions, i+1, len(nodes)))
	}
	run.Note = fmt.Sprintf("peak %d MiB", peak>>20)
}

func (b *clusterBench) produce(t *testing.T, sizes []int) {
	t.Helper()
	for _, who := range []string{oneNode, threeNodes} {
		if !wants(who) {
			continue
		}
		t.Run(strings.ReplaceAll(who, " ", "-"), func(t *testing.T) {
			nodes := nodesOf(t, who)
			side, err := e2e.NewSide("B", bootstrapOf(nodes))
			require.NoError(t, err)
			defer side.Close()
			for _, n := range sizes {
				topic := fmt.Sprintf("produce-%d", n)
				_, err := side.Admin.CreateTopic(b.ctx, int32(n), int16(len(nodes)), nil, topic)
				require.NoError(t, err)
				profiled := profileNode(b.ctx, t, nodes[0], fmt.Sprintf("produce-%d-of-%d", n, len(nodes)))
				p, err := ProduceSmall(b.ctx, bootstrapOf(nodes), topic, func() time.Duration { return cpuOf(t, nodes) })
				require.NoError(t, err)
				profiled()
				p.Who, p.Partitions = who, n
				b.produced = append(b.produced, p)
				t.Logf("%+v", p)
			}
		})
	}
}
