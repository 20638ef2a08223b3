package logtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

func testC25(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, persistence.Config{IndexIntervalBytes: 1, SegmentMillis: math.MaxInt64 / 2})
	broker := Build(Spec{Base: 0, Count: 3, Time: 1000})
	batch.SetLogAppendTime(broker, 5000)
	b.append(broker,
		Build(Spec{Base: 3, Count: 1, Time: 1}),
		Build(Spec{Base: 4, Count: 1, Time: 4102444800000}),
		Build(Spec{Base: 5, Count: 1, Time: -1}))
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		for _, c := range []struct {
			ts, want, time int64
			ok             bool
		}{
			{1500, 0, 5000, true},
			{5001, 4, 4102444800000, true},
			{9999999999999, 0, 0, false},
		} {
			got, ok, err := b.log.OffsetForTimestamp(c.ts)
			require.NoError(t, err)
			require.Equal(t, c.ok, ok)
			require.Equal(t, []int64{c.want, c.time}, []int64{got.Offset, got.Timestamp}, "at %d", c.ts)
		}
		got, ok, err := b.log.MaxTimestamp()
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 4, got.Offset)
	}
	n, err := b.log.ApplyRetention(t.Context(), persistence.RetentionPolicy{NowMillis: 4102444800000, Millis: 1000, Bytes: -1, HighWatermark: 6})
	require.NoError(t, err)
	require.Zero(t, n, "one segment goes by its newest record")
	require.EqualValues(t, 0, b.log.LogStart())
}

func testC26(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, persistence.Config{SegmentBytes: 1 << 20})
	var want []byte
	for i, size := range []int{3000000, 10, 9000000, 17 << 20} {
		x := Build(Spec{Base: int64(i), Count: 1, Value: strings.Repeat("x", size)})
		b.append(x)
		want = append(want, x...)
	}
	b.crash()
	require.EqualValues(t, 4, b.log.End())
	require.True(t, bytes.Equal(want, Contents(t, b.log, 1024)))
}

func testC27(t *testing.T, h Harness) {
	t.Helper()
	s := h.Open(t)
	long := strings.Repeat("n", 248)
	names := []string{"a.b", "a_b", "a-b", "A.B", "a..b", long + "1", long + "2", "a", "a-0", "x-delete"}
	for i, name := range names {
		l, err := s.Create(t.Context(), persistence.Info{TopicPartition: messages.TopicPartition{Topic: name, Partition: int32(i % 2)}}, small)
		require.NoError(t, err, name)
		for n := range i + 1 {
			_, err := l.Append(Build(Spec{Base: int64(n), Count: 1, Value: name}), persistence.AppendOptions{})
			require.NoError(t, err)
		}
	}
	far := messages.TopicPartition{Topic: long + "1", Partition: 123456}
	_, err := s.Create(t.Context(), persistence.Info{TopicPartition: far}, small)
	require.NoError(t, err, "too long for a folder's name")
	for _, bad := range []string{".", "..", "", "a/b", long + "12"} {
		_, err := s.Create(t.Context(), persistence.Info{TopicPartition: messages.TopicPartition{Topic: bad}}, small)
		require.ErrorIs(t, err, messages.ErrInvalidTopic, bad)
	}
	_, err = s.Create(t.Context(), persistence.Info{TopicPartition: messages.TopicPartition{Topic: "a.b"}}, small)
	require.ErrorIs(t, err, persistence.ErrExists)
	require.NoError(t, s.Delete(t.Context(), messages.TopicPartition{Topic: "a_b", Partition: 1}))
	require.ErrorIs(t, s.Delete(t.Context(), messages.TopicPartition{Topic: "a_b", Partition: 1}), persistence.ErrNotFound)
	for range 2 {
		require.NoError(t, s.Close())
		s = h.Open(t)
		require.Len(t, s.Infos(), len(names))
		for i, name := range names {
			l, err := s.Open(t.Context(), messages.TopicPartition{Topic: name, Partition: int32(i % 2)}, small)
			if name == "a_b" {
				require.ErrorIs(t, err, persistence.ErrNotFound)
				continue
			}
			require.NoError(t, err, name)
			require.EqualValues(t, i+1, l.End(), name)
			require.Equal(t, i+1, bytes.Count(Contents(t, l, 1<<20), []byte(name)), name)
		}
		_, err = s.Open(t.Context(), far, small)
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
}

// testC30: what is stored is what was given, whatever codec it says it has, and
// no codec gets in the way of anything.
func testC30(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	var want []byte
	for i, codec := range []batch.Codec{1, 1, 2, 3, 4, 7} {
		x := Build(Spec{Base: int64(i) * 2, Count: 2, Epoch: 9, Time: 100 * int64(i), Value: "v"})
		x[22] |= byte(codec)
		if i == 0 {
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			_, err := w.Write(x[batch.HeaderSize:])
			require.NoError(t, err)
			require.NoError(t, w.Close())
			x = append(x[:batch.HeaderSize:batch.HeaderSize], z.Bytes()...)
			binary.BigEndian.PutUint32(x[8:], uint32(len(x)-batch.Overhead))
		}
		fixCRC(x)
		b.append(x)
		want = append(want, x...)
	}
	b.crash()
	require.Equal(t, want, Contents(t, b.log, 1<<20))
	require.EqualValues(t, 9, b.log.LatestEpoch())
	got, ok, err := b.log.OffsetForTimestamp(1)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 1, got.Offset, "opened with gzip")
	got, ok, err = b.log.OffsetForTimestamp(301)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 6, got.Offset, "can't be opened: the batch's first offset")
}

