package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

var testKey = messages.PartitionKey{TopicID: messages.TopicID{1, 2, 3}, CreatedAt: 77, Partition: 0}

// rig is a data folder with one partition, which can be opened again and again.
type rig struct {
	t           testing.TB
	folder      string
	log         *fakeLog
	checkpoints *Checkpoints
	r           *Replica
}

func newRig(tb testing.TB) *rig {
	tb.Helper()
	g := &rig{t: tb, folder: tb.TempDir(), log: &fakeLog{}}
	g.open()
	require.NoError(tb, g.r.Claim(tb.Context(), 5))
	tb.Cleanup(func() { _ = g.checkpoints.Close() })
	return g
}

func (g *rig) open() {
	g.t.Helper()
	require.NoError(g.t, g.tryOpen())
}

func (g *rig) tryOpen() (err error) {
	if g.checkpoints, err = OpenCheckpoints(persistence.OSFS{}, g.folder, zap.NewNop()); err != nil {
		return err
	}
	g.r, err = OpenReplica(ReplicaOptions{
		Key: testKey, Partition: messages.TopicPartition{Topic: "t"}, Node: 1,
		Log: g.log, Checkpoints: g.checkpoints, Admit: true, Logger: zap.NewNop(),
	})
	return err
}

// kill drops the process: nothing is written any more.
func (g *rig) kill() {
	g.t.Helper()
	require.NoError(g.t, g.checkpoints.file.Close())
	g.checkpoints.closed = true
}

func (g *rig) mode(m messages.Mode) int64 {
	g.t.Helper()
	offset, err := g.r.SetMode(g.t.Context(), m)
	require.NoError(g.t, err)
	return offset
}

// records is one batch of n records at base.
func records(base int64, n int, epoch int32) []byte {
	rs := make([]batch.Record, n)
	for i := range rs {
		rs[i].Value = fmt.Appendf(nil, "value %d", base+int64(i))
	}
	b := batch.Append(nil, batch.Plain(), rs...)
	batch.SetOffsetAndEpoch(b, base, epoch)
	return b
}

var anyEpoch = persistence.ClientAppend{LeaderEpoch: messages.NoEpoch}

func TestReplicaAppendClient(t *testing.T) {
	g := newRig(t)
	for i, want := range []int64{0, 3, 6} {
		info, err := g.r.AppendClient(t.Context(), records(900, 3, 99), persistence.ClientAppend{LeaderEpoch: 5})
		require.NoError(t, err)
		require.Equal(t, want, info.FirstOffset, "append %d", i)
		require.Equal(t, int32(5), info.MaxEpoch)
	}
	two := append(records(0, 1, 0), records(0, 2, 0)...)
	info, err := g.r.AppendClient(t.Context(), two, persistence.ClientAppend{LeaderEpoch: 5, LogAppendTime: true, NowMillis: 4711})
	require.NoError(t, err)
	require.Equal(t, persistence.AppendInfo{FirstOffset: 9, LastOffset: 11, End: 12, MaxEpoch: 5, Bytes: len(two), Batches: 2}, info)
	last := g.log.batches[len(g.log.batches)-1]
	require.NoError(t, batch.CheckCRC(last.b))
	require.Equal(t, int64(4711), last.h.MaxTimestamp)
	s := g.r.State()
	require.Equal(t, persistence.ReplicaState{LeaderEpoch: 5, Generation: 1, Mode: messages.ModeWritable, HighWatermark: 12, End: 12}, s)
}

