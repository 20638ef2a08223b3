package logtest

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

func setLastOffsetDelta(b []byte, delta int32) {
	binary.BigEndian.PutUint32(b[23:], uint32(delta))
	fixCRC(b)
}

func fixCRC(b []byte) {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}

// Run is the whole suite. newHarness is called once for every test.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"Append", testAppend},
		{"ReadLimits", testReadLimits},
		{"C07CompactionHoles", testC07},
		{"C10Trim", testC10},
		{"C13TwoElections", testC13},
		{"C15CutAndRefill", testC15},
		{"TruncateInGapAndBatch", testTruncateEdges},
		{"RestartAt", testRestart},
		{"CutCounts", testCutCounts},
		{"EpochsTrimmed", testEpochs},
		{"C22AbortedTxns", testC22},
		{"Producers", testProducers},
		{"D24PIDReset", testPIDReset},
		{"C25Timestamps", testC25},
		{"C26LargeBatches", testC26},
		{"C27Names", testC27},
		{"C30Codecs", testC30},
		{"RetentionBySize", testRetentionSize},
		{"RetentionByTime", testRetentionTime},
		{"WideGap", testWideGap},
		{"Closed", testClosed},
		{"ChunkOutlivesCut", testChunk},
		{"Random", testRandom},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newHarness(t)) })
	}
}

// fill appends n two-record batches from offset 0 on: epoch i/10, time 1000+10*i.
func (b *bench) fill(n int) (all []byte) {
	b.t.Helper()
	for i := range n {
		x := Build(Spec{Base: b.log.End(), Count: 2, Epoch: int32(i / 10), Time: 1000 + 10*int64(i), Value: "value"})
		b.append(x)
		all = append(all, x...)
	}
	return all
}

func testAppend(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	require.Equal(t, messages.NoEpoch, b.log.LatestEpoch())
	want := b.fill(40)
	require.EqualValues(t, 80, b.log.End())
	require.EqualValues(t, len(want), b.log.SizeBytes())
	require.Equal(t, want, Contents(t, b.log, 300))
	many := append(Build(Spec{Base: 80, Count: 1, Epoch: 4, Time: 1}), Build(Spec{Base: 90, Count: 3, Epoch: 5, Time: 2})...)
	info := b.append(many)
	require.Equal(t, persistence.AppendInfo{
		FirstOffset: 80, LastOffset: 92, End: 93, MaxTimestamp: 4, Bytes: len(many), Batches: 2, MaxEpoch: 5,
	}, info)
	want = append(want, many...)
	for name, bad := range map[string][]byte{
		"below end":  Build(Spec{Base: 92, Count: 1}),
		"cut off":    Build(Spec{Base: 93, Count: 1})[:60],
		"half":       many[:len(many)-1],
		"order":      append(Build(Spec{Base: 99, Count: 2}), Build(Spec{Base: 100, Count: 1})...),
		"wrong crc":  flipped(Build(Spec{Base: 93, Count: 1, Value: "x"})),
		"bad header": make([]byte, 100),
	} {
		_, err := b.log.Append(bad, persistence.AppendOptions{CheckCRC: true})
		require.Error(t, err, name)
		require.EqualValues(t, 93, b.log.End(), name)
	}
	for _, again := range []func(){func() {}, b.reopen, b.crash} {
		again()
		require.EqualValues(t, 93, b.log.End())
		require.Equal(t, want, Contents(t, b.log, 1<<20))
		require.EqualValues(t, 5, b.log.LatestEpoch())
	}
}

func flipped(b []byte) []byte {
	b[len(b)-1] ^= 1
	return b
}

func testReadLimits(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, persistence.Config{IndexIntervalBytes: 200})
	b.fill(50)
	one := int(b.log.SizeBytes() / 50)
	for _, c := range []struct {
		name   string
		off    int64
		max    int
		upTo   int64
		minOne bool
		want   int // batches
	}{
		{"one of less", 10, 1, 100, true, 1},
		{"none of less", 10, one - 1, 100, false, 0},
		{"exactly two", 10, 2 * one, 100, true, 2},
		{"almost three", 10, 3*one - 1, 100, false, 2},
		{"inside a batch", 11, 2 * one, 100, true, 2},
		{"up to", 10, 1 << 20, 20, true, 5},
		{"up to inside a batch", 10, 1 << 20, 19, true, 4},
		{"up to itself", 10, 1 << 20, 10, true, 0},
		{"up to below", 10, 1 << 20, 5, true, 0},
		{"first batch above up to", 10, 1 << 20, 11, true, 0},
		{"end", 100, 1 << 20, 100, true, 0},
		{"all", 0, 1 << 20, 100, true, 50},
		{"up to beyond", 90, 1 << 20, 1 << 40, true, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := readChunk(t, b.log, c.off, c.max, c.upTo, c.minOne)
			require.Len(t, got, c.want*one)
		})
	}
	for _, off := range []int64{-1, 101} {
		_, err := b.log.Read(off, 1, 1000, true)
		require.ErrorIs(t, err, persistence.ErrOffsetOutOfRange)
	}
}

