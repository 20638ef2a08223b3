package actors

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/fetch"
	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// fakeSource is a source with answers as fields; hang makes it a black hole.
type fakeSource struct {
	mu    sync.Mutex
	lme   int32
	epoch int32
	err   error
	hang  bool
}

func (f *fakeSource) answer(ctx context.Context, get func() int32) (int32, error) {
	f.mu.Lock()
	hang, err, v := f.hang, f.err, get()
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	return v, err
}

func (f *fakeSource) LastMirrorEpoch(ctx context.Context, _ string, _ messages.TopicPartition) (int32, error) {
	return f.answer(ctx, func() int32 { return f.lme })
}

func (f *fakeSource) SourceEpoch(ctx context.Context, _ string, _ messages.TopicPartition) (int32, error) {
	return f.answer(ctx, func() int32 { return f.epoch })
}
func (f *fakeSource) SourceClusterID(string) string { return "lBq12jYZRp-9wF3M9MPopg" }
func (f *fakeSource) Refresh(string, string)        {}
func (f *fakeSource) Suspect(string, string, bool)  {}

func (f *fakeSource) set(change func(*fakeSource)) { f.mu.Lock(); defer f.mu.Unlock(); change(f) }

// fakeFetchers keeps assignments; the test plays the worker.
type fakeFetchers struct {
	mu  sync.Mutex
	now map[messages.TopicPartition]fetch.Assignment
	err error
}

func (f *fakeFetchers) Fetch(_ context.Context, _ string, a fetch.Assignment, _ *fetch.Leader) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.now[a.TopicPartition] = a
	return nil
}

func (f *fakeFetchers) Unfetch(_ context.Context, _ string, tp messages.TopicPartition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.now, tp)
	return nil
}

func (f *fakeFetchers) get(tp messages.TopicPartition) (fetch.Assignment, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.now[tp]
	return a, ok
}

// node is the mirror side of one node over real logs, replicas and bus.
type node struct {
	t            *testing.T
	source       *fakeSource
	fetchers     *fakeFetchers
	system       *actor.ActorSystem
	logs         *persistence.Manager
	points       *cluster.Checkpoints
	replicas     *cluster.Replicas
	bus          *cluster.Bus
	coordinators *Coordinators
	partitions   *Partitions
	writes       atomic.Int64
	attempts     atomic.Int32 // retries of FAILED, 0 = unlimited
	mu           sync.Mutex
	image        *metadata.Image
	tenures      sync.Map                        // *cluster.Replica -> *heldReplica
	converge     atomic.Pointer[ConvergenceView] // nil: one replica
}

var tp0 = messages.TopicPartition{Topic: "t", Partition: 0}

func newNode(t *testing.T, dir string, image *metadata.Image) *node {
	t.Helper()
	return newNodeOn(t, persistence.OSFS{}, dir, image)
}

func newNodeOn(t *testing.T, fsys persistence.FS, dir string, image *metadata.Image) *node {
	t.Helper()
	ctx := t.Context()
	n := &node{
		t: t, source: &fakeSource{lme: messages.NoEpoch, epoch: 3}, fetchers: &fakeFetchers{now: map[messages.TopicPartition]fetch.Assignment{}},
		system: NewSystem(zap.NewNop()), image: metadata.EmptyImage(),
	}
	n.attempts.Store(3)
	var err error
	n.logs, err = persistence.Open(ctx, dir, persistence.Options{ClusterID: "c", NodeID: 1, FS: fsys, Logger: zap.NewNop()})
	require.NoError(t, err)
	n.points, err = cluster.OpenCheckpoints(persistence.OSFS{}, dir, zap.NewNop())
	require.NoError(t, err)
	n.replicas = cluster.NewReplicas(ctx, cluster.ReplicasOptions{Node: 1, Logs: n.logs, Checkpoints: n.points, Logger: zap.NewNop()})
	n.bus, err = cluster.OpenBus(ctx, cluster.BusOptions{ClusterID: "c", Node: 1, Logger: zap.NewNop()})
	require.NoError(t, err)
	n.coordinators = NewCoordinators(ctx, CoordinatorsConfig{
		System: n.system, Node: 1, Server: n.bus, Clock: clock.Wall{}, Log: zap.NewNop(),
		Replica: func(tp messages.TopicPartition) (StateReplica, error) { return n.replicas.Get(tp) },
	})
	n.partitions = NewPartitions(ctx, PartitionsConfig{
		System: n.system, Node: 1, Source: n.source, Fetchers: n.fetchers, Bumper: n, Clock: clock.Wall{}, Log: zap.NewNop(),
		Replica: func(tp messages.TopicPartition) (PartitionReplica, error) {
			r, err := n.replicas.Get(tp)
			if err != nil {
				return nil, err
			}
			held, _ := n.tenures.LoadOrStore(r, &heldReplica{Replica: r, watchers: map[int]func(){}})
			return held.(*heldReplica), nil
		},
		States: countStates{NewStateClient(n.bus, n.coordinators.image.Load, clock.Wall{}), &n.writes},
		Policy: func() fsm.RetryPolicy {
			return fsm.RetryPolicy{Initial: time.Millisecond, Max: 20 * time.Millisecond, MaxAttempts: n.attempts.Load()}
		},
		Random: func() float64 { return 0.5 },
		Convergence: func(_ messages.TopicPartition, waited time.Duration) fsm.Convergence {
			v := n.converge.Load()
			if v == nil {
				return fsm.Convergence{Assigned: 1}
			}
			view := *v
			view.Waited += waited
			return view.Convergence()
		},
	})
	n.replicas.Subscribe(func(a cluster.AppliedImage) {
		n.coordinators.Apply(a.Image, a.Topics)
		n.partitions.Apply(a.Image, a.Topics)
	})
	n.replace(image)
	t.Cleanup(n.close)
	return n
}