func TestReplicaAppendClientRefusals(t *testing.T) {
	idempotent := func() []byte {
		return batch.Append(nil, batch.Props{ProducerID: 7, BaseSequence: 0}, batch.Record{Value: []byte("x")})
	}
	holes := records(0, 3, 0)
	binary.BigEndian.PutUint32(holes[23:], 5)
	dup := &persistence.DuplicateError{FirstOffset: 1, LastOffset: 2}
	for _, tc := range []struct {
		name    string
		prepare func(*rig)
		batches []byte
		opts    persistence.ClientAppend
		want    error
	}{
		{"older epoch", nil, records(0, 1, 0), persistence.ClientAppend{LeaderEpoch: 4}, messages.ErrFencedLeaderEpoch},
		{"newer epoch", nil, records(0, 1, 0), persistence.ClientAppend{LeaderEpoch: 6}, messages.ErrUnknownLeaderEpoch},
		{"gate closed", func(g *rig) { g.r.SetAdmit(false) }, records(0, 1, 0), anyEpoch, messages.ErrReadOnlyTopic},
		{"sealed", func(g *rig) { g.mode(messages.ModeSealed) }, records(0, 1, 0), anyEpoch, messages.ErrReadOnlyTopic},
		{"mirroring", func(g *rig) { g.mode(messages.ModeMirroring) }, records(0, 1, 0), anyEpoch, messages.ErrReadOnlyTopic},
		{"control batch", nil, batch.AbortMarker(1, 0, 0, 0), anyEpoch, messages.ErrInvalidRequest},
		{"offsets with holes", nil, holes, anyEpoch, messages.ErrInvalidRequest},
		{"idempotent batch first of two", nil, append(idempotent(), records(0, 1, 0)...), anyEpoch, messages.ErrInvalidRequest},
		{"idempotent batch second of two", nil, append(records(0, 1, 0), idempotent()...), anyEpoch, messages.ErrInvalidRequest},
		{"duplicate", func(g *rig) { g.log.duplicateOf = func(batch.Header) error { return dup } }, idempotent(), anyEpoch, dup},
		{"no bytes", nil, nil, anyEpoch, messages.ErrInvalidRequest},
		{"cut off", nil, records(0, 1, 0)[:60], anyEpoch, batch.ErrCorrupt},
		{"cut off in the records", nil, records(0, 1, 0)[:64], anyEpoch, batch.ErrCorrupt},
		{"disk fails", func(g *rig) { g.log.failAppend = persistence.ErrStorage }, records(0, 1, 0), anyEpoch, persistence.ErrStorage},
		{"closed", func(g *rig) { require.NoError(t, g.r.Close()) }, records(0, 1, 0), anyEpoch, messages.ErrNotLeader},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			if tc.prepare != nil {
				tc.prepare(g)
			}
			_, err := g.r.AppendClient(t.Context(), tc.batches, tc.opts)
			require.ErrorIs(t, err, tc.want)
			require.Zero(t, g.r.State().End)
			require.Empty(t, g.log.batches)
		})
	}
}

func TestReplicaNeedsAClaim(t *testing.T) {
	g := &rig{t: t, folder: t.TempDir(), log: &fakeLog{}}
	g.open()
	defer g.kill()
	_, err := g.r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)
	_, err = g.r.AppendInternal(t.Context(), records(0, 1, 0))
	require.ErrorIs(t, err, messages.ErrNotLeader)
	_, err = g.r.AppendMirror(t.Context(), 0, records(0, 1, 0))
	require.ErrorIs(t, err, messages.ErrNotLeader)
	require.NoError(t, g.r.Claim(t.Context(), 3))
	require.ErrorIs(t, g.r.Claim(t.Context(), 2), messages.ErrFencedLeaderEpoch)
	require.NoError(t, g.r.Claim(t.Context(), 3))
}

func TestReplicaAppendMirror(t *testing.T) {
	g := newRig(t)
	g.mode(messages.ModeMirroring)
	want := append(records(3, 2, 1), records(9, 1, 5)...) // begins and goes on with a gap
	info, err := g.r.AppendMirror(t.Context(), 0, bytes.Clone(want))
	require.NoError(t, err)
	require.Equal(t, persistence.AppendInfo{FirstOffset: 3, LastOffset: 9, End: 10, MaxEpoch: 5, Bytes: len(want), Batches: 2}, info)
	require.Equal(t, want, append(bytes.Clone(g.log.batches[0].b), g.log.batches[1].b...), "bytes unchanged")

	_, err = g.r.AppendMirror(t.Context(), 9, records(10, 1, 5))
	require.ErrorIs(t, err, ErrNotLogEnd, "base below the end")
	_, err = g.r.AppendMirror(t.Context(), 11, records(11, 1, 5))
	require.ErrorIs(t, err, ErrNotLogEnd, "base above the end")
	_, err = g.r.AppendMirror(t.Context(), 10, records(9, 2, 5))
	require.ErrorIs(t, err, batch.ErrCorrupt, "batch below the base")
	_, err = g.r.AppendMirror(t.Context(), 10, append(records(12, 1, 5), records(11, 1, 5)...))
	require.ErrorIs(t, err, batch.ErrCorrupt, "offsets going back")

	_, err = g.r.AppendMirror(t.Context(), 10, append(records(10, 1, 5), records(11, 1, 6)...))
	var ahead *EpochAheadError
	require.ErrorAs(t, err, &ahead)
	require.Equal(t, int32(6), ahead.BatchEpoch)
	require.Equal(t, int32(5), ahead.Claimed)
	require.Equal(t, int64(10), g.r.State().End, "refused as a whole")

	_, err = g.r.AppendInternal(t.Context(), records(0, 1, 0))
	require.ErrorIs(t, err, messages.ErrReadOnlyTopic)
}

