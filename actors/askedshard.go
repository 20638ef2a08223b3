package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence"
)

// Limits of a shard that clients ask.
const (
	shardWriteBytes    = 1 << 20 // stored by one append, beyond the first write
	shardWaitMax       = 100_000 // requests that wait; more are refused
	shardAppendTimeout = 5 * time.Second
	shardReloadDelay   = time.Second
)

// Messages to a shard that clients ask. Those with an attempt are dropped when it has
// begun to load anew since.
type (
	shardRequest[R, A any] struct {
		req   R
		reply chan<- A // has room for it
	}
	shardLoaded[C any] struct {
		attempt int64
		core    C
		records int
		end     int64
		err     error
	}
	shardStored struct {
		attempt int64
		end     int64
		err     error
	}
	shardReload struct{ attempt int64 }
	shardTick   struct{ attempt int64 }
	shardExpire struct{}
)

// errLogMoved: the log has more than was replayed; an append that was given up has
// landed after all.
var errLogMoved = fmt.Errorf("more came into the log than is known: %w", messages.ErrCoordinatorLoading)

// askedShard is what shards have in common whose core answers requests R by answers A,
// with tickets T for those that wait, and wants writes W stored: one append on its
// way at a time; what is to be stored meanwhile becomes the next one. It belongs to
// its shard's Receive.
type askedShard[T ~int64, R, A, W any] struct {
	shardStart // whose context bounds the shard's workers, ended in Stopping

	topic   string // the internal topic
	what    string // what is coordinated, in errors
	refusal func(R, error) A
	clock   clock.Clock

	cancel  context.CancelFunc
	attempt int64 // of loading; answers of an older one are dropped
	end     int64 // of the log, as far as the core is a replay of it
	ticket  T
	waiting map[T]shardRequest[R, A]
	queue   []W
	storing []W
	armed   int64 // when the timer will tick, ms; 0 without one
	stop    func() bool
	stopAge func() bool
}

func newAskedShard[T ~int64, R, A, W any](start shardStart, set shardSetConfig, refusal func(R, error) A) askedShard[T, R, A, W] {
	s := askedShard[T, R, A, W]{
		shardStart: start, topic: set.topic, what: set.what, refusal: refusal, clock: set.clock, waiting: map[T]shardRequest[R, A]{},
	}
	s.ctx, s.cancel = context.WithCancel(start.ctx)
	return s
}

func (s *askedShard[T, R, A, W]) now() int64 { return s.clock.Now().UnixMilli() }

// forget drops all that is on its way.
func (s *askedShard[T, R, A, W]) forget() {
	s.attempt++
	s.storing, s.queue = nil, nil
}

// retryLoad has the shard load again in a while.
func (s *askedShard[T, R, A, W]) retryLoad(c actor.Context) {
	root, self, attempt := c.ActorSystem().Root, c.Self(), s.attempt
	s.clock.AfterFunc(shardReloadDelay, func() { root.Send(self, shardReload{attempt: attempt}) })
}

// came reports whether a load that ended is the one that is waited for and went well. One
// that went wrong is tried again.
func (s *askedShard[T, R, A, W]) came(c actor.Context, attempt int64, err error) bool {
	if attempt != s.attempt {
		return false
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Error("load "+s.what+", will try again", zap.Error(err))
		s.retryLoad(c)
	}
	return err == nil
}

// moved reports whether the log has more than a core that is loaded knows.
func (s *askedShard[T, R, A, W]) moved() bool {
	return s.storing == nil && s.replica.Log().End() != s.end
}

// refuses is why no request can be taken now.
func (s *askedShard[T, R, A, W]) refuses(loaded bool) error {
	switch {
	case !s.replica.Leads():
		return fmt.Errorf("%s of shard %d: %w", s.what, s.number, messages.ErrNotCoordinator)
	case !loaded:
		return fmt.Errorf("%s of shard %d: %w", s.what, s.number, messages.ErrCoordinatorLoading)
	case len(s.waiting) >= shardWaitMax:
		return fmt.Errorf("%s of shard %d: %d requests wait: %w", s.what, s.number, len(s.waiting), messages.ErrCoordinatorNotAvailable)
	}
	return nil
}

