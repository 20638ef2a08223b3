package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// fakeStore is a data folder of fakeLogs that outlives its process.
type fakeStore struct {
	mu      sync.Mutex
	logs    map[messages.TopicPartition]*fakeLog
	infos   map[messages.TopicPartition]persistence.Info
	configs map[messages.TopicPartition]persistence.Config
	fail    map[messages.TopicPartition]error
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		logs: map[messages.TopicPartition]*fakeLog{}, infos: map[messages.TopicPartition]persistence.Info{},
		configs: map[messages.TopicPartition]persistence.Config{}, fail: map[messages.TopicPartition]error{},
	}
}

func (s *fakeStore) Infos() []persistence.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.infos))
}

func (s *fakeStore) Open(_ context.Context, tp messages.TopicPartition, cfg persistence.Config) (persistence.Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail[tp]; err != nil {
		return nil, err
	}
	l := s.logs[tp]
	if l == nil {
		return nil, persistence.ErrNotFound
	}
	s.configs[tp] = cfg
	l.closed = false
	return l, nil
}

func (s *fakeStore) Create(_ context.Context, info persistence.Info, cfg persistence.Config) (persistence.Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs[info.TopicPartition] != nil {
		return nil, persistence.ErrExists
	}
	l := &fakeLog{onConfig: func(c persistence.Config) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.configs[info.TopicPartition] = c
	}}
	s.logs[info.TopicPartition], s.infos[info.TopicPartition], s.configs[info.TopicPartition] = l, info, cfg
	return l, nil
}

func (s *fakeStore) Delete(_ context.Context, tp messages.TopicPartition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, tp)
	delete(s.infos, tp)
	return nil
}

func (s *fakeStore) config(tp messages.TopicPartition) persistence.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configs[tp]
}

// world is a node's replicas with a metadata image that the test writes.
type world struct {
	t           testing.TB
	folder      string
	store       *fakeStore
	img         *metadata.Image
	checkpoints *Checkpoints
	rs          *Replicas
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, folder: t.TempDir(), store: newFakeStore(), img: metadata.EmptyImage()}
	w.start()
	c := wire.NewPtrClusterRecord()
	c.ClusterID = "lBq12jYZRp-9wF3M9MPopg"
	w.apply(c)
	t.Cleanup(w.stop)
	return w
}

func (w *world) start() {
	w.t.Helper()
	var err error
	w.checkpoints, err = OpenCheckpoints(persistence.OSFS{}, w.folder, zap.NewNop())
	require.NoError(w.t, err)
	w.rs = NewReplicas(w.t.Context(), ReplicasOptions{Node: 1, Logs: w.store, Checkpoints: w.checkpoints, Logger: zap.NewNop(), RetentionInterval: time.Hour})
	if w.img.Offset() >= 0 {
		all := map[string]struct{}{}
		for _, t := range w.img.Topics() {
			all[t.Name] = struct{}{}
		}
		w.rs.Apply(metadata.Delta{Old: metadata.EmptyImage(), New: w.img, Topics: all, Brokers: true})
		require.NoError(w.t, w.rs.WaitApplied(w.t.Context(), w.img.Offset()))
	}
}

func (w *world) stop() {
	w.t.Helper()
	require.NoError(w.t, w.rs.Close())
	require.NoError(w.t, w.checkpoints.Close())
}

// note hands a change to Apply without waiting.
func (w *world) note(records ...metadata.Record) {
	w.t.Helper()
	d, err := w.img.Apply(w.img.Offset()+1, records)
	require.NoError(w.t, err)
	w.img = d.New
	w.rs.Apply(d)
}

func (w *world) apply(records ...metadata.Record) {
	w.t.Helper()
	w.note(records...)
	require.NoError(w.t, w.rs.WaitApplied(w.t.Context(), w.img.Offset()))
}

func (w *world) get(topic string, partition int32) *Replica {
	w.t.Helper()
	r, err := w.rs.Get(messages.TopicPartition{Topic: topic, Partition: partition})
	require.NoError(w.t, err)
	return r
}

