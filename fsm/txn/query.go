package txn

import (
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/txns"
)

func (c *Core) describe(r txns.Describe) *txns.Described {
	t := c.ids[r.TransactionalID()]
	if t == nil || !t.stored {
		return &txns.Described{Err: fmt.Errorf("%w: %q", messages.ErrTransactionalIDNotFound, r.TransactionalID())}
	}
	out := &txns.Described{State: t.State}
	out.Partitions = slices.Clone(t.Partitions)
	if t.Status.Preparing() {
		out.Partitions = slices.SortedFunc(maps.Keys(t.left), txns.Compare)
	}
	return out
}

// List is the ids in order.
func (c *Core) List() []txns.Listed {
	out := make([]txns.Listed, 0, len(c.ids))
	for _, id := range slices.Sorted(maps.Keys(c.ids)) {
		if t := c.ids[id]; t.stored {
			out = append(out, txns.Listed{ID: id, ProducerID: t.ID, Status: t.Status, StartedMillis: t.StartedMillis})
		}
	}
	return out
}
