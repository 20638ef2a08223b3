package fetch_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/batch"
)

// memSink is a local log in memory with the rules of a real one: whole batches,
// offsets that rise, an epoch cache made from batches only.
type memSink struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced on every change
	start   int64
	end     int64
	dle     int32
	batches []memBatch
	events  []fetch.Event

	appendErr func() error  // nil = none
	gate      chan struct{} // an append waits for it when not nil
	appends   int
	inAppend  bool
}

type memBatch struct {
	h batch.Header
	b []byte
}

func newMemSink() *memSink { return &memSink{dle: 1 << 20, changed: make(chan struct{})} }

func (s *memSink) touchLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *memSink) State() fetch.LocalState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked()
}

func (s *memSink) stateLocked() fetch.LocalState {
	l := fetch.LocalState{LogStart: s.start, HighWatermark: s.end, End: s.end, LeaderEpoch: s.dle, LatestEpoch: messages.NoEpoch}
	if n := len(s.batches); n > 0 {
		l.LatestEpoch = s.batches[n-1].h.LeaderEpoch
	}
	return l
}

func (s *memSink) EpochEndOffset(epoch int32) (int32, int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, e, end := false, int32(-1), int64(-1)
	for _, b := range s.batches {
		if b.h.LeaderEpoch <= epoch {
			found, e, end = true, b.h.LeaderEpoch, s.end
			continue
		}
		if found {
			return e, b.h.BaseOffset, true
		}
		return -1, -1, false
	}
	return e, end, found
}

func (s *memSink) AppendMirror(_ context.Context, at int64, b []byte) (fetch.Appended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends++
	if s.inAppend {
		return fetch.Appended{}, fmt.Errorf("two appends at once")
	}
	s.inAppend = true
	if gate := s.gate; gate != nil {
		s.mu.Unlock()
		<-gate
		s.mu.Lock()
	}
	s.inAppend = false
	if s.appendErr != nil {
		if err := s.appendErr(); err != nil {
			return fetch.Appended{}, err
		}
	}
	if at != s.end {
		return fetch.Appended{}, fmt.Errorf("append at %d, log end is %d", at, s.end)
	}
	ts := int64(-1)
	for len(b) > 0 {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return fetch.Appended{}, err
		}
		if err := batch.CheckCRC(b[:h.Size()]); err != nil {
			return fetch.Appended{}, err
		}
		if h.BaseOffset < s.end {
			return fetch.Appended{}, fmt.Errorf("base offset %d below log end %d", h.BaseOffset, s.end)
		}
		s.batches = append(s.batches, memBatch{h: h, b: bytes.Clone(b[:h.Size()])})
		s.end = h.LastOffset() + 1
		ts = max(ts, h.MaxTimestamp)
		b = b[h.Size():]
	}
	s.touchLocked()
	return fetch.Appended{End: s.end, MaxTimestamp: ts}, nil
}

func (s *memSink) Truncate(_ context.Context, offset int64, _ string) (fetch.Cut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := fetch.Cut{To: s.end}
	for n := len(s.batches); n > 0 && s.batches[n-1].h.LastOffset() >= offset; n = len(s.batches) {
		last := s.batches[n-1]
		s.batches = s.batches[:n-1]
		cut.Records += int64(last.h.Records)
		cut.Bytes += int64(len(last.b))
		s.end = min(s.end, max(last.h.BaseOffset, s.start))
	}
	s.end = min(s.end, max(offset, s.start))
	cut.From = s.end
	s.touchLocked()
	return cut, nil
}

func (s *memSink) RestartAt(_ context.Context, offset int64, _ string) (fetch.Cut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := fetch.Cut{From: offset, To: s.end}
	s.batches, s.start, s.end = nil, offset, offset
	s.touchLocked()
	return cut, nil
}

func (s *memSink) RaiseLogStart(_ context.Context, offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset > s.end {
		return fmt.Errorf("log start %d above log end %d", offset, s.end)
	}
	s.start = max(s.start, offset)
	for len(s.batches) > 0 && s.batches[0].h.LastOffset() < s.start {
		s.batches = s.batches[1:]
	}
	s.touchLocked()
	return nil
}

func (s *memSink) notify(e fetch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	s.touchLocked()
}

// waitFor waits until ok says so; it is called with the lock held.
func (s *memSink) waitFor(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	limit := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return
		}
		wake := s.changed
		s.mu.Unlock()
		select {
		case <-wake:
		case <-limit:
			s.mu.Lock()
			defer s.mu.Unlock()
			tb.Fatalf("%s didn't come: start %d, end %d, events %#v", what, s.start, s.end, s.events)
		}
	}
}

func (s *memSink) waitEnd(tb testing.TB, end int64) {
	tb.Helper()
	s.waitFor(tb, fmt.Sprintf("log end %d", end), func() bool { return s.end == end })
}

// waitEvent waits for an event of type E and returns the first one.
func waitEvent[E fetch.Event](tb testing.TB, s *memSink) E {
	tb.Helper()
	var got E
	s.waitFor(tb, fmt.Sprintf("event %T", got), func() bool {
		for _, e := range s.events {
			if e, ok := e.(E); ok {
				got = e
				return true
			}
		}
		return false
	})
	return got
}

// countEvents counts events of type E so far.
func countEvents[E fetch.Event](s *memSink) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.events {
		if _, ok := e.(E); ok {
			n++
		}
	}
	return n
}

// bytes is the whole log.
func (s *memSink) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []byte
	for _, b := range s.batches {
		out = append(out, b.b...)
	}
	return out
}
