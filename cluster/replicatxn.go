package cluster

import (
	"context"
	"fmt"
	"math"
	"sync"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/txns"
	"kagami/persistence"
)

// txnGuards are the producers whose first batch of a transaction is about to come
// into a partition: from before their coordinator is asked until the batch is
// stored. A marker takes the guard away, so that what it ended can't go on behind it
// (KIP-890). The guard of a batch that was refused stays: a later one of a producer that
// sends several at a time may not come before it (KAFKA-14920).
type txnGuards struct {
	mu    sync.Mutex
	users map[*persistence.TxnGuard]int
	byID  map[int64]*persistence.TxnGuard
}

// txnGuardsRefusedMax bounds the guards of refused batches in a partition.
const txnGuardsRefusedMax = 1000

// GuardTxn is called before the coordinator is asked whether a producer's
// transaction includes the partition, with the sequence of the batch to come. The
// guard goes with the append and is released after it; nil: the transaction is open
// here already, nobody needs to be asked.
func (r *Replica) GuardTxn(p txns.Producer, v txns.Version, sequence int32) *persistence.TxnGuard {
	if e, ok := r.log.Producer(p.ID); ok && e.TxnFirstOffset != messages.NoOffset && e.ProducerEpoch == p.Epoch {
		return nil
	}
	g := &r.guards
	g.mu.Lock()
	defer g.mu.Unlock()
	guard := g.byID[p.ID]
	if guard == nil || guard.Epoch != p.Epoch {
		guard = &persistence.TxnGuard{Epoch: p.Epoch, Version: v, LowestSequence: sequence}
		if g.byID == nil {
			g.byID, g.users = map[int64]*persistence.TxnGuard{}, map[*persistence.TxnGuard]int{}
		}
		g.byID[p.ID] = guard
	}
	guard.LowestSequence = min(guard.LowestSequence, sequence)
	g.users[guard]++
	return guard
}

// ReleaseTxn lets go of a guard; nil is none.
func (r *Replica) ReleaseTxn(id int64, guard *persistence.TxnGuard) {
	if guard == nil {
		return
	}
	g := &r.guards
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users[guard]--; g.users[guard] > 0 {
		return
	}
	delete(g.users, guard)
	e, ok := r.log.Producer(id)
	if g.byID[id] == guard && ok && e.TxnFirstOffset != messages.NoOffset && e.ProducerEpoch == guard.Epoch {
		delete(g.byID, id) // it is stored
	}
	g.tidyLocked()
}

// tidyLocked drops refused ones where there are too many.
func (g *txnGuards) tidyLocked() {
	for id, guard := range g.byID {
		if len(g.byID)-len(g.users) <= txnGuardsRefusedMax {
			return
		}
		if g.users[guard] == 0 {
			delete(g.byID, id)
		}
	}
}

// HoldsTxn reports whether a producer's transaction is open here, or its guard still
// stands.
func (r *Replica) HoldsTxn(p txns.Producer, guard *persistence.TxnGuard) bool {
	if e, ok := r.log.Producer(p.ID); ok && e.TxnFirstOffset != messages.NoOffset && e.ProducerEpoch == p.Epoch {
		return true
	}
	_, ok := r.guards.holds(p.ID, guard)
	return ok
}

// EndTxnGuard takes the guard of a transaction away that a marker ends. The marker of
// a transaction with an epoch of its own has the next one, with which a producer may
// be about to write again.
func (r *Replica) EndTxnGuard(m txns.Marker) {
	g := &r.guards
	g.mu.Lock()
	defer g.mu.Unlock()
	if guard := g.byID[m.ID]; guard != nil && (guard.Epoch < m.Epoch || guard.Epoch == m.Epoch && !m.Version.Bumps()) {
		delete(g.byID, m.ID)
	}
}

// holds reports whether a guard still stands, and the lowest sequence that waits.
func (g *txnGuards) holds(id int64, guard *persistence.TxnGuard) (lowest int32, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if guard == nil || g.byID[id] != guard {
		return 0, false
	}
	return guard.LowestSequence, true
}

