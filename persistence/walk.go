package persistence

import (
	"errors"
	"io"
	"math"
	"slices"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
)

// pickSnapshot is the offset of the newest producer snapshot at or below limit,
// first if there is none: then producers are read from there on.
func (l *segLog) pickSnapshot(limit, first int64) (int64, error) {
	list, err := l.snapshots()
	if err != nil {
		return 0, err
	}
	for _, offset := range slices.Backward(list) {
		if offset > limit || offset < first {
			continue
		}
		name := l.snapshotName(offset)
		b, err := l.m.fs.ReadFile(name)
		if err != nil {
			return 0, storageError("read", name, err)
		}
		if _, err := decodeProducers(name, b); err == nil {
			return offset, nil
		}
		l.log().Warn("producer snapshot is damaged, an older one is used", zap.String("file", name))
	}
	return first, nil
}

// readSnapshot reads the snapshot that pickSnapshot found. A missing one means
// that nothing is known of producers: it is asked for at the first segment only.
func (l *segLog) readSnapshot(offset int64) (producerState, error) {
	name := l.snapshotName(offset)
	b, err := l.m.fs.ReadFile(name)
	if isNotExist(err) {
		return producerState{}, nil
	}
	if err != nil {
		return producerState{}, storageError("read", name, err)
	}
	prod, err := decodeProducers(name, b)
	if err != nil {
		l.log().Warn("producers before the log start are not known", zap.Error(err))
		return producerState{}, nil
	}
	return prod, nil
}

// producersAt replays the batches below end on the snapshot at from.
func (l *segLog) producersAt(from, end int64) (producerState, error) {
	prod, err := l.readSnapshot(from)
	if err != nil {
		return prod, err
	}
	for _, s := range l.segs[segAt(l.segs, from):] {
		if s.base >= end {
			break
		}
		at, err := l.boundary(s, from)
		if err != nil {
			return prod, err
		}
		err = l.scan(s, at.pos, s.size, false, func(h batch.Header, pos int64, sc *scanner) error {
			if h.BaseOffset >= end {
				return nil
			}
			body, err := controlBody(h, pos, sc)
			if err != nil {
				return err
			}
			prod.apply(h, body)
			return nil
		})
		if err != nil {
			return prod, err
		}
	}
	return prod, nil
}

// secureSnapshot makes the producer snapshot at offset, the start of a segment,
// durable: what is below is about to go. If it is missing it is made.
func (l *segLog) secureSnapshot(offset int64) error {
	name := l.snapshotName(offset)
	b, err := l.m.fs.ReadFile(name)
	if err == nil {
		_, err = decodeProducers(name, b)
	}
	if err == nil {
		if err := syncFile(l.m.fs, name); err != nil {
			return storageError("sync", name, err)
		}
		return l.syncDir()
	}
	from, err := l.pickSnapshot(offset-1, l.segs[0].base)
	if err != nil {
		return err
	}
	prod, err := l.producersAt(from, offset)
	if err != nil {
		return err
	}
	if err := writeFileAtomic(l.m.fs, name, prod.encode(), true); err != nil {
		return storageError("write", name, err)
	}
	return nil
}

// controlBody reads the batch if it is a control batch.
func controlBody(h batch.Header, at int64, sc *scanner) ([]byte, error) {
	if !h.IsControl() {
		return nil, nil
	}
	return sc.body(at, h.Size())
}

// walk goes over all batches from offset from on, which is at the given place.
// Where it stops, the log ends.
func (r *recovery) walk(from int64, at boundary) error {
	l := r.l
	first := segAt(l.segs, from)
	end := at.next
	for i := first; i < len(l.segs); i++ {
		s := l.segs[i]
		// Above the recovery point a segment starts where the one before ends: a
		// gap there is a segment that a crash has lost, see plan.
		if i > first && s.base > end && s.base > r.st.recoveryPoint {
			return r.dropFrom(i, "a segment is missing before this one")
		}
		if i > first {
			if s.base > r.cutLimit {
				return r.dropFrom(i, endOfCut)
			}
			if err := r.seal(l.segs[i-1], s.base); err != nil {
				return err
			}
			at = boundary{next: s.base}
		}
		reason, err := r.walkSegment(s, from, at)
		if err != nil {
			return err
		}
		end = s.next
		if reason != "" {
			return r.dropFrom(i+1, reason)
		}
	}
	return nil
}

const endOfCut = "truncation finished"

