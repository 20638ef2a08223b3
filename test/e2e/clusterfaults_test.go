package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/test/kafka"
)

// clusterRounds are the faults that a cluster lives through: as many as
// KAGAMI_CLUSTER_ROUNDS says, from the one with number KAGAMI_CLUSTER_FIRST on (from
// 1, the default). 4 have every role, 12 every fault of every role. Not set: 2, a
// kill -9 and a SIGSTOP.
func clusterRounds(t *testing.T) (first, rounds int) {
	t.Helper()
	number := func(name string, otherwise int) int {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.Atoi(text)
		require.NoError(t, err, name)
		return n
	}
	return number("KAGAMI_CLUSTER_FIRST", 1), number("KAGAMI_CLUSTER_ROUNDS", 2)
}

// Roles that a node can be hit in, and what hits it.
var (
	clusterRoles  = []string{"leader", "coordinator", "controller", "journal"}
	clusterFaults = []string{"kill -9", "SIGSTOP", "cut"}
)

// holder finds the node that has a role now. The leader is that of the topic's
// partition 0, the journal one that of the stream of that partition's shard.
func (w *world) holder(role, mirror, topic string) int {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	var node int
	require.NoError(w.t, kafka.Poll(ctx, func() (err error) {
		node, err = w.askHolder(ctx, role, mirror, topic)
		if err == nil && node < 1 {
			err = fmt.Errorf("nobody is the %s", role)
		}
		return err
	}))
	return node
}

func (w *world) askHolder(ctx context.Context, role, mirror, topic string) (int, error) {
	switch role {
	case "leader":
		d, err := w.b.Topic(ctx, topic)
		return int(d.Partitions[0].Leader), err
	case "coordinator":
		d, err := w.b.Topic(ctx, messages.MirrorStateTopic)
		if err != nil {
			return 0, err
		}
		shard := messages.CoordinatorShard(mirror, int32(len(d.Partitions)))
		return int(d.Partitions[shard].Leader), nil
	case "controller":
		m, err := w.b.Admin.BrokerMetadata(ctx)
		return int(m.Controller), err
	default:
		rows, err := w.nodes.Node(w.nodes.Running()[0]).Query(ctx, "journal")
		if err != nil {
			return 0, err
		}
		leads := map[int]int{}
		for _, row := range rows {
			if leader, ok := row["streamLeader"].(float64); ok && leader > 0 {
				leads[int(leader)]++
			}
		}
		best := 0
		for id, n := range leads {
			if n > leads[best] {
				best = id
			}
		}
		return best, nil
	}
}

// hit carries out a fault, waits until the two nodes that are left lead everything
// and fetch, undoes the fault, and waits until the node is in sync everywhere.
func (w *world) hit(fault string, id int, mirror string, mirrored, written []string) healed {
	w.t.Helper()
	began := time.Now()
	node := w.nodes.Node(id)
	undo := func() {}
	switch fault {
	case "kill -9":
		require.NoError(w.t, node.Kill9())
		undo = func() { require.NoError(w.t, w.nodes.Start(w.ctx, id)) }
	case "SIGSTOP":
		require.NoError(w.t, w.nodes.Pause(id))
		undo = func() { require.NoError(w.t, w.nodes.Continue(id)) }
	case "cut":
		require.NoError(w.t, w.nodes.Cut(id))
		undo = func() { require.NoError(w.t, w.nodes.Heal(id)) }
	}
	all := slices.Concat([]string{messages.MirrorStateTopic}, mirrored, written)
	alive := w.nodes.Others(id)
	w.ledAt(alive, all...)
	out := healed{led: time.Since(began)}
	w.growing(mirror, alive, mirrored...)
	out.fetching = time.Since(began)
	w.through(alive, func(w *world) { w.describes(mirror, "MIRRORING", math.MaxInt64, mirrored...) })
	out.described = time.Since(began)
	undone := time.Now()
	undo()
	w.inSync(all, w.nodes.IDs()...)
	out.inSync = time.Since(undone)
	return out
}

// healed tells how long a fault lasted for the nodes that were left: until all
// partitions were led, fetching again, and described as such to clients; and how long
// the node took to be in sync after the fault.
type healed struct{ led, fetching, described, inSync time.Duration }

func (h healed) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("led after %v, fetching %v, described %v; in sync %v after the fault", ms(h.led), ms(h.fetching), ms(h.described), ms(h.inSync))
}

// ledAt waits until each of the nodes tells that one of them leads each partition.
func (w *world) ledAt(ids []int, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	for _, id := range ids {
		require.NoError(w.t, w.poll(ctx, func() error {
			leaders, err := w.nodes.Node(id).Leaders(ctx, topics...)
			if err != nil {
				return fmt.Errorf("node %d: %w", id, err)
			}
			for _, topic := range topics {
				for p, leader := range leaders[topic] {
					if !slices.Contains(ids, int(leader)) {
						return fmt.Errorf("node %d says that %s-%d is led by node %d, want one of %v", id, topic, p, leader, ids)
					}
				}
			}
			return nil
		}))
	}
}

