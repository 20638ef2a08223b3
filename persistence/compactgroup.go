package persistence

import (
	"context"
	"errors"
	"math"

	"kagami/messages/batch"
	"kagami/persistence/compact"
)

// cleanBufferBytes is how much is read or written between two calls of Pace, and
// written at once.
const cleanBufferBytes = 1 << 20

// segmentGroup are segments that become one.
type segmentGroup struct {
	segs       []*segment
	first, n   int // of the plan's
	base, next int64
}

// groups puts segments together as far as one segment may hold them, as Kafka's
// groupSegmentsBySize: compaction leaves small ones behind.
func (plan *compactionPlan) groups(cfg Config) (out []segmentGroup) {
	limit := min(int64(cfg.SegmentBytes), math.MaxInt32)
	size := int64(0)
	for i, sum := range plan.sums {
		n := len(out) - 1
		if n < 0 || size+sum.size > limit || sum.next-out[n].base > math.MaxInt32 {
			out, size = append(out, segmentGroup{first: i, base: sum.base}), 0
			n++
		}
		g := &out[n]
		g.n, g.next = g.n+1, sum.next
		size += sum.size
	}
	return out
}

// collect reads the dirty part into the map. full: not all of it fitted.
func (l *segLog) collect(ctx context.Context, p CompactionPolicy, plan compactionPlan, pass *compact.Pass) (full bool, err error) {
	r := cleanReader{l: l, ctx: ctx, pace: p.Pace}
	for i := plan.dirty; i < len(plan.segs) && !full; i++ {
		err = r.each(plan, i, pass, func(h batch.Header, b []byte, _ int64) error {
			fits := true
			if h.LastOffset() < plan.from {
				return nil
			}
			if fits, err = pass.Collect(h, b, plan.from); err == nil && !fits {
				err = errMapFull
			}
			return err
		})
		if full = errors.Is(err, errMapFull); err != nil && !full {
			return false, err
		}
	}
	return full, r.finish()
}

var errMapFull = errors.New("the offset map is full")

// cleanReader reads whole batches with their CRCs checked, at the pace of the caller.
type cleanReader struct {
	l    *segLog
	ctx  context.Context //nolint:containedctx // of the one call that the reader lives for
	pace func(context.Context, int) error
	buf  []byte
	owed int
}

func (r *cleanReader) each(plan compactionPlan, i int, pass *compact.Pass, visit func(h batch.Header, b []byte, pos int64) error) error {
	s, sum := plan.segs[i], plan.sums[i]
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	list, err := r.l.AbortedTxns(sum.base, sum.next)
	if err != nil {
		return err
	}
	aborted := make([]compact.Aborted, len(list))
	for k, t := range list {
		aborted[k] = compact.Aborted(t)
	}
	pass.Aborted(sum.base, aborted)
	return r.l.scan(s, 0, sum.size, false, func(h batch.Header, pos int64, sc *scanner) error {
		if cap(r.buf) < h.Size() {
			r.buf = make([]byte, max(h.Size(), scanBufferBytes))
		}
		b := r.buf[:h.Size()]
		if _, err := sc.f.ReadAt(b, pos); err != nil {
			return storageError("read", sc.name, err)
		}
		if err := batch.CheckCRC(b); err != nil {
			return &CorruptError{File: sc.name, Pos: pos, Offset: h.BaseOffset, Reason: err.Error()}
		}
		if err := visit(h, b, pos); err != nil {
			return err
		}
		return r.moved(h.Size())
	})
}

// moved counts bytes and lets the caller hold up the work now and then.
func (r *cleanReader) moved(bytes int) error {
	if r.owed += bytes; r.owed < cleanBufferBytes {
		return nil
	}
	return r.finish()
}

func (r *cleanReader) finish() error {
	n := r.owed
	r.owed = 0
	if r.pace == nil || n == 0 {
		return context.Cause(r.ctx)
	}
	return r.pace(r.ctx, n)
}

// rewrite puts what stays of each group in its place. It returns how many segments
// were replaced.
func (l *segLog) rewrite(ctx context.Context, p CompactionPolicy, plan compactionPlan, pass *compact.Pass) (int, error) {
	cfg := l.config()
	r := &cleanReader{l: l, ctx: ctx, pace: p.Pace}
	replaced := 0
	for _, g := range plan.groups(cfg) {
		g.segs = plan.segs[g.first : g.first+g.n]
		w := &cleanWriter{l: l, reader: r, group: g, interval: cfg.IndexIntervalBytes}
		err := w.fill(plan, pass)
		if err == nil && w.fresh != nil {
			if err = w.seal(pass); err == nil {
				err = l.swap(plan.cuts, w, pass.Purged())
			}
			replaced += len(g.segs)
		}
		if err != nil {
			return replaced, errors.Join(err, w.abandon())
		}
	}
	return replaced, r.finish()
}

