package logtest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// Store makes and opens logs: [persistence.Manager] and [persistence.Memory].
type Store interface {
	Create(ctx context.Context, info persistence.Info, cfg persistence.Config) (persistence.Log, error)
	Open(ctx context.Context, tp messages.TopicPartition, cfg persistence.Config) (persistence.Log, error)
	Delete(ctx context.Context, tp messages.TopicPartition) error
	Infos() []persistence.Info
	Close() error
}

// Harness gives a test its store. Open opens what the last store that it gave
// has left after its Close. Crash, if set, ends the current store as a process
// that dies, which loses nothing that was appended.
type Harness struct {
	Open  func(t testing.TB) Store
	Crash func(t testing.TB, s Store)
}

// bench is one log under test, reopened now and then.
type bench struct {
	t   testing.TB
	h   Harness
	s   Store
	cfg persistence.Config
	log persistence.Log
	tp  messages.TopicPartition
}

var small = persistence.Config{SegmentBytes: 1500, IndexIntervalBytes: 150}

func newBench(tb testing.TB, h Harness, cfg persistence.Config) *bench {
	tb.Helper()
	b := &bench{t: tb, h: h, s: h.Open(tb), cfg: cfg, tp: messages.TopicPartition{Topic: "t", Partition: 0}}
	tb.Cleanup(func() { _ = b.s.Close() })
	info := persistence.Info{TopicPartition: b.tp, Key: messages.PartitionKey{TopicID: messages.TopicID{1}, CreatedAt: 5}}
	l, err := b.s.Create(tb.Context(), info, cfg)
	require.NoError(tb, err)
	b.log = l
	return b
}

// reopen closes cleanly and opens again.
func (b *bench) reopen() {
	b.t.Helper()
	require.NoError(b.t, b.s.Close())
	b.open()
}

// crash is reopen after the death of the process, where the harness has it.
func (b *bench) crash() {
	b.t.Helper()
	if b.h.Crash == nil {
		b.reopen()
		return
	}
	b.h.Crash(b.t, b.s)
	b.open()
}

func (b *bench) open() {
	b.t.Helper()
	b.s = b.h.Open(b.t)
	l, err := b.s.Open(b.t.Context(), b.tp, b.cfg)
	require.NoError(b.t, err)
	b.log = l
}

func (b *bench) append(batches ...[]byte) persistence.AppendInfo {
	b.t.Helper()
	var all []byte
	for _, x := range batches {
		all = append(all, x...)
	}
	info, err := b.log.Append(all, persistence.AppendOptions{CheckCRC: true})
	require.NoError(b.t, err)
	return info
}

// Spec describes a batch for [Build].
type Spec struct {
	Base     int64
	Count    int // records
	Delta    int // last offset delta; 0 = Count-1
	Epoch    int32
	Time     int64 // of the first record; the others follow by 1 ms
	Producer int64 // 0 = none
	ProdEp   int16
	Seq      int32
	Txn      bool
	Value    string
}

// Build makes the batch of a spec.
func Build(s Spec) []byte {
	p := batch.Plain()
	p.BaseOffset, p.LeaderEpoch = s.Base, s.Epoch
	if s.Producer != 0 {
		p.ProducerID, p.ProducerEpoch, p.BaseSequence = s.Producer, s.ProdEp, s.Seq
	}
	if s.Txn {
		p.Attributes |= batch.AttrTransactional
	}
	recs := make([]batch.Record, s.Count)
	for i := range recs {
		recs[i] = batch.Record{Timestamp: s.Time + int64(i), Key: []byte("key"), Value: []byte(s.Value)}
	}
	b := batch.Append(nil, p, recs...)
	if s.Delta > 0 {
		setLastOffsetDelta(b, int32(s.Delta))
	}
	return b
}

// Contents reads a log from its start to its end, and checks on the way that
// chunks are whole batches that follow one another.
func Contents(tb testing.TB, l persistence.Log, maxBytes int) []byte {
	tb.Helper()
	var out []byte
	for off := l.LogStart(); off < l.End(); {
		b, next := readChunk(tb, l, off, maxBytes, l.End(), true)
		if len(b) == 0 {
			break
		}
		require.Greater(tb, next, off)
		out, off = append(out, b...), next
	}
	return out
}

