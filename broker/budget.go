package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"kagami/messages/wire"
)

// errOverloaded ends a connection for whose bytes there was no room.
var errOverloaded = errors.New("too many bytes of requests or answers are held at this moment")

// budgetWait is how long a connection waits for room before it is closed: then others
// get what it holds.
const budgetWait = 5 * time.Second

// budget bounds the bytes that all connections hold together of one kind. What is
// smaller than budgetSmall isn't counted: the number of connections bounds it.
type budget struct {
	what string
	sem  *semaphore.Weighted // nil: no bound
	most int64
	// waiting connections; somebody who doesn't use what it holds makes room for them.
	waiting atomic.Int32
}

const budgetSmall = 16 << 10

func newBudget(what string, most int64) *budget {
	b := &budget{what: what, most: most}
	if most > 0 {
		b.sem = semaphore.NewWeighted(most)
	}
	return b
}

// take waits for room for n bytes, at most budgetWait. More than there ever is wants all
// of it.
func (b *budget) take(ctx context.Context, n int) (taken int64, err error) {
	if b.sem == nil || n <= budgetSmall {
		return 0, nil
	}
	taken = min(int64(n), b.most)
	if b.sem.TryAcquire(taken) {
		return taken, nil
	}
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, budgetWait, errOverloaded)
	defer cancel()
	if b.sem.Acquire(ctx, taken) != nil {
		return 0, fmt.Errorf("%d bytes of %s: %w", n, b.what, context.Cause(ctx))
	}
	return taken, nil
}

// swap takes room for n bytes in place of what is held. On an error that is still held.
func (b *budget) swap(ctx context.Context, held int64, n int) (int64, error) {
	taken, err := b.take(ctx, n)
	if err != nil {
		return held, err
	}
	b.give(held)
	return taken, nil
}

// give returns what take has taken.
func (b *budget) give(taken int64) {
	if b.sem != nil && taken > 0 {
		b.sem.Release(taken)
	}
}

// largeAnswer says of which requests the answer grows with what the cluster has. So many
// of them are handled and encoded at a time as there are slots: an answer is counted when
// it is encoded, not before. Only requests that are answered from this node's memory: who
// waits for others must not keep a slot from everybody.
func largeAnswer(key int16) bool {
	switch key {
	case 3, 32, 35, 46, 48, 60, 74, 75, wire.KeyListClusterMirrors, wire.KeyDescribeClusterMirrors, wire.KeyReadMetadataLog:
		return true
	default:
		return false
	}
}

// answerSlots per processor.
const answerSlots = 4

// slot waits for one, where the request needs one, and returns how to give it back.
func (s *Server) slot(ctx context.Context, key int16) (release func(), err error) {
	if !largeAnswer(key) {
		return func() {}, nil
	}
	select {
	case s.answering <- struct{}{}:
		given := false
		return func() {
			if !given {
				given = true
				<-s.answering
			}
		}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