// cleanWriter writes what stays of a group of segments into files beside them. While
// a single segment stays as it is, nothing is written.
type cleanWriter struct {
	l        *segLog
	reader   *cleanReader
	group    segmentGroup
	interval int

	fresh *segment // nil: nothing has changed yet
	file  File
	buf   []byte
	at    int64 // bytes in the file
}

// fill reads the group's segments.
func (w *cleanWriter) fill(plan compactionPlan, pass *compact.Pass) error {
	first := w.group.first
	if len(w.group.segs) > 1 {
		if err := w.begin(0); err != nil {
			return err
		}
	}
	for i := range w.group.segs {
		size := plan.sums[first+i].size
		// What the group ends with stays, if without records: the log then ends where it
		// did when all behind it is cut, and a segment never ends before the next begins.
		last := i == len(w.group.segs)-1
		err := w.reader.each(plan, first+i, pass, func(h batch.Header, b []byte, pos int64) error {
			out, err := pass.Filter(h, b, last && pos+int64(h.Size()) == size)
			if err != nil {
				return err
			}
			same := len(out) == len(b) && &out[0] == &b[0]
			if w.fresh == nil && !same {
				err = w.begin(pos)
			}
			if err != nil || w.fresh == nil || out == nil {
				return err
			}
			return w.add(out)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// begin opens the file, with the first bytes of the group's first segment in it.
func (w *cleanWriter) begin(upTo int64) (err error) {
	base := w.group.segs[0].base
	w.fresh = newEmptySegment(w.l.dir, base)
	if w.file, err = w.l.m.fs.OpenFile(w.l.cleanedName(base, logSuffix), true); err != nil {
		return storageError("create", w.l.cleanedName(base, logSuffix), err)
	}
	if err := w.file.Truncate(0); err != nil {
		return storageError("create", w.l.cleanedName(base, logSuffix), err)
	}
	return w.l.scan(w.group.segs[0], 0, upTo, false, func(h batch.Header, pos int64, sc *scanner) error {
		b, err := sc.body(pos, h.Size())
		if err != nil {
			return err
		}
		return w.add(b)
	})
}

func (w *cleanWriter) add(b []byte) error {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return err
	}
	w.fresh.add(h, w.interval)
	if w.buf = append(w.buf, b...); len(w.buf) < cleanBufferBytes {
		return nil
	}
	return w.write()
}

func (w *cleanWriter) write() error {
	n := len(w.buf)
	if n == 0 {
		return nil
	}
	if _, err := w.file.WriteAt(w.buf, w.at); err != nil {
		return storageError("write", w.l.cleanedName(w.fresh.base, logSuffix), err)
	}
	w.at += int64(n)
	w.buf = w.buf[:0]
	return w.reader.moved(n)
}

// seal makes the new files durable under their temporary names.
func (w *cleanWriter) seal(pass *compact.Pass) error {
	if err := w.write(); err != nil {
		return err
	}
	s, l := w.fresh, w.l
	s.addTime()
	for _, t := range pass.TakeAborted() {
		s.txn.pending = appendTxnEntry(s.txn.pending, AbortedTxn(t))
	}
	if err := w.file.Sync(); err != nil {
		return storageError("sync", l.cleanedName(s.base, logSuffix), err)
	}
	for _, ix := range s.indexes() {
		name := l.cleanedName(s.base, ix.cf.suffix)
		if err := l.writeSynced(name, ix.pending); err != nil {
			return storageError("write", name, err)
		}
	}
	return l.syncDir()
}

func (l *segLog) writeSynced(name string, data []byte) error {
	f, err := l.m.fs.OpenFile(name, true)
	if err != nil {
		return err
	}
	err = f.Truncate(0)
	if err == nil && len(data) > 0 {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// abandon lets go of the files of a group that wasn't finished. What is left of them
// goes before the next try, or when the log is opened.
func (w *cleanWriter) abandon() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return errors.Join(err, w.l.removeCleaned())
}
