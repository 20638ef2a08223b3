package persistence

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"go.uber.org/zap"

	"kagami/messages/batch"
)

// run is a stretch of batches that goes into one segment by one write.
type run struct {
	seg      *segment
	created  bool
	from, to int // bytes of the call's batches
	h0, h1   int // headers
}

// pendingIndexBytes is how much of an index is kept in memory before it is written.
const pendingIndexBytes = 4096

// Append writes whole batches at the end; see [Log].
func (l *segLog) Append(batches []byte, opts AppendOptions) (AppendInfo, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.writable(); err != nil {
		return AppendInfo{}, err
	}
	if err := l.ensureLocked(); err != nil {
		return AppendInfo{}, err
	}
	info, err := l.parse(batches, opts)
	if err != nil {
		return AppendInfo{}, fmt.Errorf("append to %s: %w", l.info.TopicPartition, err)
	}
	if info.Batches == 0 {
		return emptyAppend(l.End()), nil
	}
	// A gap of 2^31 offsets inside one call makes two of it: nothing else could
	// be all or nothing there, and a mirror has to get over it.
	all := l.hs
	from, n := 0, 0
	for i, h := range all {
		if i > n && h.LastOffset()-all[i-1].LastOffset() > math.MaxInt32 {
			to := from + sizeOf(all[n:i])
			if err := l.appendParsed(batches[from:to], all[n:i]); err != nil {
				return AppendInfo{}, err
			}
			from, n = to, i
		}
	}
	if err := l.appendParsed(batches[from:], all[n:]); err != nil {
		return AppendInfo{}, err
	}
	return info, nil
}

func sizeOf(hs []batch.Header) (n int) {
	for _, h := range hs {
		n += h.Size()
	}
	return n
}

// appendParsed writes and publishes batches whose headers are hs.
func (l *segLog) appendParsed(batches []byte, hs []batch.Header) error {
	cfg := l.config()
	runs, err := l.plan(hs, len(batches), cfg)
	if err != nil {
		return err
	}
	if err := l.write(batches, runs, cfg.FlushAlways); err != nil {
		return err
	}
	l.touched.Store(true)
	for _, s := range l.publish(batches, hs, runs, cfg) {
		if err := writeFileAtomic(l.m.fs, l.snapshotName(s.offset), s.data, false); err != nil {
			l.log().Warn("producer snapshot not written", zap.Int64("offset", s.offset), zap.Error(err))
		}
	}
	if err := l.writeIndexes(l.activeNow(), pendingIndexBytes); err != nil {
		l.log().Warn("index not written, kept in memory", zap.Error(err))
	}
	l.m.markDirty(l)
	if cfg.FlushAlways {
		return l.flushAppended()
	}
	return nil
}

func (l *segLog) config() Config {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.cfg
}

// parse reads and checks all headers into l.hs.
func (l *segLog) parse(b []byte, opts AppendOptions) (AppendInfo, error) {
	if cap(l.hs) > 1024 {
		l.hs = nil // don't keep what one huge call needed
	}
	hs, info, err := parseBatches(l.hs[:0], b, l.End(), opts)
	l.hs = hs
	return info, err
}

// parseBatches checks that b is whole batches with growing offsets at or above
// end, and sums them up. Both implementations of Log use it.
func parseBatches(hs []batch.Header, b []byte, end int64, opts AppendOptions) ([]batch.Header, AppendInfo, error) {
	info := AppendInfo{End: end, MaxTimestamp: noTimestamp, MaxEpoch: -1, Bytes: len(b)}
	for pos := 0; pos < len(b); {
		h, err := batch.ParseHeader(b[pos:])
		switch {
		case err != nil:
			return hs, info, err
		case h.Size() > len(b)-pos:
			return hs, info, fmt.Errorf("%w: batch at offset %d is cut off", ErrCorrupt, h.BaseOffset)
		case h.LastOffset() < h.BaseOffset || h.LastOffset() == math.MaxInt64:
			return hs, info, fmt.Errorf("%w: batch at offset %d ends beyond the largest offset", ErrCorrupt, h.BaseOffset)
		case h.BaseOffset < info.End && len(hs) == 0:
			return hs, info, fmt.Errorf("%w: batch at offset %d below the log end %d", ErrOffsetOutOfRange, h.BaseOffset, end)
		case h.BaseOffset < info.End:
			return hs, info, fmt.Errorf("%w: batch at offset %d after one that ends at %d", ErrCorrupt, h.BaseOffset, info.End)
		}
		if opts.CheckCRC {
			if err := batch.CheckCRC(b[pos : pos+h.Size()]); err != nil {
				return hs, info, err
			}
		}
		if len(hs) == 0 {
			info.FirstOffset = h.BaseOffset
		}
		hs = append(hs, h)
		info.LastOffset, info.End = h.LastOffset(), h.LastOffset()+1
		info.MaxTimestamp = max(info.MaxTimestamp, h.MaxTimestamp)
		info.MaxEpoch = max(info.MaxEpoch, h.LeaderEpoch)
		pos += h.Size()
	}
	info.Batches = len(hs)
	return hs, info, nil
}

