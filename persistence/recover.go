package persistence

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"

	"kagami/messages/batch"
)

const (
	epochFile     = "leader-epoch-checkpoint"
	partitionFile = "partition.metadata"
)

// load fills a log that isn't loaded: from its manifest line, or by recovery.
// The caller holds wmu and fmu.
func (l *segLog) load() error {
	if l.line != nil {
		err := l.loadClean()
		if err == nil {
			l.line = nil
			return nil
		}
		l.log().Warn("clean state doesn't fit the files: the log is recovered", zap.Error(err))
		l.line = nil
	}
	return l.recover()
}

// loadClean believes the manifest, and reads the producers.
func (l *segLog) loadClean() error {
	e, err := decodeManifestLog(l.line)
	if err != nil {
		return err
	}
	segs := e.segments(l.dir)
	for _, ix := range segs[len(segs)-1].indexes() {
		if err := ix.stat(l.m.cache); err != nil {
			return err
		}
	}
	var prod producerState
	if e.hasProducers {
		name := l.snapshotName(e.end)
		b, err := l.m.fs.ReadFile(name)
		if err != nil {
			return storageError("read", name, err)
		}
		if prod, err = decodeProducers(name, b); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segs, l.prod, l.epochs = segs, prod, epochCache{entries: e.epochs}
	l.st, l.identity = e.state(l.info.Key), true
	l.stSaved, l.stBytes = l.st.recoveryPoint, l.size.Load()
	l.sideBytes = segs[len(segs)-1].size
	return nil
}

// recovery is the work of one unclean open.
type recovery struct {
	l     *segLog
	bases []int64
	st    logState
	known bool // the state file was there
	// newEpochs says that the epoch checkpoint isn't what the batches say.
	newEpochs bool
	onFile    []EpochEntry // what the epoch checkpoint says, oldest first
	dropped   bool         // files were removed: sync the folder
	cutLimit  int64        // finish a truncation to here; MaxInt64 = none
	// renew: the disk has failed since the log was opened, with its end at endMax. What
	// stands above the recovery point is written once more.
	renew  bool
	endMax int64
}

// recover brings a log to a state in which all that was flushed is there and
// what stands behind it is whole and valid, from whatever a crash has left.
//
//  1. finish a restart, a truncation, or a swap of cleaned segments that was under way
//  2. drop segments below the log start
//  3. below the side point believe indexes, epochs and the producer snapshot;
//     walk from there, rebuilding them; from the recovery point on check CRCs
//  4. cut at the first bad byte, and drop the segments behind it
//
// The caller holds wmu and fmu; nobody else sees the log yet, or mu is enough.
func (l *segLog) recover() error {
	return (&recovery{l: l, cutLimit: math.MaxInt64}).run()
}

func (r *recovery) run() error {
	l := r.l
	if err := r.readFolder(); err != nil {
		return err
	}
	if err := r.openSegments(); err != nil {
		return err
	}
	l.mu.Lock()
	start := max(r.st.logStart, l.segs[0].base)
	l.start.Store(start)
	l.mu.Unlock()
	from, at, err := r.startOfWalk()
	if err != nil {
		return err
	}
	if err := r.loadEpochs(from); err != nil {
		return err
	}
	prod, err := l.readSnapshot(from)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.prod = prod
	l.mu.Unlock()
	if err := r.walk(from, at); err != nil {
		return err
	}
	return r.finish(from)
}

// boundary is where a walk starts inside a segment.
type boundary struct {
	pos      int64
	next     int64 // offset after the last batch below pos; the segment's base if there is none
	badIndex bool
}

// startOfWalk picks the newest producer snapshot at or below the side point
// that the segments reach, and the place in its segment.
func (r *recovery) startOfWalk() (int64, boundary, error) {
	l := r.l
	limit := min(r.st.sidePoint, r.cutLimit)
	for {
		from, err := l.pickSnapshot(limit, l.segs[0].base)
		if err != nil {
			return 0, boundary{}, err
		}
		s := l.segs[segAt(l.segs, from)]
		at, err := l.boundary(s, from)
		if _, damaged := asCorrupt(err); err != nil && !damaged {
			return 0, at, err
		}
		if from <= s.base || (err == nil && max(at.next, l.start.Load()) >= from) {
			return from, at, nil
		}
		limit = min(from-1, at.next)
	}
}

// boundary finds the first batch in s whose last offset is at or above offset.
func (l *segLog) boundary(s *segment, offset int64) (boundary, error) {
	b := boundary{next: s.base}
	if offset <= s.base || s.size == 0 {
		return b, nil
	}
	f, err := l.m.cache.acquire(s.log, false)
	if err != nil {
		return b, storageError("open", s.log.path(), err)
	}
	defer l.m.cache.release(s.log, false)
	if err := l.statIndexes(s); err != nil {
		return b, err
	}
	l.mu.RLock()
	v := s.view(l.m.cache)
	l.mu.RUnlock()
	b.pos, err = v.floor(f, offset-1)
	if errors.Is(err, errBadIndex) || (v.off.n() == 0 && s.size > scanBufferBytes) {
		b.pos, b.badIndex, err = 0, true, nil
	}
	if err != nil {
		return b, err
	}
	sc := newScanner(f, s.log.path(), b.pos, s.size)
	defer sc.close()
	for {
		h, _, err := sc.next(false)
		if errors.Is(err, io.EOF) || (err == nil && h.LastOffset() >= offset) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		b.pos, b.next = sc.pos, h.LastOffset()+1
	}
}

func (l *segLog) statIndexes(s *segment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ix := range s.indexes() {
		if err := ix.stat(l.m.cache); err != nil {
			return err
		}
	}
	return nil
}

// readFolder sorts out what is in the folder.
func (r *recovery) readFolder() error {
	l := r.l
	st, ok, err := readState(l.m.fs, l.dir)
	if err != nil {
		return err
	}
	if !ok {
		st = newLogState(l.info.Key, 0)
		l.log().Warn("no state file: the whole log is read")
	}
	r.st, r.known = st, ok
	list, err := l.m.fs.ReadDir(l.dir)
	if err != nil {
		return storageError("list", l.dir, err)
	}
	for _, e := range list {
		if base, ok := parseSegmentName(e.Name, logSuffix); ok {
			r.bases = append(r.bases, base)
			continue
		}
		if strings.HasSuffix(e.Name, ".tmp") || strings.HasSuffix(e.Name, cutSuffix) {
			if err := r.remove(e.Name); err != nil {
				return err
			}
		}
	}
	if st.restartAt < 0 {
		if err := r.finishSwaps(list); err != nil {
			return err
		}
	}
	if err := l.removeCleaned(); err != nil {
		return err
	}
	slices.Sort(r.bases)
	if st.restartAt >= 0 {
		return r.finishRestart(list)
	}
	if st.cutTo >= 0 {
		r.cutLimit = st.cutTo
	}
	if r.renew { // above it is what was taken back
		r.cutLimit = min(r.cutLimit, r.endMax)
	}
	return nil
}

func (r *recovery) remove(name string) error {
	r.dropped = true
	name = filepath.Join(r.l.dir, name)
	if err := r.l.m.fs.Remove(name); err != nil && !isNotExist(err) {
		return storageError("remove", name, err)
	}
	return nil
}

func (r *recovery) finishRestart(list []FileInfo) error {
	at := r.st.restartAt
	for _, e := range list {
		digits, suffix, _ := strings.Cut(e.Name, ".")
		if _, ok := parseSegmentName(digits, ""); !ok || suffix == "" {
			continue
		}
		if err := r.remove(e.Name); err != nil {
			return err
		}
	}
	r.bases = nil
	if err := r.remove(epochFile); err != nil {
		return err
	}
	n := r.st.number
	r.st = newLogState(r.st.key, at)
	r.st.number = n
	return nil
}

// openSegments makes the list of segments; an empty log gets its first one.
func (r *recovery) openSegments() error {
	l := r.l
	for len(r.bases) > 1 && r.bases[1] <= r.st.logStart {
		if err := r.dropSegment(r.bases[0]); err != nil {
			return err
		}
		r.bases = r.bases[1:]
	}
	if r.known && len(r.bases) > 0 && r.bases[0] > max(r.st.logStart, r.st.recoveryPoint) {
		// the crash took the first segment, of which nothing was durable, and left others
		for _, base := range r.bases {
			if err := r.dropSegment(base); err != nil {
				return err
			}
		}
		r.bases = nil
	}
	var segs []*segment
	for i, base := range r.bases {
		s := newSegment(l.dir, base)
		st, err := l.m.fs.Stat(s.log.path())
		if err != nil {
			return storageError("stat", s.log.path(), err)
		}
		s.size, s.synced = st.Size, true
		if i+1 < len(r.bases) {
			s.next = r.bases[i+1]
		}
		segs = append(segs, s)
	}
	if len(segs) == 0 {
		s := newEmptySegment(l.dir, r.st.logStart)
		if err := l.createLog(s); err != nil {
			return err
		}
		r.dropped = true // the folder has news to sync
		segs = []*segment{s}
	}
	l.mu.Lock()
	l.segs = segs
	l.mu.Unlock()
	return nil
}

func (r *recovery) dropSegment(base int64) error {
	for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix, txnSuffix, snapshotSuffix} {
		if err := r.remove(segmentName(base, suffix)); err != nil {
			return err
		}
	}
	return nil
}