func testC07(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	hole := Build(Spec{Base: 4, Count: 2, Delta: 3})
	empty := Build(Spec{Base: 8, Count: 1, Producer: 7, Seq: 12})[:batch.HeaderSize]
	binary.BigEndian.PutUint32(empty[8:], batch.HeaderSize-batch.Overhead)
	binary.BigEndian.PutUint32(empty[57:], 0)
	setLastOffsetDelta(empty, 4)
	b.append(Build(Spec{Base: 0, Count: 1}), Build(Spec{Base: 2, Count: 1}), hole, empty)
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		require.EqualValues(t, 13, b.log.End())
		for off, base := range map[int64]int64{0: 0, 1: 2, 2: 2, 3: 4, 6: 4, 8: 8, 12: 8} {
			c, err := b.log.Read(off, 1<<20, 13, true)
			require.NoError(t, err)
			require.Equal(t, base, c.FirstOffset)
			require.EqualValues(t, 13, c.NextOffset)
			c.Release()
		}
		got, _ := readChunk(t, b.log, 8, 1, 13, true)
		require.Equal(t, empty, got)
		p, ok := b.log.Producer(7)
		require.True(t, ok)
		require.EqualValues(t, 16, p.Batches[len(p.Batches)-1].LastSequence)
	}
	b.append(Build(Spec{Base: 13, Count: 1}))
	require.EqualValues(t, 14, b.log.End())
}

func testC10(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	for b.log.End() < 3382 {
		b.append(Build(Spec{Base: b.log.End(), Count: 38, Epoch: 2}))
	}
	b.reopen()
	require.NoError(t, b.log.RaiseLogStart(1000))
	require.NoError(t, b.log.RaiseLogStart(900), "never down")
	require.ErrorIs(t, b.log.RaiseLogStart(3383), persistence.ErrOffsetOutOfRange)
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		require.EqualValues(t, 1000, b.log.LogStart())
		require.EqualValues(t, 3382, b.log.End())
		_, err := b.log.Read(999, 1, 3382, true)
		require.ErrorIs(t, err, persistence.ErrOffsetOutOfRange)
		got, _ := readChunk(t, b.log, 1000, 1, 3382, true)
		require.NotEmpty(t, got)
		require.Equal(t, []persistence.EpochEntry{{Epoch: 2, StartOffset: 1000}}, b.log.Epochs())
	}
	require.NoError(t, b.log.RaiseLogStart(3382))
	b.reopen()
	require.EqualValues(t, 3382, b.log.LogStart())
	b.append(Build(Spec{Base: 3382, Count: 1}))
	b.crash()
	require.EqualValues(t, 3383, b.log.End())
}

func testC13(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	for off := range int64(25) {
		b.append(Build(Spec{Base: off, Count: 1, Epoch: 1 + int32(off/20)}))
	}
	e, end, ok := b.log.EpochEndOffset(1)
	require.Equal(t, []any{int32(1), int64(20), true}, []any{e, end, ok})
	cut, err := b.log.Truncate(min(end, 18))
	require.NoError(t, err)
	require.Equal(t, persistence.Cut{From: 18, To: 25, Records: 7, Bytes: cut.Bytes}, cut)
	for off := int64(18); off < 30; off++ {
		b.append(Build(Spec{Base: off, Count: 1, Epoch: 3}))
	}
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		require.EqualValues(t, 30, b.log.End())
		require.Equal(t, []persistence.EpochEntry{{Epoch: 1, StartOffset: 0}, {Epoch: 3, StartOffset: 18}}, b.log.Epochs())
		for _, q := range []struct {
			ask, epoch int32
			end        int64
			found      bool
		}{{0, -1, -1, false}, {1, 1, 18, true}, {2, 1, 18, true}, {3, 3, 30, true}, {9, 3, 30, true}} {
			e, end, ok := b.log.EpochEndOffset(q.ask)
			require.Equal(t, []any{q.epoch, q.end, q.found}, []any{e, end, ok}, "epoch %d", q.ask)
		}
	}
}

