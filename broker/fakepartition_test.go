package broker

import (
	"context"
	"errors"
	"sync"
	"testing"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// fakePartition is a Partition over a real log, as cluster.Replica is, whose
// state and faults tests set as they like.
type fakePartition struct {
	log      persistence.Log
	mu       sync.Mutex
	state    persistence.ReplicaState
	watchers map[int]func()
	seq      int
	refuse   error // of the next appends
}

func newFakePartition(log persistence.Log) *fakePartition {
	return &fakePartition{log: log, state: persistence.ReplicaState{Mode: messages.ModeWritable}, watchers: map[int]func(){}}
}

func (p *fakePartition) Log() persistence.Log { return p.log }

func (p *fakePartition) State() persistence.ReplicaState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *fakePartition) AppendClient(_ context.Context, b []byte, opts persistence.ClientAppend) (persistence.AppendInfo, error) {
	p.mu.Lock()
	if err := p.refuse; err != nil {
		p.mu.Unlock()
		return persistence.AppendInfo{}, err
	}
	if p.state.ReadOnly {
		p.mu.Unlock()
		return persistence.AppendInfo{}, messages.ErrReadOnlyTopic
	}
	h, err := batch.ParseHeader(b)
	if err == nil {
		err = p.log.CheckProducer(h)
	}
	var info persistence.AppendInfo
	if err == nil {
		if opts.LogAppendTime {
			batch.SetLogAppendTime(b, opts.NowMillis)
		}
		batch.SetOffsetAndEpoch(b, p.log.End(), p.state.LeaderEpoch)
		info, err = p.log.Append(b, persistence.AppendOptions{})
	}
	p.state.End, p.state.HighWatermark = p.log.End(), p.log.End()
	p.mu.Unlock()
	p.notify()
	return info, err
}

// mirror appends batches as they are.
func (p *fakePartition) mirror(tb testing.TB, batches ...[]byte) {
	tb.Helper()
	for _, b := range batches {
		if _, err := p.log.Append(b, persistence.AppendOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	p.change(func(s *persistence.ReplicaState) { s.End, s.HighWatermark = p.log.End(), p.log.End() })
}

func (p *fakePartition) change(f func(*persistence.ReplicaState)) {
	p.mu.Lock()
	f(&p.state)
	p.mu.Unlock()
	p.notify()
}

func (p *fakePartition) notify() {
	p.mu.Lock()
	var fs []func()
	for _, f := range p.watchers {
		fs = append(fs, f)
	}
	p.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

func (p *fakePartition) RaiseLogStart(_ context.Context, offset int64) error {
	if err := p.log.RaiseLogStart(offset); err != nil {
		return err
	}
	p.change(func(s *persistence.ReplicaState) { s.LogStart = offset })
	return nil
}

func (p *fakePartition) Watch(f func()) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	id := p.seq
	p.watchers[id] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, id)
	}
}

func (p *fakePartition) watched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watchers)
}

var errFake = errors.New("fake fault")