// loadEpochs reads the checkpoint as far as it is believed. If it is missing or
// doesn't fit the batches, the history is read from all headers.
func (r *recovery) loadEpochs(from int64) error {
	l := r.l
	name := filepath.Join(l.dir, epochFile)
	b, err := l.m.fs.ReadFile(name)
	if err != nil && !isNotExist(err) {
		return storageError("read", name, err)
	}
	var entries []EpochEntry
	if err == nil {
		entries, err = decodeEpochs(name, b)
	}
	r.onFile = entries
	c := epochCache{entries: slices.Clone(entries)}
	// an entry at the log start may come from batches that are gone
	c.truncateStart(l.start.Load())
	c.truncateEnd(max(from, l.start.Load()+1))
	if err == nil {
		err = r.checkEpochs(c.entries, from)
	}
	if err != nil && from > l.segs[0].base {
		l.log().Warn("epoch checkpoint is read anew from the batches", zap.Error(err))
		if c, err = r.epochsFromBatches(from); err != nil {
			return err
		}
	} else if err != nil {
		c = epochCache{}
	}
	r.newEpochs = !slices.Equal(c.entries, entries)
	l.mu.Lock()
	l.epochs = c
	l.mu.Unlock()
	return nil
}

// checkEpochs compares every entry with the first batch at or above its start,
// and the entry before with the batch before.
func (r *recovery) checkEpochs(entries []EpochEntry, from int64) error {
	l := r.l
	bad := func(e EpochEntry) error {
		return &CorruptError{File: epochFile, Pos: -1, Offset: e.StartOffset, Reason: fmt.Sprintf("epoch %d doesn't start there", e.Epoch)}
	}
	first := l.segs[0].base
	if len(entries) == 0 {
		if from > first {
			if h, ok, err := l.batchAt(first); err == nil && ok && h.BaseOffset < from && h.LeaderEpoch >= 0 {
				return bad(EpochEntry{h.LeaderEpoch, first})
			}
		}
		return nil
	}
	if e := entries[0]; e.StartOffset > l.start.Load() {
		h, ok, err := l.batchAt(l.start.Load())
		if err != nil {
			return err
		}
		if ok && h.BaseOffset < e.StartOffset && h.LeaderEpoch >= 0 {
			return bad(e)
		}
	}
	for i, e := range entries {
		h, ok, err := l.batchAt(e.StartOffset)
		if err != nil {
			return err
		}
		inside := i == 0 && e.StartOffset <= l.start.Load()
		next := from
		if i+1 < len(entries) {
			next = entries[i+1].StartOffset
		}
		if ok && h.BaseOffset >= next || !ok && e.StartOffset < r.st.cleanedTo {
			continue // compaction has left nothing of it
		}
		if !ok && inside && len(entries) == 1 {
			return nil // nothing is left but what the log start remembers
		}
		if !ok || h.LeaderEpoch != e.Epoch || (h.BaseOffset < e.StartOffset && !inside) {
			return bad(e)
		}
		if i > 0 && e.StartOffset > l.segs[0].base {
			before, ok, err := l.batchAt(e.StartOffset - 1)
			if err != nil {
				return err
			}
			if ok && before.LastOffset() < e.StartOffset && before.LeaderEpoch != entries[i-1].Epoch {
				return bad(e)
			}
		}
	}
	return nil
}

