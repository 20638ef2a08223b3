package fetch

import (
	"sync/atomic"
	"time"

	"kagami/messages"
)

// Lag is how far one partition's copy is behind. The worker writes it, anybody
// may read it at any time. Make one with [NewLag]; the owner keeps it when the
// partition moves between workers.
type Lag struct {
	sourceHW    atomic.Int64
	sourceStart atomic.Int64
	end         atomic.Int64
	answered    atomic.Int64 // ms of the last good answer, 0 = never
	behindSince atomic.Int64 // ms since when the copy isn't complete, 0 = complete or unknown
	timestamp   atomic.Int64 // largest record timestamp appended, ms
	bytes       atomic.Int64 // appended since NewLag
	seen        atomic.Int64 // source high watermark that was told last, kept without a fetcher; -1 = never
	seenAt      atomic.Int64 // ms when it was, or was confirmed
	lastErr     atomic.Pointer[LagError]
}

// LagError is the last trouble of a partition.
type LagError struct {
	At  time.Time
	Err error
}

// LagSnapshot is one reading of a Lag. Unknown numbers are -1.
type LagSnapshot struct {
	SourceHighWatermark int64
	SourceLogStart      int64
	Lag                 int64     // max(0, source high watermark - local end)
	Answered            time.Time // last good answer, zero = never
	BehindSince         time.Time // zero = caught up, or unknown
	MaxTimestamp        int64     // largest timestamp appended, ms
	Bytes               int64     // appended in this process
	Seen                int64     // source high watermark that was told last, also without a fetcher
	SeenAt              time.Time // when it was told or confirmed, zero = never
	LastError           *LagError // nil after a good answer
}

// NewLag returns a Lag that knows nothing.
func NewLag() *Lag {
	l := &Lag{}
	l.seen.Store(messages.NoOffset)
	l.reset()
	return l
}

// Snapshot reads the values.
func (l *Lag) Snapshot() LagSnapshot {
	s := LagSnapshot{
		SourceHighWatermark: l.sourceHW.Load(), SourceLogStart: l.sourceStart.Load(), Lag: -1,
		MaxTimestamp: l.timestamp.Load(), Bytes: l.bytes.Load(), Seen: l.seen.Load(), LastError: l.lastErr.Load(),
	}
	if ms := l.seenAt.Load(); ms > 0 {
		s.SeenAt = time.UnixMilli(ms)
	}
	if s.SourceHighWatermark >= 0 {
		s.Lag = max(0, s.SourceHighWatermark-l.end.Load())
	}
	if ms := l.answered.Load(); ms > 0 {
		s.Answered = time.UnixMilli(ms)
	}
	if ms := l.behindSince.Load(); ms > 0 {
		s.BehindSince = time.UnixMilli(ms)
	}
	return s
}

// reset forgets offsets: the partition has no fetcher. The last error stays, it
// may be why.
func (l *Lag) reset() {
	l.sourceHW.Store(messages.NoOffset)
	l.sourceStart.Store(messages.NoOffset)
	l.end.Store(0)
	l.answered.Store(0)
	l.behindSince.Store(0)
	l.timestamp.Store(-1)
}

// confirm: the source answered, and has nothing new to tell of the partition.
func (l *Lag) confirm(now time.Time) {
	if l.sourceHW.Load() >= 0 && l.lastErr.Load() == nil {
		l.seenAt.Store(now.UnixMilli())
	}
}

func (l *Lag) good(now time.Time, sourceHW, sourceStart, end int64) {
	l.end.Store(end)
	l.sourceHW.Store(sourceHW)
	l.sourceStart.Store(sourceStart)
	l.seen.Store(sourceHW)
	l.seenAt.Store(now.UnixMilli())
	l.answered.Store(now.UnixMilli())
	l.lastErr.Store(nil)
	if sourceHW <= end {
		l.behindSince.Store(0)
	} else {
		l.behindSince.CompareAndSwap(0, now.UnixMilli())
	}
}

func (l *Lag) appended(timestamp int64, n int) {
	l.bytes.Add(int64(n))
	if timestamp > l.timestamp.Load() {
		l.timestamp.Store(timestamp)
	}
}

func (l *Lag) fault(now time.Time, err error) { l.lastErr.Store(&LagError{At: now, Err: err}) }