func topicRecords(name string, id byte, partitions int, configs ...string) []metadata.Record {
	r := wire.NewPtrTopicRecord()
	r.Name, r.TopicID = name, messages.TopicID{id, byte(partitions)}
	out := []metadata.Record{r}
	for n := range partitions {
		out = append(out, metadata.PartitionRecord(r.TopicID, int32(n), metadata.Partition{
			Leader: 1, Replicas: []messages.NodeID{1}, ISR: []messages.NodeID{1},
		}))
	}
	for i := 0; i < len(configs); i += 2 {
		out = append(out, topicConfig(name, configs[i], configs[i+1]))
	}
	return out
}

func topicConfig(name, key, value string) metadata.Record {
	return metadata.ConfigRecord(messages.ResourceTopic, name, key, &value)
}

func removeTopic(id messages.TopicID) metadata.Record {
	r := wire.NewPtrRemoveTopicRecord()
	r.TopicID = id
	return r
}

func TestReplicasFollowTheImage(t *testing.T) {
	w := newWorld(t)
	tp := messages.TopicPartition{Topic: "a", Partition: 1}
	_, err := w.rs.Get(tp)
	require.ErrorIs(t, err, messages.ErrUnknownTopicOrPartition)
	_, err = w.rs.ByID(messages.TopicID{9}, 0)
	require.ErrorIs(t, err, messages.ErrUnknownTopicID)

	w.apply(topicRecords("a", 1, 2, "segment.bytes", "5000")...)
	r := w.get("a", 1)
	id := w.img.Topic("a").ID
	require.Equal(t, w.img.Topic("a").Key(1), r.Key())
	same, err := w.rs.ByID(id, 1)
	require.NoError(t, err)
	require.Same(t, r, same)
	require.Equal(t, 5000, w.store.config(tp).SegmentBytes)
	require.False(t, w.store.config(tp).FlushAlways)
	require.True(t, r.Leads())
	require.False(t, r.State().ReadOnly)
	_, err = w.rs.Leading(tp, messages.TopicID{77})
	require.ErrorIs(t, err, messages.ErrUnknownTopicID)
	_, err = w.rs.Get(messages.TopicPartition{Topic: "a", Partition: 2})
	require.ErrorIs(t, err, messages.ErrUnknownTopicOrPartition)

	bump := wire.NewPtrPartitionChangeRecord()
	bump.TopicID, bump.PartitionID, bump.MinLeaderEpoch = id, 1, 9
	w.apply(bump)
	require.Equal(t, int32(10), r.State().LeaderEpoch)
	require.Equal(t, int32(0), w.get("a", 0).State().LeaderEpoch)

	w.apply(topicConfig("a", "segment.bytes", "6000"))
	require.Equal(t, 6000, w.store.config(tp).SegmentBytes)
	value := "2222"
	w.apply(metadata.ConfigRecord(messages.ResourceBroker, "", "log.index.interval.bytes", &value))
	require.Equal(t, 2222, w.store.config(tp).IndexIntervalBytes)

	w.apply(metadata.PartitionRecord(id, 2, metadata.Partition{Leader: 1, LeaderEpoch: 3, Replicas: []messages.NodeID{1}}))
	require.Equal(t, int32(3), w.get("a", 2).State().LeaderEpoch)
	require.Same(t, r, w.get("a", 1), "the others stay")

	away := wire.NewPtrPartitionChangeRecord()
	away.TopicID, away.PartitionID, away.Leader = id, 2, 5
	w.apply(away)
	_, err = w.rs.Leading(messages.TopicPartition{Topic: "a", Partition: 2}, messages.TopicID{})
	require.ErrorIs(t, err, messages.ErrNotLeader)
	_, err = w.get("a", 2).AppendInternal(t.Context(), records(0, 1, 0))
	require.ErrorIs(t, err, messages.ErrNotLeader)

	w.apply(topicRecords(messages.MirrorStateTopic, 3, 1)...)
	require.True(t, w.store.config(messages.TopicPartition{Topic: messages.MirrorStateTopic}).FlushAlways)
	n := 0
	w.rs.Range(func(*Replica) bool { n++; return true })
	require.Equal(t, 4, n)

	w.apply(removeTopic(id))
	_, err = w.rs.Get(tp)
	require.ErrorIs(t, err, messages.ErrUnknownTopicOrPartition)
	_, err = r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)
	require.Len(t, w.store.Infos(), 1)
}