// Epochs in a log never go back: a partition that was mirrored up to epoch 5 and
// is led under less takes nothing of ours.
func TestReplicaEpochsNeverGoBack(t *testing.T) {
	g := newRig(t)
	_, err := g.log.Append(records(0, 1, 6), persistence.AppendOptions{})
	require.NoError(t, err)
	g.kill()
	g.open()
	require.NoError(t, g.r.Claim(t.Context(), 5))
	_, err = g.r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrFencedLeaderEpoch)
	_, err = g.r.AppendInternal(t.Context(), records(0, 1, 0))
	require.ErrorIs(t, err, messages.ErrFencedLeaderEpoch)
	require.NoError(t, g.r.Claim(t.Context(), 7))
	_, err = g.r.AppendClient(t.Context(), records(0, 1, 0), anyEpoch)
	require.NoError(t, err)
}

// A worker that was forgotten comes back after the partition was cut and filled
// up again to the very offset that it had fetched at.
func TestReplicaFencesForgottenWorkers(t *testing.T) {
	g := newRig(t)
	g.mode(messages.ModeMirroring)
	_, err := g.r.AppendMirror(t.Context(), 0, records(0, 10, 1))
	require.NoError(t, err)
	old := g.r.State().Generation
	_, err = g.r.Truncate(t.Context(), 0, "test")
	require.NoError(t, err)
	now := g.r.State().Generation
	_, err = g.r.AppendMirrorAt(t.Context(), now, 0, records(0, 10, 2))
	require.NoError(t, err)
	_, err = g.r.AppendMirrorAt(t.Context(), old, 10, records(10, 1, 2))
	require.ErrorIs(t, err, messages.ErrNotLeader)
	_, err = g.r.AppendMirrorAt(t.Context(), now, 10, records(10, 1, 2))
	require.NoError(t, err)
}

func TestReplicaTruncate(t *testing.T) {
	g := newRig(t)
	for range 3 {
		_, err := g.r.AppendClient(t.Context(), records(0, 10, 0), anyEpoch)
		require.NoError(t, err)
	}
	_, err := g.r.Truncate(t.Context(), 15, "not sealed")
	require.ErrorIs(t, err, ErrWritable)
	require.Equal(t, int64(30), g.mode(messages.ModeSealed))
	cut, err := g.r.Truncate(t.Context(), 15, "inside a batch")
	require.NoError(t, err)
	require.Equal(t, int64(10), cut.From)
	require.Equal(t, int64(30), cut.To)
	require.Equal(t, int64(20), cut.Records)
	require.Equal(t, int64(10), g.r.State().End)
	require.Equal(t, int64(10), g.mode(messages.ModeSealed), "the seal can't be above the end")
	cut, err = g.r.Truncate(t.Context(), 10, "nothing to cut")
	require.NoError(t, err)
	require.Zero(t, cut.Records)
	_, _, err = g.r.RestartAt(t.Context(), 500, "retention")
	require.NoError(t, err)
	s := g.r.State()
	require.Equal(t, int64(500), s.LogStart)
	require.Equal(t, int64(500), s.End)
}

