package txn

import (
	"fmt"

	"kagami/messages"
	"kagami/messages/txns"
)

// exhausted: an epoch of which one more must stay for fencing.
func exhausted(epoch int16) bool { return epoch >= 1<<15-2 }

// init is InitProducerId: the next epoch, after what an older producer left open has
// been aborted.
func (c *Core) init(now int64, ticket Ticket, r txns.Init) {
	refuse := func(err error) { c.reply(ticket, txns.Refusal(r, err)) }
	if r.TimeoutMillis <= 0 || r.TimeoutMillis > c.config.TimeoutMax {
		refuse(fmt.Errorf("%w: %d ms, allowed are 1 to %d (transaction.max.timeout.ms)", messages.ErrInvalidTxnTimeout, r.TimeoutMillis, c.config.TimeoutMax))
		return
	}
	t := c.ids[r.TransactionalID()]
	if t == nil {
		id, ok := c.producerID(want{ticket: ticket, req: r})
		if !ok {
			return
		}
		t = &txn{id: r.TransactionalID(), lastEpoch: txns.NoEpoch, State: txns.State{
			Producer: txns.Producer{ID: id, Epoch: txns.NoEpoch}, PreviousID: txns.NoProducer, NextID: txns.NoProducer, StartedMillis: -1,
		}}
		c.ids[t.id] = t
	}
	known := r.Producer != txns.None()
	switch {
	case t.busy():
		refuse(concurrent(t))
	case known && !t.takes(r.Producer):
		refuse(fenced(t, r.Producer))
	case t.Status == txns.Ongoing:
		// The client tries again until the abort is done.
		if c.abort(now, t, want{ticket: ticket, req: r}) {
			refuse(concurrent(t))
		}
	default:
		c.renew(now, ticket, t, r, known)
	}
}

// takes: a client may go on as this producer, or repeats a request that gave the id
// a new one.
func (t *txn) takes(p txns.Producer) bool {
	return t.Epoch == txns.NoEpoch || p.ID == t.ID || p.ID == t.PreviousID && exhausted(p.Epoch)
}

// renew gives a producer the next epoch, or another id where there is none.
func (c *Core) renew(now int64, ticket Ticket, t *txn, r txns.Init, known bool) {
	next, last := t.State, txns.NoEpoch
	next.Status, next.Partitions, next.TimeoutMillis, next.StartedMillis, next.UpdatedMillis = txns.Empty, nil, r.TimeoutMillis, -1, now
	switch {
	case exhausted(t.Epoch) && (!known || r.Epoch == t.Epoch):
		id, ok := c.producerID(want{ticket: ticket, req: r})
		if !ok {
			return
		}
		next.Producer, next.PreviousID = txns.Producer{ID: id}, t.ID
		if known {
			last = t.Epoch
		}
	case !known:
		next.Epoch = t.Epoch + 1
	case t.Epoch == txns.NoEpoch || r.Epoch == t.Epoch:
		next.Epoch, last = t.Epoch+1, t.Epoch
	case r.Epoch == t.lastEpoch:
		last = t.lastEpoch // it asks again: what it was given
	default:
		c.reply(ticket, txns.Refusal(r, fenced(t, r.Producer)))
		return
	}
	c.store(t, &next, func(int64) {
		t.lastEpoch = last
		c.reply(ticket, &txns.Inited{Producer: next.Producer})
	})
}

func concurrent(t *txn) error {
	return fmt.Errorf("%w: a transaction of %q is being ended or changed", messages.ErrConcurrentTransactions, t.id)
}

func fenced(t *txn, p txns.Producer) error {
	return fmt.Errorf("%w: %q is producer %d with epoch %d, not %d with epoch %d", messages.ErrProducerFenced, t.id, t.ID, t.Epoch, p.ID, p.Epoch)
}