type countStates struct {
	StateClient
	writes *atomic.Int64
}

func (c countStates) WriteMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error) {
	c.writes.Add(1)
	return c.StateClient.WriteMirrorStates(ctx, mirror, body)
}

func (n *node) close() {
	require.NoError(n.t, n.partitions.Close())
	require.NoError(n.t, n.coordinators.Close())
	require.NoError(n.t, n.bus.Close())
	require.NoError(n.t, n.replicas.Close())
	_ = n.points.Close()
	_ = n.logs.Close()
	n.system.Shutdown()
}

// replace shows an image as if it had come from nowhere.
func (n *node) replace(image *metadata.Image) {
	n.mu.Lock()
	defer n.mu.Unlock()
	topics := map[string]struct{}{}
	for _, t := range image.Topics() {
		topics[t.Name] = struct{}{}
	}
	old := n.image
	n.image = image
	n.replicas.Apply(metadata.Delta{Old: old, New: image, Topics: topics, Mirrors: map[string]struct{}{}})
}

func (n *node) change(records ...metadata.Record) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	d, err := n.image.Apply(n.image.Offset()+1, records)
	require.NoError(n.t, err)
	n.image = d.New
	n.replicas.Apply(d)
}

// want is the operator's wish.
func (n *node) want(d messages.Desired) {
	value := messages.FormatMirrorName("m", d)
	n.change(metadata.ConfigRecord(messages.ResourceTopic, "t", messages.MirrorNameConfig, &value))
}

// Bump is a controller.
func (n *node) Bump(_ context.Context, bumps []messages.EpochBump) ([]error, error) {
	for _, b := range bumps {
		rec := wire.NewPartitionChangeRecord()
		rec.TopicID, rec.PartitionID, rec.MinLeaderEpoch = b.TopicID, b.Partition, max(0, b.MinLeaderEpoch)
		n.change(&rec)
	}
	return make([]error, len(bumps)), nil
}

func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	for !ok() {
		if (clock.Wall{}).Sleep(ctx, time.Millisecond) != nil {
			n.t.Fatalf("never: %s; %+v", what, n.status())
		}
	}
}

func (n *node) status() PartitionStatus {
	if h := n.partitions.Get(tp0); h != nil {
		return h.Status()
	}
	return PartitionStatus{}
}

func (n *node) untilState(s messages.State) {
	n.t.Helper()
	n.until(s.String(), func() bool {
		h := n.partitions.Get(tp0)
		return h != nil && h.Status().State == s && h.Status().Loaded && !h.Status().Writing
	})
}

func (n *node) untilFetching() fetch.Assignment {
	n.t.Helper()
	var a fetch.Assignment
	n.until("fetching", func() bool {
		var ok bool
		a, ok = n.fetchers.get(tp0)
		return ok
	})
	return a
}

func (n *node) replica() *cluster.Replica {
	n.t.Helper()
	r, err := n.replicas.Get(tp0)
	require.NoError(n.t, err)
	return r
}

// sourceBatch is a batch as a source has it.
func sourceBatch(base int64, epoch int32, txn bool) []byte {
	p := batch.Plain()
	p.BaseOffset, p.LeaderEpoch = base, epoch
	if txn {
		p.Attributes, p.ProducerID, p.ProducerEpoch, p.BaseSequence = batch.AttrTransactional, 7, 0, 0
	}
	return batch.Append(nil, p, batch.Record{Timestamp: 1, Value: []byte("v")})
}

