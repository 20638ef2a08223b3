package compare

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"

	"kagami/messages/batch"
)

// decompressedMax bounds one batch's records in memory.
const decompressedMax = 1 << 30

// compareRecords compares a compacted topic record by record: offsets that both
// sides still have must hold equal records, and one that only one side has must
// be explained by compaction, i.e. the other side has a later record with the
// same key, or it is a tombstone or control record that may have aged out.
func compareRecords(ctx context.Context, a, b *reader, row *Row) error {
	keys := maphash.MakeSeed()
	left, right := newWalker(a, keys), newWalker(b, keys)
	if err := left.step(ctx); err != nil {
		return err
	}
	if err := right.step(ctx); err != nil {
		return err
	}
	var only []lone
	for left.ok || right.ok {
		switch {
		case left.ok && (!right.ok || left.rec.Offset < right.rec.Offset):
			only = append(only, left.lone(a.side.Name))
			if err := left.step(ctx); err != nil {
				return err
			}
		case right.ok && (!left.ok || right.rec.Offset < left.rec.Offset):
			only = append(only, right.lone(b.side.Name))
			if err := right.step(ctx); err != nil {
				return err
			}
		default:
			if d := recordDiff(left, right); d != "" {
				row.Difference = fmt.Sprintf("record at offset %d differs: %s", left.rec.Offset, d)
				return nil
			}
			row.Batches++
			if err := left.step(ctx); err != nil {
				return err
			}
			if err := right.step(ctx); err != nil {
				return err
			}
		}
	}
	for _, l := range only {
		other := left.last
		if l.side == a.side.Name {
			other = right.last
		}
		if !l.removable && other[l.key] <= l.offset {
			row.Difference = fmt.Sprintf("record at offset %d is on the %s only, and no later record has its key on the other side", l.offset, l.side)
			return nil
		}
		row.Compacted++
	}
	return nil
}

// lone is a record that only one side has.
type lone struct {
	side      string
	offset    int64
	key       uint64
	removable bool // tombstone, control record or no key
}

// walker walks the records of a reader.
type walker struct {
	r     *reader
	seed  maphash.Seed
	last  map[uint64]int64 // key hash -> last offset seen
	queue []batch.Record
	head  batch.Header
	rec   batch.Record
	ok    bool
}

func newWalker(r *reader, seed maphash.Seed) *walker {
	return &walker{r: r, seed: seed, last: map[uint64]int64{}}
}

func (w *walker) lone(side string) lone {
	return lone{
		side: side, offset: w.rec.Offset, key: maphash.Bytes(w.seed, w.rec.Key),
		removable: w.head.IsControl() || w.rec.Value == nil || w.rec.Key == nil,
	}
}

func (w *walker) step(ctx context.Context) error {
	for len(w.queue) == 0 {
		h, raw, ok, err := w.r.next(ctx)
		if err != nil || !ok {
			w.ok = false
			return err
		}
		w.head = h
		w.queue = w.queue[:0]
		for rec, err := range batch.DecompressRecords(raw, decompressedMax) {
			if err != nil {
				return fmt.Errorf("%s-%d on the %s: %w", w.r.topic, w.r.partition, w.r.side.Name, err)
			}
			w.queue = append(w.queue, rec)
		}
	}
	w.rec, w.queue, w.ok = w.queue[0], w.queue[1:], true
	if w.rec.Key != nil && !w.head.IsControl() {
		w.last[maphash.Bytes(w.seed, w.rec.Key)] = w.rec.Offset
	}
	return nil
}

func recordDiff(a, b *walker) string {
	x, y := a.rec, b.rec
	switch {
	case !sameBytes(x.Key, y.Key):
		return "key"
	case !sameBytes(x.Value, y.Value):
		return "value"
	case x.Timestamp != y.Timestamp:
		return fmt.Sprintf("timestamp %d on the source, %d on the destination", x.Timestamp, y.Timestamp)
	case a.head.LeaderEpoch != b.head.LeaderEpoch:
		return fmt.Sprintf("leader epoch %d on the source, %d on the destination", a.head.LeaderEpoch, b.head.LeaderEpoch)
	case len(x.Headers) != len(y.Headers):
		return "headers"
	}
	for i := range x.Headers {
		if x.Headers[i].Key != y.Headers[i].Key || !sameBytes(x.Headers[i].Value, y.Headers[i].Value) {
			return "headers"
		}
	}
	return ""
}

// sameBytes tells null from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
