package cluster

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// TestCompactionSettings: what a topic's configs mean for its cleaner.
func TestCompactionSettings(t *testing.T) {
	topic := func(name string, kv ...string) *metadata.Topic {
		out := &metadata.Topic{Name: name, Configs: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			out.Configs[kv[i]] = kv[i+1]
		}
		return out
	}
	s := settingsOf(topic("t"), nil, false)
	require.False(t, s.compacts)
	require.Equal(t, int64(604800000), s.log.SegmentMillis)
	s = settingsOf(topic("t", configs.CleanupPolicy, "compact,delete", configs.MaxCompactionLagMs, "5000", configs.MinCompactionLagMs, "7"), nil, false)
	require.True(t, s.compacts)
	require.True(t, s.deletes)
	require.Equal(t, int64(5000), s.log.SegmentMillis, "a segment rolls early enough to be cleaned in time")
	require.Equal(t, CompactionSettings{DeleteRetentionMillis: 86400000, MinLagMillis: 7, MaxLagMillis: 5000, MinDirtyRatio: 0.5}, s.compaction)
	s = settingsOf(topic(messages.MirrorStateTopic, configs.CleanupPolicy, "compact"), map[string]string{configs.MirrorStateAuditRetention: "99"}, false)
	require.True(t, s.compaction.MirrorStates)
	require.Equal(t, int64(99), s.compaction.AuditMillis)
	require.Equal(t, int64(math.MaxInt64), s.compaction.MaxLagMillis)
}

// compacted creates a topic with small segments and cleanup.policy=compact.
func (s *several) compacted(name string, id byte, replicas ...messages.NodeID) {
	s.t.Helper()
	r := wire.NewPtrTopicRecord()
	r.Name, r.TopicID = name, messages.TopicID{id}
	p := metadata.PartitionRecord(r.TopicID, 0, metadata.Partition{Leader: replicas[0], Replicas: replicas, ISR: replicas})
	s.nodes[replicas[0]].change(r, p, topicConfig(name, configs.CleanupPolicy, "compact"), topicConfig(name, configs.SegmentBytes, "1000"))
}

func (n *severalNode) put(topic, key, value string) {
	n.s.t.Helper()
	r := batch.Record{Timestamp: 1000, Key: []byte(key), Value: []byte(value)}
	if value == "" {
		r.Value = nil
	}
	_, err := n.get(topic).AppendClient(n.s.t.Context(), batch.Append(nil, batch.Plain(), r), anyEpoch)
	require.NoError(n.s.t, err)
}

// state is the last value of each key, and the number of records.
func (n *severalNode) state(topic string) (values map[string]string, records int) {
	n.s.t.Helper()
	values = map[string]string{}
	for b := n.bytes(topic); len(b) > 0; {
		_, whole, rest, err := batch.Next(b)
		require.NoError(n.s.t, err)
		for r, err := range batch.Records(whole) {
			require.NoError(n.s.t, err)
			records++
			if values[string(r.Key)] = string(r.Value); r.Value == nil {
				delete(values, string(r.Key))
			}
		}
		b = rest
	}
	return values, records
}

func (n *severalNode) compact(topic string, now int64) persistence.Compaction {
	n.s.t.Helper()
	var out persistence.Compaction
	n.replicas.Compacted(func(r *Replica, s CompactionSettings) bool {
		if r.TopicPartition().Topic != topic {
			return true
		}
		p := s.Policy()
		p.NowMillis, p.Force, p.DeleteRetentionMillis = now, true, 100
		var err error
		out, err = r.Compact(n.s.t.Context(), p)
		require.NoError(n.s.t, err)
		return false
	})
	return out
}

// awaitEnd waits until a node's replica follows and ends where the leader's state says.
func (s *several) awaitEnds(by messages.NodeID, topic string) {
	s.t.Helper()
	want := s.nodes[by].get(topic).order.State()
	for id, n := range s.nodes {
		if !n.running || !s.nodes[by].holds(id, s.nodes[by].get(topic).Key()) {
			continue
		}
		require.Eventually(s.t, func() bool {
			r, err := n.replicas.Get(messages.TopicPartition{Topic: topic})
			return err == nil && r.order.inOrder() && r.order.State().LogEnd == want.LogEnd && r.Log().End() == want.LogEnd
		}, 20*time.Second, time.Millisecond, "node %d of %s: %d", id, topic, want.LogEnd)
	}
}