func produce(n *node) error {
	_, err := n.replica().AppendClient(n.t.Context(), batch.Single(1, nil, []byte("mine")), persistence.ClientAppend{LeaderEpoch: messages.NoEpoch})
	return err
}

func freshImage(t *testing.T, d messages.Desired) *metadata.Image {
	t.Helper()
	return stateImage(t, "m", d, 5, 1)
}

// TestLifeOfAPartition: start, mirror, stop with an open transaction, write,
// restart, fail back.
func TestLifeOfAPartition(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir, freshImage(t, messages.DesiredActive))
	a := n.untilFetching()
	require.ErrorIs(t, produce(n), messages.ErrReadOnlyTopic)
	for off := range int64(3) {
		a.Sink.State()
		_, err := a.Sink.AppendMirror(t.Context(), off, sourceBatch(off, 3, off == 2))
		require.NoError(t, err)
	}
	require.Len(t, n.replica().Log().OpenTransactions(), 1)

	n.want(messages.DesiredStopped)
	n.untilState(messages.StateStopped)
	n.until("writable", func() bool { return produce(n) == nil })
	_, fetching := n.fetchers.get(tp0)
	require.False(t, fetching)
	log := n.replica().Log()
	require.Empty(t, log.OpenTransactions())
	require.Empty(t, log.Producers(), "foreign producers are forgotten (D16, C01)")
	require.Equal(t, int64(6), log.End(), "3 mirrored, ABORT, MIRROR_PID_RESET, ours")
	require.Equal(t, int32(3), log.EpochForOffset(2))
	require.Equal(t, int32(6), log.EpochForOffset(3), "markers carry the raised epoch (D44)")
	require.Equal(t, int32(3), n.status().LME)
	_, err := a.Sink.AppendMirror(t.Context(), 6, sourceBatch(6, 3, false))
	require.ErrorIs(t, err, messages.ErrNotLeader, "a late batch never lands after STOPPED: its generation is over")
	a.Sink.State()
	_, err = a.Sink.AppendMirror(t.Context(), 6, sourceBatch(6, 3, false))
	require.ErrorIs(t, err, messages.ErrReadOnlyTopic, "nor one that is decided after STOPPED")

	states, err := n.partitions.ReadStates(t.Context(), "m", []messages.TopicPartition{tp0})
	require.NoError(t, err)
	require.Equal(t, messages.StateStopped, states[tp0].State)

	// A start cuts what the source's last mirror epoch doesn't cover.
	n.source.set(func(s *fakeSource) { s.lme = 3 })
	n.want(messages.DesiredActive)
	n.untilFetching()
	require.Equal(t, int64(3), n.replica().Log().End())
	require.Equal(t, int64(3), n.status().CutRecords)
	require.ErrorIs(t, produce(n), messages.ErrReadOnlyTopic)
}

// TestRestartResumes: a new node over the same folder goes on where the old one
// was, and keeps what it knew.
func TestRestartResumes(t *testing.T) {
	dir := t.TempDir()
	image := freshImage(t, messages.DesiredActive)
	t.Run("first life", func(t *testing.T) {
		n := newNode(t, dir, image)
		a := n.untilFetching()
		a.Sink.State()
		_, err := a.Sink.AppendMirror(t.Context(), 0, sourceBatch(0, 3, false))
		require.NoError(t, err)
		a.Notify(fetch.GapSkipped{From: 1, To: 9})
		n.until("gap is stored", func() bool {
			states, err := n.partitions.ReadStates(t.Context(), "m", []messages.TopicPartition{tp0})
			return err == nil && states[tp0].GapTo == 9
		})
	})
	t.Run("second life", func(t *testing.T) {
		n := newNode(t, dir, image)
		n.untilFetching()
		n.untilState(messages.StateMirroring)
		require.Equal(t, int64(9), n.status().GapTo)
		require.Equal(t, int64(1), n.replica().Log().End(), "nothing was cut")
		n.want(messages.DesiredPaused)
		n.untilState(messages.StatePaused)
		_, fetching := n.fetchers.get(tp0)
		require.False(t, fetching)
	})
}

