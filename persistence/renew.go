package persistence

import (
	"errors"
	"fmt"
	"math"

	"go.uber.org/zap"
)

// errCleaning: whoever compacts the log ends soon, as it takes no writes.
var errCleaning = errors.New("the log is being compacted")

// Renew brings a log back that takes no writes since its disk failed; see [Log].
//
// What a failed sync leaves in the page cache looks written to everybody, the system
// included: no later sync writes it. So the log is recovered as after a crash, and what
// lies above the recovery point, which may be nowhere but in that cache, is checked and
// written once more.
func (l *segLog) Renew() error {
	l.mu.RLock()
	failure, closed := l.failure, l.closed
	l.mu.RUnlock()
	if failure == nil || closed {
		return nil
	}
	if !l.cmu.TryLock() {
		return fmt.Errorf("renew %s: %w", l.info.TopicPartition, errCleaning)
	}
	defer l.cmu.Unlock()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if l.readable() != nil || l.unfinished != nil { // such a cut goes on by the same call
		return nil
	}
	if err := l.renewLocked(); err != nil {
		return fmt.Errorf("renew %s: %w", l.info.TopicPartition, err)
	}
	return nil
}

func (l *segLog) renewLocked() error {
	l.mu.Lock()
	l.cuts++ // readers of now look again
	old, before, failure := l.segs, l.end.Load(), l.failure
	l.mu.Unlock()
	if !l.identity {
		if err := l.m.createFile(l.dir+"/"+partitionFile, encodePartitionMetadata(l.info.Key.TopicID)); err != nil {
			return err
		}
	}
	fresh := &segLog{m: l.m, dir: l.dir, info: l.info, cfg: l.config()}
	fresh.dirty.Store(true) // nobody flushes it but this call
	r := &recovery{l: fresh, cutLimit: math.MaxInt64, renew: true, endMax: before}
	for _, s := range old {
		for _, cf := range s.files() {
			l.m.cache.drop(cf) // readers keep theirs
		}
	}
	if err := r.run(); err != nil {
		fresh.shut()
		return err
	}
	l.adopt(fresh)
	if err := l.flushLocked(flushAll, nil); err != nil {
		return err
	}
	l.m.markDirty(l)
	end := l.end.Load()
	l.log().Warn("log renewed after a failure of its disk", zap.NamedError("failure", failure), zap.Int64("end", end), zap.Int64("end before", before))
	return nil
}

// adopt takes over what the recovery of the same folder found. The caller holds wmu
// and fmu.
func (l *segLog) adopt(fresh *segLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st, l.stSaved, l.stStart, l.stBytes = fresh.st, fresh.stSaved, true, fresh.stBytes
	l.putOff, l.sideBytes, l.unfinished = false, fresh.sideBytes, nil
	l.segs, l.epochs, l.prod = fresh.segs, fresh.epochs, fresh.prod
	l.epochsDirty, l.namesDirty, l.failure = true, true, nil
	l.cuts++
	if fresh.end.Load() < l.end.Load() {
		l.takenBack++
	}
	l.start.Store(fresh.start.Load())
	l.end.Store(fresh.end.Load())
	l.rp.Store(fresh.rp.Load())
	l.updateTotals()
	l.touched.Store(true)
}

// again writes a batch where it stands, if no sync is known to have written it.
func (r *recovery) again(sc *scanner, f File, last, pos int64, size int) error {
	if !r.renew || last < r.st.recoveryPoint {
		return nil
	}
	b, err := sc.body(pos, size)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, pos); err != nil {
		return storageError("write", r.l.dir, err)
	}
	return nil
}

// sizeAgain has the next sync of a file write its size too, which a cut may have changed
// before a sync failed.
func (r *recovery) sizeAgain(f File, size int64) error {
	if !r.renew {
		return nil
	}
	if err := errors.Join(f.Truncate(size+1), f.Truncate(size)); err != nil {
		return storageError("truncate", r.l.dir, err)
	}
	return nil
}
