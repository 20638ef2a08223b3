package txn

import (
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/txns"
)

// end is EndTxn: the outcome is decided, and answered, when it is stored; markers
// follow.
func (c *Core) end(now int64, ticket Ticket, r txns.End) {
	t := c.ids[r.TransactionalID()]
	var err error
	done := false // a repeated request
	switch {
	case r.TransactionalID() == "":
		err = fmt.Errorf("%w: no transactional id", messages.ErrInvalidRequest)
	case t == nil:
		err = unmapped(r.TransactionalID(), r.Producer)
	case r.Version.Bumps():
		done, err = t.mayEnd(r)
	default:
		done, err = t.mayEndOld(r)
	}
	switch {
	case err != nil:
		c.reply(ticket, txns.Refusal(r, err))
	case done:
		c.reply(ticket, &txns.Ended{Producer: t.Producer})
	default:
		c.decide(now, t, r.Commit, r.Version, want{ticket: ticket, req: r}, func(next txns.State) {
			p := next.Producer
			if next.NextID != txns.NoProducer {
				p = txns.Producer{ID: next.NextID}
			}
			c.reply(ticket, &txns.Ended{Producer: p})
		})
	}
}

// mayEnd has the rules of transaction.version 2, where a request with the present
// epoch is about the present transaction, and one with the epoch before it is a
// repetition (KIP-890). done: nothing is left to do.
func (t *txn) mayEnd(r txns.End) (done bool, err error) {
	overflown := t.PreviousID == r.Producer.ID && r.Epoch == 1<<15-2 && t.Epoch == 0
	// Kafka doesn't look at the version of what ended: there a fenced producer is told
	// success after an older client has ended a transaction under the next epoch.
	again := (overflown || t.Epoch == r.Epoch+1) && t.Version.Bumps() && (t.Status == txns.CompleteCommit || t.Status == txns.CompleteAbort)
	switch {
	case t.busy():
		return false, concurrent(t)
	case t.ID != r.Producer.ID && !overflown:
		return false, unmapped(t.id, r.Producer)
	case r.Epoch != t.Epoch && !again:
		return false, fenced(t, r.Producer)
	case again && r.Commit == (t.Status == txns.CompleteCommit):
		return true, nil
	case again || r.Commit && t.Status != txns.Ongoing:
		return false, t.wrong(r)
	default:
		return false, nil // also the abort of a transaction without partitions
	}
}

// mayEndOld has the rules of clients whose epoch stays.
func (t *txn) mayEndOld(r txns.End) (done bool, err error) {
	switch {
	case t.ID != r.Producer.ID:
		return false, unmapped(t.id, r.Producer)
	case t.Epoch != r.Epoch:
		return false, fenced(t, r.Producer)
	case t.busy():
		return false, concurrent(t)
	case t.Status == txns.Ongoing:
		return false, nil
	case t.Status == txns.CompleteCommit && r.Commit, t.Status == txns.CompleteAbort && !r.Commit:
		return true, nil
	default:
		return false, t.wrong(r)
	}
}

func (t *txn) wrong(r txns.End) error {
	what := "abort"
	if r.Commit {
		what = "commit"
	}
	return fmt.Errorf("%w: %s of %q, which is %s", messages.ErrInvalidTxnState, what, t.id, t.Status)
}

// abort ends an open transaction against its producer, who is fenced by the next
// epoch, and may go on with it by InitProducerId while nobody else has asked for one
// (KIP-588). False: it waits for a producer id.
func (c *Core) abort(now int64, t *txn, w want) bool {
	fence := t.State
	if !t.Version.Bumps() && fence.Epoch < 1<<15-1 {
		fence.Epoch++ // else the decision raises it
	}
	return c.decideFrom(now, t, fence, false, t.Version, w, nil)
}

func (c *Core) decide(now int64, t *txn, commit bool, v txns.Version, w want, then func(next txns.State)) {
	c.decideFrom(now, t, t.State, commit, v, w, then)
}

// decideFrom stores an outcome and has markers written then. False: it waits for a
// producer id.
func (c *Core) decideFrom(now int64, t *txn, next txns.State, commit bool, v txns.Version, w want, then func(next txns.State)) bool {
	if next.Status != txns.Ongoing { // a transaction without partitions is aborted
		next.StartedMillis, next.Partitions = now, nil
	}
	if v.Bumps() && exhausted(t.Epoch) {
		id, ok := c.producerID(w)
		if !ok {
			return false
		}
		next.NextID = id
	}
	last := t.lastEpoch
	switch {
	case v.Bumps() && next.Epoch < 1<<15-1:
		next.Epoch, last = next.Epoch+1, next.Epoch
	case next.Epoch != t.Epoch:
		last = t.Epoch // fenced
	}
	next.Status = txns.PrepareAbort
	if commit {
		next.Status = txns.PrepareCommit
	}
	next.UpdatedMillis, next.Version = now, v
	c.store(t, &next, func(now int64) {
		t.lastEpoch = last
		if then != nil {
			then(next)
		}
		c.mark(now, t)
	})
	return true
}

// mark has the markers written that are left.
func (c *Core) mark(now int64, t *txn) {
	if len(t.left) == 0 {
		c.complete(now, t)
		return
	}
	c.marks++
	t.marking = c.marks
	c.out.Markers = append(c.out.Markers, Marking{Txn: t.id, Number: t.marking, Marker: txns.Marker{
		Producer: t.Producer, Commit: t.Status == txns.PrepareCommit, CoordinatorEpoch: c.epoch, Version: t.Version,
		Partitions: slices.SortedFunc(maps.Keys(t.left), txns.Compare),
	}})
}

// Marked says that partitions have the marker of a [Marking], or need none any more.
// Repeated and late news do no harm.
func (c *Core) Marked(now int64, id string, number int64, partitions ...messages.TopicPartition) Effects {
	t := c.ids[id]
	if t == nil || t.marking != number || !t.Status.Preparing() || t.pending || len(t.left) == 0 {
		return Effects{}
	}
	for _, p := range partitions {
		delete(t.left, p)
	}
	if len(t.left) == 0 {
		c.complete(now, t)
	}
	return c.take()
}

// complete ends a transaction whose markers are written.
func (c *Core) complete(now int64, t *txn) {
	next := t.State
	next.Status = txns.CompleteAbort
	if t.Status == txns.PrepareCommit {
		next.Status = txns.CompleteCommit
	}
	if t.Version.Bumps() && t.NextID != txns.NoProducer {
		next.Producer, next.PreviousID = txns.Producer{ID: t.NextID}, t.ID
	}
	next.NextID, next.Partitions, next.UpdatedMillis = txns.NoProducer, nil, now
	c.store(t, &next, nil)
}