// checkTxn has Kafka's rules for a transactional batch: its transaction is open here,
// or the coordinator has said so and no marker came since.
func (r *Replica) checkTxn(h batch.Header, guard *persistence.TxnGuard) error {
	e, known := r.log.Producer(h.ProducerID)
	if known && e.TxnFirstOffset != messages.NoOffset && e.ProducerEpoch == h.ProducerEpoch {
		return nil
	}
	lowest, ok := r.guards.holds(h.ProducerID, guard)
	switch {
	case !ok || guard.Epoch != h.ProducerEpoch:
		return fmt.Errorf("%w: the batch of producer %d isn't part of an open transaction", persistence.ErrInvalidTxnState, h.ProducerID)
	case guard.Version.Bumps() && h.BaseSequence != 0 && len(e.Batches) == 0, h.BaseSequence > lowest:
		return fmt.Errorf("%w: producer %d begins a transaction with sequence %d", persistence.ErrOutOfOrderSequence, h.ProducerID, h.BaseSequence)
	default:
		return nil
	}
}

// AppendMarker ends a producer's transaction in this partition. Besides the errors at
// [Replica], for a partition of a mirror too: persistence.ErrInvalidProducerEpoch
// where the producer has gone on, messages.ErrTxnCoordinatorFenced where a later
// coordinator has spoken.
func (r *Replica) AppendMarker(ctx context.Context, m txns.Marker, millis int64) error {
	r.mu.Lock()
	_, err := r.placeLocked(func() (persistence.AppendInfo, error) { return r.appendMarkerLocked(ctx, m, millis) })
	r.mu.Unlock()
	if err == nil {
		r.notify()
	}
	return err
}

func (r *Replica) appendMarkerLocked(ctx context.Context, m txns.Marker, millis int64) (persistence.AppendInfo, error) {
	s := r.order.State()
	if err := r.ledHere(s); err != nil {
		return persistence.AppendInfo{}, err
	}
	if r.gate.Load() != gateAdmit || s.Mode != messages.ModeWritable {
		return persistence.AppendInfo{}, fmt.Errorf("end a transaction in %s, which is read-only (%s): %w", r.tp, s.Mode, messages.ErrReadOnlyTopic)
	}
	if err := r.epochGrows(s); err != nil {
		return persistence.AppendInfo{}, err
	}
	if err := CheckMarker(r.log, m); err != nil {
		return persistence.AppendInfo{}, fmt.Errorf("end a transaction in %s: %w", r.tp, err)
	}
	r.EndTxnGuard(m)
	b := MarkerBatch(m, millis)
	batch.SetOffsetAndEpoch(b, s.LogEnd, s.Epoch)
	return r.appendLocked(ctx, journal.Operation{Generation: s.Generation, Class: messages.ClassInternal, Base: s.LogEnd, End: s.LogEnd + 1, Batches: b})
}

// CheckMarker has Kafka's rules for a marker that a coordinator sends.
func CheckMarker(log persistence.Log, m txns.Marker) error {
	e, ok := log.Producer(m.ID)
	if !ok {
		return nil
	}
	bad := m.Epoch < e.ProducerEpoch
	if m.Version.Bumps() && m.Epoch == e.ProducerEpoch {
		// The present transaction has this epoch; without one it is a repetition.
		bad = e.TxnFirstOffset != messages.NoOffset && m.Epoch != math.MaxInt16
	}
	switch {
	case bad:
		return fmt.Errorf("%w: marker of producer %d with epoch %d, its epoch is %d", persistence.ErrInvalidProducerEpoch, m.ID, m.Epoch, e.ProducerEpoch)
	case e.CoordinatorEpoch > m.CoordinatorEpoch:
		return fmt.Errorf("%w: marker of producer %d by coordinator epoch %d, one came from %d", messages.ErrTxnCoordinatorFenced, m.ID, m.CoordinatorEpoch, e.CoordinatorEpoch)
	default:
		return nil
	}
}

// MarkerBatch is the control batch of a marker.
func MarkerBatch(m txns.Marker, millis int64) []byte {
	if m.Commit {
		return batch.CommitMarker(m.ID, m.Epoch, m.CoordinatorEpoch, millis)
	}
	return batch.AbortMarker(m.ID, m.Epoch, m.CoordinatorEpoch, millis)
}
