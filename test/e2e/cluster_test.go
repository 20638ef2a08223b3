package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/test/kafka"
)

// healTimeout bounds the wait until a cluster works again after a loss; Raft alone
// takes up to 9 s where a journal's leader is lost, and the machine may be busy.
const healTimeout = 90 * time.Second

// newClusterWorld is a world with a cluster instead of one node.
func newClusterWorld(t *testing.T, opts ClusterOptions) *world {
	t.Helper()
	return clusterWorldOf(t, sourceOf(t), StartCluster(t, opts))
}

func clusterWorldOf(t *testing.T, source *kafka.Cluster, nodes *Cluster) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTestTimeout)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, source: source, nodes: nodes}
	var err error
	w.adm, err = nodes.Admin()
	require.NoError(t, err)
	t.Cleanup(w.adm.Close)
	if source != nil {
		w.a, err = NewSide("A", source.Bootstrap())
		require.NoError(t, err)
		t.Cleanup(w.a.Close)
	}
	w.b, err = nodes.Side()
	require.NoError(t, err)
	t.Cleanup(w.b.Close)
	return w
}

// clusterTestTimeout bounds a test with a cluster.
const clusterTestTimeout = 20 * time.Minute

// replicas waits until every replica of the topics is equal.
func (w *world) replicas(want int, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, w.nodes.AwaitReplicas(ctx, w.b, want, topics...))
}

// led waits until all partitions of the topics are led by nodes of the list, and
// returns the leaders, by topic and partition.
func (w *world) led(topics []string, by ...int) map[string][]int32 {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	out := map[string][]int32{}
	require.NoError(w.t, w.poll(ctx, func() error {
		for _, topic := range topics {
			d, err := w.b.Topic(ctx, topic)
			if err != nil {
				return err
			}
			leaders := make([]int32, len(d.Partitions))
			for p, detail := range d.Partitions {
				if !slices.Contains(by, int(detail.Leader)) {
					return fmt.Errorf("%s-%d is led by node %d, want one of %v", topic, p, detail.Leader, by)
				}
				leaders[p] = detail.Leader
			}
			out[topic] = leaders
		}
		return nil
	}))
	return out
}

// describes waits until every partition of the mirror's topics is in the state and
// within a number of records of its source.
func (w *world) describes(mirror, state string, lagMax int64, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		ps, err := w.partitionsOf(ctx, mirror)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, p := range ps {
			if !slices.Contains(topics, p.Topic) {
				continue
			}
			seen[p.Topic] = true
			if p.State != state || p.Lag > lagMax {
				return fmt.Errorf("%s-%d is %s with lag %d (%s)", p.Topic, p.Partition, p.State, p.Lag, p.ErrorText)
			}
		}
		if len(seen) != len(topics) {
			return fmt.Errorf("the mirror shows %v of %v", slices.Collect(maps.Keys(seen)), topics)
		}
		return nil
	}))
}

// partitionsOf describes a mirror; nobody waits longer than for a busy machine.
func (w *world) partitionsOf(ctx context.Context, mirror string) ([]client.DescribedPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	return Partitions(ctx, w.adm, mirror)
}

// owners: in every node's metadata log each (partition, epoch) has one owner, and
// the logs agree.
func (w *world) owners() {
	w.t.Helper()
	for _, id := range w.nodes.IDs() {
		seen, err := w.nodes.Node(id).Owners()
		require.NoError(w.t, err, "node %d", id)
		require.Positive(w.t, seen)
	}
	require.NoError(w.t, w.nodes.SameMetadata(w.nodes.IDs()...))
}

// kill9 kills a node and waits until another one leads each partition of the topics
// and fetches. It returns how long that took.
func (w *world) kill9(mirror string, id int, topics ...string) time.Duration {
	w.t.Helper()
	began := time.Now()
	require.NoError(w.t, w.nodes.Node(id).Kill9())
	w.led(topics, w.nodes.Others(id)...)
	w.fetching(mirror, topics...)
	return time.Since(began)
}