// batchAt is the header of the first batch with a last offset at or above offset.
func (l *segLog) batchAt(offset int64) (batch.Header, bool, error) {
	for _, s := range l.segs[segAt(l.segs, offset):] {
		if s.size == 0 {
			continue
		}
		h, err := l.headerIn(s, offset)
		if errors.Is(err, io.EOF) {
			continue
		}
		return h, err == nil, err
	}
	return batch.Header{}, false, nil
}

func (l *segLog) headerIn(s *segment, offset int64) (batch.Header, error) {
	v, err := l.view(s)
	if err != nil {
		return batch.Header{}, err
	}
	f, err := l.m.cache.acquire(s.log, false)
	if err != nil {
		return batch.Header{}, storageError("open", s.log.path(), err)
	}
	defer l.m.cache.release(s.log, false)
	h, _, err := v.locate(f, offset)
	if errors.Is(err, errBadIndex) {
		v.off.count, v.off.pending = 0, nil // without it, then
		h, _, err = v.locate(f, offset)
	}
	return h, err
}

func (r *recovery) epochsFromBatches(from int64) (epochCache, error) {
	var c epochCache
	for _, s := range r.l.segs {
		if s.base >= from {
			break
		}
		err := r.l.scan(s, 0, s.size, false, func(h batch.Header, _ int64, _ *scanner) error {
			if h.BaseOffset >= from {
				return io.EOF
			}
			c.assign(h.LeaderEpoch, h.BaseOffset)
			return nil
		})
		var damaged *CorruptError
		if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &damaged) {
			return c, err
		}
	}
	c.truncateStart(r.l.start.Load())
	return c, nil
}
