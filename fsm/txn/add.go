package txn

import (
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/txns"
)

// add is AddPartitionsToTxn: it begins a transaction, or makes it larger.
func (c *Core) add(now int64, ticket Ticket, r txns.Add) {
	t := c.ids[r.TransactionalID()]
	out := &txns.Added{}
	switch {
	case r.TransactionalID() == "":
		out.Err = fmt.Errorf("%w: no transactional id", messages.ErrInvalidRequest)
	case t == nil:
		out.Err = unmapped(r.TransactionalID(), r.Producer)
	case !r.VerifyOnly && t.busy():
		// First of all: the producer may already be the one that is being stored.
		out.Err = concurrent(t)
	case t.ID != r.Producer.ID:
		out.Err = unmapped(t.id, r.Producer)
	case t.Epoch != r.Epoch:
		out.Err = fenced(t, r.Producer)
	case t.Status.Preparing():
		out.Err = concurrent(t)
	case r.VerifyOnly:
		out.Partitions = t.verify(r.Partitions)
	default:
		c.enlarge(now, ticket, t, r)
		return
	}
	c.reply(ticket, out)
}

// verify says of each partition whether it is part of the transaction (KIP-890).
func (t *txn) verify(partitions []messages.TopicPartition) []error {
	out := make([]error, len(partitions))
	for i, p := range partitions {
		if t.Status != txns.Ongoing || !t.has(p) {
			out[i] = fmt.Errorf("%w: %s isn't part of the transaction of %q", messages.ErrTransactionAbortable, p, t.id)
		}
	}
	return out
}

func (t *txn) has(p messages.TopicPartition) bool {
	_, ok := slices.BinarySearchFunc(t.Partitions, p, txns.Compare)
	return ok
}

func (c *Core) enlarge(now int64, ticket Ticket, t *txn, r txns.Add) {
	next := t.State
	if t.Status == txns.Ongoing {
		next.Partitions = slices.Clone(t.Partitions)
	} else {
		next.Partitions, next.StartedMillis = nil, now
	}
	for _, p := range r.Partitions {
		if i, ok := slices.BinarySearchFunc(next.Partitions, p, txns.Compare); !ok {
			next.Partitions = slices.Insert(next.Partitions, i, p)
		}
	}
	if t.Status == txns.Ongoing && len(next.Partitions) == len(t.Partitions) {
		c.reply(ticket, &txns.Added{})
		return
	}
	next.Status, next.UpdatedMillis, next.Version = txns.Ongoing, now, r.Version
	c.store(t, &next, func(int64) {
		c.by(t.deadline())
		c.reply(ticket, &txns.Added{})
	})
}

func unmapped(id string, p txns.Producer) error {
	return fmt.Errorf("%w: producer %d isn't that of %q", messages.ErrInvalidProducerIDMapping, p.ID, id)
}
