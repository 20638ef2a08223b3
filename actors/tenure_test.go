package actors

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/fetch"
	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// heldReplica is a replica whose tenure a test changes.
type heldReplica struct {
	*cluster.Replica
	more     atomic.Uint64
	mu       sync.Mutex
	watchers map[int]func()
	last     int
}

func (h *heldReplica) Tenure() uint64 { return h.Replica.Tenure() + h.more.Load() }

func (h *heldReplica) Watch(f func()) func() {
	cancel := h.Replica.Watch(f)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	number := h.last
	h.watchers[number] = f
	return func() {
		cancel()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, number)
	}
}

// change is n changes of the leadership that no image tells of.
func (h *heldReplica) change(n uint64) {
	h.more.Add(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.watchers {
		f()
	}
}

func (n *node) held(tp messages.TopicPartition) *heldReplica {
	n.t.Helper()
	r, err := n.replicas.Get(tp)
	require.NoError(n.t, err)
	held, ok := n.tenures.Load(r)
	require.True(n.t, ok)
	return held.(*heldReplica)
}

// TestLeadershipLostBetweenImages: another node claimed in between, and no image
// that named it was seen: the partition begins anew by reading its state.
func TestLeadershipLostBetweenImages(t *testing.T) {
	n := newNode(t, t.TempDir(), stateImage(t, "m", messages.DesiredActive, 5, 1))
	n.untilState(messages.StateMirroring)
	before := n.partitions.Get(tp0)
	first := n.untilFetching()
	n.held(tp0).change(2)
	n.until("a fetcher of the new leadership", func() bool {
		a, ok := n.fetchers.get(tp0)
		return ok && a.Sink != first.Sink
	})
	n.untilState(messages.StateMirroring)
	if after := n.partitions.Get(tp0); after == before || after.tenure == before.tenure {
		t.Fatal("the old actor went on")
	}
	// A bump of its own is no such change.
	before = n.partitions.Get(tp0)
	require.NoError(t, n.held(tp0).Claim(t.Context(), 9))
	n.untilState(messages.StateMirroring)
	require.Same(t, before, n.partitions.Get(tp0))
}

// TestPartitionOfAnIsolatedLeader: while the order doesn't reach the node it fetches
// nothing, though the image says that it leads, and goes on afterwards.
func TestPartitionOfAnIsolatedLeader(t *testing.T) {
	n := newNode(t, t.TempDir(), stateImage(t, "m", messages.DesiredActive, 5, 1))
	n.untilState(messages.StateMirroring)
	for range 3 {
		n.held(tp0).change(1)
		n.until("no fetcher", func() bool {
			_, ok := n.fetchers.get(tp0)
			return !ok && n.partitions.Get(tp0) == nil
		})
		// An image says nothing new about who leads.
		n.change(metadata.ConfigRecord(messages.ResourceTopic, "t", "retention.ms", new(string)))
		require.NoError(t, n.replicas.WaitApplied(t.Context(), n.image.Offset()))
		require.Nil(t, n.partitions.Get(tp0))
		n.held(tp0).change(1)
		n.until("a fetcher again", func() bool {
			_, ok := n.fetchers.get(tp0)
			return ok && n.partitions.Get(tp0) != nil
		})
		n.untilState(messages.StateMirroring)
	}
}

// TestPartitionWaitsForItsClaim: what the image says isn't enough to start.
func TestPartitionWaitsForItsClaim(t *testing.T) {
	image := stateImage(t, "m", messages.DesiredActive, 5, 1)
	log := &stateLog{}
	shard := newOneShard(t, log)
	shard.image.Store(image)
	bus := &crowd{log: log, bus: shard.bus}
	waiting := &lateReplica{idleReplica: &idleReplica{}}
	waiting.epoch.Store(5)
	fetchers := &fakeFetchers{now: map[messages.TopicPartition]fetch.Assignment{}}
	ps := NewPartitions(t.Context(), PartitionsConfig{
		System: shard.system, Node: 1, Source: &fakeSource{lme: messages.NoEpoch}, Bumper: bus, States: bus, Clock: clock.Wall{}, Log: zap.NewNop(),
		Fetchers: fetchers, Replica: func(messages.TopicPartition) (PartitionReplica, error) { return waiting, nil },
		Policy: fsm.DefaultRetryPolicy, Random: func() float64 { return 0 },
	})
	t.Cleanup(func() { require.NoError(t, ps.Close()) })
	ps.Apply(image, nil)
	ps.Apply(image, map[string]struct{}{"t": {}})
	wait := &node{t: t, partitions: ps}
	wait.until("watched", func() bool {
		waiting.mu.Lock()
		defer waiting.mu.Unlock()
		return waiting.watch != nil
	})
	require.Nil(t, ps.Get(tp0))
	require.Zero(t, bus.requests.Load())
	waiting.tenure.Store(1)
	waiting.raise(5)
	wait.until("started by the claim", func() bool { _, ok := fetchers.get(tp0); return ok })
}

// lateReplica begins without its claim.
type lateReplica struct {
	*idleReplica
	tenure atomic.Uint64
}

func (r *lateReplica) Tenure() uint64 { return r.tenure.Load() }

// TestD17CoordinatorTenure: a coordinator drops what it has loaded when it leads no
// more, is asked under the epoch of its leadership only, and loads again what another
// one stored meanwhile.
func TestD17CoordinatorTenure(t *testing.T) {
	log := &stateLog{}
	bus := &localBus{}
	system := NewSystem(zap.NewNop())
	cs := NewCoordinators(t.Context(), CoordinatorsConfig{
		System: system, Node: 1, Server: bus, Clock: clock.Wall{}, Log: zap.NewNop(),
		Replica: func(messages.TopicPartition) (StateReplica, error) { return log, nil },
	})
	t.Cleanup(func() {
		require.NoError(t, cs.Close())
		system.Shutdown()
	})
	asked := func(epoch int32) *oneShard {
		return &oneShard{t: t, bus: bus, log: log, epoch: epoch, number: 0}
	}
	log.change(1) // not claimed yet
	image := stateImage(t, "m", messages.DesiredActive, 5, 2)
	cs.Apply(image, nil)
	require.NoError(t, (clock.Wall{}).Sleep(t.Context(), 20*time.Millisecond))
	_, err := bus.request(t.Context(), bus.MirrorRead(0, 5), nil)
	require.ErrorContains(t, err, "nobody serves")
	log.change(1)
	require.Zero(t, asked(5).write(int8(messages.StateLogTruncation)).Topics[0].Partitions[0].ErrorCode)

	// Another node leads in between and stores MIRRORING.
	log.change(1)
	other := &stateLog{bytes: log.bytes, end: log.end}
	second := newOneShard(t, other)
	second.number = 3
	require.Zero(t, second.write(int8(messages.StateMirroring)).Topics[0].Partitions[0].ErrorCode)
	log.mu.Lock()
	log.bytes, log.end = other.bytes, other.end
	log.mu.Unlock()
	log.change(1)
	require.Equal(t, messages.StateMirroring, asked(5).read(0).State)

	// A new epoch: the old subject is served no more.
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.MinLeaderEpoch = image.Topic(messages.MirrorStateTopic).ID, 0, 8
	d, err := image.Apply(image.Offset()+1, []metadata.Record{r})
	require.NoError(t, err)
	cs.Apply(d.New, d.Topics)
	require.Equal(t, messages.StateMirroring, asked(9).read(0).State)
	(&node{t: t}).until("epoch 5 isn't served", func() bool {
		_, err := bus.request(t.Context(), bus.MirrorRead(0, 5), nil)
		return err != nil
	})
}

// TestCoordinatorMeetsALateAppend: an append that was given up lands after all; the
// log is read again before anything is stored on top of it.
func TestCoordinatorMeetsALateAppend(t *testing.T) {
	log := &stateLog{}
	s := newOneShard(t, log)
	require.Zero(t, s.write(int8(messages.StateLogTruncation)).Topics[0].Partitions[0].ErrorCode)
	late := &stateLog{bytes: append([]byte(nil), log.bytes...), end: log.end}
	second := newOneShard(t, late)
	require.Zero(t, second.write(int8(messages.StateMirroring)).Topics[0].Partitions[0].ErrorCode)
	log.mu.Lock()
	log.bytes, log.end = late.bytes, late.end // it lands
	log.mu.Unlock()
	require.Zero(t, s.write(int8(messages.StatePausing)).Topics[0].Partitions[0].ErrorCode)
	again := newOneShard(t, log)
	require.Equal(t, messages.StatePausing, again.read(0).State)
	require.Equal(t, messages.StatePausing, s.read(0).State)
}

// TestStateClientAsksTheImagesCoordinator: nobody there is NOT_COORDINATOR, which is
// retried; no topic at all isn't.
func TestStateClientAsksTheImagesCoordinator(t *testing.T) {
	var image atomic.Pointer[metadata.Image]
	image.Store(metadata.EmptyImage())
	bus := &askedBus{err: cluster.ErrNoResponders}
	states := NewStateClient(bus, image.Load, clock.Wall{})
	_, err := states.ReadMirrorStates(t.Context(), "m", nil)
	require.ErrorIs(t, err, messages.ErrCoordinatorNotAvailable)
	image.Store(stateImage(t, "m", messages.DesiredActive, 5, 1))
	_, err = states.WriteMirrorStates(t.Context(), "m", nil)
	require.ErrorIs(t, err, messages.ErrNotCoordinator)
	require.Equal(t, []string{"write.0.5"}, bus.asked)
}

type askedBus struct {
	localBus
	asked []string
	err   error
}

func (b *askedBus) Request(_ context.Context, subject string, _ []byte) ([]byte, error) {
	b.asked = append(b.asked, subject)
	return nil, b.err
}