// TestSeveralCompact: each replica cleans in its own time. Ends and last values are the
// same on all, after a restart, a change of the leader and cuts into what was cleaned
// too; and a restart copies nothing.
func TestSeveralCompact(t *testing.T) {
	s := newSeveral(t, 1, 2, 3)
	s.compacted("t", 7, 1, 2, 3)
	for i := range 200 {
		s.nodes[1].put("t", fmt.Sprint("key ", i%7), fmt.Sprint("value ", i))
	}
	s.awaitEnds(1, "t")
	c := s.nodes[2].compact("t", 1<<40)
	require.Positive(t, c.Segments)
	require.Zero(t, s.nodes[1].get("t").Log().PurgedTo())
	want, all := s.nodes[1].state("t")
	require.Equal(t, 200, all)
	got, left := s.nodes[2].state("t")
	require.Equal(t, want, got)
	require.Less(t, left, 60)

	s.nodes[2].stop()
	s.nodes[2].start()
	s.awaitEnds(1, "t")
	_, again := s.nodes[2].state("t")
	require.Equal(t, left, again, "nothing was copied")

	s.lead(1, 7, 2)
	s.awaitEnds(1, "t")
	s.nodes[2].put("t", "key 1", "new")
	s.awaitEnds(2, "t")
	// A cut named by the replica with less: all end where it says.
	r := s.nodes[2].get("t")
	for _, mode := range []messages.Mode{messages.ModeSealed} {
		_, err := r.SetMode(t.Context(), mode)
		require.NoError(t, err)
	}
	cut, err := r.Truncate(t.Context(), c.CleanedTo-20, "test")
	require.NoError(t, err)
	require.Less(t, cut.From, c.CleanedTo-20, "the hole goes with it")
	s.awaitEnds(2, "t")
}

// syncedFS remembers what its files had when they were synced last: what a loss of power
// would leave of a checkpoint file.
type syncedFS struct {
	persistence.OSFS
	mu     sync.Mutex
	synced map[string][]byte
}

type syncedFile struct {
	persistence.File
	fs   *syncedFS
	name string
}

func (f *syncedFS) OpenFile(name string, create bool) (persistence.File, error) {
	file, err := f.OSFS.OpenFile(name, create)
	return &syncedFile{file, f, name}, err
}

func (f *syncedFS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced[to] = f.synced[from]
	return f.OSFS.Rename(from, to)
}

func (f *syncedFile) Sync() error {
	b, err := os.ReadFile(f.name)
	if err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.synced[f.name] = b
	return f.File.Sync()
}

// TestCompactedLogKeepsItsCheckpoint: the power goes right after a log was compacted. The
// checkpoint that is left lies behind the holes: one in the middle of them would name an
// end that the log can't have.
func TestCompactedLogKeepsItsCheckpoint(t *testing.T) {
	disk := &syncedFS{synced: map[string][]byte{}}
	s := &several{t: t, under: disk}
	s.begin(1, 2, 3)
	s.compacted("t", 7, 1, 2, 3)
	n := s.nodes[2]
	for i := range 200 {
		s.nodes[1].put("t", fmt.Sprint("key ", i%7), fmt.Sprint("value ", i))
		if i == 100 {
			s.awaitEnds(1, "t")
			require.NoError(t, n.journal.Checkpoint())
		}
	}
	s.awaitEnds(1, "t")
	c := n.compact("t", 1<<40)
	require.Greater(t, c.CleanedTo, int64(150))
	want, left := n.state("t")
	require.Less(t, left, 60)
	checkpoints := filepath.Join(n.folder, CheckpointFileName)
	disk.mu.Lock()
	synced := slices.Clone(disk.synced[checkpoints])
	disk.mu.Unlock()
	n.stop()
	require.NoError(t, os.WriteFile(checkpoints, synced, 0o600))
	n.start()
	s.awaitEnds(1, "t")
	got, again := n.state("t")
	require.Equal(t, want, got)
	require.Equal(t, left, again, "the log wasn't cut, and nothing was copied")
}