func testRetentionSize(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	b.fill(60)
	size := b.log.SizeBytes()
	n, err := b.log.ApplyRetention(t.Context(), persistence.RetentionPolicy{Millis: -1, Bytes: size - 1, HighWatermark: 120})
	require.NoError(t, err)
	require.Zero(t, n, "less than a segment too much")
	n, err = b.log.ApplyRetention(t.Context(), persistence.RetentionPolicy{Millis: -1, Bytes: 3000, HighWatermark: 120})
	require.NoError(t, err)
	require.Positive(t, n)
	require.GreaterOrEqual(t, b.log.SizeBytes(), int64(3000))
	require.Less(t, b.log.SizeBytes(), int64(3000+small.SegmentBytes))
	start := b.log.LogStart()
	b.crash()
	require.Equal(t, start, b.log.LogStart())
	require.EqualValues(t, 120, b.log.End())
	_, err = b.log.ApplyRetention(t.Context(), persistence.RetentionPolicy{Millis: -1, Bytes: 0, HighWatermark: start + 5})
	require.NoError(t, err)
	require.LessOrEqual(t, b.log.LogStart(), start+5, "nothing above the high watermark")
}

func testRetentionTime(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	b.fill(60) // newest record 1591
	policy := persistence.RetentionPolicy{NowMillis: 2000, Millis: 700, Bytes: -1, HighWatermark: 120}
	n, err := b.log.ApplyRetention(t.Context(), policy)
	require.NoError(t, err)
	require.Positive(t, n)
	got, ok, err := b.log.OffsetForTimestamp(0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, b.log.LogStart(), got.Offset)
	require.LessOrEqual(t, got.Timestamp, int64(1300))
	policy.NowMillis = 1 << 40
	_, err = b.log.ApplyRetention(t.Context(), policy)
	require.NoError(t, err)
	require.Equal(t, []int64{120, 120, 0}, []int64{b.log.LogStart(), b.log.End(), b.log.SizeBytes()}, "the last one goes too")
	b.crash()
	require.EqualValues(t, 120, b.log.End())
	b.append(Build(Spec{Base: 120, Count: 1}))
	b.reopen()
	require.EqualValues(t, 121, b.log.End())
}

func testWideGap(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	base := int64(0)
	for range 3 {
		b.append(Build(Spec{Base: base, Count: 2}), Build(Spec{Base: base + 1<<33, Count: 1}))
		base = base + 1<<33 + math.MaxInt32
	}
	want := Contents(t, b.log, 1<<20)
	for _, again := range []func(){b.crash, b.reopen} {
		again()
		require.Equal(t, base-math.MaxInt32+1, b.log.End())
		require.Equal(t, want, Contents(t, b.log, 1))
	}
}

