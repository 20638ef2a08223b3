package metadata

import (
	"context"
	"errors"
	"sync"
	"testing"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// fakePartition is the metadata partition in memory: journal and source.
type fakePartition struct {
	mu       sync.Mutex
	bytes    []byte
	start    int64
	end      int64
	hw       int64 // -1: follows end
	watchers map[int]func()
	next     int
	appends  int
	onRoll   func()
	fail     error // next AppendInternal fails with it, nothing stored
}

func newFakePartition() *fakePartition {
	return &fakePartition{hw: -1, watchers: make(map[int]func())}
}

func (p *fakePartition) Log() persistence.Log { return fakeLog{p: p} }

// fakeLog reads a fakePartition. The methods that the store never calls panic.
type fakeLog struct {
	persistence.Log
	p *fakePartition
}

func (p *fakePartition) State() persistence.ReplicaState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := persistence.ReplicaState{LeaderEpoch: 1, LogStart: p.start, End: p.end, HighWatermark: p.end, Mode: messages.ModeWritable}
	if p.hw >= 0 {
		s.HighWatermark = p.hw
	}
	return s
}

func (p *fakePartition) Watch(f func()) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.next
	p.next++
	p.watchers[n] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, n)
	}
}

func (p *fakePartition) AppendInternal(_ context.Context, batches []byte) (persistence.AppendInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fail; err != nil {
		p.fail = nil
		return persistence.AppendInfo{}, err
	}
	info := persistence.AppendInfo{FirstOffset: p.end, Bytes: len(batches)}
	for b := batches; len(b) > 0; {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return info, err
		}
		batch.SetOffsetAndEpoch(b, p.end, 1)
		p.bytes = append(p.bytes, b[:h.Size()]...)
		p.end += int64(h.LastOffsetDelta) + 1
		info.Batches++
		b = b[h.Size():]
	}
	info.LastOffset, info.End = p.end-1, p.end
	p.appends++
	for _, f := range p.watchers {
		f()
	}
	return info, nil
}

func (p *fakePartition) Roll(context.Context) error {
	if p.onRoll != nil {
		p.onRoll()
	}
	return nil
}

func (p *fakePartition) RaiseLogStart(_ context.Context, offset int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset > p.end {
		return errors.New("beyond the end")
	}
	p.start = max(p.start, offset)
	for len(p.bytes) > 0 {
		h, err := batch.ParseHeader(p.bytes)
		if err != nil {
			return err
		}
		if h.LastOffset() >= p.start {
			break
		}
		p.bytes = p.bytes[h.Size():]
	}
	return nil
}

func (p *fakePartition) LogStart() int64 { return p.State().LogStart }

func (l fakeLog) LogStart() int64 { return l.p.State().LogStart }

func (l fakeLog) End() int64 { return l.p.State().End }

func (l fakeLog) Read(offset int64, maxBytes int, upTo int64, minOne bool) (persistence.Chunk, error) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	c := persistence.Chunk{FirstOffset: offset, NextOffset: offset}
	for b := p.bytes; len(b) > 0; {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return c, err
		}
		if h.LastOffset() >= offset && h.LastOffset() < upTo {
			if len(c.Bytes)+h.Size() > maxBytes && (len(c.Bytes) > 0 || !minOne) {
				break
			}
			c.Bytes = append(c.Bytes, b[:h.Size()]...)
		}
		b = b[h.Size():]
	}
	c.Len = len(c.Bytes)
	return persistence.NewChunk(c, nil), nil
}

func openStore(t *testing.T, p *fakePartition, change func(*Options)) *Store {
	t.Helper()
	o := Options{Journal: p, Source: p, Now: func() int64 { return 1000 }}
	if change != nil {
		change(&o)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