// seal finishes a walked segment that is followed by one that starts at next.
func (r *recovery) seal(s *segment, next int64) error {
	l := r.l
	l.mu.Lock()
	s.addTime()
	data := l.prod.encode()
	s.next = next
	l.mu.Unlock()
	if err := l.writeIndexes(s, 0); err != nil {
		return err
	}
	if err := writeFileAtomic(l.m.fs, l.snapshotName(next), data, false); err != nil {
		return storageError("write", l.snapshotName(next), err)
	}
	return nil
}

// walkSegment rebuilds a segment's indexes from a boundary on and feeds epochs
// and producers. A bad batch, or one at the cut limit, ends the segment: then
// reason isn't empty.
func (r *recovery) walkSegment(s *segment, from int64, at boundary) (reason string, err error) {
	l := r.l
	size := s.size
	if err := r.resetSegment(s, from, at); err != nil {
		return "", err
	}
	f, err := l.m.cache.acquire(s.log, false)
	if err != nil {
		return "", storageError("open", s.log.path(), err)
	}
	defer l.m.cache.release(s.log, r.renew)
	sc := newScanner(f, s.log.path(), at.pos, size)
	defer sc.close()
	for {
		h, pos, err := sc.next(s.next >= r.st.recoveryPoint)
		if errors.Is(err, io.EOF) {
			return "", r.sizeAgain(f, size)
		}
		if err == nil && (h.BaseOffset < s.next || h.LastOffset() < h.BaseOffset || h.LastOffset()-s.base > math.MaxInt32) {
			err = &CorruptError{File: s.log.path(), Pos: pos, Offset: h.BaseOffset, Reason: "offsets out of order"}
		}
		if c, damaged := asCorrupt(err); damaged {
			l.log().Warn("log cut at the first bad byte", zap.Error(c), zap.Int64("bytes", size-pos))
			return c.Reason, l.shorten(s.log, pos)
		}
		if err != nil {
			return "", err
		}
		if h.LastOffset() >= r.cutLimit {
			return endOfCut, l.shorten(s.log, pos)
		}
		body, err := controlBody(h, pos, sc)
		if err == nil {
			err = r.again(sc, f, h.LastOffset(), pos, h.Size())
		}
		if err != nil {
			return "", err
		}
		r.take(s, h, body)
		if err := l.writeIndexes(s, pendingIndexBytes); err != nil {
			return "", err
		}
	}
}

func asCorrupt(err error) (*CorruptError, bool) {
	var c *CorruptError
	ok := errors.As(err, &c)
	return c, ok
}

// epochsInHole takes the epochs that began between the batch before, which ends at from,
// and the batch h: their first batches were compacted away, so only the checkpoint knows.
func (r *recovery) epochsInHole(from int64, h batch.Header) {
	for len(r.onFile) > 0 && r.onFile[0].StartOffset < h.BaseOffset {
		e := r.onFile[0]
		if r.onFile = r.onFile[1:]; e.StartOffset >= from && e.Epoch <= h.LeaderEpoch && e.Epoch >= r.l.epochs.latest() {
			r.l.epochs.assign(e.Epoch, e.StartOffset)
		}
	}
}

func (r *recovery) take(s *segment, h batch.Header, body []byte) {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	r.epochsInHole(s.next, h)
	s.add(h, l.cfg.IndexIntervalBytes)
	l.epochs.assign(h.LeaderEpoch, h.BaseOffset)
	for _, t := range l.prod.apply(h, body) {
		s.txn.pending = appendTxnEntry(s.txn.pending, t)
	}
}

// resetSegment drops the index entries of s at or above the boundary. Where the
// offset index is bad, it and the time index are made anew up to there.
func (r *recovery) resetSegment(s *segment, from int64, at boundary) error {
	l := r.l
	s.synced = false
	if err := l.statIndexes(s); err != nil {
		return err
	}
	if at.pos == 0 || at.badIndex {
		l.mu.Lock()
		s.size, s.next, s.firstTS, s.maxTS, s.maxTSOffset, s.tsKnown = 0, s.base, noTimestamp, noTimestamp, s.base, true
		s.lastTimeTS, s.sinceIndex = noTimestamp, 0
		l.mu.Unlock()
		for _, ix := range []*indexFile{s.off, s.time} {
			if err := l.emptyIndex(ix); err != nil {
				return err
			}
		}
		if err := l.cutTxnIndex(s, max(from, s.base)); err != nil {
			return err
		}
		return l.scan(s, 0, at.pos, false, func(h batch.Header, _ int64, _ *scanner) error {
			l.mu.Lock()
			s.add(h, l.cfg.IndexIntervalBytes)
			l.mu.Unlock()
			return l.writeIndexes(s, pendingIndexBytes)
		})
	}
	l.mu.Lock()
	s.size, s.next = at.pos, at.next
	l.mu.Unlock()
	return l.cutIndexes(s, cutPoint{pos: at.pos, end: at.next})
}

