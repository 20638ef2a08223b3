package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/messages"
	"kagami/test/kafka"
)

// txnClusterFaults are what three nodes live through under transactions, in order of
// rounds. A point ends the process of the node that reaches it. What a producer of
// transactions meets is the same for each node, so a point is armed on the node that
// leads most.
var txnClusterFaults = []string{
	"die at marker.data.COMMIT.before",
	"SIGSTOP of the coordinator",
	"kill -9 of the coordinator",
	"die at transactions.store(PrepareCommit).after",
	"kill -9 of the leader",
	"move leaders",
	"die at marker.data.COMMIT.after",
	"die at marker.offsets.COMMIT.before",
	"rolling restart",
	"die at groups.store(COMMIT).after",
	"SIGSTOP of the leader",
	"die at transactions.store(CompleteCommit).before",
	"die at groups.store(pending offset).after",
	"cut of the coordinator",
	"die at transactions.markers.before",
	"die at marker.data.ABORT.before",
	"kill -9 of the group's coordinator",
	"die at transactions.store(Ongoing).after",
	"die at transactions.markers.after",
	"SIGSTOP of the group's coordinator",
	"cut of the leader",
	"die at transactions.store(PrepareAbort).after",
	"die at marker.offsets.COMMIT.after",
	"kill -9 of all",
}

// txnRounds: KAGAMI_TXN_CLUSTER_ROUNDS of the faults, from number KAGAMI_TXN_CLUSTER_FIRST
// on (from 1). Not set: one of them, drawn.
func txnRounds(t *testing.T, seed uint64) (first, rounds int) {
	t.Helper()
	number := func(name string, otherwise int) int {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			require.NoError(t, err, name)
			return n
		}
		return otherwise
	}
	return number("KAGAMI_TXN_CLUSTER_FIRST", 1+int(seed%uint64(len(txnClusterFaults)))), number("KAGAMI_TXN_CLUSTER_ROUNDS", 1)
}

// txnWorld is three nodes under transactions.
type txnWorld struct {
	*world
	history *TxnHistory
	groups  *GroupHistory
	topics  []string
}

// TestClusterTransactions (and groups): nodes are killed in the middle of transactions, paused, cut off
// and restarted, under members of a group that consume, transform and produce exactly once,
// and producers of wide transactions, beside groups of both protocols whose members come
// and go. In the end every transaction is whole or not there,
// nothing hangs, and all replicas are equal. KAGAMI_TXN_PROTOCOL=consumer has the group
// be one of the consumer protocol, KAGAMI_TXN_NATS=external the nodes be on NATS servers of
// somebody else.
func TestClusterTransactions(t *testing.T) {
	seed := killSeed(t)
	first, rounds := txnRounds(t, seed)
	t.Logf("repeat with KAGAMI_TXN_CLUSTER_FIRST=%d KAGAMI_TXN_CLUSTER_ROUNDS=%d KAGAMI_KILL_SEED=%d go test -run TestClusterTransactions ./test/e2e", first, rounds, seed)
	rng := rand.New(rand.NewPCG(seed, 11))
	nodes := startTxnNodes(t, map[string]string{
		"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "100",
	})
	w := &txnWorld{world: clusterWorldOf(t, nil, nodes), topics: []string{txnIn, txnOut, txnWide, messages.TransactionStateTopic, messages.ConsumerOffsetsTopic}}
	w.createTopics(3, txnIn, txnOut, txnWide, groupIn)
	var err error
	w.history, err = StartTxnHistory(nodes.Bootstrap(), TxnHistoryOptions{
		Partitions: 3, Transformers: 3, Writers: 3, Timeout: 12 * time.Second, Next: os.Getenv("KAGAMI_TXN_PROTOCOL") == "consumer",
	})
	require.NoError(t, err)
	defer w.history.Stop()
	w.groups, err = StartGroupHistory(nodes.Bootstrap(), 3, false)
	require.NoError(t, err)
	defer w.groups.Stop()
	w.working()
	for i := first - 1; i < first-1+rounds; i++ {
		w.runFor(time.Duration(rng.IntN(500)) * time.Millisecond)
		fault := txnClusterFaults[i%len(txnClusterFaults)]
		began := time.Now()
		what := w.hitTxns(fault, 1+rng.IntN(12))
		t.Logf("round %d: %s, %s; over after %v, %s", i+1, fault, what, time.Since(began).Round(time.Millisecond), w.history.Counts())
	}
	require.NoError(t, w.groups.Check(w.ctx, w.b))
	require.NoError(t, w.history.Check(w.ctx, w.b))
	t.Logf("%s; %d offsets of groups", w.history.Counts(), w.groups.Acked())
	w.replicas(3, w.topics...)
	w.owners()
}

// createTopics makes topics and waits until each node serves them.
func (w *world) createTopics(partitions int32, topics ...string) {
	w.t.Helper()
	created, err := w.b.Admin.CreateTopics(w.ctx, partitions, -1, nil, topics...)
	require.NoError(w.t, err)
	require.NoError(w.t, created.Error())
	w.ledAt(w.nodes.IDs(), topics...)
}

// working waits until more transactions are committed.
func (w *txnWorld) working() {
	w.t.Helper()
	at, acked := w.history.Committed(), w.groups.Acked()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		if n := w.history.Committed(); n < at+10 {
			return fmt.Errorf("%d transactions are committed, %d were: %s", n, at, w.history.Counts())
		}
		if n := w.groups.Acked(); n < acked+10 {
			return fmt.Errorf("%d offsets of groups are committed, %d were", n, acked)
		}
		return nil
	}))
}

