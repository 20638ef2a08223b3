package actors

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// idleReplica is a replica of an empty log that costs nothing.
type idleReplica struct {
	epoch atomic.Int32
	mode  atomic.Int32
	mu    sync.Mutex
	watch func()
}

// emptyLog is a log of which only these are called.
type emptyLog struct{ persistence.Log }

func (emptyLog) LogStart() int64                                 { return 0 }
func (emptyLog) End() int64                                      { return 0 }
func (emptyLog) EpochEndOffset(int32) (int32, int64, bool)       { return -1, -1, false }
func (emptyLog) EpochForOffset(int64) int32                      { return messages.NoEpoch }
func (emptyLog) LatestEpoch() int32                              { return messages.NoEpoch }
func (emptyLog) OpenTransactions() []persistence.OpenTransaction { return nil }

func (r *idleReplica) Log() persistence.Log { return emptyLog{} }
func (r *idleReplica) State() persistence.ReplicaState {
	return persistence.ReplicaState{LeaderEpoch: r.epoch.Load(), Mode: messages.Mode(r.mode.Load())}
}

func (r *idleReplica) Watch(f func()) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watch = nil
	}
}

func (r *idleReplica) Tenure() uint64 { return 1 }

func (r *idleReplica) raise(epoch int32) {
	r.epoch.Store(epoch)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watch != nil {
		r.watch()
	}
}

func (r *idleReplica) SetMode(_ context.Context, m messages.Mode) (int64, error) {
	r.mode.Store(int32(m))
	return 0, nil
}

func (r *idleReplica) Truncate(context.Context, int64, string) (persistence.Cut, error) {
	return persistence.Cut{}, nil
}

func (r *idleReplica) AppendInternal(context.Context, []byte) (persistence.AppendInfo, error) {
	return persistence.AppendInfo{}, nil
}
func (r *idleReplica) SetAdmit(bool) {}

func (r *idleReplica) GapAtOpen(string) (from, to int64, ok bool)        { return 0, 0, false }
func (r *idleReplica) CountCuts(string, persistence.Cut) persistence.Cut { return persistence.Cut{} }
func (r *idleReplica) HasCuts() bool                                     { return false }
func (r *idleReplica) TakeFinished() persistence.Cut                     { return persistence.Cut{} }
func (r *idleReplica) ForgetCuts(context.Context, string) error          { return nil }
func (r *idleReplica) Flush(context.Context) error                       { return nil }

func (r *idleReplica) AppendMirrorAt(context.Context, int64, int64, []byte) (persistence.AppendInfo, error) {
	return persistence.AppendInfo{}, nil
}

func (r *idleReplica) RestartAt(context.Context, int64, string) (persistence.Cut, int64, error) {
	return persistence.Cut{}, 0, nil
}
func (r *idleReplica) RaiseLogStart(context.Context, int64) error { return nil }

// crowd is a node with many partitions over one coordinator shard.
type crowd struct {
	log        *stateLog
	replicas   []*idleReplica
	partitions *Partitions
	image      *metadata.Image
	requests   atomic.Int64
	bumps      atomic.Int64
	bus        *localBus
}

func (c *crowd) ReadMirrorStates(ctx context.Context, _ string, body []byte) ([]byte, error) {
	c.requests.Add(1)
	return c.bus.request(ctx, c.bus.MirrorRead(3, 5), body)
}

func (c *crowd) WriteMirrorStates(ctx context.Context, _ string, body []byte) ([]byte, error) {
	c.requests.Add(1)
	return c.bus.request(ctx, c.bus.MirrorWrite(3, 5), body)
}

func (c *crowd) Bump(_ context.Context, bumps []messages.EpochBump) ([]error, error) {
	c.bumps.Add(1)
	for _, b := range bumps {
		c.replicas[b.Partition].raise(6)
	}
	return make([]error, len(bumps)), nil
}

func (c *crowd) count(s messages.State) (n int) {
	c.partitions.Range(func(h *PartitionHandle) bool {
		if st := h.Status(); st.State == s && !st.Writing {
			n++
		}
		return true
	})
	return n
}

// TestManyPartitions: stops of 5,000 partitions at once are written in batches,
// and an idle partition costs little.
func TestManyPartitions(t *testing.T) {
	const many = 5000
	c := &crowd{log: &stateLog{delay: 2 * time.Millisecond}, image: stateImage(t, "m", messages.DesiredActive, 5, many)}
	shard := newOneShard(t, c.log)
	shard.image.Store(c.image)
	c.bus = shard.bus
	for range many {
		r := &idleReplica{}
		r.epoch.Store(5)
		c.replicas = append(c.replicas, r)
	}
	before := inUse()
	c.partitions = NewPartitions(t.Context(), PartitionsConfig{
		System: shard.system, Node: 1, Source: &fakeSource{lme: messages.NoEpoch}, Bumper: c, States: c, Clock: clock.Wall{}, Log: zap.NewNop(),
		Fetchers: &fakeFetchers{now: map[messages.TopicPartition]fetch.Assignment{}},
		Replica:  func(tp messages.TopicPartition) (PartitionReplica, error) { return c.replicas[tp.Partition], nil },
		Policy:   fsm.DefaultRetryPolicy, Random: func() float64 { return 0 },
	})
	t.Cleanup(func() { require.NoError(t, c.partitions.Close()) })
	wait := &node{t: t, partitions: c.partitions}

	c.partitions.Apply(c.image, nil)
	wait.until("all mirror", func() bool { return c.count(messages.StateMirroring) == many })
	each := (inUse() - before) / many
	t.Logf("%d bytes a partition, %d requests, %d appends", each, c.requests.Load(), c.log.appends)
	require.Less(t, each, int64(20<<10))

	c.requests.Store(0)
	appends := c.log.appends
	value := messages.FormatMirrorName("m", messages.DesiredStopped)
	d, err := c.image.Apply(c.image.Offset()+1, []metadata.Record{metadata.ConfigRecord(messages.ResourceTopic, "t", messages.MirrorNameConfig, &value)})
	require.NoError(t, err)
	c.partitions.Apply(d.New, d.Topics)
	wait.until("all stopped", func() bool { return c.count(messages.StateStopped) == many })
	t.Logf("stop: %d requests, %d appends, %d bumps", c.requests.Load(), c.log.appends-appends, c.bumps.Load())
	// One by one it would be 20,000 writes and 5,000 bumps.
	require.Less(t, c.requests.Load(), int64(many/2))
	require.Less(t, c.bumps.Load(), int64(many/10))
	require.Equal(t, messages.StateStopped, shard.read(many-1).State)
}

// inUse is heap and stacks, after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
