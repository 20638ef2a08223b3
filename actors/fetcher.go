package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
)

// fetcherKey names a fetcher of one mirror on this node (spec: fetcher.md,
// Workers).
type fetcherKey struct {
	broker messages.NodeID // of the source
	number int32
}

// String is the last part of the actor's name.
func (k fetcherKey) String() string { return fmt.Sprintf("%d-%d", k.broker, k.number) }

// Messages between a mirror and its fetchers. Every fetcherAdd and fetcherRemove
// is answered by one fetcherDone, unless the fetcher ends first: then by one
// fetcherGone for all.
type (
	fetcherAdd struct {
		assignment fetch.Assignment
		number     int64 // of the request, comes back in the answer
	}
	fetcherRemove struct {
		tp     messages.TopicPartition
		number int64
	}
	fetcherDone struct {
		tp     messages.TopicPartition
		number int64
		err    error
	}
	// fetcherGone: the fetcher takes nothing any more and no append of it runs.
	fetcherGone struct{ id int64 }
	// fetcherThrottle needs no answer.
	fetcherThrottle struct {
		tp        messages.TopicPartition
		throttled bool
	}
)

// fetcherAnswer is what a mirror answers to mirrorFetch and mirrorUnfetch.
type fetcherAnswer struct{ err error }

// fetcher owns one worker. Batches never pass through it: the worker appends to
// the logs, the fetcher only says which partitions take part. What is asked of
// one partition is done in the order in which it was asked.
type fetcher struct {
	id      int64           // of this fetcher among all that its mirror ever made
	ctx     context.Context //nolint:containedctx // bounds the worker's life, ended in Stopping
	cancel  context.CancelFunc
	config  fetch.WorkerConfig
	worker  *fetch.Worker
	fault   error // why there is no worker
	helpers *sync.WaitGroup
	log     *zap.Logger
	queues  map[messages.TopicPartition][]fetcherStep // the first one runs
}

// fetcherStep is work on one partition that may wait for an append.
type fetcherStep struct {
	number int64
	run    func(ctx context.Context, w *fetch.Worker) error
}

// newFetcher makes the actor; helpers counts every goroutine that outlives a
// Receive, and its owner waits for them.
func newFetcher(ctx context.Context, id int64, config fetch.WorkerConfig, helpers *sync.WaitGroup, log *zap.Logger) *fetcher {
	if config.Stats == nil {
		config.Stats = fetch.NewStats(config.Clock)
	}
	f := &fetcher{id: id, config: config, helpers: helpers, log: log, queues: map[messages.TopicPartition][]fetcherStep{}}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// fetcherOnce makes a fetcher the first time. After a panic it makes one that
// takes nothing: the mirror learns that the first is gone and makes another, so
// that there is one way only in which partitions come back.
func fetcherOnce(make func() *fetcher) actor.Producer {
	made := false
	return func() actor.Actor {
		if made {
			return actor.ReceiveFunc(func(actor.Context) {})
		}
		made = true
		return make()
	}
}

// Receive handles one message.
func (f *fetcher) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		f.worker, f.fault = fetch.NewWorker(f.ctx, f.config)
		if f.fault != nil {
			f.config.Stats.CountDead(1)
			f.log.Error("fetcher can't start", zap.Error(f.fault))
		}
	case *actor.Stopping, *actor.Restarting:
		f.close(c)
	case fetcherAdd:
		f.enqueue(c, m.assignment.TopicPartition, fetcherStep{number: m.number, run: func(ctx context.Context, w *fetch.Worker) error {
			return w.Add(ctx, m.assignment)
		}})
	case fetcherRemove:
		f.enqueue(c, m.tp, fetcherStep{number: m.number, run: func(ctx context.Context, w *fetch.Worker) error {
			return w.Remove(ctx, m.tp)
		}})
	case fetcherDone: // of our own helper
		f.done(c, m)
	case fetcherThrottle:
		if f.worker != nil {
			f.worker.SetThrottled(m.tp, m.throttled)
		}
	}
}

func (f *fetcher) enqueue(c actor.Context, tp messages.TopicPartition, s fetcherStep) {
	f.queues[tp] = append(f.queues[tp], s)
	if len(f.queues[tp]) == 1 {
		f.step(c, tp)
	}
}

// step runs the partition's first step in a helper.
func (f *fetcher) step(c actor.Context, tp messages.TopicPartition) {
	s, w, ctx, root, self := f.queues[tp][0], f.worker, f.ctx, c.ActorSystem().Root, c.Self()
	if w == nil {
		f.done(c, fetcherDone{tp: tp, number: s.number, err: f.fault})
		return
	}
	f.helpers.Go(func() {
		root.Send(self, fetcherDone{tp: tp, number: s.number, err: s.run(ctx, w)})
	})
}

func (f *fetcher) done(c actor.Context, m fetcherDone) {
	q := f.queues[m.tp]
	if len(q) == 0 || q[0].number != m.number {
		return
	}
	c.Send(c.Parent(), m)
	if q = q[1:]; len(q) == 0 {
		delete(f.queues, m.tp)
		return
	}
	f.queues[m.tp] = q
	f.step(c, m.tp)
}

// close ends the worker and then says so.
func (f *fetcher) close(c actor.Context) {
	f.cancel()
	w, id, root, parent := f.worker, f.id, c.ActorSystem().Root, c.Parent()
	if w == nil && f.fault != nil && !errors.Is(f.fault, fetch.ErrClosed) {
		f.config.Stats.CountDead(-1)
	}
	f.worker, f.fault = nil, fetch.ErrClosed
	f.helpers.Go(func() {
		if w != nil {
			if err := w.Close(); err != nil {
				f.log.Warn("close fetcher", zap.Error(err))
			}
		}
		root.Send(parent, fetcherGone{id: id})
	})
}
