package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/test/kafka"
)

// clusterRounds is how many faults a cluster lives through, as KAGAMI_CLUSTER_ROUNDS
// says: 4 have every role, 12 every fault of every role. Not set: 2, a kill -9 and a
// SIGSTOP.
func clusterRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KAGAMI_CLUSTER_ROUNDS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "KAGAMI_CLUSTER_ROUNDS")
	return n
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
func (w *world) hit(fault string, id int, mirror string, mirrored, written []string) time.Duration {
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
		w.nodes.Cuts.Cut(id)
		undo = func() { w.nodes.Cuts.Heal(id) }
	}
	alive := w.nodes.Others(id)
	w.through(alive, func(w *world) {
		w.led(append(append([]string{messages.MirrorStateTopic}, mirrored...), written...), alive...)
		w.fetching(mirror, mirrored...)
	})
	took := time.Since(began)
	undo()
	w.inSync(append(append([]string{messages.MirrorStateTopic}, mirrored...), written...), w.nodes.IDs()...)
	return took
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

// TestClusterFaults is K8 and K9 with a history: a mirror of real Kafka under load,
// producers and readers on a STOPPED topic; node after node is killed, paused for
// longer than the cluster waits for it, or cut off, in every role; at last each is
// restarted twice, in turn. In the end everything is equal and nothing that anybody
// was told is untrue.
func TestClusterFaults(t *testing.T) {
	rounds, seed := clusterRounds(t), killSeed(t)
	t.Logf("repeat with KAGAMI_CLUSTER_ROUNDS=%d KAGAMI_KILL_SEED=%d go test -run TestClusterFaults ./test/e2e", rounds, seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	w := newClusterWorld(t, ClusterOptions{})
	mirrored, written := []string{"cf-a", "cf-b"}, []string{"cf-stopped"}
	for _, topic := range append(mirrored, written...) {
		w.topic(topic, 3, 1, "segment.bytes=1048576")
	}
	w.create("m")
	w.start("m", append(mirrored, written...)...)
	w.run("--stop", "--mirror", "m", "--topics", written[0])
	w.await("m", "STOPPED", written...)
	load, err := StartLoad(w.source.Bootstrap(), LoadOptions{Topics: mirrored, Size: 300, Pause: 10 * time.Millisecond, Burst: 6})
	require.NoError(t, err)
	detail, err := w.b.Topic(w.ctx, written[0])
	require.NoError(t, err)
	history, err := StartHistory(w.nodes, detail)
	require.NoError(t, err)
	defer history.Stop()
	for i := range rounds {
		w.fetching("m", mirrored...)
		w.runFor(time.Duration(rng.IntN(500)) * time.Millisecond)
		role, fault := clusterRoles[i%len(clusterRoles)], clusterFaults[(i+i/len(clusterRoles))%len(clusterFaults)]
		id := w.holder(role, "m", mirrored[0])
		t.Logf("round %d: %s of the %s, node %d", i+1, fault, role, id)
		t.Logf("round %d: all led and fetching after %v; %s", i+1, w.hit(fault, id, "m", mirrored, written).Round(time.Millisecond), history.Counts())
	}
	for range 2 {
		for _, id := range w.nodes.IDs() {
			require.NoError(t, w.nodes.Node(id).Stop(), "node %d", id)
			require.NoError(t, w.nodes.Start(w.ctx, id))
			w.inSync(append(mirrored, written...), w.nodes.IDs()...)
		}
	}
	w.fetching("m", mirrored...)
	require.NoError(t, load.Stop())
	w.describes("m", "MIRRORING", 0, mirrored...)
	w.equal(mirrored...)
	require.NoError(t, history.Check(w.ctx, w.b))
	t.Log(history.Counts())
	w.replicas(3, append([]string{messages.MirrorStateTopic}, append(mirrored, written...)...)...)
	w.owners()
	w.run("--stop", "--mirror", "m", "--topics", strings.Join(mirrored, ","))
	w.await("m", "STOPPED", mirrored...)
}
