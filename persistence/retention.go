package persistence

import (
	"context"
	"fmt"
	"slices"
)

// ApplyRetention deletes old segments; see [Log].
func (l *segLog) ApplyRetention(ctx context.Context, p RetentionPolicy) (int, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.beginChange(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.prod.expire(p.NowMillis - l.cfg.ProducerExpiryMs)
	segs := l.segs
	l.mu.Unlock()
	start, err := l.expired(ctx, segs, p)
	if err != nil {
		return 0, fmt.Errorf("apply retention to %s: %w", l.info.TopicPartition, err)
	}
	if start <= l.LogStart() {
		return 0, nil
	}
	if start > segs[len(segs)-1].base { // everything is old: the active segment becomes an old one
		l.fmu.Lock()
		err := l.rollLocked()
		l.fmu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	return l.raiseLocked(start)
}

// ExpireProducers forgets idle producers; see [Log].
func (l *segLog) ExpireProducers(nowMillis int64) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if !l.loaded.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prod.expire(nowMillis - l.cfg.ProducerExpiryMs)
}

// segmentSummary is what retention wants to know of a segment.
type segmentSummary struct {
	base, next, size int64
	maxTS            int64 // noTimestamp if its records have none
	firstTS          int64
}

// expired is the log start that the policy wants.
func (l *segLog) expired(ctx context.Context, segs []*segment, p RetentionPolicy) (int64, error) {
	list := make([]segmentSummary, 0, len(segs))
	for i, s := range segs {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		v, err := l.view(s)
		if err != nil {
			return 0, err
		}
		sum := segmentSummary{base: v.base, next: v.next, size: v.size, maxTS: v.maxTS}
		if i+1 < len(segs) {
			sum.next = segs[i+1].base
		}
		if sum.maxTS < 0 {
			sum.maxTS = l.fileTime(v)
		}
		list = append(list, sum)
		if p.Bytes < 0 && sum.maxTS >= p.NowMillis-p.Millis {
			break // by time alone nothing behind this one goes
		}
	}
	return expiredStart(list, l.LogStart(), l.End(), p), nil
}

// expiredStart is the first offset behind the leading segments that are too old
// or that leave at least p.Bytes behind them. The last one goes by time only.
func expiredStart(segs []segmentSummary, start, end int64, p RetentionPolicy) int64 {
	excess := -p.Bytes
	for _, s := range segs {
		excess += s.size
	}
	for _, s := range segs {
		last := s.next >= end
		byTime := p.Millis >= 0 && s.maxTS >= 0 && p.NowMillis-s.maxTS > p.Millis
		bySize := p.Bytes >= 0 && !last && excess-s.size >= 0
		if s.next > p.HighWatermark || (s.size == 0 && last) || (s.size > 0 && !byTime && !bySize) {
			break
		}
		start = max(start, s.next)
		excess -= s.size
	}
	return start
}

// fileTime stands in for records without a timestamp, as in Kafka; -1 if unknown.
func (l *segLog) fileTime(v segView) int64 {
	st, err := l.m.fs.Stat(v.log.path())
	if err != nil || st.ModMillis <= 0 {
		return -1
	}
	return st.ModMillis
}

// rollLocked starts an empty active segment at the log end, if the active one
// isn't empty. The caller holds wmu and fmu.
func (l *segLog) rollLocked() error {
	end := l.End()
	if l.active().size == 0 {
		return nil
	}
	seg := newEmptySegment(l.dir, end)
	if err := l.createLog(seg); err != nil {
		return err
	}
	l.mu.Lock()
	l.active().addTime()
	l.segs = append(slices.Clip(l.segs), seg)
	l.namesDirty = true
	snap := l.prod.encode()
	l.mu.Unlock()
	if err := writeFileAtomic(l.m.fs, l.snapshotName(end), snap, false); err != nil {
		return l.failUnless(storageError("write", l.snapshotName(end), err))
	}
	return nil
}