// testCutCounts: a cut counts what it takes away: whole batches that end above the
// log start, by whichever call, planned or made, in one segment or in several.
func testCutCounts(t *testing.T, h Harness) {
	t.Helper()
	cuts := map[string]func(l persistence.Log) (persistence.Cut, error){
		"restart":              func(l persistence.Log) (persistence.Cut, error) { return l.RestartAt(100) },
		"restart below":        func(l persistence.Log) (persistence.Cut, error) { return l.RestartAt(3) },
		"truncate below start": func(l persistence.Log) (persistence.Cut, error) { return l.Truncate(3) },
		"truncate to start":    func(l persistence.Log) (persistence.Cut, error) { return l.Truncate(25) },
	}
	for _, cfg := range []persistence.Config{small, {}} {
		for name, do := range cuts {
			b := newBench(t, h, cfg)
			b.fill(12)
			gap := Build(Spec{Base: 40, Count: 3, Epoch: 2, Time: 1, Value: strings.Repeat("v", 200)})
			b.append(gap)
			require.NoError(t, b.log.RaiseLogStart(23)) // inside the last of the twelve
			last := Build(Spec{Base: 22, Count: 2, Epoch: 1, Time: 1110, Value: "value"})
			want := persistence.Cut{To: 43, Records: 5, Bytes: int64(len(last) + len(gap))}
			switch name {
			case "restart":
				want.From = 100
			case "restart below", "truncate below start":
				want.From = 3
			default:
				want.From, want.Records, want.Bytes = 24, 3, int64(len(gap))
			}
			plan, err := b.log.PlanCut(want.From)
			require.NoError(t, err)
			cut, err := do(b.log)
			require.NoError(t, err)
			require.Equal(t, want, cut, name)
			if name != "restart" { // nothing would be removed above the end
				require.Equal(t, want, plan, name)
			}
			require.NoError(t, b.log.Close())
			require.NoError(t, b.s.Delete(t.Context(), b.tp))
			require.NoError(t, b.s.Close())
		}
	}
}

func testClosed(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	b.fill(3)
	_, err := b.s.Open(t.Context(), b.tp, small)
	require.ErrorIs(t, err, persistence.ErrExists)
	require.NoError(t, b.log.Flush())
	require.EqualValues(t, 6, b.log.RecoveryPoint())
	require.NoError(t, b.log.Close())
	require.NoError(t, b.log.Close())
	_, err = b.log.Append(Build(Spec{Base: 6, Count: 1}), persistence.AppendOptions{})
	require.ErrorIs(t, err, persistence.ErrClosed)
	_, err = b.log.Read(0, 1, 6, true)
	require.ErrorIs(t, err, persistence.ErrClosed)
	_, err = b.log.Truncate(2)
	require.ErrorIs(t, err, persistence.ErrClosed)
	require.ErrorIs(t, b.log.Flush(), persistence.ErrClosed)
	require.ErrorIs(t, b.log.Sync(), persistence.ErrClosed)
	l, err := b.s.Open(t.Context(), b.tp, small)
	require.NoError(t, err)
	require.EqualValues(t, 6, l.End())
	require.NoError(t, b.s.Delete(t.Context(), b.tp))
	_, err = l.Read(0, 1, 6, true)
	require.ErrorIs(t, err, persistence.ErrClosed)
	require.NoError(t, b.s.Close())
	require.NoError(t, b.s.Close())
	_, err = b.s.Open(t.Context(), b.tp, small)
	require.ErrorIs(t, err, persistence.ErrClosed)
}

// testChunk: a chunk that is out keeps its bytes, whatever happens to the log.
func testChunk(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		do   func(b *bench)
	}{
		{"truncate", func(b *bench) {
			_, err := b.log.Truncate(3)
			require.NoError(t, err)
			b.append(Build(Spec{Base: 2, Count: 30, Value: "other"}))
		}},
		{"restart", func(b *bench) {
			_, err := b.log.RestartAt(0)
			require.NoError(t, err)
			b.append(Build(Spec{Base: 0, Count: 30, Value: "other"}))
		}},
		{"close", func(b *bench) { require.NoError(t, b.log.Close()) }},
		{"delete", func(b *bench) { require.NoError(t, b.s.Delete(t.Context(), b.tp)) }},
	} {
		b := newBench(t, h, persistence.Config{})
		want := b.fill(10)
		chunk, err := b.log.Read(0, 1<<20, 20, true)
		require.NoError(t, err)
		c.do(b)
		got, err := chunk.ReadAll()
		require.NoError(t, err, c.name)
		require.Equal(t, want, got, c.name)
		chunk.Release()
		chunk.Release()
		_ = b.s.Delete(t.Context(), b.tp)
		require.NoError(t, b.s.Close())
	}
}
