package cluster

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence"
)

// brokenLogs is a store of logs, some of which can't be opened or synced.
type brokenLogs struct {
	LogStore

	unopened, unsynced atomic.Pointer[string] // topics
}

var errBrokenDisk = errors.New("the disk is broken")

func (b *brokenLogs) over(l LogStore) *brokenLogs {
	b.LogStore = l
	return b
}

func (b *brokenLogs) Open(ctx context.Context, tp messages.TopicPartition, cfg persistence.Config) (persistence.Log, error) {
	if name := b.unopened.Load(); name != nil && *name == tp.Topic {
		return nil, errBrokenDisk
	}
	l, err := b.LogStore.Open(ctx, tp, cfg)
	return &brokenLog{l, b, tp.Topic}, err
}

func (b *brokenLogs) Create(ctx context.Context, info persistence.Info, cfg persistence.Config) (persistence.Log, error) {
	l, err := b.LogStore.Create(ctx, info, cfg)
	return &brokenLog{l, b, info.TopicPartition.Topic}, err
}

type brokenLog struct {
	persistence.Log
	of    *brokenLogs
	topic string
}

func (l *brokenLog) Flush() error {
	if name := l.of.unsynced.Load(); name != nil && *name == l.topic {
		return errBrokenDisk
	}
	return l.Log.Flush()
}

// crash ends the node so that its folder is what it was when it was called.
func (n *severalNode) crash() {
	n.s.t.Helper()
	was := n.s.t.TempDir()
	require.NoError(n.s.t, os.CopyFS(was, os.DirFS(n.folder)))
	n.stop()
	n.folder = was
}

// needs is what a node needs of a topic's shard.
func (n *severalNode) needs(id byte) uint64 {
	key := messages.PartitionKey{TopicID: messages.TopicID{id}}
	return n.journal.Progress()[ShardOf(key, severalShards)][1]
}

// goesOn waits until the journal's shards have some more messages, and makes checkpoints.
func (n *severalNode) goesOn() {
	n.s.t.Helper()
	for id, s := range n.journal.shards {
		at := s.applied.Load()
		require.Eventually(n.s.t, func() bool { return s.applied.Load() > at+2 }, 20*time.Second, time.Millisecond, "shard %d", id)
	}
	require.NoError(n.s.t, n.journal.Checkpoint())
}

func (n *severalNode) leads(topic string) {
	n.s.t.Helper()
	require.Eventually(n.s.t, func() bool {
		r, err := n.replicas.Get(messages.TopicPartition{Topic: topic})
		return err == nil && r.Leads()
	}, 20*time.Second, time.Millisecond, topic)
}

// TestSeveralOnlyReplicaUnopened: what the only replica of a partition has acknowledged,
// and not made a checkpoint of, is nowhere but in the stream. When its log can't be opened
// after a crash the stream has to keep that, and the log gets it when it can be.
func TestSeveralOnlyReplicaUnopened(t *testing.T) {
	s := newSeveral(t, 1, 2)
	s.wait = true
	n := s.nodes[1]
	s.topic("t", 7, 1)
	n.leads("t")
	n.append("t", "checkpointed")
	n.goesOn()
	n.append("t", "acknowledged")
	n.append("t", "and that")
	want := n.bytes("t")

	n.crash()
	name := "t"
	n.broken.unopened.Store(&name)
	n.start()
	require.NoError(t, n.replicas.WaitOpened(t.Context(), n.store.Image().Offset()))
	before := n.needs(7)
	n.goesOn()
	require.True(t, n.replicas.retry(), "it isn't open")
	n.goesOn()
	require.Equal(t, before, n.needs(7), "the stream must keep what is nowhere else")
	require.True(t, NewBehindSet(n.journal.Behind(), severalShards).Has(messages.PartitionKey{TopicID: messages.TopicID{7}, CreatedAt: n.store.Image().Topic("t").CreatedAt}),
		"nobody may take it for one in order")

	n.broken.unopened.Store(nil)
	n.replicas.retry()
	n.leads("t")
	require.Equal(t, want, n.bytes("t"))
	n.append("t", "more")
	n.goesOn()
	require.Greater(t, n.needs(7), before)
	n.stop()
	n.start()
	n.leads("t")
	require.EqualValues(t, 4, n.get("t").State().End)
}

// TestSeveralSpareReplicaUnopened: one that isn't the only one costs a copy of itself, and
// its shard nothing.
func TestSeveralSpareReplicaUnopened(t *testing.T) {
	s := newSeveral(t, 1, 2)
	s.wait = true
	n := s.nodes[1]
	s.topic("t", 7, 2, 1)
	s.nodes[2].leads("t")
	s.nodes[2].append("t", "checkpointed")
	s.equal(2, "t")
	n.goesOn()
	s.nodes[2].append("t", "not checkpointed")
	s.equal(2, "t")

	n.crash()
	name := "t"
	n.broken.unopened.Store(&name)
	n.start()
	require.NoError(t, n.replicas.WaitOpened(t.Context(), n.store.Image().Offset()))
	before := n.needs(7)
	n.replicas.retry()
	require.Eventually(t, func() bool {
		n.goesOn()
		return n.needs(7) > before
	}, 20*time.Second, time.Millisecond)

	n.broken.unopened.Store(nil)
	n.replicas.retry()
	s.equal(2, "t")
}

// TestSeveralLogUnsynced: a log that can't be synced costs its partition, not its shard.
func TestSeveralLogUnsynced(t *testing.T) {
	s := newSeveral(t, 1, 2)
	n := s.nodes[1]
	s.topic("t", 7, 1, 2)
	s.topic("only", 8, 1)
	n.leads("t")
	n.leads("only")
	n.append("t", "a")
	n.append("only", "a")
	s.equal(1, "t")
	n.goesOn()

	for id, name := range map[byte]string{7: "t", 8: "only"} {
		before := n.needs(id)
		n.broken.unsynced.Store(&name)
		n.append(name, "b")
		n.goesOn()
		require.False(t, n.get(name).order.inOrder(), name)
		if name == "t" {
			require.Equal(t, before, n.needs(id), "it may be well again soon")
			require.Eventually(t, func() bool {
				n.goesOn()
				return n.needs(id) > before
			}, 30*time.Second, time.Millisecond, "the other replica is as good")
		} else {
			for range spareRounds + 3 {
				n.goesOn()
			}
			require.Equal(t, before, n.needs(id), "there is no other one")
		}
		n.broken.unsynced.Store(nil)
		require.Eventually(t, n.get(name).order.inOrder, 20*time.Second, time.Millisecond, name)
		n.goesOn()
		require.Greater(t, n.needs(id), before)
	}
	s.equal(1, "t")
}
