package persistence

import (
	"kagami/messages"
	"kagami/messages/batch"
)

func (l *memLog) LogStart() int64      { return locked(l, func() int64 { return l.start }) }
func (l *memLog) End() int64           { return locked(l, func() int64 { return l.end }) }
func (l *memLog) RecoveryPoint() int64 { return locked(l, func() int64 { return l.rp }) }
func (l *memLog) LatestEpoch() int32   { return locked(l, l.epochs.latest) }
func (l *memLog) Epochs() []EpochEntry { return locked(l, l.epochs.clone) }
func (l *memLog) Producers() []ProducerEntry {
	return locked(l, l.prod.list)
}

func (l *memLog) OpenTransactions() []OpenTransaction {
	return locked(l, l.prod.openList)
}

func locked[T any](l *memLog, f func() T) T {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return f()
}

// SizeBytes counts what the real log's files would hold.
func (l *memLog) SizeBytes() int64 {
	return locked(l, func() int64 {
		n := int64(0)
		for _, b := range l.batches {
			if b.h.BaseOffset >= l.segBases[0] {
				n += int64(b.h.Size())
			}
		}
		return n
	})
}

func (l *memLog) EpochEndOffset(epoch int32) (int32, int64, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.endOffset(epoch, l.end)
}

func (l *memLog) EpochForOffset(offset int64) int32 {
	return locked(l, func() int32 { return l.epochs.forOffset(offset) })
}

func (l *memLog) FirstUnstable() (int64, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.prod.firstUnstable(l.start)
}

func (l *memLog) Producer(id int64) (ProducerEntry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.prod.entry(id)
}

func (l *memLog) CheckProducer(h batch.Header) error {
	return locked(l, func() error { return l.prod.check(h) })
}

func (l *memLog) AbortedTxns(from, to int64) ([]AbortedTxn, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.check(l.faults.Read); err != nil {
		return nil, err
	}
	var out []AbortedTxn
	for _, t := range l.aborted {
		if t.LastOffset >= max(from, l.start) && t.FirstOffset < to {
			out = append(out, t)
		}
	}
	return sortAborted(out), nil
}

func (l *memLog) OffsetForTimestamp(ts int64) (TimestampOffset, bool, error) {
	return l.firstRecord(func(r batch.Record) bool { return r.Timestamp >= ts })
}

func (l *memLog) MaxTimestamp() (TimestampOffset, bool, error) {
	best := messages.NoOffset
	_, _, err := l.firstRecord(func(r batch.Record) bool {
		best = max(best, r.Timestamp)
		return false
	})
	if err != nil {
		return TimestampOffset{}, false, err
	}
	return l.firstRecord(func(r batch.Record) bool { return r.Timestamp >= best })
}

func (l *memLog) firstRecord(want func(batch.Record) bool) (TimestampOffset, bool, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.check(l.faults.Read); err != nil {
		return TimestampOffset{}, false, err
	}
	for _, b := range l.batches {
		if b.h.LastOffset() < l.start {
			continue
		}
		for r, err := range batch.DecompressRecords(b.body, recordBytesMax) {
			if err != nil {
				r = batch.Record{Offset: max(b.h.BaseOffset, l.start), Timestamp: b.h.MaxTimestamp}
			}
			if r.Offset >= l.start && want(r) {
				return TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, Epoch: b.h.LeaderEpoch}, true, nil
			}
			if err != nil {
				break
			}
		}
	}
	return TimestampOffset{}, false, nil
}
