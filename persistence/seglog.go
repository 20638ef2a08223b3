package persistence

import (
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
)

// segLog is a [Log] on segments. Locks, always taken in this order:
//
//	cmu  whoever compacts it
//	wmu  whoever changes the log (append, truncate, raise, roll, close)
//	fmu  whoever syncs it, and everything under fields marked so
//	mu   state in memory; held for moments, never during a sync or a write
//
// Offsets are atomics so that asking for them costs no lock. While loaded is
// false the log has nothing in memory but these and its line of the manifest.
type segLog struct {
	m    *Manager
	dir  string
	info Info

	cmu sync.Mutex // held by Compact

	wmu sync.Mutex
	hs  []batch.Header // scratch of Append; wmu

	fmu       sync.Mutex
	st        logState // fmu
	stSaved   int64    // recovery point in the file; fmu
	stStart   bool     // the log start in the file isn't synced; fmu
	stBytes   int64    // size of the log at that moment; fmu
	putOff    bool     // the last flush in the background found no room; fmu
	sideBytes int64    // size of the active segment at the side point, if that lies inside it; fmu
	identity  bool     // the files that name the log are synced; fmu
	// unfinished is a cut that found no room, with failure set; wmu and fmu
	unfinished *unfinishedCut
	createdAs  uint64 // number of its creation, see Manager.syncNames

	mu          sync.RWMutex
	cfg         Config
	segs        []*segment // never empty when loaded; replaced, not changed
	epochs      epochCache
	epochsDirty bool
	namesDirty  bool // files were created or removed since the folder was synced
	prod        producerState
	cuts        uint64 // grows when offsets are taken back, or segments replaced: readers and flushes look again
	takenBack   uint64 // grows when offsets are taken back
	failure     error
	closed      bool
	line        []byte // manifest line of a log that isn't loaded

	loaded  atomic.Bool
	dirty   atomic.Bool // in the manager's list of logs to flush
	start   atomic.Int64
	end     atomic.Int64
	rp      atomic.Int64
	size    atomic.Int64
	latest  atomic.Int32
	touched atomic.Bool // changed since it was opened clean

	hints [hintSlots]atomic.Pointer[hint]
}

func (l *segLog) log() *zap.Logger {
	return l.m.log.With(zap.String("topic", l.info.TopicPartition.Topic), zap.Int32("partition", l.info.TopicPartition.Partition))
}

// fail notes a failure of the disk: no write is taken from here on.
func (l *segLog) fail(err error) error {
	l.mu.Lock()
	if l.failure == nil {
		l.failure = err
	}
	l.mu.Unlock()
	return err
}

// failUnless is fail, unless the next flush can make up for err.
func (l *segLog) failUnless(err error) error {
	if isUnwritten(err) {
		return err
	}
	return l.fail(err)
}

// writable returns why the log takes no writes. The caller holds wmu or fmu.
func (l *segLog) writable() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.closed:
		return fmt.Errorf("%s: %w", l.info.TopicPartition, ErrClosed)
	case l.failure != nil:
		return fmt.Errorf("%s failed before: %w", l.info.TopicPartition, l.failure)
	}
	return nil
}

func (l *segLog) readable() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return fmt.Errorf("%s: %w", l.info.TopicPartition, ErrClosed)
	}
	return nil
}

// ensure loads what a cleanly closed log left on disk, on first use.
func (l *segLog) ensure() error {
	if l.loaded.Load() {
		return nil
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.ensureLocked()
}

// ensureLocked is ensure for a caller who holds wmu.
func (l *segLog) ensureLocked() error {
	if l.loaded.Load() {
		return nil
	}
	if err := l.readable(); err != nil {
		return err
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if err := l.load(); err != nil {
		return fmt.Errorf("load %s: %w", l.info.TopicPartition, err)
	}
	l.loaded.Store(true)
	return nil
}

// setConfig with defaults filled in.
func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.SegmentBytes, 1<<30)
	def(&c.IndexBytesMax, 10<<20)
	def(&c.IndexIntervalBytes, 4096)
	if c.SegmentMillis <= 0 {
		c.SegmentMillis = 7 * 24 * 3600 * 1000
	}
	if c.ProducerExpiryMs <= 0 {
		c.ProducerExpiryMs = 24 * 3600 * 1000
	}
	return c
}

// LogStart is the first offset kept.
func (l *segLog) LogStart() int64 { return l.start.Load() }

// End is the offset of the next batch.
func (l *segLog) End() int64 { return l.end.Load() }

// RecoveryPoint is the offset below which everything is synced.
func (l *segLog) RecoveryPoint() int64 { return l.rp.Load() }

// SizeBytes is the size of all .log files.
func (l *segLog) SizeBytes() int64 { return l.size.Load() }

// LatestEpoch is the newest epoch of the epoch cache.
func (l *segLog) LatestEpoch() int32 { return l.latest.Load() }

