package fetch

import (
	"context"
	"sync"
)

// Budget bounds the bytes of fetched data that a node holds between the network
// and its logs. All workers of a node share one. A worker that is about to
// fetch waits while the budget is used up; what is on the way already may
// overdraw it by at most one response per worker.
type Budget struct {
	limit int64

	mu     sync.Mutex
	used   int64
	closed chan struct{} // closed and replaced when bytes come back
}

// NewBudget returns a budget of limit bytes, at least 1.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: max(1, limit), closed: make(chan struct{})}
}

// Used is the bytes held now.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Reserve waits until the budget isn't used up, then takes n bytes.
func (b *Budget) Reserve(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.used < b.limit {
			b.used += n
			b.mu.Unlock()
			return nil
		}
		wake := b.closed
		b.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Take takes n bytes at once, even beyond the limit: they are in memory already.
func (b *Budget) Take(n int64) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

// Give returns n bytes.
func (b *Budget) Give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < b.limit {
		close(b.closed)
		b.closed = make(chan struct{})
	}
}