// TestSeveralCompactedCut: a cut that is named by a replica with everything, into a hole
// of another one: that one fills it, so that all end at the same offset, also after a
// restart and with what comes next.
func TestSeveralCompactedCut(t *testing.T) {
	s := newSeveral(t, 1, 2, 3)
	s.compacted("t", 7, 1, 2, 3)
	for i := range 100 {
		s.nodes[1].put("t", "key", fmt.Sprint("value ", i))
	}
	s.awaitEnds(1, "t")
	c := s.nodes[2].compact("t", 1<<40)
	require.Positive(t, c.Segments)
	r := s.nodes[1].get("t")
	_, err := r.SetMode(t.Context(), messages.ModeSealed)
	require.NoError(t, err)
	cut, err := r.Truncate(t.Context(), c.CleanedTo-17, "test")
	require.NoError(t, err)
	require.Equal(t, c.CleanedTo-17, cut.From)
	s.awaitEnds(1, "t")
	s.nodes[2].stop()
	s.nodes[2].start()
	s.awaitEnds(1, "t")
	chunk, err := s.nodes[2].get("t").Log().Read(cut.From, 100, cut.From, true)
	require.NoError(t, err)
	require.Zero(t, chunk.Len)
	_, err = r.SetMode(t.Context(), messages.ModeWritable)
	require.NoError(t, err)
	s.nodes[1].put("t", "key", "last")
	s.awaitEnds(1, "t")
	for id := range s.nodes {
		got, _ := s.nodes[id].state("t")
		require.Equal(t, map[string]string{"key": "last"}, got)
	}
}

// TestFilledCutIsRepeatable: a crash between the cut and the filling changes nothing.
func TestFilledCutIsRepeatable(t *testing.T) {
	l := persistence.NewMemoryLog(persistence.Info{}, persistence.Config{})
	for _, at := range []int64{0, 10} {
		b := batch.Single(5, []byte("k"), []byte("v"))
		batch.SetOffsetAndEpoch(b, at, 3)
		_, err := l.Append(b, persistence.AppendOptions{})
		require.NoError(t, err)
	}
	d := &direct{log: l, replicated: true}
	for range 2 {
		cut, err := d.cut(journal.Operation{Kind: journal.OpTruncate, Offset: 8})
		require.NoError(t, err)
		require.Equal(t, int64(8), l.End())
		require.Equal(t, int64(8), cut.From)
	}
	require.Equal(t, int32(3), l.LatestEpoch())
}

// TestSeveralCopyOfACompactedLog: a replica that fell behind while tombstones came and
// went doesn't keep what they deleted, and a new one copies a log with holes.
func TestSeveralCopyOfACompactedLog(t *testing.T) {
	s := newSeveral(t, 1, 2, 3)
	s.compacted("t", 7, 1, 2)
	for i := range 40 {
		s.nodes[1].put("t", fmt.Sprint("key ", i%7), fmt.Sprint("value ", i))
	}
	s.awaitEnds(1, "t")
	s.nodes[2].stop()
	s.nodes[1].put("t", "key 3", "")
	for round := range int64(3) {
		for i := range 40 {
			s.nodes[1].put("t", fmt.Sprint("other ", i%5), fmt.Sprint(i))
		}
		s.nodes[1].compact("t", 1<<40+1000*round)
	}
	want, records := s.nodes[1].state("t")
	require.NotContains(t, want, "key 3")
	require.Less(t, records, 50)
	require.Equal(t, int64(41), s.nodes[1].get("t").Log().PurgedTo())
	for id := range int32(severalShards) {
		_, last, _ := s.streams[id].Bounds(t.Context())
		s.streams[id].purge(last)
	}
	s.nodes[2].start()
	s.nodes[1].put("t", "end", "x")
	s.awaitEnds(1, "t")
	want, records = s.nodes[1].state("t")
	got, n := s.nodes[2].state("t")
	require.Equal(t, want, got)
	require.Equal(t, records, n)

	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Replicas = messages.TopicID{7}, 0, []int32{1, 2, 3}
	s.nodes[2].change(r)
	s.awaitEnds(1, "t")
	got, _ = s.nodes[3].state("t")
	require.Equal(t, want, got)
}

// TestCopyOfAPurgedPiece: how far tombstones are gone comes over the bus.
func TestCopyOfAPurgedPiece(t *testing.T) {
	key := messages.PartitionKey{TopicID: messages.TopicID{1}, Partition: 2}
	for _, purged := range []int64{0, 77} {
		sent := piece{from: 3, position: 9, state: journal.NewState(), purged: purged, batches: []byte("batches")}
		got, err := parsePiece(3, appendPiece(key, sent))
		require.NoError(t, err)
		require.Equal(t, sent.purged, got.purged)
		require.Equal(t, sent.batches, got.batches)
		require.Equal(t, sent.position, got.position)
	}
}