// plan splits the batches hs over the active segment and new ones. A new
// segment is named by the log end, not by its first batch: recovery can then
// tell a lost segment from a gap in the offsets.
func (l *segLog) plan(hs []batch.Header, total int, cfg Config) ([]run, error) {
	l.mu.RLock()
	seg := l.active()
	size, firstTS, full := seg.size, seg.firstTS, seg.indexFull(cfg)
	l.mu.RUnlock()
	limit := min(cfg.SegmentBytes, math.MaxInt32)
	runs := []run{{seg: seg}}
	end, pos := l.End(), 0
	for i, h := range hs {
		roll := size > 0 && size+int64(h.Size()) > int64(limit)
		roll = roll || (i == 0 && size > 0 && total <= limit && size+int64(total) > int64(limit))
		roll = roll || (i == 0 && size > 0 && full)
		roll = roll || (size > 0 && firstTS >= 0 && h.MaxTimestamp-firstTS > cfg.SegmentMillis)
		if h.LastOffset()-runs[len(runs)-1].seg.base > math.MaxInt32 {
			if h.LastOffset()-end > math.MaxInt32 {
				// too wide a gap for a segment that starts at the end
				return l.jump(hs, total, cfg)
			}
			roll = true
		}
		r := &runs[len(runs)-1]
		if roll {
			runs = append(runs, run{seg: newEmptySegment(l.dir, end), created: true, from: pos, h0: i})
			r = &runs[len(runs)-1]
			size, firstTS = 0, noTimestamp
		}
		if size == 0 {
			firstTS = h.MaxTimestamp
		}
		size += int64(h.Size())
		pos += h.Size()
		end = h.LastOffset() + 1
		r.to, r.h1 = pos, i+1
	}
	if runs[0].to == 0 {
		runs = runs[1:]
	}
	return runs, nil
}

// jump makes room for a batch more than 2^31 offsets above the end, the first
// of hs. All before it is flushed, and the recovery point moves over the gap, so
// that recovery knows that nothing is missing there.
func (l *segLog) jump(hs []batch.Header, total int, cfg Config) ([]run, error) {
	if err := l.flush(nil); err != nil {
		return nil, err
	}
	if err := l.rollTo(hs[0].BaseOffset); err != nil {
		return nil, err
	}
	return l.plan(hs, total, cfg)
}

