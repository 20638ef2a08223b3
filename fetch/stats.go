package fetch

import (
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"kagami/internal/clock"
)

// Stats counts what all workers of a node do. Safe for concurrent use.
type Stats struct {
	clock clock.Clock
	bytes atomic.Int64
	dead  atomic.Int64

	mu   sync.Mutex
	live map[*WorkerStats]struct{}
}

// NewStats returns one that has counted nothing.
func NewStats(c clock.Clock) *Stats {
	return &Stats{clock: c, live: make(map[*WorkerStats]struct{})}
}

// Bytes of batches that sources sent, since the start.
func (s *Stats) Bytes() int64 { return s.bytes.Load() }

// Dead is how many workers couldn't be made, and copy nothing.
func (s *Stats) Dead() int64 { return s.dead.Load() }

// CountDead changes Dead by n: 1 for a worker that couldn't be made, -1 when whoever
// wanted it has ended.
func (s *Stats) CountDead(n int64) { s.dead.Add(n) }

// Workers are the live ones, by client id and address.
func (s *Stats) Workers() []WorkerSample {
	s.mu.Lock()
	out := make([]WorkerSample, 0, len(s.live))
	for w := range s.live {
		out = append(out, w.sample())
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b WorkerSample) int {
		return strings.Compare(a.ClientID+"\x00"+a.Host+":"+a.Port, b.ClientID+"\x00"+b.Host+":"+b.Port)
	})
	return out
}

// WorkerSample is one worker at one moment.
type WorkerSample struct {
	ClientID, Mirror, Host, Port string

	Requests int64   // Fetch requests that were answered
	Bytes    int64   // of batches
	Rate     float64 // requests a second, over the last ten seconds
}

// WorkerStats counts for one worker.
type WorkerStats struct {
	of       *Stats
	name     WorkerSample
	requests atomic.Int64
	bytes    atomic.Int64
	rate     *Meter
}

func (s *Stats) worker(c WorkerConfig) *WorkerStats {
	w := &WorkerStats{of: s, rate: NewMeter(s.clock, Unlimited), name: WorkerSample{ClientID: c.ClientID(), Mirror: c.Mirror}}
	w.name.Host, w.name.Port, _ = net.SplitHostPort(c.Address)
	s.mu.Lock()
	s.live[w] = struct{}{}
	s.mu.Unlock()
	return w
}

func (w *WorkerStats) close() {
	w.of.mu.Lock()
	delete(w.of.live, w)
	w.of.mu.Unlock()
}

func (w *WorkerStats) answered(bytes int64) {
	w.requests.Add(1)
	w.bytes.Add(bytes)
	w.of.bytes.Add(bytes)
	w.rate.Record(1)
}

func (w *WorkerStats) sample() WorkerSample {
	s := w.name
	s.Requests, s.Bytes, s.Rate = w.requests.Load(), w.bytes.Load(), w.rate.Rate()
	return s
}
