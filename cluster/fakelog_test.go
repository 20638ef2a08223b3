package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// fakeLog is a log in memory with the faults that these tests need. It outlives
// Close, so that a test can open a replica again on what a crash left.
type fakeLog struct {
	persistence.Log // what isn't used panics

	mu       sync.Mutex
	batches  []fakeBatch
	start    int64
	end      int64
	synced   int64
	closed   bool
	flushes  int
	appended int // bytes

	failAppend  error
	onConfig    func(persistence.Config)
	beforeCut   func() error // called before a cut changes anything
	duplicateOf func(batch.Header) error
}

type fakeBatch struct {
	h batch.Header
	b []byte
}

var _ persistence.Log = (*fakeLog)(nil)

func (l *fakeLog) Append(batches []byte, _ persistence.AppendOptions) (persistence.AppendInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failAppend != nil {
		return persistence.AppendInfo{}, l.failAppend
	}
	info := persistence.AppendInfo{FirstOffset: -1, MaxEpoch: messages.NoEpoch, Bytes: len(batches)}
	end := l.end
	var added []fakeBatch
	for b := batches; len(b) > 0; {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return info, err
		}
		if h.BaseOffset < end {
			return info, fmt.Errorf("base offset %d below end %d", h.BaseOffset, end)
		}
		if info.Batches++; info.FirstOffset < 0 {
			info.FirstOffset = h.BaseOffset
		}
		info.LastOffset, info.MaxEpoch = h.LastOffset(), max(info.MaxEpoch, h.LeaderEpoch)
		added = append(added, fakeBatch{h: h, b: append([]byte(nil), b[:h.Size()]...)})
		end, b = h.LastOffset()+1, b[h.Size():]
	}
	l.batches, l.end, info.End = append(l.batches, added...), end, end
	l.appended += len(batches)
	return info, nil
}

func (l *fakeLog) Read(offset int64, _ int, upTo int64, _ bool) (persistence.Chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if b.h.LastOffset() >= offset && b.h.LastOffset() < upTo {
			return persistence.NewChunk(persistence.Chunk{Bytes: b.b, Len: len(b.b), FirstOffset: b.h.BaseOffset, NextOffset: b.h.LastOffset() + 1}, nil), nil
		}
	}
	return persistence.Chunk{}, nil
}

func (l *fakeLog) Truncate(offset int64) (persistence.Cut, error) {
	if l.beforeCut != nil {
		if err := l.beforeCut(); err != nil {
			return persistence.Cut{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := persistence.Cut{From: l.end, To: l.end}
	if offset >= l.end {
		return cut, nil
	}
	kept := l.batches[:0]
	end := offset
	for _, b := range l.batches {
		if b.h.LastOffset() < offset {
			kept = append(kept, b)
			continue
		}
		end = min(end, b.h.BaseOffset)
		cut.Records += int64(b.h.Records)
		cut.Bytes += int64(len(b.b))
	}
	l.batches, l.end, l.start, l.synced = kept, end, min(l.start, end), min(l.synced, end)
	cut.From = end
	return cut, nil
}

func (l *fakeLog) PlanCut(offset int64) (persistence.Cut, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	plan := persistence.Cut{From: min(offset, l.end), To: l.end}
	for _, b := range l.batches {
		if b.h.LastOffset() >= offset {
			plan.From = min(plan.From, b.h.BaseOffset)
			plan.Records += int64(b.h.Records)
			plan.Bytes += int64(len(b.b))
		}
	}
	return plan, nil
}

func (l *fakeLog) RestartAt(offset int64) (persistence.Cut, error) {
	if l.beforeCut != nil {
		if err := l.beforeCut(); err != nil {
			return persistence.Cut{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := persistence.Cut{From: offset, To: l.end, Records: int64(len(l.batches))}
	l.batches, l.start, l.end, l.synced = nil, offset, offset, offset
	return cut, nil
}

func (l *fakeLog) Roll() error { return nil }

func (l *fakeLog) RaiseLogStart(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = max(l.start, min(offset, l.end))
	return nil
}

func (l *fakeLog) ApplyRetention(_ context.Context, p persistence.RetentionPolicy) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Bytes < 0 || p.Bytes > int64(l.appended) || len(l.batches) == 0 {
		return 0, nil
	}
	l.start = l.end // everything is old
	return 1, nil
}

func (l *fakeLog) CheckProducer(h batch.Header) error {
	if l.duplicateOf != nil {
		return l.duplicateOf(h)
	}
	return nil
}

func (l *fakeLog) LogStart() int64      { l.mu.Lock(); defer l.mu.Unlock(); return l.start }
func (l *fakeLog) End() int64           { l.mu.Lock(); defer l.mu.Unlock(); return l.end }
func (l *fakeLog) RecoveryPoint() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.synced }
func (l *fakeLog) SizeBytes() int64     { l.mu.Lock(); defer l.mu.Unlock(); return int64(l.appended) }

func (l *fakeLog) LatestEpoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.batches) == 0 {
		return messages.NoEpoch
	}
	return l.batches[len(l.batches)-1].h.LeaderEpoch
}

func (l *fakeLog) SetConfig(c persistence.Config) {
	if l.onConfig != nil {
		l.onConfig(c)
	}
}

func (l *fakeLog) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = l.end
	l.flushes++
	return nil
}

func (l *fakeLog) Sync() error { return l.Flush() }

func (l *fakeLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// powerLoss drops what wasn't synced.
func (l *fakeLog) powerLoss() {
	if _, err := l.Truncate(l.synced); err != nil {
		panic(err)
	}
}

var errFault = errors.New("injected fault")

// Compact does nothing: nothing is ever due.
func (l *fakeLog) Compact(context.Context, persistence.CompactionPolicy) (persistence.Compaction, error) {
	return persistence.Compaction{}, nil
}

// PurgedTo is 0: see Compact.
func (l *fakeLog) PurgedTo() int64 { return 0 }

func (l *fakeLog) Renew() error { return nil }

func (l *fakeLog) ExpireProducers(int64) {}