// wait keeps a request until it is answered by the ticket.
func (s *askedShard[T, R, A, W]) wait(m shardRequest[R, A]) T {
	s.ticket++
	s.waiting[s.ticket] = m
	return s.ticket
}

func (s *askedShard[T, R, A, W]) answer(t T, a A) {
	if w, ok := s.waiting[t]; ok {
		delete(s.waiting, t)
		w.reply <- a
	}
}

// refuseAll answers everybody, and ends the timer.
func (s *askedShard[T, R, A, W]) refuseAll(err error) {
	for t, w := range s.waiting {
		delete(s.waiting, t)
		w.reply <- s.refusal(w.req, err)
	}
	if s.stop != nil {
		s.stop()
	}
	s.armed = 0
}

// refuseStored answers everybody after an append that failed: ask for the
// coordinator again, or later.
func (s *askedShard[T, R, A, W]) refuseStored(err error) {
	switch {
	case errors.Is(err, messages.ErrCoordinatorLoading):
	case errors.Is(err, messages.ErrNotLeader), errors.Is(err, messages.ErrFencedLeaderEpoch), errors.Is(err, messages.ErrStorage), errors.Is(err, persistence.ErrStorage):
		err = fmt.Errorf("append to %s: %w", s.topic, messages.ErrNotCoordinator)
	default:
		err = fmt.Errorf("append to %s: %w", s.topic, messages.ErrCoordinatorNotAvailable)
	}
	s.refuseAll(err)
}

// arm has the shard get a tick when its core wants to be called, if ok.
func (s *askedShard[T, R, A, W]) arm(c actor.Context, at int64, ok bool) {
	if !ok || s.armed != 0 && s.armed <= at {
		return
	}
	if s.stop != nil {
		s.stop()
	}
	s.armed = at
	root, self, attempt := c.ActorSystem().Root, c.Self(), s.attempt
	s.stop = s.clock.AfterFunc(time.Duration(max(0, at-s.now()))*time.Millisecond, func() { root.Send(self, shardTick{attempt: attempt}) })
}

// store appends the first n writes of the queue, encoded, in a worker; the shard gets
// a shardStored. Effect names it at fault points.
func (s *askedShard[T, R, A, W]) store(c actor.Context, n int, batches []byte, effect string) {
	s.storing = append([]W(nil), s.queue[:n]...)
	s.queue = append(s.queue[:0:0], s.queue[n:]...)
	root, self, ctx, attempt, end, replica, what := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.end, s.replica, s.what
	s.helpers.Go(func() {
		reached(what, effect, "before")
		ctx, cancel := context.WithTimeoutCause(ctx, shardAppendTimeout, messages.ErrTimedOut)
		defer cancel()
		var info persistence.AppendInfo
		err := errLogMoved
		if replica.Log().End() == end {
			info, err = replica.AppendInternal(ctx, batches)
		}
		if err == nil && info.FirstOffset != end {
			err = errLogMoved
		}
		reached(what, effect, "after")
		root.Send(self, shardStored{attempt: attempt, end: info.LastOffset + 1, err: err})
	})
}

// age has the shard look for what is too old after a while.
func (s *askedShard[T, R, A, W]) age(c actor.Context, after time.Duration) {
	root, self := c.ActorSystem().Root, c.Self()
	s.stopAge = s.clock.AfterFunc(after, func() { root.Send(self, shardExpire{}) })
}

// resign ends workers, timers and what waits.
func (s *askedShard[T, R, A, W]) resign() {
	s.cancel()
	s.refuseAll(messages.ErrNotCoordinator)
	if s.stopAge != nil {
		s.stopAge()
	}
}