// TestReplicaCountsCuts: what was cut in a mirror and isn't stored is known to
// the next process, whatever else is written meanwhile, and to no other mirror.
func TestReplicaCountsCuts(t *testing.T) {
	g := newRig(t)
	again := func() {
		t.Helper()
		g.kill()
		g.open()
		require.NoError(t, g.r.Claim(t.Context(), 5))
	}
	cut := func(to int64) persistence.Cut {
		t.Helper()
		end := g.r.State().End
		g.mode(messages.ModeMirroring)
		_, err := g.r.AppendMirror(t.Context(), end, append(records(end, 3, 1), records(end+3, 2, 1)...))
		require.NoError(t, err)
		c, err := g.r.Truncate(t.Context(), to, "test")
		require.NoError(t, err)
		return c
	}
	none := persistence.Cut{}
	require.Zero(t, g.r.CountCuts("m", none))
	first := cut(3)
	require.Zero(t, g.r.CountCuts("m", none), "this process has told of its own")
	again()
	require.Equal(t, first, g.r.CountCuts("m", none))
	require.Zero(t, g.r.CountCuts("m", first), "stored")
	second := cut(3)
	g.mode(messages.ModeWritable)
	again()
	require.Equal(t, second, g.r.CountCuts("m", first), "what is stored counts as well")

	require.Zero(t, g.r.CountCuts("other", none))
	third := cut(3)
	again()
	require.Zero(t, g.r.CountCuts("m", first))
	require.Equal(t, third, g.r.CountCuts("other", none))

	// A restart above the end is no cut, but its gap isn't lost (C12).
	require.Equal(t, int64(3), g.r.State().End)
	_, _, err := g.r.RestartAt(t.Context(), 10, "test")
	require.NoError(t, err)
	_, _, ok := g.r.GapAtOpen("other")
	require.False(t, ok, "this process tells of it")
	again()
	from, to, ok := g.r.GapAtOpen("other")
	require.Equal(t, []any{int64(3), int64(10), true}, []any{from, to, ok})
	_, _, ok = g.r.GapAtOpen("m")
	require.False(t, ok)
	require.Zero(t, g.r.CountCuts("other", third))

	require.True(t, g.r.HasCuts())
	require.NoError(t, g.r.ForgetCuts(t.Context(), "other"))
	require.False(t, g.r.HasCuts())
	require.Zero(t, g.r.CountCuts("other", none))
	again()
	require.Zero(t, g.r.CountCuts("other", none))
	require.False(t, g.r.HasCuts())
}

func TestReplicaSealIsRepeatable(t *testing.T) {
	g := newRig(t)
	g.mode(messages.ModeMirroring)
	_, err := g.r.AppendMirror(t.Context(), 0, records(0, 10, 3))
	require.NoError(t, err)
	require.Equal(t, int64(10), g.mode(messages.ModeSealed))
	require.Equal(t, int64(10), g.log.synced, "a seal is a promise about synced bytes")
	require.NoError(t, g.r.Claim(t.Context(), 8))
	_, err = g.r.AppendInternal(t.Context(), batch.AbortMarker(1, 0, 0, 0))
	require.NoError(t, err)
	require.Equal(t, int32(8), g.log.batches[1].h.LeaderEpoch)
	require.Equal(t, int64(10), g.mode(messages.ModeSealed))
	g.kill()
	g.open()
	_, err = g.r.AppendInternal(t.Context(), batch.AbortMarker(1, 0, 0, 0))
	require.ErrorIs(t, err, messages.ErrNotLeader, "an old claim is none")
	require.Equal(t, int64(10), g.mode(messages.ModeSealed), "after a crash as well")
	require.Equal(t, int32(8), g.r.State().LeaderEpoch)
	require.Equal(t, int64(11), g.mode(messages.ModeWritable))
}

func TestReplicaGate(t *testing.T) {
	g := newRig(t)
	readOnly := func() bool { return g.r.State().ReadOnly }
	require.False(t, readOnly())
	g.r.force(true)
	require.True(t, readOnly())
	g.r.SetAdmit(true) // of an actor that hasn't seen the image
	require.True(t, readOnly())
	g.r.force(false)
	require.True(t, readOnly(), "an admission from before doesn't count")
	g.r.SetAdmit(true)
	require.False(t, readOnly())
	g.mode(messages.ModeSealed)
	require.True(t, readOnly())
}

func TestReplicaWatch(t *testing.T) {
	g := newRig(t)
	var calls atomic.Int32
	cancel := g.r.Watch(func() { calls.Add(1); g.r.State() })
	other := g.r.Watch(func() {})
	did := func(what string, f func()) {
		t.Helper()
		before := calls.Load()
		f()
		require.Greater(t, calls.Load(), before, what)
	}
	did("append", func() { _, err := g.r.AppendClient(t.Context(), records(0, 2, 0), anyEpoch); require.NoError(t, err) })
	did("log start", func() { require.NoError(t, g.r.RaiseLogStart(t.Context(), 1)) })
	did("epoch", func() { require.NoError(t, g.r.Claim(t.Context(), 6)) })
	did("gate", func() { g.r.SetAdmit(false) })
	did("mode", func() { g.mode(messages.ModeSealed) })
	did("cut", func() { _, err := g.r.Truncate(t.Context(), 0, "test"); require.NoError(t, err) })
	did("close", func() { require.NoError(t, g.r.Close()) })
	cancel()
	cancel()
	before := calls.Load()
	g.r.SetAdmit(true)
	require.Equal(t, before, calls.Load())
	other()
	require.Nil(t, g.r.watchers.Load())
}