// TestC12GapBeforeARestart: the log was restarted above its end by a node that
// ended before it could have the gap stored; the next one has.
func TestC12GapBeforeARestart(t *testing.T) {
	dir := t.TempDir()
	image := freshImage(t, messages.DesiredActive)
	t.Run("first life", func(t *testing.T) {
		n := newNode(t, dir, image)
		a := n.untilFetching()
		a.Sink.State()
		_, err := a.Sink.AppendMirror(t.Context(), 0, sourceBatch(0, 3, false))
		require.NoError(t, err)
		_, err = a.Sink.RestartAt(t.Context(), 9, "retention")
		require.NoError(t, err)
	})
	t.Run("second life", func(t *testing.T) {
		n := newNode(t, dir, image)
		n.untilFetching()
		n.until("gap is stored", func() bool {
			states, err := n.partitions.ReadStates(t.Context(), "m", []messages.TopicPartition{tp0})
			return err == nil && states[tp0].GapFrom == 1 && states[tp0].GapTo == 9
		})
	})
}

// TestC06StopInABlackHole: the source takes everything and answers nothing.
func TestC06StopInABlackHole(t *testing.T) {
	n := newNode(t, t.TempDir(), freshImage(t, messages.DesiredStopped))
	n.untilState(messages.StateStopped) // nothing was ever here
	n.source.set(func(s *fakeSource) { s.hang = true })
	n.want(messages.DesiredActive)
	n.untilState(messages.StateLogTruncation)
	n.want(messages.DesiredStopped)
	n.untilState(messages.StateStopped)
	n.until("writable", func() bool { return produce(n) == nil })
}

// TestK9EpochFollowsElectionsWithoutRecords: the source elects leaders and nobody
// writes. DLE stays ahead as soon as the source names its epoch, not at the next refresh.
func TestK9EpochFollowsElectionsWithoutRecords(t *testing.T) {
	n := newNode(t, t.TempDir(), freshImage(t, messages.DesiredActive))
	a := n.untilFetching()
	first := n.replica().State().LeaderEpoch
	a.Notify(fetch.SourceLeaderMoved{Leader: fetch.Leader{ID: 2, Epoch: first - 3}})
	a = n.untilFetching()
	require.Equal(t, first, n.replica().State().LeaderEpoch, "far enough ahead")
	a.Notify(fetch.SourceLeaderMoved{Leader: fetch.Leader{ID: 1, Epoch: first - 2}})
	n.until("raised", func() bool { return n.replica().State().LeaderEpoch == first-2+10+1 })
	require.Equal(t, messages.StateMirroring, n.status().State)
	a = n.untilFetching()
	a.Notify(fetch.NearEpoch{SourceEpoch: 40, LeaderEpoch: first}) // the same leader again
	n.until("raised again", func() bool { return n.replica().State().LeaderEpoch == 51 })
}

func TestFailuresOfTheSource(t *testing.T) {
	n := newNode(t, t.TempDir(), freshImage(t, messages.DesiredActive))
	a := n.untilFetching()
	a.Notify(fetch.LeaderUnknown{Err: errLeaderUnknown})
	n.until("retried", func() bool { s := n.status(); return s.State == messages.StateMirroring && s.RetryAttempt == 1 })
	a = n.untilFetching()
	a.Notify(fetch.FirstSuccess{})
	n.until("healthy", func() bool { return n.status().RetryAttempt == 0 })

	// EPOCH_FENCING: refused, raised, fetched again.
	n.source.set(func(s *fakeSource) { s.epoch = 8 })
	a.Notify(fetch.BatchEpochAboveDLE{BatchEpoch: 8, LeaderEpoch: 5})
	n.until("raised", func() bool { s := n.status(); return s.State == messages.StateMirroring && s.LeaderEpoch == 19 })
	n.untilFetching()
	require.Equal(t, int32(19), n.replica().State().LeaderEpoch, "max(8 + 10, 5) + 1")

	// Permanent, then recovered.
	n.fetchers.mu.Lock()
	n.fetchers.err = errLeaderUnknown
	n.fetchers.mu.Unlock()
	n.partitions.Reconnect("m")
	n.until("permanent", func() bool { return n.status().Permanent })
	require.Contains(t, n.status().Error, "names no leader")
	n.fetchers.mu.Lock()
	n.fetchers.err = nil
	n.fetchers.mu.Unlock()
	count, err := n.partitions.Recover(t.Context(), messages.Requester{Principal: "User:op"}, "m", "t")
	require.NoError(t, err)
	require.Equal(t, 1, count)
	n.untilState(messages.StateMirroring)
	count, err = n.partitions.Recover(t.Context(), messages.Requester{}, "m", "t")
	require.NoError(t, err)
	require.Zero(t, count)

	// OP-26.
	n.partitions.SourceChanged("m", "another cluster")
	n.untilState(messages.StateFailed)
	_, fetching := n.fetchers.get(tp0)
	require.False(t, fetching)
	n.partitions.SourceBack("m")
	n.untilState(messages.StateMirroring)
}
