package broker

import (
	"context"
	"sync"
	"time"

	"kagami/fsm/txn"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/txns"
	"kagami/persistence"
)

// fakeTxns is a coordinator of all transactional ids whose log is memory: every write
// is stored at once. Markers are written when the test says so, or at once.
type fakeTxns struct {
	w       *world
	mu      sync.Mutex
	core    *txn.Core
	ticket  txn.Ticket
	answers map[txn.Ticket]txns.Answer
	hold    bool // markers wait for release
	held    []txn.Marking
	err     error // refuses everything
	joins   []txns.Add
	next    int64
}

func newFakeTxns(w *world) *fakeTxns {
	return &fakeTxns{w: w, answers: map[txn.Ticket]txns.Answer{}, next: 7000, core: txn.New(txn.Config{TimeoutMax: 900_000, Expiration: 1 << 40}, 3)}
}

func (f *fakeTxns) Ask(_ context.Context, req txns.Request) txns.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return txns.Refusal(req, f.err)
	}
	f.ticket++
	now := time.Now().UnixMilli()
	f.perform(now, f.core.Handle(now, f.ticket, req))
	a := f.answers[f.ticket]
	delete(f.answers, f.ticket)
	return a
}

func (f *fakeTxns) perform(now int64, e txn.Effects) {
	for _, r := range e.Replies {
		f.answers[r.Ticket] = r.Answer
	}
	for _, w := range e.Writes {
		f.perform(now, f.core.Stored(now, w.ID))
	}
	if e.NeedID {
		f.next++
		f.perform(now, f.core.Supply(now, f.next))
	}
	for _, m := range e.Markers {
		if f.hold {
			f.held = append(f.held, m)
			continue
		}
		f.carryOut(now, m)
	}
}

func (f *fakeTxns) carryOut(now int64, m txn.Marking) {
	f.w.writeMarkers([]txns.Marker{m.Marker})
	f.perform(now, f.core.Marked(now, m.Txn, m.Number, m.Marker.Partitions...))
}

// release writes the markers that were held.
func (f *fakeTxns) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.held {
		f.carryOut(time.Now().UnixMilli(), m)
	}
	f.held = nil
}

func (f *fakeTxns) Join(ctx context.Context, req txns.Add) *txns.Added {
	f.mu.Lock()
	f.joins = append(f.joins, req)
	f.mu.Unlock()
	out, _ := f.Ask(ctx, req).(*txns.Added)
	return out
}

func (f *fakeTxns) List(context.Context) ([]txns.Listed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.List(), f.err
}

func (f *fakeTxns) WriteMarkers(_ context.Context, markers []txns.Marker) []error {
	return f.w.writeMarkers(markers)
}

func (w *world) writeMarkers(markers []txns.Marker) []error {
	var errs []error
	for _, m := range markers {
		for _, tp := range m.Partitions {
			p, err := w.Partition(tp, messages.TopicID{})
			if fake, ok := p.(*fakePartition); ok && err == nil {
				err = fake.mark(m)
			}
			errs = append(errs, err)
		}
	}
	return errs
}

// mark ends a producer's transaction.
func (p *fakePartition) mark(m txns.Marker) error {
	b := batch.AbortMarker(m.ID, m.Epoch, m.CoordinatorEpoch, 1)
	if m.Commit {
		b = batch.CommitMarker(m.ID, m.Epoch, m.CoordinatorEpoch, 1)
	}
	p.mu.Lock()
	batch.SetOffsetAndEpoch(b, p.log.End(), p.state.LeaderEpoch)
	_, err := p.log.Append(b, persistence.AppendOptions{})
	p.state.End, p.state.HighWatermark = p.log.End(), p.log.End()
	p.mu.Unlock()
	p.notify()
	return err
}

// GuardTxn is that of cluster.Replica, without its rules.
func (p *fakePartition) GuardTxn(producer txns.Producer, v txns.Version, sequence int32) *persistence.TxnGuard {
	if e, ok := p.log.Producer(producer.ID); ok && e.TxnFirstOffset != messages.NoOffset && e.ProducerEpoch == producer.Epoch {
		return nil
	}
	return &persistence.TxnGuard{Epoch: producer.Epoch, Version: v, LowestSequence: sequence}
}

// ReleaseTxn counts nothing.
func (p *fakePartition) ReleaseTxn(int64, *persistence.TxnGuard) {}

// HoldsTxn believes in guards.
func (p *fakePartition) HoldsTxn(txns.Producer, *persistence.TxnGuard) bool { return true }