// TestC11ReplicasOfATopicMadeAgain: the same name, and even the same id, is a
// new life without the old one's records.
func TestC11ReplicasOfATopicMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecords("a", 1, 1)...)
	old := w.get("a", 0)
	_, err := old.AppendClient(t.Context(), records(0, 5, 0), anyEpoch)
	require.NoError(t, err)
	id := w.img.Topic("a").ID
	w.note(removeTopic(id))
	w.apply(topicRecords("a", 1, 1)...) // perhaps both in one round
	r := w.get("a", 0)
	require.NotSame(t, old, r)
	require.Zero(t, r.State().End)
	require.Equal(t, id, r.Key().TopicID)

	// Again, with the node down between the two, and once without the second.
	_, err = r.AppendClient(t.Context(), records(0, 5, 0), anyEpoch)
	require.NoError(t, err)
	w.apply(topicRecords("b", 2, 1)...)
	w.stop()
	d, err := w.img.Apply(w.img.Offset()+1, append([]metadata.Record{removeTopic(w.img.Topic("b").ID), removeTopic(id)}, topicRecords("a", 1, 1)...))
	require.NoError(t, err)
	w.img = d.New
	w.start()
	require.Zero(t, w.get("a", 0).State().End)
	require.Len(t, w.store.Infos(), 1, "b is deleted")
}

func TestReplicasKeepLogsThatTheMetadataLost(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecords("a", 1, 1)...)
	before := w.img
	w.apply(topicRecords("b", 2, 1)...)
	w.stop()
	w.img = before // an older copy of the metadata folder was put back
	w.start()
	require.Len(t, w.store.Infos(), 2)
	w.apply(topicRecords("x", 3, 1)...) // moves the log on
	w.apply(topicRecords("b", 4, 1)...)
	require.Equal(t, w.img.Topic("b").Key(0), w.store.infos[messages.TopicPartition{Topic: "b"}].Key, "another b takes the place")
}

func TestReplicasDeleteWhatNeverOpened(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecords("a", 1, 1)...)
	_, err := w.get("a", 0).AppendClient(t.Context(), records(0, 3, 0), anyEpoch)
	require.NoError(t, err)
	w.stop()
	tp := messages.TopicPartition{Topic: "a"}
	w.store.fail[tp] = persistence.ErrStorage
	w.start()
	_, err = w.rs.Get(tp)
	require.ErrorIs(t, err, messages.ErrStorage)
	w.apply(removeTopic(w.img.Topic("a").ID))
	require.Empty(t, w.store.Infos())
	w.store.mu.Lock()
	clear(w.store.fail)
	w.store.mu.Unlock()
	w.apply(topicRecords("a", 1, 1)...)
	require.Zero(t, w.get("a", 0).State().End)
}