// rollTo starts an empty active segment at base >= End and makes that durable.
// The caller holds wmu.
func (l *segLog) rollTo(base int64) error {
	seg := newEmptySegment(l.dir, base)
	if err := l.createLog(seg); err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	l.active().addTime()
	l.segs = append(slices.Clip(l.segs), seg)
	snap := l.prod.encode()
	l.mu.Unlock()
	if err := writeFileAtomic(l.m.fs, l.snapshotName(base), snap, true); err != nil {
		return l.fail(storageError("write", l.snapshotName(base), err))
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	l.st.recoveryPoint = base
	l.rp.Store(base)
	if err := writeState(l.m.fs, l.dir, &l.st, true); err != nil {
		return l.fail(err)
	}
	l.stSaved = base
	return nil
}

func (s *segment) indexFull(cfg Config) bool {
	return s.off.entries() >= int64(cfg.IndexBytesMax/offsetEntrySize) ||
		s.time.entries() >= int64(cfg.IndexBytesMax/timeEntrySize)-1
}

func (l *segLog) createLog(s *segment) error {
	f, err := l.m.cache.acquire(s.log, true)
	if err != nil {
		return storageError("create", s.log.path(), err)
	}
	defer l.m.cache.release(s.log, false)
	n, err := f.Size()
	if err == nil && n > 0 {
		err = f.Truncate(0)
	}
	if err != nil {
		return storageError("create", s.log.path(), err)
	}
	return nil
}

// write puts the bytes into the files; when it fails nothing has changed.
func (l *segLog) write(b []byte, runs []run, sync bool) error {
	for i, r := range runs {
		err := l.writeRun(b, r, sync)
		if err != nil {
			return l.undo(runs[:i+1], err)
		}
	}
	return nil
}

func (l *segLog) writeRun(b []byte, r run, sync bool) error {
	if r.created {
		if err := l.ensureIdentity(); err != nil {
			return err
		}
		if err := l.createLog(r.seg); err != nil {
			return err
		}
	}
	f, err := l.m.cache.acquire(r.seg.log, true)
	if err != nil {
		return storageError("open", r.seg.log.path(), err)
	}
	_, err = f.WriteAt(b[r.from:r.to], r.seg.size)
	if err == nil && sync {
		if err = l.m.cache.syncHeld(r.seg.log, f); err != nil {
			_ = l.fail(storageError("sync", r.seg.log.path(), err))
		}
	}
	l.m.cache.release(r.seg.log, true)
	if err != nil {
		return storageError("write", r.seg.log.path(), err)
	}
	return nil
}

// undo takes back what write did before it failed. If that works the log goes
// on (a full disk may have room again later), else it takes no more writes.
func (l *segLog) undo(runs []run, cause error) error {
	var errs error
	for _, r := range runs {
		if r.created {
			errs = errors.Join(errs, l.removeSegments([]*segment{r.seg}), l.m.fs.SyncDir(l.dir))
			continue
		}
		f, err := l.m.cache.acquire(r.seg.log, false)
		if err == nil {
			err = f.Truncate(r.seg.size)
			l.m.cache.release(r.seg.log, true)
		}
		errs = errors.Join(errs, err)
	}
	if errs != nil {
		return l.fail(errors.Join(cause, errs))
	}
	return cause
}

type snapshotBytes struct {
	offset int64
	data   []byte
}

// publish makes the written batches visible. It returns the producer snapshots
// that belong to the starts of new segments.
func (l *segLog) publish(b []byte, hs []batch.Header, runs []run, cfg Config) []snapshotBytes {
	l.mu.Lock()
	defer l.mu.Unlock()
	var snaps []snapshotBytes
	for _, r := range runs {
		if r.created {
			l.active().addTime()
			snaps = append(snaps, snapshotBytes{r.seg.base, l.prod.encode()})
			l.segs = append(slices.Clip(l.segs), r.seg)
			l.namesDirty = true
		}
		pos := r.from
		for _, h := range hs[r.h0:r.h1] {
			r.seg.add(h, cfg.IndexIntervalBytes)
			l.epochsDirty = l.epochs.assign(h.LeaderEpoch, h.BaseOffset) || l.epochsDirty
			for _, t := range l.prod.apply(h, b[pos:pos+h.Size()]) {
				r.seg.txn.pending = appendTxnEntry(r.seg.txn.pending, t)
			}
			pos += h.Size()
		}
	}
	l.end.Store(hs[len(hs)-1].LastOffset() + 1)
	l.size.Add(int64(len(b)))
	l.latest.Store(l.epochs.latest())
	return snaps
}

// writeIndexes writes pending index entries of s if there are at least atLeast
// bytes of them. The caller owns the segment's writing side: wmu for the active
// segment, fmu for others.
func (l *segLog) writeIndexes(s *segment, atLeast int) error {
	l.mu.RLock()
	v := s.view(l.m.cache)
	l.mu.RUnlock()
	if len(v.time.pending) > 0 && v.off.n() == 0 && v.time.count == 0 {
		// Kafka's tool wants an offset index beside a time index, if an empty one
		if _, err := l.m.cache.acquire(&s.off.cf, true); err != nil {
			return storageError("create", s.off.cf.path(), err)
		}
		l.m.cache.release(&s.off.cf, false)
	}
	for _, iv := range []indexView{v.off, v.time, v.txn} {
		if len(iv.pending) == 0 || len(iv.pending) < atLeast {
			continue
		}
		if err := iv.writePending(); err != nil {
			return err
		}
		l.mu.Lock()
		if iv.count == 0 {
			l.namesDirty = true // the file may be new
		}
		iv.ix.count = iv.n()
		iv.ix.pending = nil
		l.mu.Unlock()
	}
	return nil
}
