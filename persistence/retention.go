package persistence

import (
	"context"
	"fmt"
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

// expired is the log start that the policy wants: the first offset behind the
// segments that are too old, or too many bytes back.
func (l *segLog) expired(ctx context.Context, segs []*segment, p RetentionPolicy) (int64, error) {
	start := l.LogStart()
	excess := l.SizeBytes() - p.Bytes
	for i, s := range segs {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		v, err := l.view(s)
		if err != nil {
			return 0, err
		}
		next, last := v.next, i == len(segs)-1
		if !last {
			next = segs[i+1].base
		}
		if next > p.HighWatermark || v.size == 0 && last {
			break
		}
		old := v.maxTs
		if old < 0 {
			old = l.fileTime(v)
		}
		byTime := p.Millis >= 0 && old >= 0 && p.NowMillis-old > p.Millis
		bySize := p.Bytes >= 0 && !last && excess-v.size >= 0
		if !byTime && !bySize && v.size > 0 {
			break
		}
		start = next
		excess -= v.size
	}
	return start, nil
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
	l.segs = append(l.segs[:len(l.segs):len(l.segs)], seg)
	l.namesDirty = true
	snap := l.prod.encode()
	l.mu.Unlock()
	if err := writeFileAtomic(l.m.fs, l.snapshotName(end), snap, false); err != nil {
		return l.fail(storageError("write", l.snapshotName(end), err))
	}
	return nil
}
