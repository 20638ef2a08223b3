package txn

import (
	"maps"
	"slices"

	"kagami/messages/txns"
)

// timeoutRetry is when an abort that wasn't possible is tried again, ms.
const timeoutRetry = 1000

// deadline is when a transaction is aborted for its producer.
func (t *txn) deadline() int64 { return t.StartedMillis + int64(t.TimeoutMillis) }

// Tick aborts transactions that have lasted too long. It is called at [Core.Wake],
// or later.
func (c *Core) Tick(now int64) Effects {
	c.wake = noWake
	for _, id := range slices.Sorted(maps.Keys(c.ids)) {
		t := c.ids[id]
		if t.Status == txns.Ongoing {
			c.timeout(now, t)
		}
	}
	return c.take()
}

func (c *Core) timeout(now int64, t *txn) {
	switch {
	case t.Status != txns.Ongoing:
	case t.deadline() > now:
		c.by(t.deadline())
	case t.pending:
		c.by(now + timeoutRetry)
	default:
		if c.abort(now, t, want{txn: t.id}) {
			c.out.TimedOut++
		}
	}
}

// Expire removes ids that nobody has used for long.
func (c *Core) Expire(now int64) Effects {
	for _, id := range slices.Sorted(maps.Keys(c.ids)) {
		t := c.ids[id]
		idle := t.Status == txns.Empty || t.Status == txns.CompleteCommit || t.Status == txns.CompleteAbort
		if t.stored && !t.pending && idle && now-t.UpdatedMillis >= c.config.Expiration {
			c.store(t, nil, nil)
		}
	}
	return c.take()
}
