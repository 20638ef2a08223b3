package logtest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages/batch"
	"kagami/persistence"
)

// view is what a reader of committed records sees of a log.
type view struct {
	records []batch.Record // of ended transactions and of none, in order
	aborted []batch.Record
	last    map[string]batch.Record
}

// viewOf reads batches as a consumer with isolation level read_committed does, with
// the transaction index it is given; open says which producers have one open.
func viewOf(tb testing.TB, batches [][]byte, aborted []persistence.AbortedTxn, open []persistence.OpenTransaction) view {
	tb.Helper()
	v := view{last: map[string]batch.Record{}}
	for _, b := range batches {
		h, err := batch.ParseHeader(b)
		require.NoError(tb, err)
		if h.IsControl() {
			continue
		}
		gone := h.IsTransactional() && slices.ContainsFunc(aborted, func(t persistence.AbortedTxn) bool {
			return t.ProducerID == h.ProducerID && t.FirstOffset <= h.BaseOffset && h.BaseOffset <= t.LastOffset
		})
		pending := h.IsTransactional() && slices.ContainsFunc(open, func(t persistence.OpenTransaction) bool {
			return t.ProducerID == h.ProducerID && t.FirstOffset <= h.BaseOffset
		})
		for r, err := range batch.DecompressRecords(b, 1<<20) {
			require.NoError(tb, err)
			r.Size = 0
			r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			switch {
			case gone:
				v.aborted = append(v.aborted, r)
			case !pending:
				v.records = append(v.records, r)
				v.last[string(r.Key)] = r
			}
		}
	}
	return v
}

// Compacted holds a log that was compacted against an uncompacted one with the same
// history. Below cleaned, superseded records, what transactions aborted and old
// tombstones may be gone; with strict they must be (tombstones apart). Everything
// from cleaned on is the same byte for byte.
type Compacted struct {
	Cleaned int64
	Strict  bool
}

// Check compares; the logs aren't changed.
func (c Compacted) Check(tb testing.TB, want, got persistence.Log) {
	tb.Helper()
	require.Equal(tb, want.End(), got.End(), "end")
	require.Equal(tb, want.LogStart(), got.LogStart(), "log start")
	same(tb, "epochs", want.Epochs(), got.Epochs())
	same(tb, "open transactions", want.OpenTransactions(), got.OpenTransactions())
	all, left := Split(Contents(tb, want, 1<<20)), Split(Contents(tb, got, 300))
	c.sameAbove(tb, all, left)
	start, end := want.LogStart(), want.End()
	wa, err := want.AbortedTxns(start, end)
	require.NoError(tb, err)
	ga, err := got.AbortedTxns(start, end)
	require.NoError(tb, err)
	w, g := viewOf(tb, all, wa, want.OpenTransactions()), viewOf(tb, left, ga, got.OpenTransactions())
	c.sameRecords(tb, w, g)
	c.sameState(tb, w, g)
	c.strict(tb, g)
	rightTimes(tb, left, got)
}

func (c Compacted) sameAbove(tb testing.TB, want, got [][]byte) {
	tb.Helper()
	above := func(all [][]byte) (out []byte) {
		for _, b := range all {
			if h, _ := batch.ParseHeader(b); h.BaseOffset >= c.Cleaned {
				out = append(out, b...)
			}
		}
		return out
	}
	require.True(tb, bytes.Equal(above(want), above(got)), "batches from %d on", c.Cleaned)
}

// sameRecords: what is left is what was there, at the same offset.
func (c Compacted) sameRecords(tb testing.TB, want, got view) {
	tb.Helper()
	was := map[int64]batch.Record{}
	for _, r := range want.records {
		was[r.Offset] = r
	}
	for _, r := range got.records {
		o, ok := was[r.Offset]
		require.True(tb, ok, "record at %d was never committed: %s", r.Offset, r.Key)
		require.Empty(tb, cmp.Diff(o, r), "record at %d", r.Offset)
	}
}

// sameState: the last word on each key is the same, but that a deletion may be
// without a trace.
func (c Compacted) sameState(tb testing.TB, want, got view) {
	tb.Helper()
	for key, r := range want.last {
		g, ok := got.last[key]
		if r.Value == nil && r.Offset < c.Cleaned && !ok {
			continue
		}
		require.True(tb, ok, "%s at %d is gone", key, r.Offset)
		require.Equal(tb, r.Offset, g.Offset, "last of %s", key)
	}
	require.LessOrEqual(tb, len(got.last), len(want.last))
}

func (c Compacted) strict(tb testing.TB, got view) {
	tb.Helper()
	if !c.Strict {
		return
	}
	seen := map[string]int64{}
	for _, r := range got.records {
		before, ok := seen[string(r.Key)]
		require.False(tb, ok && r.Offset < c.Cleaned, "%s at %d and at %d, cleaned to %d", r.Key, before, r.Offset, c.Cleaned)
		seen[string(r.Key)] = r.Offset
	}
	for _, r := range got.aborted {
		require.GreaterOrEqual(tb, r.Offset, c.Cleaned, "aborted record %s", r.Key)
	}
}

// rightTimes compares look-ups by time with the records themselves.
func rightTimes(tb testing.TB, batches [][]byte, l persistence.Log) {
	tb.Helper()
	var all []batch.Record
	top := int64(-1)
	for _, b := range batches {
		for r, err := range batch.DecompressRecords(b, 1<<20) {
			require.NoError(tb, err)
			if all = append(all, r); r.Offset >= l.LogStart() {
				top = max(top, r.Timestamp)
			}
		}
	}
	for ts := int64(1000); ts <= top+1; ts += max((top-1000)/15, 1) {
		i := slices.IndexFunc(all, func(r batch.Record) bool { return r.Timestamp >= ts && r.Offset >= l.LogStart() })
		got, ok, err := l.OffsetForTimestamp(ts)
		require.NoError(tb, err)
		if ok && i >= 0 {
			require.Equal(tb, all[i].Offset, got.Offset, "offset for timestamp %d", ts)
		}
		require.Equal(tb, i >= 0, ok, fmt.Sprintf("timestamp %d: %+v", ts, got))
	}
}

// Split cuts bytes into whole batches.
func Split(b []byte) (out [][]byte) {
	for len(b) > 0 {
		_, whole, rest, err := batch.Next(b)
		if err != nil {
			panic(err) // only whole batches come here
		}
		out, b = append(out, whole), rest
	}
	return out
}