func testC15(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	twin := persistence.NewMemoryLog(persistence.Info{}, small)
	put := func(from, to int64, value string, epoch int32) {
		for off := from; off < to; off++ {
			x := Build(Spec{Base: off, Count: 1, Epoch: epoch, Time: off * 7 % 50, Value: value, Producer: 9, Seq: int32(off)})
			b.append(x)
			_, err := twin.Append(x, persistence.AppendOptions{})
			require.NoError(t, err)
		}
	}
	cut := func(to int64) {
		_, err := b.log.Truncate(to)
		require.NoError(t, err)
		_, err = twin.Truncate(to)
		require.NoError(t, err)
	}
	put(0, 25, "old", 1)
	cut(18)
	put(18, 30, "new", 2)
	b.crash()
	Compare(t, twin, b.log)
	cut(5)
	put(5, 12, "newest", 3)
	b.reopen()
	Compare(t, twin, b.log)
	require.EqualValues(t, 12, b.log.End())
}

func testTruncateEdges(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	b.append(Build(Spec{Base: 0, Count: 2}), Build(Spec{Base: 4, Count: 4}), Build(Spec{Base: 20, Count: 1}))
	for _, c := range []struct{ to, end int64 }{{21, 21}, {100, 21}, {12, 8}, {6, 2}, {3, 2}, {0, 0}} {
		plan, err := b.log.PlanCut(c.to)
		require.NoError(t, err)
		cut, err := b.log.Truncate(c.to)
		require.NoError(t, err)
		require.Equal(t, c.end, b.log.End(), "to %d", c.to)
		require.Equal(t, c.end, cut.From)
		require.Equal(t, plan, cut, "to %d", c.to)
		b.crash()
		require.Equal(t, c.end, b.log.End(), "to %d", c.to)
	}
	b.fill(30)
	require.NoError(t, b.log.RaiseLogStart(31))
	plan, err := b.log.PlanCut(7)
	require.NoError(t, err)
	cut, err := b.log.Truncate(7)
	require.NoError(t, err)
	require.Equal(t, plan, cut)
	require.Equal(t, []int64{7, 60, 7, 7}, []int64{cut.From, cut.To, b.log.LogStart(), b.log.End()})
	b.append(Build(Spec{Base: 7, Count: 1}))
}

func testRestart(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	all := b.fill(30)
	cut, err := b.log.RestartAt(100)
	require.NoError(t, err)
	require.Equal(t, persistence.Cut{From: 100, To: 60, Records: 60, Bytes: int64(len(all))}, cut)
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		require.Equal(t, []int64{100, 100, 0}, []int64{b.log.LogStart(), b.log.End(), b.log.SizeBytes()})
		require.Empty(t, b.log.Epochs())
	}
	b.append(Build(Spec{Base: 150, Count: 1, Epoch: 1}))
	b.crash()
	require.Equal(t, []int64{100, 151}, []int64{b.log.LogStart(), b.log.End()})
	_, err = b.log.RestartAt(20)
	require.NoError(t, err, "down works as well")
	require.EqualValues(t, 20, b.log.End())
	_, err = b.log.RestartAt(-1)
	require.ErrorIs(t, err, persistence.ErrOffsetOutOfRange)
}

func testEpochs(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	b.fill(40) // epochs 0 to 3 from 0, 20, 40, 60
	require.NoError(t, b.log.RaiseLogStart(30))
	want := []persistence.EpochEntry{{Epoch: 1, StartOffset: 30}, {Epoch: 2, StartOffset: 40}, {Epoch: 3, StartOffset: 60}}
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		require.Equal(t, want, b.log.Epochs())
		require.EqualValues(t, 2, b.log.EpochForOffset(59))
		require.Equal(t, messages.NoEpoch, b.log.EpochForOffset(29))
	}
	b.append(Build(Spec{Base: 80, Count: 1, Epoch: 2}))
	require.Equal(t, []persistence.EpochEntry{{Epoch: 1, StartOffset: 30}, {Epoch: 2, StartOffset: 80}}, b.log.Epochs())
}
