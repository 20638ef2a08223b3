package persistence

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// A group of segments is replaced in steps, each of which may be the last before a
// crash:
//
//	write   <base>.log.cleaned and its indexes, synced            crash: they are removed
//	commit  <base>.log.cleaned becomes <base>.<next>.swap, synced crash: from here on finished at the next start
//	show    readers find the new segment
//	clear   the other segments of the group go, synced
//	place   the indexes take the first segment's names, synced; then .swap does, synced
//
// next is where the segment behind the group starts: everything from base up to there
// is in the .swap.
const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

func (l *segLog) cleanedName(base int64, suffix string) string {
	return filepath.Join(l.dir, segmentName(base, suffix+cleanedSuffix))
}

func (l *segLog) swapName(base, next int64) string {
	return filepath.Join(l.dir, segmentName(base, "."+segmentName(next, swapSuffix)))
}

// parseSwapName is the reverse of swapName.
func parseSwapName(name string) (base, next int64, ok bool) {
	first, rest, _ := strings.Cut(name, ".")
	base, ok1 := parseSegmentName(first, "")
	next, ok2 := parseSegmentName(rest, swapSuffix)
	return base, next, ok1 && ok2 && next > base
}

// removeCleaned removes what a cleaning that wasn't finished has left.
func (l *segLog) removeCleaned() error {
	list, err := l.m.fs.ReadDir(l.dir)
	if err != nil {
		return storageError("list", l.dir, err)
	}
	for _, e := range list {
		if !strings.HasSuffix(e.Name, cleanedSuffix) {
			continue
		}
		name := filepath.Join(l.dir, e.Name)
		if err := l.m.fs.Remove(name); err != nil && !isNotExist(err) {
			return storageError("remove", name, err)
		}
	}
	return nil
}

// swap puts the finished files of w in the place of its group. After the commit an
// error of the disk fails the log for writing, reading goes on.
func (l *segLog) swap(cuts uint64, w *cleanWriter, purged int64) error {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	g, fresh := w.group, w.fresh
	if err := l.unchanged(cuts); err != nil {
		return err
	}
	l.mu.RLock()
	at := slices.Index(l.segs, g.segs[0])
	gone := at < 0 || !slices.Equal(l.segs[at:min(at+len(g.segs), len(l.segs)-1)], g.segs)
	l.mu.RUnlock()
	if gone {
		return errSegmentsMoved
	}
	if purged > l.st.purgedTo { // before it is true
		l.st.purgedTo = purged
		if err := l.trySaveState(true); err != nil {
			return err
		}
	}
	swapped := l.swapName(fresh.base, g.next)
	if err := l.m.fs.Rename(l.cleanedName(fresh.base, logSuffix), swapped); err != nil {
		return l.fail(storageError("rename", swapped, err))
	}
	if err := l.syncDir(); err != nil {
		return l.fail(err)
	}
	fresh.next, fresh.synced = g.next, true
	l.m.cache.adopt(fresh.log, w.file)
	w.file = nil
	l.show(at, g, fresh)
	if err := l.place(g, fresh, swapped); err != nil {
		return l.fail(err) // the adopted file stays open: readers have no other
	}
	l.m.cache.release(fresh.log, false)
	return nil
}

// show makes readers find the new segment, whose indexes are in memory for now.
func (l *segLog) show(at int, g segmentGroup, fresh *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	l.segs = slices.Replace(slices.Clone(l.segs), at, at+len(g.segs), fresh)
	l.updateTotals()
}

// place gives the new files their names. The caller holds fmu.
func (l *segLog) place(g segmentGroup, fresh *segment, swapped string) error {
	for _, s := range g.segs {
		for _, cf := range s.files() {
			l.m.cache.drop(cf)
		}
	}
	if err := l.removeSegments(g.segs[1:]); err != nil {
		return err
	}
	if len(g.segs) > 1 {
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	for _, ix := range fresh.indexes() {
		if err := l.m.fs.Rename(l.cleanedName(fresh.base, ix.cf.suffix), ix.cf.path()); err != nil {
			return storageError("rename", ix.cf.path(), err)
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	if err := l.m.fs.Rename(swapped, fresh.log.path()); err != nil {
		return storageError("rename", swapped, err)
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.mu.Lock()
	for _, ix := range fresh.indexes() {
		ix.count, ix.pending = ix.entries(), nil
	}
	l.mu.Unlock()
	return nil
}

// finishSwaps carries out the swap that a crash has interrupted. It changes r.bases to
// what is there then.
func (r *recovery) finishSwaps(list []FileInfo) error {
	for _, e := range list {
		base, next, ok := parseSwapName(e.Name)
		if !ok {
			continue
		}
		r.l.log().Info("a swap of segments that a crash interrupted is finished", zap.Int64("base", base), zap.Int64("next", next))
		if err := r.finishSwap(e.Name, base, next, list); err != nil {
			return fmt.Errorf("finish %s: %w", e.Name, err)
		}
	}
	return nil
}

func (r *recovery) finishSwap(swapped string, base, next int64, list []FileInfo) error {
	l := r.l
	r.bases = slices.DeleteFunc(r.bases, func(b int64) bool { return b >= base && b < next })
	r.bases = append(r.bases, base)
	for _, e := range list {
		digits, suffix, _ := strings.Cut(e.Name, ".")
		b, ok := parseSegmentName(digits, "")
		isSegment := slices.Contains([]string{logSuffix, indexSuffix, timeSuffix, txnSuffix, snapshotSuffix}, "."+suffix)
		if ok && b > base && b < next && isSegment {
			if err := r.remove(e.Name); err != nil {
				return err
			}
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	for _, suffix := range []string{indexSuffix, timeSuffix, txnSuffix} {
		to := filepath.Join(l.dir, segmentName(base, suffix))
		if err := l.m.fs.Rename(l.cleanedName(base, suffix), to); err != nil && !isNotExist(err) {
			return storageError("rename", to, err)
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	to := filepath.Join(l.dir, segmentName(base, logSuffix))
	if err := l.m.fs.Rename(filepath.Join(l.dir, swapped), to); err != nil {
		return storageError("rename", to, err)
	}
	return l.syncDir()
}