// poll is kafka.Poll. With KAGAMI_CLUSTER_TRACE it tells what is waited for, each
// time that changes.
func (w *world) poll(ctx context.Context, f func() error) error {
	w.t.Helper()
	if os.Getenv("KAGAMI_CLUSTER_TRACE") == "" {
		return kafka.Poll(ctx, f)
	}
	began, last := time.Now(), ""
	return kafka.Poll(ctx, func() error {
		asked := time.Now()
		err := f()
		if text := fmt.Sprint(err); text != last {
			last = text
			w.t.Logf("%s after %v, asked for %v: %.300s", time.Now().UTC().Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), time.Since(asked).Round(time.Millisecond), text)
		}
		return err
	})
}

// fetching waits until every partition of the topics has got more from its source,
// which must be under load. Positions count from the call on.
func (w *world) fetching(mirror string, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	type at struct {
		topic     string
		partition int32
	}
	first := map[at]int64{}
	require.NoError(w.t, w.poll(ctx, func() error {
		ps, err := w.partitionsOf(ctx, mirror)
		if err != nil {
			return err
		}
		var behind error
		count := 0
		for _, p := range ps {
			if !slices.Contains(topics, p.Topic) {
				continue
			}
			count++
			k := at{p.Topic, p.Partition}
			if p.DestinationOffset < 0 {
				behind = fmt.Errorf("%s-%d: %s", p.Topic, p.Partition, p.ErrorText)
				continue
			}
			if _, ok := first[k]; !ok {
				first[k] = p.DestinationOffset
			}
			if p.State != "MIRRORING" || p.DestinationOffset <= first[k] {
				behind = fmt.Errorf("%s-%d is %s at %d, was at %d", p.Topic, p.Partition, p.State, p.DestinationOffset, first[k])
			}
		}
		if behind == nil && count == 0 {
			return errors.New("no partition is described")
		}
		return behind
	}))
}

// TestClusterMirror: real Kafka under load is mirrored by three nodes; one of them
// dies (kill -9) and comes back; clients of three kinds read the mirror, through the
// two that are left too; after the failover producers write, and every replica is
// equal in the end.
func TestClusterMirror(t *testing.T) {
	w := newClusterWorld(t, ClusterOptions{})
	topics := []string{"cm-a", "cm-b"}
	for _, topic := range topics {
		w.topic(topic, 3, 1, "segment.bytes=1048576")
	}
	w.create("m")
	w.start("m", topics...)
	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: topics, Size: 300, Pause: 10 * time.Millisecond, Burst: 9})
	require.NoError(t, err)
	w.fetching("m", topics...)
	leaders := w.led(topics, w.nodes.IDs()...)
	dead := int(leaders[topics[0]][0])
	t.Logf("leaders %v, node %d is killed", leaders, dead)
	t.Logf("led and fetching again after %v", w.kill9("m", dead, topics...))
	require.NoError(t, load.Stop())
	w.describes("m", "MIRRORING", 0, topics...)
	w.equal(topics...)
	alive := w.nodes.BootstrapOf(w.nodes.Others(dead)...)
	t.Run("kcat", func(t *testing.T) {
		kafka.RequireProgram(t, "kcat")
		for _, topic := range topics {
			w.same("kcat "+topic, w.kcat(w.source.Bootstrap(), topic, "read_committed"), w.kcat(alive, topic, "read_committed"))
		}
	})
	for _, topic := range topics {
		w.same("kgo "+topic, w.kgoRead(w.source.Bootstrap(), topic, kgo.ReadCommitted()), w.kgoRead(alive, topic, kgo.ReadCommitted()))
	}
	count := len(w.kgoRead(alive, topics[0], kgo.ReadCommitted())[0])
	w.same("console", w.console(w.source.Bootstrap(), topics[0], 0, "read_committed", count), w.console(alive, topics[0], 0, "read_committed", count))

	w.run("--stop", "--mirror", "m", "--topics", strings.Join(topics, ","))
	w.await("m", "STOPPED", topics...)
	require.NoError(t, Produce(w.ctx, alive, topics[0], Records{Count: 100, Seed: 3}))
	require.NoError(t, w.nodes.Start(w.ctx, dead))
	w.replicas(3, topics...)
	require.NoError(t, Produce(w.ctx, w.nodes.Bootstrap(), topics[1], Records{Count: 100, Seed: 4}))
	w.replicas(3, append([]string{"__mirror_state"}, topics...)...)
	w.owners()
	d, err := w.adm.DescribeClusterMirrors(w.ctx, []string{"m"}, client.DescribeOptions{})
	require.NoError(t, err)
	require.Len(t, d.Mirrors["m"].Partitions, 6)
}
