package persistence

import (
	"errors"
	"io"

	"kagami/messages/batch"
)

// recordBytesMax bounds what a compressed batch may grow to when it is opened
// for a look-up by time. A batch beyond it is answered by its first offset.
const recordBytesMax = 256 << 20

// OffsetForTimestamp finds the first record at or after ts; see [Log].
func (l *segLog) OffsetForTimestamp(ts int64) (TimestampOffset, bool, error) {
	return l.byTime(func(v segView, start int64) (TimestampOffset, bool, error) {
		if v.maxTS < ts {
			return TimestampOffset{}, false, nil
		}
		return l.firstAt(v, ts, start)
	})
}

// MaxTimestamp finds the first record with the largest timestamp; see [Log].
func (l *segLog) MaxTimestamp() (TimestampOffset, bool, error) {
	var best TimestampOffset
	found := false
	_, _, err := l.byTime(func(v segView, start int64) (TimestampOffset, bool, error) {
		if v.size == 0 || (found && v.maxTS <= best.Timestamp) {
			return TimestampOffset{}, false, nil
		}
		t, ok, err := l.maxIn(v, start)
		if ok && (!found || t.Timestamp > best.Timestamp) {
			best, found = t, true
		}
		return TimestampOffset{}, false, err
	})
	return best, found, err
}

// byTime visits segments until one has an answer, and starts again when the log
// was cut meanwhile.
func (l *segLog) byTime(visit func(v segView, start int64) (TimestampOffset, bool, error)) (TimestampOffset, bool, error) {
	if err := l.ensure(); err != nil {
		return TimestampOffset{}, false, err
	}
	if err := l.readable(); err != nil {
		return TimestampOffset{}, false, err
	}
	for range readAttempts {
		l.mu.RLock()
		segs, cuts, start := l.segs, l.cuts, l.start.Load()
		l.mu.RUnlock()
		t, ok, bad, err := l.visitSegments(segs, start, visit)
		l.mu.RLock()
		moved := l.cuts != cuts
		l.mu.RUnlock()
		if moved {
			continue
		}
		if errors.Is(err, errBadIndex) {
			if err := l.rebuildIndexes(bad); err != nil {
				return TimestampOffset{}, false, err
			}
			continue
		}
		return t, ok, err
	}
	return TimestampOffset{}, false, storageError("look up time in", l.dir, errBadIndex)
}

func (l *segLog) visitSegments(segs []*segment, start int64, visit func(segView, int64) (TimestampOffset, bool, error)) (TimestampOffset, bool, *segment, error) {
	for _, s := range segs {
		v, err := l.view(s)
		if err != nil {
			return TimestampOffset{}, false, s, err
		}
		t, ok, err := visit(v, start)
		if ok || err != nil {
			return t, ok, s, err
		}
	}
	return TimestampOffset{}, false, nil, nil
}

// firstAt finds the first record of a segment at or after ts. The time index
// says from where on: everything up to an entry's batch is no newer than it.
func (l *segLog) firstAt(v segView, ts, start int64) (TimestampOffset, bool, error) {
	f, err := l.m.cache.acquire(v.log, false)
	if err != nil {
		return TimestampOffset{}, false, storageError("open", v.log.path(), err)
	}
	defer l.m.cache.release(v.log, false)
	from := int64(0)
	n, err := v.time.search(func(b []byte) bool { return decodeTimeEntry(v.base, b).ts < ts })
	if err != nil {
		return TimestampOffset{}, false, err
	}
	if n > 0 {
		if e, pos, ok := v.timeEntryAt(f, n-1); ok && e.ts < ts {
			from = pos
		}
	}
	return v.firstRecord(f, from, start, func(h batch.Header) bool { return h.MaxTimestamp >= ts },
		func(r batch.Record) bool { return r.Timestamp >= ts })
}

// firstRecord walks from byte from on to the first record at or above start
// that both functions want. A batch that can't be opened counts as a whole: no
// codec may stand in the way of a look-up.
func (v segView) firstRecord(f File, from, start int64, wantBatch func(batch.Header) bool, want func(batch.Record) bool) (TimestampOffset, bool, error) {
	sc := newScanner(f, v.log.path(), from, v.size)
	defer sc.close()
	for {
		h, at, err := sc.next(false)
		if errors.Is(err, io.EOF) {
			return TimestampOffset{}, false, nil
		}
		if err != nil {
			return TimestampOffset{}, false, err
		}
		if h.LastOffset() < start || !wantBatch(h) {
			continue
		}
		whole := TimestampOffset{Timestamp: h.MaxTimestamp, Offset: max(h.BaseOffset, start), Epoch: h.LeaderEpoch}
		body, err := sc.body(at, h.Size())
		if err != nil {
			return TimestampOffset{}, false, err
		}
		for r, err := range batch.DecompressRecords(body, recordBytesMax) {
			if err != nil {
				return whole, true, nil
			}
			if r.Offset >= start && want(r) {
				return TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, Epoch: h.LeaderEpoch}, true, nil
			}
		}
	}
}

// maxIn finds the first record with the segment's largest timestamp at or above start.
func (l *segLog) maxIn(v segView, start int64) (TimestampOffset, bool, error) {
	f, err := l.m.cache.acquire(v.log, false)
	if err != nil {
		return TimestampOffset{}, false, storageError("open", v.log.path(), err)
	}
	defer l.m.cache.release(v.log, false)
	best, from := v.maxTS, int64(0)
	if v.maxTS < 0 || v.maxTSOff < start {
		// the newest batch is below the log start, or no batch has a time
		if best, err = v.maxAbove(f, start); err != nil {
			return TimestampOffset{}, false, err
		}
	} else if _, from, err = v.locate(f, v.maxTSOff); err != nil {
		return TimestampOffset{}, false, err
	}
	return v.firstRecord(f, from, start, func(h batch.Header) bool { return h.MaxTimestamp == best },
		func(r batch.Record) bool { return r.Timestamp >= best })
}

func (v segView) maxAbove(f File, start int64) (int64, error) {
	best := int64(noTimestamp)
	sc := newScanner(f, v.log.path(), 0, v.size)
	defer sc.close()
	for {
		h, _, err := sc.next(false)
		if errors.Is(err, io.EOF) {
			return best, nil
		}
		if err != nil {
			return 0, err
		}
		if h.LastOffset() >= start {
			best = max(best, h.MaxTimestamp)
		}
	}
}
