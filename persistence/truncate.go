package persistence

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
)

// Truncate cuts the log; see [Log]. The intention is durable before the first
// file is touched, and taken back, durably, after the last: a crash in between
// is finished when the log is opened, and a full disk by the same call again.
func (l *segLog) Truncate(offset int64) (Cut, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if cut, same, err := l.finishAgain(false, offset); same || err != nil {
		return cut, err
	}
	if err := l.beginChange(); err != nil {
		return Cut{}, err
	}
	end := l.End()
	if offset >= end {
		return Cut{From: end, To: end}, nil
	}
	if offset < l.LogStart() {
		return l.restartLocked(false, offset)
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	cut, err := l.truncateLocked(offset)
	if err != nil {
		return Cut{}, fmt.Errorf("truncate %s to %d: %w", l.info.TopicPartition, offset, err)
	}
	l.log().Info("log truncated", zap.Int64("from", cut.To), zap.Int64("to", cut.From), zap.Int64("records", cut.Records))
	return cut, nil
}

func (l *segLog) beginChange() error {
	if err := l.writable(); err != nil {
		return err
	}
	if err := l.ensureLocked(); err != nil {
		return err
	}
	l.touched.Store(true)
	return nil
}

// cutPoint is where a truncation meets the segments.
type cutPoint struct {
	keep    int // segments that stay, the last of them cut at pos
	pos     int64
	end     int64 // new log end
	records int64
	bytes   int64
}

func (l *segLog) truncateLocked(offset int64) (Cut, error) {
	// what stays must be durable before the epochs that go with it are
	if err := l.flushLocked(flushAll, nil); err != nil {
		return Cut{}, err
	}
	p, err := l.findCut(offset)
	if err != nil {
		return Cut{}, err
	}
	snap, err := l.pickSnapshot(p.end, l.segs[0].base)
	if err != nil {
		return Cut{}, err
	}
	to, before := l.End(), l.st
	l.st.cutTo = offset
	l.st.recoveryPoint = min(l.st.recoveryPoint, p.end)
	l.st.sidePoint = min(l.st.sidePoint, snap)
	l.st.cleanedTo, l.st.purgedTo = min(l.st.cleanedTo, p.end), min(l.st.purgedTo, p.end)
	if err := l.announce(before); err != nil {
		return Cut{}, err
	}
	removed := l.hideAbove(p)
	u := &unfinishedCut{
		offset: offset, cut: Cut{From: p.end, To: to, Records: p.records, Bytes: p.bytes},
		finish: func() error { return l.cutAway(offset, p, snap, removed) },
	}
	if err := l.finishLocked(u); err != nil {
		return Cut{}, err
	}
	return u.cut, nil
}

// cutAway removes what is out of sight already. It can be done again.
func (l *segLog) cutAway(offset int64, p cutPoint, snap int64, removed []*segment) error {
	if err := l.cutFiles(p, removed); err != nil {
		return err
	}
	prod, err := l.producersAt(snap, p.end)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.prod = prod
	l.epochsDirty = l.epochs.truncateEnd(p.end) || l.epochsDirty
	l.updateTotals()
	l.mu.Unlock()
	if err := l.syncNamesAndEpochs(p.end); err != nil {
		return err
	}
	l.st.cutTo = messages.NoOffset
	if err := l.trySaveState(true); err != nil {
		l.st.cutTo = offset
		return err
	}
	return nil
}

// announce writes down what a cut is going to do. Without room for that nothing
// happens: the state in memory is the one before again.
func (l *segLog) announce(before logState) error {
	err := l.trySaveState(true)
	if isUnwritten(err) {
		l.st = before
	}
	return err
}

// findCut finds the first batch whose last offset is at or above offset, and
// counts what stands from there on.
func (l *segLog) findCut(offset int64) (cutPoint, error) {
	i := segAt(l.segs, offset)
	p := cutPoint{keep: i + 1, end: l.segs[i].base}
	v, err := l.view(l.segs[i])
	if err != nil {
		return p, err
	}
	f, err := l.m.cache.acquire(v.log, false)
	if err != nil {
		return p, storageError("open", v.log.path(), err)
	}
	defer l.m.cache.release(v.log, false)
	from, err := v.floor(f, offset-1)
	if errors.Is(err, errBadIndex) {
		from, err = 0, nil
	}
	if err != nil {
		return p, err
	}
	sc := newScanner(f, v.log.path(), from, v.size)
	defer sc.close()
	for p.pos = from; ; {
		h, at, err := sc.next(false)
		if errors.Is(err, io.EOF) {
			p.pos = at
			break
		}
		if err != nil {
			return p, err
		}
		if h.LastOffset() >= offset {
			p.pos = at
			break
		}
		p.end, p.pos = h.LastOffset()+1, sc.pos
	}
	p.end = max(p.end, l.LogStart())
	return l.countCut(p)
}

// countCut counts what stands from the cut on, header by header, but for batches
// wholly below the log start: those were removed before. Damaged bytes count as
// bytes, and are cut like others.
func (l *segLog) countCut(p cutPoint) (cutPoint, error) {
	from, start := p.pos, l.LogStart()
	for _, s := range l.segs[p.keep-1:] {
		p.bytes += s.size - from
		err := l.scan(s, from, s.size, false, func(h batch.Header, _ int64, _ *scanner) error {
			if h.LastOffset() < start {
				p.bytes -= int64(h.Size())
				return nil
			}
			p.records += int64(h.Records)
			return nil
		})
		var damaged *CorruptError
		if err != nil && !errors.As(err, &damaged) {
			return p, err
		}
		from = 0
	}
	return p, nil
}

// scan walks the batches of s from byte from to byte to.
func (l *segLog) scan(s *segment, from, to int64, crc bool, visit func(batch.Header, int64, *scanner) error) error {
	f, err := l.m.cache.acquire(s.log, false)
	if err != nil {
		return storageError("open", s.log.path(), err)
	}
	defer l.m.cache.release(s.log, false)
	sc := newScanner(f, s.log.path(), from, to)
	defer sc.close()
	for {
		h, at, err := sc.next(crc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := visit(h, at, sc); err != nil {
			return err
		}
	}
}

// hideAbove takes everything above the cut out of sight of readers. It returns
// the segments that are gone.
func (l *segLog) hideAbove(p cutPoint) (removed []*segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	l.takenBack++
	removed = l.segs[p.keep:]
	l.segs = slices.Clone(l.segs[:p.keep])
	s := l.active()
	s.size, s.next = p.pos, p.end
	if p.pos == 0 {
		s.next = max(s.base, p.end)
	}
	s.tsKnown = false
	l.end.Store(p.end)
	l.rp.Store(min(l.rp.Load(), p.end))
	return removed
}

// cutFiles does the work on disk: segments above go, the cut one is shortened
// with its indexes, producer snapshots above go. While a chunk is out that reaches
// above the cut, the file itself must not be changed.
func (l *segLog) cutFiles(p cutPoint, removed []*segment) error {
	if err := l.removeSegments(removed); err != nil {
		return err
	}
	s := l.active()
	if l.m.cache.readAbove(s.log, p.pos) {
		if err := l.copyPrefix(s, p.pos); err != nil {
			return err
		}
	} else if err := l.shorten(s.log, p.pos); err != nil {
		return err
	}
	if err := l.cutIndexes(s, p); err != nil {
		return err
	}
	if err := l.removeSnapshots(func(off int64) bool { return off > p.end }); err != nil {
		return err
	}
	s.synced = false
	return l.syncDir()
}

func (l *segLog) syncDir() error {
	if err := l.m.fs.SyncDir(l.dir); err != nil {
		return storageError("sync", l.dir, err)
	}
	return nil
}

func (l *segLog) shorten(cf *cachedFile, size int64) error {
	f, err := l.m.cache.acquire(cf, false)
	if err != nil {
		return storageError("open", cf.path(), err)
	}
	defer l.m.cache.release(cf, false)
	if err := f.Truncate(size); err != nil {
		return storageError("truncate", cf.path(), err)
	}
	if err := l.m.cache.syncHeld(cf, f); err != nil {
		return storageError("sync", cf.path(), err)
	}
	return nil
}

// copyPrefix puts a copy of the first size bytes in the place of the segment's
// file: readers that hold the old one go on with bytes that never change.
func (l *segLog) copyPrefix(s *segment, size int64) error {
	name := s.log.path()
	src, err := l.m.cache.acquire(s.log, false)
	if err != nil {
		return storageError("open", name, err)
	}
	defer l.m.cache.release(s.log, false)
	tmp, err := l.m.fs.OpenFile(name+cutSuffix, true)
	if err == nil {
		err = copyBytes(tmp, src, size)
		err = errors.Join(err, tmp.Close())
	}
	if err != nil {
		return storageError("copy", name, &unwrittenError{err})
	}
	if err := l.m.fs.Rename(name+cutSuffix, name); err != nil {
		return storageError("copy", name, err)
	}
	l.m.cache.drop(s.log)
	l.mu.Lock()
	s.log = &cachedFile{dir: l.dir, base: s.base, suffix: logSuffix}
	l.mu.Unlock()
	return nil
}

func copyBytes(dst, src File, size int64) error {
	if err := dst.Truncate(0); err != nil {
		return err
	}
	buf := make([]byte, min(size, 1<<20))
	for pos := int64(0); pos < size; {
		n := min(size-pos, int64(len(buf)))
		if _, err := src.ReadAt(buf[:n], pos); err != nil {
			return err
		}
		if _, err := dst.WriteAt(buf[:n], pos); err != nil {
			return err
		}
		pos += n
	}
	return dst.Sync()
}

// cutIndexes drops the entries of s at or above the cut.
func (l *segLog) cutIndexes(s *segment, p cutPoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ix := range s.indexes() {
		if err := ix.stat(l.m.cache); err != nil {
			return err
		}
	}
	below := [3]func(b []byte) bool{
		func(b []byte) bool {
			e := decodeOffsetEntry(s.base, b)
			return e.pos < p.pos && e.offset < p.end
		},
		func(b []byte) bool { return decodeTimeEntry(s.base, b).offset < p.end },
		txnBelow(p.end),
	}
	for i, ix := range s.indexes() {
		if err := l.cutIndex(ix, below[i]); err != nil {
			return err
		}
	}
	s.sinceIndex = 0
	return l.reloadTimes(s)
}

func txnBelow(offset int64) func(b []byte) bool {
	return func(b []byte) bool {
		t, err := decodeTxnEntry(b)
		return err == nil && t.LastOffset < offset
	}
}

// cutIndex keeps the leading entries for which below holds. The caller holds mu.
func (l *segLog) cutIndex(ix *indexFile, below func(b []byte) bool) error {
	n, err := indexView{l.m.cache, ix, ix.count, ix.pending}.search(below)
	if err != nil {
		return err
	}
	if n >= ix.count {
		ix.pending = slices.Clip(ix.pending[:(n-ix.count)*int64(ix.entry)])
		return nil
	}
	ix.pending = nil
	if err := l.shorten(&ix.cf, n*int64(ix.entry)); err != nil {
		return err
	}
	ix.count = n
	return nil
}

// reloadTimes sets what the active segment needs for the next append. The
// caller holds mu.
func (l *segLog) reloadTimes(s *segment) error {
	s.maxTS, s.maxTSOffset, s.firstTS, s.lastTimeTS, s.tsKnown = noTimestamp, s.base, noTimestamp, noTimestamp, false
	if err := s.learn(l.m.cache); err != nil {
		return err
	}
	tv := s.view(l.m.cache).time
	if n := tv.n(); n > 0 {
		b, err := tv.read(n-1, n)
		if err != nil {
			return err
		}
		s.lastTimeTS = decodeTimeEntry(s.base, b).ts
	}
	if s.size == 0 {
		return nil
	}
	f, err := l.m.cache.acquire(s.log, false)
	if err != nil {
		return storageError("open", s.log.path(), err)
	}
	defer l.m.cache.release(s.log, false)
	h, err := headerAt(f, s.log.path(), 0, s.size)
	s.firstTS = h.MaxTimestamp
	return err
}

// RestartAt removes everything and goes on at offset; see [Log].
func (l *segLog) RestartAt(offset int64) (Cut, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if cut, same, err := l.finishAgain(true, offset); same || err != nil {
		return cut, err
	}
	if err := l.beginChange(); err != nil {
		return Cut{}, err
	}
	return l.restartLocked(true, offset)
}

func (l *segLog) restartLocked(restart bool, offset int64) (Cut, error) {
	if offset < 0 || offset == math.MaxInt64 {
		return Cut{}, fmt.Errorf("restart %s at %d: %w", l.info.TopicPartition, offset, ErrOffsetOutOfRange)
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	p, err := l.countCut(cutPoint{keep: 1, end: l.LogStart()})
	if err != nil {
		return Cut{}, err
	}
	if err := l.syncIdentity(); err != nil {
		return Cut{}, l.fail(err)
	}
	cut := Cut{From: offset, To: l.End(), Records: p.records, Bytes: p.bytes}
	before := l.st
	l.st.restartAt = offset
	if err := l.announce(before); err != nil {
		return Cut{}, err
	}
	fresh := newEmptySegment(l.dir, offset)
	l.mu.Lock()
	l.cuts++
	l.takenBack++
	old := l.segs
	l.segs = []*segment{fresh}
	l.prod, l.epochs, l.epochsDirty = producerState{}, epochCache{}, true
	l.start.Store(offset)
	l.end.Store(offset)
	l.rp.Store(offset)
	l.updateTotals()
	l.mu.Unlock()
	u := &unfinishedCut{restart: restart, offset: offset, cut: cut, finish: func() error { return l.restartAway(old, fresh) }}
	if err := l.finishLocked(u); err != nil {
		return Cut{}, err
	}
	l.log().Info("log restarted", zap.Int64("offset", offset), zap.Int64("end before", cut.To))
	return cut, nil
}

// restartAway removes what is out of sight already. It can be done again.
func (l *segLog) restartAway(old []*segment, fresh *segment) error {
	if err := l.restartFiles(old, fresh); err != nil {
		return err
	}
	before := l.st
	l.st = newLogState(l.info.Key, fresh.base)
	l.st.number = before.number
	if err := l.trySaveState(true); err != nil {
		l.st = before
		return err
	}
	return nil
}

func (l *segLog) restartFiles(old []*segment, fresh *segment) error {
	if err := l.removeSegments(old); err != nil {
		return err
	}
	if err := l.removeSnapshots(func(int64) bool { return true }); err != nil {
		return err
	}
	if err := l.createLog(fresh); err != nil {
		return &unwrittenError{err} // an empty file: nothing can be in doubt
	}
	if err := l.m.cache.sync(fresh.log); err != nil {
		return storageError("sync", fresh.log.path(), err)
	}
	return l.syncNamesAndEpochs(fresh.base)
}

// RaiseLogStart moves the start up and removes segments below; see [Log]. The
// new start is durable before a file goes. Without files to remove it is
// written, and synced with the next flush.
func (l *segLog) RaiseLogStart(offset int64) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.beginChange(); err != nil {
		return err
	}
	switch {
	case offset <= l.LogStart():
		return nil
	case offset > l.End():
		return fmt.Errorf("raise log start of %s to %d: %w: log end is %d", l.info.TopicPartition, offset, ErrOffsetOutOfRange, l.End())
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	_, err := l.raiseLocked(offset)
	return err
}

// Roll begins a new segment; see [Log].
func (l *segLog) Roll() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.beginChange(); err != nil {
		return err
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	return l.rollLocked()
}

func (l *segLog) raiseLocked(offset int64) (int, error) {
	n := 0
	for n < len(l.segs)-1 && l.segs[n+1].base <= offset {
		n++
	}
	if n > 0 {
		// what stays must be durable: it may hold what the new start has to say of epochs
		if err := l.flushLocked(flushAll, nil); err != nil {
			return 0, err
		}
		if err := l.secureSnapshot(l.segs[n].base); err != nil {
			return 0, l.failUnless(err)
		}
	}
	// The state says so first: without room for that nothing has changed.
	if err := l.trySaveStart(offset, n > 0); err != nil {
		return 0, err
	}
	l.mu.Lock()
	gone := l.segs[:n]
	l.segs = slices.Clone(l.segs[n:])
	l.start.Store(offset)
	l.epochsDirty = l.epochs.truncateStart(offset) || l.epochsDirty
	l.updateTotals()
	l.mu.Unlock()
	l.stStart = n == 0
	l.m.markDirty(l)
	if n == 0 {
		return 0, nil
	}
	if err := l.removeSegments(gone); err != nil {
		return 0, l.fail(err)
	}
	if err := l.removeSnapshots(func(off int64) bool { return off < l.segs[0].base }); err != nil {
		return 0, l.fail(err)
	}
	return n, nil
}