// emptyIndex cuts an index file to nothing if there is one.
func (l *segLog) emptyIndex(ix *indexFile) error {
	if _, err := l.m.fs.Stat(ix.cf.path()); isNotExist(err) {
		ix.count = 0
		return nil
	}
	f, err := l.m.cache.acquire(&ix.cf, false)
	if err == nil {
		err = f.Truncate(0)
		l.m.cache.release(&ix.cf, true)
	}
	if err != nil {
		return storageError("truncate", ix.cf.path(), err)
	}
	ix.count, ix.pending = 0, nil
	return nil
}

// cutTxnIndex drops the entries of transactions that ended at or above offset.
func (l *segLog) cutTxnIndex(s *segment, offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutIndex(s.txn, txnBelow(offset))
}

// dropFrom removes the segments from index i on.
func (r *recovery) dropFrom(i int, reason string) error {
	l := r.l
	if i >= len(l.segs) {
		return nil
	}
	if reason != endOfCut {
		l.log().Warn("segments dropped", zap.Int("count", len(l.segs)-i), zap.Int64("first", l.segs[i].base), zap.String("reason", reason))
	}
	for _, s := range l.segs[i:] {
		for _, cf := range s.files() {
			l.m.cache.drop(cf)
		}
		if err := r.dropSegment(s.base); err != nil {
			return err
		}
	}
	l.mu.Lock()
	l.segs = l.segs[:i:i]
	l.mu.Unlock()
	return nil
}

// finish removes what doesn't belong to the recovered log and writes the state.
func (r *recovery) finish(from int64) error {
	l := r.l
	l.mu.Lock()
	a := l.active()
	start := l.start.Load()
	if a.size == 0 {
		a.next = max(a.next, a.base)
	}
	end := max(a.next, start)
	l.end.Store(end)
	rp := min(max(r.st.recoveryPoint, start), end)
	l.rp.Store(rp)
	l.epochs.truncateStart(start)
	l.namesDirty = true // a segment's name may be there and not be durable
	l.updateTotals()
	l.mu.Unlock()
	snaps, err := l.snapshots()
	if err != nil {
		return err
	}
	for _, off := range snaps {
		if off > end || (off > from && !l.startsAt(off)) {
			if err := r.remove(segmentName(off, snapshotSuffix)); err != nil {
				return err
			}
		}
	}
	if err := l.learnActive(); err != nil {
		return err
	}
	if r.dropped || r.cutLimit != math.MaxInt64 {
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	l.st = r.st
	l.st.key = l.info.Key
	l.st.recoveryPoint, l.st.sidePoint = rp, min(from, end)
	l.st.cutTo, l.st.restartAt = messages.NoOffset, messages.NoOffset
	l.st.cleanedTo, l.st.purgedTo = min(l.st.cleanedTo, end), min(l.st.purgedTo, end)
	l.sideBytes = 0
	// The newest slot may not be durable, and the one that is may still order a
	// cut that is done: the first flush syncs it before anything counts as flushed.
	l.stStart = true
	if r.known && from == end && rp == end && !r.dropped && r.st.cutTo < 0 && !r.newEpochs {
		// an idle log: the crash found nothing to take
		l.stSaved, l.stBytes, l.sideBytes = rp, l.size.Load(), l.active().size
		return nil
	}
	l.mu.Lock()
	l.epochsDirty = true
	l.mu.Unlock()
	l.touched.Store(true)
	l.m.markDirty(l)
	return l.saveState(r.st.cutTo >= 0 || r.dropped)
}

func (l *segLog) startsAt(offset int64) bool {
	for _, s := range l.segs {
		if s.base == offset {
			return true
		}
	}
	return false
}

// learnActive makes sure that the active segment can take appends.
func (l *segLog) learnActive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.active()
	for _, ix := range a.indexes() {
		if err := ix.stat(l.m.cache); err != nil {
			return err
		}
	}
	if a.tsKnown {
		return nil
	}
	return l.reloadTimes(a)
}
