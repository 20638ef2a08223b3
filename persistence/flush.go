package persistence

import (
	"fmt"

	"go.uber.org/zap"
)

// flushKind says how much a flush does.
type flushKind int

const (
	flushData flushKind = iota + 1 // the active segment is synced already; the state slot can wait
	flushAll                       // sync everything, write the state slot
)

const (
	// stateEveryBytes is how far the recovery point may run ahead of the one in
	// the state slot when every append is flushed: so much is read again after a crash.
	stateEveryBytes = 8 << 20
	// sidesEveryBytes is how much may be appended before indexes and producers
	// are made durable in the background: so much is walked after a crash.
	sidesEveryBytes = 64 << 20
)

// Flush makes everything appended durable and moves the recovery point.
func (l *segLog) Flush() error {
	if !l.loaded.Load() {
		return l.readable()
	}
	if err := l.flush(nil); err != nil {
		return fmt.Errorf("flush %s: %w", l.info.TopicPartition, err)
	}
	return nil
}

// Sync makes everything appended durable. Epochs and the recovery point are left
// to the next flush: the data that they follow from is there.
func (l *segLog) Sync() error {
	if !l.loaded.Load() {
		return l.readable()
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	err := l.writable()
	if err == nil {
		err = l.syncLocked()
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", l.info.TopicPartition, err)
	}
	return nil
}

func (l *segLog) syncLocked() error {
	l.mu.RLock()
	n := len(l.segs)
	active := l.segs[n-1]
	names, pending := l.namesDirty, active.size > 0 && l.end.Load() > l.rp.Load()
	l.mu.RUnlock()
	if !l.identity || names || l.stStart || n > 1 && !l.segs[n-2].synced { // more than one file
		return l.flushLocked(flushAll, nil)
	}
	if !pending {
		return nil
	}
	if err := l.m.cache.sync(active.log); err != nil {
		return l.fail(storageError("sync", active.log.path(), err))
	}
	return nil
}

// sides is the log at one moment, with what a side point there needs.
type sides struct {
	seg       *segment // the active one
	end, size int64
	cuts      uint64
	producers []byte
}

// sidesNow writes the index entries that are pending and looks at the log. The
// caller holds wmu; syncing what was written needs no lock of his.
func (l *segLog) sidesNow() (*sides, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.mu.RLock()
	active := l.active()
	l.mu.RUnlock()
	if err := l.writeIndexes(active, 0); err != nil {
		return nil, l.failUnless(err)
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return &sides{seg: active, end: l.end.Load(), size: active.size, cuts: l.cuts, producers: l.prod.encode()}, nil
}

// flush syncs files in an order that keeps the state slot true at any moment:
// first data, names and epochs, then the slot that says so. at may be nil; else
// it makes a side point there, unless the log was cut or rolled since.
func (l *segLog) flush(at *sides) error {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	return l.flushLocked(flushAll, at)
}

// flushLocked is flush for a caller who holds fmu.
func (l *segLog) flushLocked(kind flushKind, at *sides) error {
	l.mu.RLock()
	segs, end, cuts := l.segs, l.end.Load(), l.cuts
	active := segs[len(segs)-1]
	size := active.size
	l.mu.RUnlock()
	rp := l.rp.Load()
	if at != nil && (at.cuts != cuts || at.seg != active || at.end < l.start.Load()) {
		at = nil
	}
	if err := l.syncIdentity(); err != nil {
		return l.fail(err)
	}
	sealed, err := l.syncSealed(segs[:len(segs)-1])
	if err != nil {
		return l.failUnless(err)
	}
	if kind != flushData && (end > rp || sealed) && size > 0 {
		if err := l.m.cache.sync(active.log); err != nil {
			return l.fail(storageError("sync", active.log.path(), err))
		}
	}
	if at != nil {
		if err := l.syncSides(at); err != nil {
			return l.failUnless(err)
		}
	}
	if l.stStart { // the epochs below begin at the log start
		if err := l.trySaveState(true); err != nil {
			return err
		}
	}
	if err := l.syncNamesAndEpochs(end); err != nil {
		return l.failUnless(err)
	}
	l.mu.Lock()
	if l.cuts != cuts { // offsets were taken back meanwhile: the cut set the points itself
		l.mu.Unlock()
		return nil
	}
	l.rp.Store(max(end, rp))
	l.mu.Unlock()
	l.st.recoveryPoint = max(end, rp)
	if old := l.st.sidePoint; sealed && old < active.base {
		l.st.sidePoint = active.base
		if err := l.dropSnapshot(old); err != nil {
			return l.fail(err)
		}
	}
	if at != nil {
		l.st.sidePoint, l.sideBytes = at.end, at.size
	}
	if kind == flushData && !sealed && end-l.stSaved < 1<<16 && l.size.Load()-l.stBytes < stateEveryBytes {
		return nil
	}
	return l.trySaveState(false)
}

// saveState writes the state slot, or the log takes no more writes. The caller
// holds fmu.
func (l *segLog) saveState(sync bool) error {
	err := l.trySaveState(sync)
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// trySaveState is saveState where a later one makes up for a full disk.
func (l *segLog) trySaveState(sync bool) error { return l.trySaveStart(l.start.Load(), sync) }

// trySaveStart is trySaveState for a log that is about to start at start.
func (l *segLog) trySaveStart(start int64, sync bool) error {
	before := l.st.logStart
	l.st.logStart = start
	if err := writeState(l.m.fs, l.dir, &l.st, sync); err != nil {
		l.st.logStart = before
		return l.failUnless(err)
	}
	l.stSaved, l.stBytes = l.st.recoveryPoint, l.size.Load()
	if sync {
		l.stStart = false
	}
	return nil
}

// syncIdentity makes durable, once in a log's life, that this folder exists and
// whose it is. Before that no data counts as durable.
func (l *segLog) syncIdentity() error {
	if l.identity {
		return nil
	}
	for _, name := range []string{partitionFile, stateFile} {
		if err := syncFile(l.m.fs, l.dir+"/"+name); err != nil {
			return storageError("sync", l.dir, err)
		}
	}
	if err := l.m.fs.SyncDir(l.dir); err != nil {
		return storageError("sync", l.dir, err)
	}
	if err := l.m.syncNames(l.createdAs); err != nil {
		return err
	}
	l.identity = true
	return nil
}

// ensureIdentity is syncIdentity before a log's second segment is made: of an
// unsynced folder a crash may keep the second and lose the first.
func (l *segLog) ensureIdentity() error {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if err := l.syncIdentity(); err != nil {
		return l.fail(err)
	}
	return nil
}

func syncFile(fsys FS, name string) error {
	f, err := fsys.OpenFile(name, true)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// syncSealed syncs what stands behind the active segment: data, indexes and the
// producer snapshot at the end of each. It reports whether there was any.
func (l *segLog) syncSealed(segs []*segment) (bool, error) {
	n := len(segs)
	for n > 0 && !segs[n-1].synced {
		n--
	}
	for _, s := range segs[n:] {
		if err := l.writeIndexes(s, 0); err != nil {
			return false, err
		}
		if err := l.syncSegment(s); err != nil {
			return false, err
		}
		if err := l.syncSnapshot(s.next); err != nil {
			return false, err
		}
		s.synced = true
	}
	return n < len(segs), nil
}

func (l *segLog) syncSegment(s *segment) error {
	if err := l.m.cache.sync(s.log); err != nil {
		return storageError("sync", s.log.path(), err)
	}
	return l.syncIndexes(s)
}

func (l *segLog) syncIndexes(s *segment) error {
	var files []*cachedFile
	l.mu.RLock()
	for _, ix := range s.indexes() {
		if ix.count > 0 {
			files = append(files, &ix.cf)
		}
	}
	l.mu.RUnlock()
	for _, cf := range files {
		if err := l.m.cache.sync(cf); err != nil {
			return storageError("sync", cf.path(), err)
		}
	}
	return nil
}

// syncSnapshot syncs the producer snapshot at offset; a missing one is a
// nuisance after a crash, no failure.
func (l *segLog) syncSnapshot(offset int64) error {
	name := l.snapshotName(offset)
	if _, err := l.m.fs.Stat(name); isNotExist(err) {
		return nil
	}
	if err := syncFile(l.m.fs, name); err != nil {
		return storageError("sync", name, err)
	}
	return nil
}

// syncSides makes indexes and producers durable as they were at that moment. The
// data below is synced already. What appends add to the indexes meanwhile does no
// harm: behind a side point they are made anew after a crash.
func (l *segLog) syncSides(at *sides) error {
	if err := l.syncIndexes(at.seg); err != nil {
		return err
	}
	name := l.snapshotName(at.end)
	if err := writeFileAtomic(l.m.fs, name, at.producers, true); err != nil {
		return storageError("write", name, err)
	}
	if l.st.sidePoint != at.end {
		return l.dropSnapshot(l.st.sidePoint)
	}
	return nil
}

// dropSnapshot removes the producer snapshot of an old side point, unless it
// stands at the start of a segment: those stay as long as the segment.
func (l *segLog) dropSnapshot(offset int64) error {
	l.mu.RLock()
	keep := l.startsAt(offset)
	l.mu.RUnlock()
	if keep {
		return nil
	}
	if err := l.m.fs.Remove(l.snapshotName(offset)); err != nil && !isNotExist(err) {
		return storageError("remove", l.snapshotName(offset), err)
	}
	return nil
}

// syncNamesAndEpochs makes the folder's names and the epochs below end durable.
// Epochs at or above may belong to batches that aren't synced.
func (l *segLog) syncNamesAndEpochs(end int64) error {
	l.mu.Lock()
	names, dirty, c := l.namesDirty, l.epochsDirty, epochCache{entries: l.epochs.clone()}
	l.namesDirty = false
	l.epochsDirty = c.truncateEnd(max(end, l.start.Load()+1))
	l.mu.Unlock()
	if dirty {
		name := l.dir + "/" + epochFile
		if err := writeFileAtomic(l.m.fs, name, encodeEpochs(c.entries), true); err != nil {
			l.mu.Lock()
			l.epochsDirty, l.namesDirty = true, l.namesDirty || names
			l.mu.Unlock()
			return storageError("write", name, err)
		}
		return nil // which synced the folder as well
	}
	if names {
		return l.syncDir()
	}
	return nil
}

// flushAppended is the flush behind an append whose bytes are synced already. On a
// full disk the rest of it can wait, but for names of new files: the recovery
// point stays where it is, and a crash reads again from there.
func (l *segLog) flushAppended() error {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	err := l.flushLocked(flushData, nil)
	if !isUnwritten(err) {
		return err
	}
	l.mu.Lock()
	names := l.namesDirty
	l.namesDirty = false
	l.mu.Unlock()
	if names {
		if err := l.syncDir(); err != nil {
			return l.fail(err)
		}
	}
	return nil
}

// flushDue is a flush that now and then makes a side point. Appends are held up
// while the log is looked at, and never by a sync.
func (l *segLog) flushDue() error {
	if !l.sidesDue() {
		return l.flush(nil)
	}
	l.wmu.Lock()
	at, err := l.sidesNow()
	l.wmu.Unlock()
	if flushErr := l.flush(at); flushErr != nil {
		return flushErr
	}
	return err
}

// background is the flush of the manager's interval.
func (l *segLog) background() {
	l.dirty.Store(false)
	err := l.flushDue()
	if l.readable() != nil {
		return
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	again := isUnwritten(err)
	switch {
	case again && !l.putOff:
		l.log().Warn("flush put off: it is tried again until there is room", zap.Error(err))
	case err != nil && !again && l.writable() != nil:
		l.log().Error("flush failed: the log takes no writes until it is opened again", zap.Error(err))
	case err == nil && l.putOff:
		l.log().Info("flush caught up")
	}
	l.putOff = again
	if again {
		l.m.markDirty(l)
	}
}

func (l *segLog) sidesDue() bool {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	l.mu.RLock()
	defer l.mu.RUnlock()
	a := l.active()
	from := int64(0)
	if l.st.sidePoint > a.base {
		from = l.sideBytes
	}
	return a.size-from >= sidesEveryBytes
}
