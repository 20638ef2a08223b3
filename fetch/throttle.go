package fetch

import (
	"math"
	"sync"
	"time"

	"kagami/internal/clock"
)

// Throttle decides whether throttled partitions may be fetched now.
type Throttle interface {
	// Exceeded reports whether the rate is above the limit at this moment.
	Exceeded() bool
	// Room is the bytes that may come now before the rate is above the limit.
	Room() int64
	// Record counts bytes of throttled partitions that arrived.
	Record(n int)
}

// Kafka's defaults for replication quotas: replication.quota.window.num and
// replication.quota.window.size.seconds.
const (
	meterSamples = 11
	meterWindow  = time.Second
)

// Unlimited is the default of mirror.replication.throttled.rate.
const Unlimited int64 = math.MaxInt64

// Meter measures a byte rate the way Kafka's replication quotas do: samples of
// one second, and a window that is never taken as shorter than ten of them, so
// that one large batch passes instead of being held for ever. One Meter serves
// all mirrors of a node. Safe for concurrent use.
type Meter struct {
	clock clock.Clock

	mu      sync.Mutex
	limit   int64 // bytes per second
	samples [meterSamples]meterSample
	last    int // index of the newest
}

type meterSample struct {
	start time.Time // zero = unused
	bytes int64
}

// NewMeter returns a meter with a limit in bytes per second; [Unlimited] = none.
func NewMeter(c clock.Clock, limit int64) *Meter { return &Meter{clock: c, limit: limit} }

// SetLimit changes mirror.replication.throttled.rate.
func (m *Meter) SetLimit(bytesPerSecond int64) {
	m.mu.Lock()
	m.limit = bytesPerSecond
	m.mu.Unlock()
}

// Record counts n bytes now.
func (m *Meter) Record(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	s := &m.samples[m.last]
	if s.start.IsZero() || now.Sub(s.start) >= meterWindow {
		m.last = (m.last + 1) % meterSamples
		s = &m.samples[m.last]
		*s = meterSample{start: now}
	}
	s.bytes += int64(n)
}

// Rate is the bytes per second of the window that ends now.
func (m *Meter) Rate() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rateLocked()
}

func (m *Meter) rateLocked() float64 {
	total, window := m.windowLocked()
	return float64(total) / window.Seconds()
}

// windowLocked is the bytes of the window that ends now, and its length.
func (m *Meter) windowLocked() (total int64, window time.Duration) {
	now := m.clock.Now()
	oldest := now
	for _, s := range m.samples {
		if s.start.IsZero() || now.Sub(s.start) >= meterSamples*meterWindow {
			continue
		}
		total += s.bytes
		if s.start.Before(oldest) {
			oldest = s.start
		}
	}
	return total, max(now.Sub(oldest), (meterSamples-1)*meterWindow)
}

// Room is the bytes that may come now, at least 0; [Unlimited] without a limit.
func (m *Meter) Room() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit == Unlimited {
		return Unlimited
	}
	total, window := m.windowLocked()
	return max(0, int64(float64(m.limit)*window.Seconds())-total)
}

// Exceeded reports whether the rate is above the limit.
func (m *Meter) Exceeded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.limit != Unlimited && m.rateLocked() > float64(m.limit)
}