// TestReplicaCrash: power is lost at each point around a cut.
func TestReplicaCrash(t *testing.T) {
	for _, tc := range []struct {
		name    string
		crash   func(*rig)
		wantEnd int64
	}{
		{"before the cut", func(g *rig) {
			g.log.beforeCut = func() error { return errFault }
			_, err := g.r.Truncate(t.Context(), 10, "test")
			require.ErrorIs(t, err, errFault)
			_, err = g.r.AppendMirror(t.Context(), g.log.End(), records(30, 1, 1))
			require.ErrorIs(t, err, errFault, "nothing is appended behind a cut that isn't done")
			g.log.beforeCut = nil
		}, 10},
		{"before a restart", func(g *rig) {
			g.log.beforeCut = func() error { return errFault }
			_, _, err := g.r.RestartAt(t.Context(), 1000, "test")
			require.ErrorIs(t, err, errFault)
			g.log.beforeCut = nil
		}, 1000},
		{"after the cut, refilled", func(g *rig) {
			_, err := g.r.Truncate(t.Context(), 10, "test")
			require.NoError(t, err)
			_, err = g.r.AppendMirror(t.Context(), 10, records(10, 40, 2))
			require.NoError(t, err)
			require.NoError(t, g.log.Flush())
		}, 50},
		{"unsynced tail", func(*rig) {}, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			g.mode(messages.ModeMirroring)
			for i := range int64(3) {
				_, err := g.r.AppendMirror(t.Context(), i*10, records(i*10, 10, 1))
				require.NoError(t, err)
				if i == 1 {
					require.NoError(t, g.log.Flush())
				}
			}
			generation := g.r.State().Generation
			tc.crash(g)
			g.kill()
			g.log.powerLoss()
			g.open()
			s := g.r.State()
			require.Equal(t, tc.wantEnd, s.End)
			require.Equal(t, messages.ModeMirroring, s.Mode)
			require.Equal(t, int32(5), s.LeaderEpoch)
			require.NoError(t, g.r.Claim(t.Context(), 5))
			require.Greater(t, g.r.State().Generation, generation, "no generation comes twice")
			_, err := g.r.AppendMirror(t.Context(), tc.wantEnd, records(tc.wantEnd, 1, 1))
			require.NoError(t, err)
			// A second crash repeats nothing.
			require.NoError(t, g.log.Flush())
			g.kill()
			g.open()
			require.Equal(t, tc.wantEnd+1, g.r.State().End)
			require.False(t, g.r.Leads())
		})
	}
}

func TestReplicaCleanRestartWritesNothing(t *testing.T) {
	g := newRig(t)
	_, err := g.r.AppendClient(t.Context(), records(0, 3, 0), anyEpoch)
	require.NoError(t, err)
	require.NoError(t, g.r.Close())
	require.NoError(t, g.r.Close())
	require.NoError(t, g.checkpoints.Close())
	g.open()
	size := func() int64 {
		info, err := os.Stat(filepath.Join(g.folder, CheckpointFileName))
		require.NoError(t, err)
		return info.Size()
	}
	before := size()
	require.NoError(t, g.r.Claim(t.Context(), 5))
	g.mode(messages.ModeWritable)
	require.Equal(t, before, size())
	require.NoError(t, g.r.Claim(t.Context(), 6))
	require.Greater(t, size(), before)
}

func TestReplicaStateIsConsistent(t *testing.T) {
	g := newRig(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	errs := make(chan error, 2)
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s := g.r.State(); s.HighWatermark != s.End || s.LogStart > s.End || int64(s.LeaderEpoch) < s.End/3 {
					errs <- fmt.Errorf("torn state %+v", s)
					return
				}
			}
		})
	}
	for i := range 300 {
		require.NoError(t, g.r.Claim(t.Context(), int32(6+i)))
		_, err := g.r.AppendClient(t.Context(), records(0, 3, 0), anyEpoch)
		require.NoError(t, err)
		require.NoError(t, g.r.RaiseLogStart(t.Context(), g.r.State().End))
	}
	close(stop)
	readers.Wait()
	close(errs)
	require.NoError(t, <-errs)
}

func TestReplicaRetention(t *testing.T) {
	g := newRig(t)
	_, err := g.r.AppendClient(t.Context(), records(0, 3, 0), anyEpoch)
	require.NoError(t, err)
	n, err := g.r.ApplyRetention(t.Context(), persistence.RetentionPolicy{Bytes: 0})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, int64(3), g.r.State().LogStart)
	require.NoError(t, g.r.Close())
	_, err = g.r.ApplyRetention(t.Context(), persistence.RetentionPolicy{})
	require.True(t, errors.Is(err, ErrClosed))
}