// TestC33GateClosesWithTheImage: client writes end when mirror.name appears,
// before any worker has run.
func TestC33GateClosesWithTheImage(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecords("a", 1, 1)...)
	r := w.get("a", 0)
	refused := func() {
		t.Helper()
		_, err := r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
		require.ErrorIs(t, err, messages.ErrReadOnlyTopic)
	}
	w.note(topicConfig("a", messages.MirrorNameConfig, "m"))
	refused()
	r.SetAdmit(true) // of an actor that hasn't seen the image
	refused()
	_, err := r.SetMode(t.Context(), messages.ModeMirroring)
	require.NoError(t, err)
	w.apply(topicConfig("a", messages.MirrorNameConfig, "m.paused"))
	refused()
	w.apply(topicConfig("a", messages.MirrorNameConfig, "m.stopped"))
	refused()
	_, err = r.SetMode(t.Context(), messages.ModeWritable)
	require.NoError(t, err)
	refused()
	r.SetAdmit(true)
	_, err = r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.NoError(t, err)
	w.apply(topicConfig("a", "retention.ms", "5"))
	require.False(t, r.State().ReadOnly, "another config changes nothing")

	w.apply(topicConfig("a", messages.MirrorNameConfig, "m"))
	_, err = r.SetMode(t.Context(), messages.ModeSealed)
	require.NoError(t, err)
	w.apply(metadata.ConfigRecord(messages.ResourceTopic, "a", messages.MirrorNameConfig, nil))
	require.False(t, r.State().ReadOnly, "a topic that left its mirror is an ordinary one")

	w.apply(topicRecords("born", 2, 1, messages.MirrorNameConfig, "m")...)
	require.True(t, w.get("born", 0).State().ReadOnly)
	w.stop()
	w.start()
	require.True(t, w.get("born", 0).State().ReadOnly, "read-only until STOPPED is known")
	require.False(t, w.get("a", 0).State().ReadOnly)
}

func TestReplicasSubscribe(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecords("a", 1, 1)...)
	got := make(chan AppliedImage, 10)
	cancel := w.rs.Subscribe(func(a AppliedImage) {
		if _, err := w.rs.Leading(messages.TopicPartition{Topic: "a"}, messages.TopicID{}); err != nil {
			t.Error(err)
		}
		got <- a
	})
	first := <-got
	require.Nil(t, first.Topics)
	require.NotNil(t, first.Image.Topic("a"))
	w.apply(topicRecords("b", 2, 1)...)
	require.Equal(t, map[string]struct{}{"b": {}}, (<-got).Topics)
	cancel()
	w.apply(topicRecords("c", 3, 1)...)
	require.Empty(t, got)
}

func TestReplicasOneBadPartition(t *testing.T) {
	w := newWorld(t)
	bad := messages.TopicPartition{Topic: "a", Partition: 1}
	w.store.fail[bad] = persistence.ErrCorrupt
	w.apply(topicRecords("a", 1, 3)...)
	_, err := w.rs.Get(bad)
	require.ErrorIs(t, err, messages.ErrStorage)
	require.ErrorIs(t, err, persistence.ErrCorrupt)
	require.True(t, w.get("a", 0).Leads())
	require.True(t, w.get("a", 2).Leads())
	w.store.mu.Lock()
	delete(w.store.fail, bad)
	w.store.mu.Unlock()
	changed := make(chan AppliedImage, 2)
	defer w.rs.Subscribe(func(a AppliedImage) { changed <- a })()
	<-changed
	w.rs.retry()
	<-changed
	require.True(t, w.get("a", 1).Leads())
}

func TestReplicasRetention(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, folder: folder, store: newFakeStore(), img: metadata.EmptyImage()}
		w.start()
		w.apply(topicRecords("old", 1, 1, "retention.bytes", "10")...)
		w.apply(topicRecords("kept", 2, 1, "cleanup.policy", "compact", "retention.bytes", "10")...)
		for _, name := range []string{"old", "kept"} {
			_, err := w.get(name, 0).AppendClient(t.Context(), records(0, 3, 0), anyEpoch)
			require.NoError(t, err)
		}
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		require.Equal(t, int64(3), w.get("old", 0).State().LogStart)
		require.Zero(t, w.get("kept", 0).State().LogStart)

		// Idle since the start: looked at once in a while.
		_, err := w.get("old", 0).AppendClient(t.Context(), records(0, 3, 0), anyEpoch)
		require.NoError(t, err)
		w.stop()
		w.start()
		time.Sleep(idleRounds*time.Hour + time.Second)
		synctest.Wait()
		require.Equal(t, int64(6), w.get("old", 0).State().LogStart)
		w.stop()
	})
}