// growing waits until every partition of the topics has got more from its source,
// which must be under load, as one of the nodes knows it.
func (w *world) growing(mirror string, ids []int, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	first := map[string]int64{}
	require.NoError(w.t, w.poll(ctx, func() error {
		rows, err := w.nodes.Node(ids[0]).MirrorRows(ctx, mirror)
		if err != nil {
			return err
		}
		var behind error
		for _, row := range rows {
			if !slices.Contains(topics, row.Topic) {
				continue
			}
			at := fmt.Sprintf("%s-%d", row.Topic, row.Partition)
			if row.End < 0 || !slices.Contains(ids, row.Leader) {
				behind = fmt.Errorf("%s, of node %d: %s", at, row.Leader, row.Error)
				continue
			}
			if _, ok := first[at]; !ok {
				first[at] = row.End
			}
			if row.State != "MIRRORING" || row.End <= first[at] {
				behind = fmt.Errorf("%s of node %d is %s at %d, was at %d: %s", at, row.Leader, row.State, row.End, first[at], row.Error)
			}
		}
		return behind
	}))
}

// through runs f with clients that know only some nodes: those that are cut off or
// paused answer with what they knew, or not at all.
func (w *world) through(ids []int, f func(w *world)) {
	w.t.Helper()
	some := *w
	var err error
	some.b, err = NewSide("B", w.nodes.BootstrapOf(ids...))
	require.NoError(w.t, err)
	defer some.b.Close()
	some.adm, err = w.nodes.AdminOf(ids...)
	require.NoError(w.t, err)
	defer some.adm.Close()
	f(&some)
}

// inSync waits until the ISR of every partition of the topics is these nodes.
func (w *world) inSync(topics []string, ids ...int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		for _, topic := range topics {
			d, err := w.b.Topic(ctx, topic)
			if err != nil {
				return err
			}
			for p, detail := range d.Partitions {
				if len(detail.ISR) != len(ids) {
					return fmt.Errorf("%s-%d: in sync are %v, want %v", topic, p, detail.ISR, ids)
				}
			}
		}
		return nil
	}))
}

// TestClusterFaults is K8 and K9 with a history: a mirror of real Kafka under load, read
// by groups of Java's and librdkafka's clients, producers and readers on a STOPPED topic;
// node after node is killed, paused for longer than the cluster waits for it, or cut off,
// in every role; in the middle each is restarted twice, in turn. In the end everything is
// equal and nothing that anybody was told is untrue.
func TestClusterFaults(t *testing.T) {
	first, rounds := clusterRounds(t)
	seed := killSeed(t)
	t.Logf("repeat with KAGAMI_CLUSTER_FIRST=%d KAGAMI_CLUSTER_ROUNDS=%d KAGAMI_KILL_SEED=%d go test -run TestClusterFaults ./test/e2e", first, rounds, seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	w := newClusterWorld(t, ClusterOptions{})
	mirrored, written := []string{"cf-a", "cf-b"}, []string{"cf-stopped"}
	for _, topic := range slices.Concat(mirrored, written) {
		w.topic(topic, 3, 2, "segment.bytes=1048576")
	}
	w.create("m")
	w.start("m", slices.Concat(mirrored, written)...)
	w.run("--stop", "--mirror", "m", "--topics", written[0])
	w.await("m", "STOPPED", written...)
	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: mirrored, Size: 300, Pause: 20 * time.Millisecond, Burst: 6})
	require.NoError(t, err)
	readers := w.startReaders(mirrored...)
	epochs := w.watchClusterEpochs("m", mirrored...)
	defer epochs.stop()
	detail, err := w.b.Topic(w.ctx, written[0])
	require.NoError(t, err)
	history, err := StartHistory(w.nodes, detail)
	require.NoError(t, err)
	defer history.Stop()
	for i := first - 1; i < first-1+rounds; i++ {
		if i == first-1+rounds/2 {
			w.rolling(2, history, slices.Concat(mirrored, written)...)
		}
		w.fetching("m", mirrored...)
		w.runFor(time.Duration(rng.IntN(500)) * time.Millisecond)
		role, fault := clusterRoles[i%len(clusterRoles)], clusterFaults[(i+i/len(clusterRoles))%len(clusterFaults)]
		id := w.holder(role, "m", mirrored[0])
		t.Logf("round %d: %s of the %s, node %d", i+1, fault, role, id)
		history.Gap()
		t.Logf("round %d: %v, a producer waited for %v; %s", i+1, w.hit(fault, id, "m", mirrored, written), history.Gap(), history.Counts())
		w.owners()
		readers.committed()
	}
	w.fetching("m", mirrored...)
	require.NoError(t, load.Stop())
	w.describes("m", "MIRRORING", 0, mirrored...)
	w.equal(mirrored...)
	readers.everything()
	epochs.check(t)
	require.NoError(t, history.Check(w.ctx, w.b))
	t.Log(history.Counts())
	w.replicas(3, slices.Concat([]string{messages.MirrorStateTopic}, mirrored, written)...)
	w.owners()
	w.run("--stop", "--mirror", "m", "--topics", strings.Join(mirrored, ","))
	w.await("m", "STOPPED", mirrored...)
}

// rolling restarts every node, one after the other, so many times.
func (w *world) rolling(times int, history *History, topics ...string) {
	w.t.Helper()
	for range times {
		for _, id := range w.nodes.IDs() {
			history.Gap()
			began := time.Now()
			require.NoError(w.t, w.nodes.Node(id).Stop(), "node %d", id)
			stopped := time.Since(began)
			require.NoError(w.t, w.nodes.Start(w.ctx, id))
			serves := time.Since(began)
			w.inSync(topics, w.nodes.IDs()...)
			w.t.Logf("rolling restart of node %d: ended after %v, served after %v, in sync after %v, a producer waited for %v", id, stopped.Round(time.Millisecond), serves.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), history.Gap())
		}
	}
}