func readChunk(tb testing.TB, l persistence.Log, off int64, maxBytes int, upTo int64, minOne bool) ([]byte, int64) {
	tb.Helper()
	c, err := l.Read(off, maxBytes, upTo, minOne)
	require.NoError(tb, err)
	defer c.Release()
	b, err := c.ReadAll()
	require.NoError(tb, err)
	require.Len(tb, b, c.Len)
	next := off
	for rest, first := b, true; len(rest) > 0; first = false {
		h, whole, tail, err := batch.Next(rest)
		require.NoError(tb, err)
		require.NoError(tb, batch.CheckCRC(whole))
		require.Less(tb, h.LastOffset(), upTo)
		if first {
			require.Equal(tb, h.BaseOffset, c.FirstOffset)
		}
		next, rest = h.LastOffset()+1, tail
	}
	require.GreaterOrEqual(tb, c.NextOffset, next, "next offset of a read at %d", off)
	return b, next
}

// Compare asks both logs everything and expects the same answers. Of producers
// only the last batch counts: a snapshot keeps no more.
func Compare(tb testing.TB, want, got persistence.Log) {
	tb.Helper()
	require.Equal(tb, want.LogStart(), got.LogStart(), "log start")
	require.Equal(tb, want.End(), got.End(), "end")
	require.Equal(tb, want.LatestEpoch(), got.LatestEpoch(), "latest epoch")
	same(tb, "epochs", want.Epochs(), got.Epochs())
	same(tb, "producers", lastBatches(want), lastBatches(got))
	same(tb, "open transactions", want.OpenTransactions(), got.OpenTransactions())
	wu, wok := want.FirstUnstable()
	gu, gok := got.FirstUnstable()
	require.Equal(tb, wok, gok)
	require.Equal(tb, wu, gu, "first unstable")
	start, end := want.LogStart(), want.End()
	step := max((end-start)/40, 1)
	for off := start; off <= end; off += step {
		for _, limit := range []int{1, 400, 1 << 20} {
			sameRead(tb, want, got, off, limit, end, true)
			sameRead(tb, want, got, off, limit, off+(end-off)/2, limit > 1)
		}
		we, wend, wok := want.EpochEndOffset(want.EpochForOffset(off))
		ge, gend, gok := got.EpochEndOffset(got.EpochForOffset(off))
		require.Equal(tb, []any{we, wend, wok}, []any{ge, gend, gok}, "epoch at %d", off)
		wa, err := want.AbortedTxns(off, end)
		require.NoError(tb, err)
		ga, err := got.AbortedTxns(off, end)
		require.NoError(tb, err)
		same(tb, "aborted transactions", wa, ga)
	}
	CompareTimes(tb, want, got)
}

// CompareTimes compares look-ups by time.
func CompareTimes(tb testing.TB, want, got persistence.Log) {
	tb.Helper()
	wm, wok, err := want.MaxTimestamp()
	require.NoError(tb, err)
	gm, gok, err := got.MaxTimestamp()
	require.NoError(tb, err)
	require.Equal(tb, []any{wm, wok}, []any{gm, gok}, "max timestamp")
	for ts := int64(-2); ts <= wm.Timestamp+1; ts += max(wm.Timestamp/40, 1) {
		w, wok, err := want.OffsetForTimestamp(ts)
		require.NoError(tb, err)
		g, gok, err := got.OffsetForTimestamp(ts)
		require.NoError(tb, err)
		require.Equal(tb, []any{w, wok}, []any{g, gok}, "offset for timestamp %d", ts)
	}
}

// sameRead compares reads as far as both go: one may stop earlier, at the end
// of a segment, but never with nothing.
func sameRead(tb testing.TB, want, got persistence.Log, off int64, limit int, upTo int64, minOne bool) {
	tb.Helper()
	w, _ := readChunk(tb, want, off, limit, upTo, minOne)
	g, _ := readChunk(tb, got, off, limit, upTo, minOne)
	require.Equal(tb, len(w) == 0, len(g) == 0, "read at %d of %d bytes up to %d", off, limit, upTo)
	n := min(len(w), len(g))
	require.Equal(tb, w[:n], g[:n], "read at %d", off)
}

func same[T any](tb testing.TB, what string, want, got []T) {
	tb.Helper()
	if len(want) == 0 && len(got) == 0 {
		return
	}
	if d := cmp.Diff(want, got); d != "" {
		tb.Fatalf("%s differ (-want +got):\n%s", what, d)
	}
}

func lastBatches(l persistence.Log) []persistence.ProducerEntry {
	out := l.Producers()
	for i := range out {
		if n := len(out[i].Batches); n > 0 {
			out[i].Batches = out[i].Batches[n-1:]
			// a snapshot has the producer's time in place of the batch's
			out[i].Batches[0].Timestamp = out[i].LastTimestamp
		}
	}
	return out
}
