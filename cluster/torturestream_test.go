package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// tortureStream is a stream of [torture]: what it has stored it keeps and gives out in
// order, all else goes wrong.
type tortureStream struct {
	x       *torture
	mu      sync.Mutex
	first   uint64
	stored  [][]byte
	bytes   int
	ids     map[string]uint64
	moved   chan struct{}
	stalled bool
	held    []func()
}

var errTorture = errors.New("the stream doesn't answer")

// store stores a message and returns its sequence; one that is known by its id mostly
// isn't stored again.
func (s *tortureStream) store(id string, payload []byte) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sequence, ok := s.ids[id]; ok && id != "" && !s.x.percent(20) {
		return sequence
	}
	s.stored = append(s.stored, payload)
	s.bytes += len(payload)
	sequence := s.first + uint64(len(s.stored)) - 1
	s.ids[id] = sequence
	s.x.oracle.apply(s.x, sequence, payload)
	close(s.moved)
	s.moved = make(chan struct{})
	return sequence
}

func (s *tortureStream) stall(on bool) {
	s.mu.Lock()
	s.stalled = on
	var held []func()
	if !on {
		held, s.held = s.held, nil
	}
	s.mu.Unlock()
	for _, f := range held {
		f()
	}
}

// hold keeps f for the end of a stall; false if there is none.
func (s *tortureStream) hold(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled {
		s.held = append(s.held, f)
	}
	return s.stalled
}

func (n *tortureNode) hold(f func()) bool {
	n.holdMu.Lock()
	defer n.holdMu.Unlock()
	if n.paused.Load() {
		n.held = append(n.held, f)
	}
	return n.paused.Load()
}

// nodeStream is a stream as one node reaches it.
type nodeStream struct {
	s *tortureStream
	n *tortureNode
}

func (v *nodeStream) Publish(id string, payload []byte, done func(uint64, error)) {
	x := v.s.x
	payload = slices.Clone(payload)
	v.n.frozen.wait()
	told := done
	done = func(sequence uint64, err error) {
		v.n.frozen.wait()
		told(sequence, err)
	}
	answer := sync.OnceFunc(func() { done(0, errTorture) })
	later := func(d time.Duration, f func()) {
		x.late.Go(func() {
			x.sleep(d)
			f()
		})
	}
	var arrive func()
	arrive = func() {
		if v.n.hold(arrive) || v.s.hold(arrive) {
			return
		}
		sequence := v.s.store(id, payload)
		if x.percent(2) {
			v.s.store("", payload)
		}
		if x.percent(4) {
			later(0, answer) // it was stored, and nobody will know
			return
		}
		late := time.Duration(x.intn(3)) * time.Millisecond
		if x.percent(2) {
			late = 5 * time.Second
		}
		later(late, func() { done(sequence, nil) })
	}
	switch {
	case x.percent(3):
		later(0, answer)
	case x.percent(3): // it is given up and arrives later
		later(time.Duration(x.intn(3000))*time.Millisecond, arrive)
		later(0, answer)
	default:
		arrive()
	}
}

func (v *nodeStream) Follow(ctx context.Context, from uint64, f func(uint64, []byte) error) error {
	s, x := v.s, v.s.x
	for {
		v.n.holdMu.Lock()
		paused, resumed := v.n.paused.Load(), v.n.resumed
		v.n.holdMu.Unlock()
		if paused {
			select {
			case <-resumed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		s.mu.Lock()
		first, moved := s.first, s.moved
		var b []byte
		if i := from - first; from >= first && i < uint64(len(s.stored)) {
			b = slices.Clone(s.stored[i])
		}
		s.mu.Unlock()
		switch {
		case x.percent(1):
			return errTorture
		case from < first:
			return &HoleError{Next: from, First: first}
		case b != nil:
			if x.percent(10) {
				x.sleep(time.Duration(x.intn(100)) * time.Millisecond)
			}
			v.n.frozen.wait()
			err := f(from, b)
			for i := range b {
				b[i] = 0xdd // nobody may keep it
			}
			if err != nil {
				return err
			}
			from++
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (v *nodeStream) Bounds(ctx context.Context) (first, last uint64, err error) {
	state, err := v.State(ctx)
	return state.First, state.Last, err
}

func (v *nodeStream) Purge(_ context.Context, upTo uint64) error {
	s := v.s
	v.n.frozen.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.stored) > 0 && s.first <= upTo {
		s.bytes -= len(s.stored[0])
		s.stored, s.first = s.stored[1:], s.first+1
	}
	return nil
}

func (v *nodeStream) State(ctx context.Context) (StreamState, error) {
	if v.n.frozen.wait(); v.n.paused.Load() || v.s.x.percent(2) {
		return StreamState{}, errTorture
	}
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	return StreamState{First: v.s.first, Last: v.s.first + uint64(len(v.s.stored)) - 1, Bytes: uint64(v.s.bytes)}, ctx.Err()
}