// hitTxns carries out a fault, waits until transactions go on without what it took, and
// undoes it.
func (w *txnWorld) hitTxns(fault string, n int) string {
	w.t.Helper()
	kind, role, _ := strings.Cut(fault, " of the ")
	switch point, dies := strings.CutPrefix(fault, "die at "); {
	case dies:
		return w.dieAt(point, n)
	case kind == "cut" && externalNATS():
		return "left out: nodes talk by servers that aren't cut"
	case fault == "move leaders":
		w.moveLeaders(n)
		w.working()
		return "all partitions"
	case fault == "rolling restart":
		for _, id := range w.nodes.IDs() {
			w.restart(id)
		}
		w.working()
		return "each node"
	case fault == "kill -9 of all":
		for _, id := range w.nodes.IDs() {
			require.NoError(w.t, w.nodes.Node(id).Kill9())
		}
		require.NoError(w.t, w.nodes.Start(w.ctx, w.nodes.IDs()...))
		w.inSync(w.topics, w.nodes.IDs()...)
		w.working()
		return "and started again"
	default:
		id := w.txnHolder(role)
		undo := w.strike(kind, id)
		w.ledAt(w.nodes.Others(id), w.topics...)
		w.working()
		undo()
		w.inSync(w.topics, w.nodes.IDs()...)
		w.elect()
		return fmt.Sprintf("node %d", id)
	}
}

// strike takes a node away and returns what brings it back.
func (w *world) strike(fault string, id int) (undo func()) {
	w.t.Helper()
	switch fault {
	case "kill -9":
		require.NoError(w.t, w.nodes.Node(id).Kill9())
		return func() { require.NoError(w.t, w.nodes.Start(w.ctx, id)) }
	case "SIGSTOP":
		require.NoError(w.t, w.nodes.Pause(id))
		return func() { require.NoError(w.t, w.nodes.Continue(id)) }
	case "cut":
		require.NoError(w.t, w.nodes.Cut(id))
		return func() { require.NoError(w.t, w.nodes.Heal(id)) }
	}
	w.t.Fatalf("no fault %q", fault)
	return nil
}

// txnHolder finds the node that has a role: coordinator is that of the first
// transformer, leader that of partition 0 of the output.
func (w *txnWorld) txnHolder(role string) int {
	w.t.Helper()
	topic, partition := txnOut, int32(0)
	switch role {
	case "coordinator":
		topic, partition = messages.TransactionStateTopic, messages.CoordinatorShard("transformer-0", 3)
	case "group's coordinator":
		topic, partition = messages.ConsumerOffsetsTopic, messages.CoordinatorShard(txnGroup, 3)
	}
	var leader int
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		d, err := w.b.Topic(ctx, topic)
		if err == nil {
			if leader = int(d.Partitions[partition].Leader); leader < 1 {
				err = errors.New("nobody leads " + topic)
			}
		}
		return err
	}))
	return leader
}

// restart stops a node cleanly and waits until it is in sync again.
func (w *txnWorld) restart(id int, env ...string) {
	w.t.Helper()
	require.NoError(w.t, w.nodes.Node(id).Stop())
	w.nodes.Node(id).SetEnv(env...)
	require.NoError(w.t, w.nodes.Start(w.ctx, id))
	w.inSync(w.topics, w.nodes.IDs()...)
	w.elect()
}

// dieAt has a node end itself where it reaches a point for the n-th time.
func (w *txnWorld) dieAt(point string, n int) string {
	w.t.Helper()
	role := "leader"
	switch {
	case strings.Contains(point, "groups"), strings.Contains(point, "offsets"):
		role = "group's coordinator"
	case strings.Contains(point, "transactions"):
		role = "coordinator"
	}
	id := w.txnHolder(role)
	node := w.nodes.Node(id)
	require.NoError(w.t, node.Stop())
	node.SetEnv(fmt.Sprintf("KAGAMI_FAULT_POINT=%s:%d", point, n))
	// It may die before it is ready.
	if err := w.nodes.Start(w.ctx, id); err != nil && node.process.Running() {
		require.NoError(w.t, err)
	}
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		if node.process.Running() {
			w.elect() // it has to lead again
			return fmt.Errorf("node %d hasn't reached %s", id, point)
		}
		return nil
	}))
	w.ledAt(w.nodes.Others(id), w.topics...)
	w.working()
	node.SetEnv()
	require.NoError(w.t, w.nodes.Start(w.ctx, id))
	w.inSync(w.topics, w.nodes.IDs()...)
	w.elect()
	return fmt.Sprintf("node %d, time %d", id, n)
}

// elect has preferred leaders lead, as far as they can.
func (w *txnWorld) elect() {
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	var set kadm.TopicsSet
	for _, topic := range w.topics {
		for p := range int32(3) {
			set.Add(topic, p)
		}
	}
	_, _ = w.b.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set) // who isn't in sync stays as it is
}

// moveLeaders turns the replicas of each partition and elects the first, so many times,
// while transactions run.
func (w *txnWorld) moveLeaders(times int) {
	w.t.Helper()
	for range times {
		var req kadm.AlterPartitionAssignmentsReq
		for _, topic := range w.topics {
			d, err := w.b.Topic(w.ctx, topic)
			require.NoError(w.t, err)
			for p, detail := range d.Partitions {
				req.Assign(topic, p, slices.Concat(detail.Replicas[1:], detail.Replicas[:1]))
			}
		}
		got, err := w.b.Admin.AlterPartitionAssignments(w.ctx, req)
		require.NoError(w.t, err)
		require.NoError(w.t, got.Error())
		w.elect()
		w.runFor(700 * time.Millisecond)
	}
}