// EpochEndOffset answers from the epoch cache.
func (l *segLog) EpochEndOffset(epoch int32) (int32, int64, bool) {
	if l.ensure() != nil {
		return messages.NoEpoch, messages.NoOffset, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.endOffset(epoch, l.end.Load())
}

// EpochForOffset answers from the epoch cache.
func (l *segLog) EpochForOffset(offset int64) int32 {
	if l.ensure() != nil {
		return messages.NoEpoch
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.forOffset(offset)
}

// Epochs is a copy of the epoch cache.
func (l *segLog) Epochs() []EpochEntry {
	if l.ensure() != nil {
		return nil
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.clone()
}

// FirstUnstable is the start of the oldest open transaction.
func (l *segLog) FirstUnstable() (int64, bool) {
	if l.ensure() != nil {
		return messages.NoOffset, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.prod.firstUnstable(l.start.Load())
}

// OpenTransactions lists open transactions by first offset.
func (l *segLog) OpenTransactions() []OpenTransaction {
	if l.ensure() != nil {
		return nil
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.prod.openList()
}

// Producers is a copy of the producer state.
func (l *segLog) Producers() []ProducerEntry {
	if l.ensure() != nil {
		return nil
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.prod.list()
}

// Producer is a copy of one entry.
func (l *segLog) Producer(id int64) (ProducerEntry, bool) {
	if l.ensure() != nil {
		return ProducerEntry{}, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.prod.entry(id)
}

// CheckProducer has Kafka's rules for idempotent producers.
func (l *segLog) CheckProducer(h batch.Header) error {
	if h.ProducerID < 0 {
		return nil
	}
	if err := l.ensure(); err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.prod.check(h)
}

// SetConfig takes effect with the next batch.
func (l *segLog) SetConfig(c Config) {
	l.mu.Lock()
	l.cfg = c.withDefaults()
	l.mu.Unlock()
}

// segAt is the index of the last segment that starts at or below offset, 0 if none does.
func segAt(segs []*segment, offset int64) int {
	i := sort.Search(len(segs), func(i int) bool { return segs[i].base > offset })
	return max(i-1, 0)
}

// snapshotName is the producer snapshot at offset.
func (l *segLog) snapshotName(offset int64) string {
	return filepath.Join(l.dir, segmentName(offset, snapshotSuffix))
}

// view takes a view of segment i and looks up first what it needs.
func (l *segLog) view(s *segment) (segView, error) {
	l.mu.RLock()
	if s.known() {
		v := s.view(l.m.cache)
		v.cuts = l.cuts
		l.mu.RUnlock()
		return v, nil
	}
	l.mu.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.learn(l.m.cache); err != nil {
		return segView{}, err
	}
	v := s.view(l.m.cache)
	v.cuts = l.cuts
	return v, nil
}

// activeNow is active for a caller who holds wmu only: no other segment becomes the
// last one, but the list may be replaced by a compaction.
func (l *segLog) activeNow() *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.active()
}

// updateTotals sets size and newest epoch; the caller holds mu.
func (l *segLog) updateTotals() {
	total := int64(0)
	for _, s := range l.segs {
		total += s.size
	}
	l.size.Store(total)
	l.latest.Store(l.epochs.latest())
}

// has reports whether s is one of the log's segments now.
func (l *segLog) has(s *segment) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Contains(l.segs, s)
}

// active is the last segment; the caller holds mu, or wmu and fmu.
func (l *segLog) active() *segment { return l.segs[len(l.segs)-1] }

// removeSegments deletes the files of segments that are out of segs already,
// and the producer snapshots at their starts.
func (l *segLog) removeSegments(segs []*segment) error {
	for _, s := range segs {
		for _, cf := range s.files() {
			l.m.cache.drop(cf)
			if err := l.m.fs.Remove(cf.path()); err != nil && !isNotExist(err) {
				return storageError("remove", cf.path(), err)
			}
		}
		if err := l.m.fs.Remove(l.snapshotName(s.base)); err != nil && !isNotExist(err) {
			return storageError("remove", l.snapshotName(s.base), err)
		}
	}
	return nil
}

// snapshots lists the offsets of the producer snapshots in the folder, ascending.
func (l *segLog) snapshots() ([]int64, error) {
	list, err := l.m.fs.ReadDir(l.dir)
	if err != nil {
		return nil, storageError("list", l.dir, err)
	}
	var out []int64
	for _, e := range list {
		if off, ok := parseSegmentName(e.Name, snapshotSuffix); ok {
			out = append(out, off)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (l *segLog) removeSnapshots(which func(offset int64) bool) error {
	list, err := l.snapshots()
	if err != nil {
		return err
	}
	for _, off := range list {
		if !which(off) {
			continue
		}
		if err := l.m.fs.Remove(l.snapshotName(off)); err != nil && !isNotExist(err) {
			return storageError("remove", l.snapshotName(off), err)
		}
	}
	return nil
}

// parseSegmentName reads the offset out of "00000000000000000012.log".
func parseSegmentName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	v := int64(0)
	for _, c := range digits {
		if c < '0' || c > '9' || v > (1<<63-1-9)/10 {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}