func TestReplicasClose(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecords("a", 1, 1)...)
	r := w.get("a", 0)
	require.NoError(t, w.rs.Close())
	require.NoError(t, w.rs.Close())
	_, err := r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)
	require.ErrorIs(t, w.rs.WaitApplied(t.Context(), 1<<40), ErrClosed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, w.rs.WaitApplied(ctx, 1<<40))
}

// TestReplicasUnderLoad: appends, state readers and watchers go on while topics
// come, go, are bumped and reconfigured. An acknowledged record is in the log of
// its topic's life, and nobody is told anything but a refusal otherwise.
func TestReplicasUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecords("steady", 1, 4)...)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	acked := make([]int64, 4)
	for p := range int32(4) {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := w.rs.Leading(messages.TopicPartition{Topic: "steady", Partition: p}, messages.TopicID{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch); err != nil {
					t.Error(err)
					return
				}
				acked[p]++
				if c, err := w.rs.Leading(messages.TopicPartition{Topic: "comes and goes"}, messages.TopicID{}); err == nil {
					_, err = c.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
					if err != nil && !errors.Is(err, messages.ErrNotLeader) && !errors.Is(err, messages.ErrReadOnlyTopic) {
						t.Error(err)
						return
					}
					c.Watch(func() { c.State() })()
				}
			}
		})
	}
	id := w.img.Topic("steady").ID
	for i := range 60 {
		bump := wire.NewPtrPartitionChangeRecord()
		bump.TopicID, bump.PartitionID, bump.MinLeaderEpoch = id, int32(i%4), int32(i)
		w.note(topicRecords("comes and goes", 9, 1)...)
		w.note(bump, topicConfig("steady", "segment.bytes", fmt.Sprint(1000+i)))
		if i%3 == 0 {
			require.NoError(t, w.rs.WaitApplied(t.Context(), w.img.Offset()))
		}
		w.note(removeTopic(w.img.Topic("comes and goes").ID))
	}
	require.NoError(t, w.rs.WaitApplied(t.Context(), w.img.Offset()))
	close(stop)
	clients.Wait()
	for p := range int32(4) {
		s := w.get("steady", p).State()
		require.Equal(t, acked[p], s.End)
		require.Equal(t, w.img.Topic("steady").Partitions[p].LeaderEpoch, s.LeaderEpoch)
	}
	require.Len(t, w.store.Infos(), 4)
}

// TestReplicasRestartOfManyPartitions: an idle partition costs no durable write.
func TestReplicasRestartOfManyPartitions(t *testing.T) {
	w := newWorld(t)
	var all []metadata.Record
	for i := range 100 {
		all = append(all, topicRecords(fmt.Sprintf("t%d", i), byte(i), 100)...)
	}
	began := time.Now()
	w.apply(all...)
	t.Logf("created 10,000 partitions in %v", time.Since(began))
	began = time.Now()
	w.stop()
	t.Logf("closed them in %v", time.Since(began))
	began = time.Now()
	w.start()
	t.Logf("opened them in %v", time.Since(began))
	require.Zero(t, w.checkpoints.written)
	require.True(t, w.get("t99", 99).Leads())
}

func BenchmarkReplicaAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		value := make([]byte, size-100)
		raw := batch.Append(nil, batch.Plain(), batch.Record{Value: value})
		g := newRig(b)
		b.Run(fmt.Sprintf("client/batch=%dKiB", size>>10), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := g.r.AppendClient(b.Context(), raw, anyEpoch); err != nil {
					b.Fatal(err)
				}
				g.log.batches = g.log.batches[:0]
			}
		})
		if _, err := g.r.SetMode(b.Context(), messages.ModeMirroring); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("mirror/batch=%dKiB", size>>10), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				end := g.r.State().End
				batch.SetOffsetAndEpoch(raw, end, 1)
				if _, err := g.r.AppendMirror(b.Context(), end, raw); err != nil {
					b.Fatal(err)
				}
				g.log.batches = g.log.batches[:0]
			}
		})
	}
}
