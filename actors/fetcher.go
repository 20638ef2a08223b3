package actors

import (
	"context"
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

// Messages to a fetcher; each is answered by a fetcherAnswer.
type (
	fetcherAdd    struct{ assignment fetch.Assignment }
	fetcherRemove struct{ tp messages.TopicPartition }
	fetcherAnswer struct{ err error }
	// fetcherThrottle needs no answer.
	fetcherThrottle struct {
		tp        messages.TopicPartition
		throttled bool
	}
)

// fetcher owns one worker. Batches never pass through it: the worker appends to
// the logs, the fetcher only says which partitions take part.
type fetcher struct {
	ctx     context.Context //nolint:containedctx // bounds the worker's life, ended in Stopping
	cancel  context.CancelFunc
	config  fetch.WorkerConfig
	worker  *fetch.Worker
	fault   error // why there is no worker
	helpers *sync.WaitGroup
	log     *zap.Logger
}

// newFetcher makes the actor; helpers counts every goroutine that outlives a
// Receive, and its owner waits for them.
func newFetcher(ctx context.Context, config fetch.WorkerConfig, helpers *sync.WaitGroup, log *zap.Logger) *fetcher {
	f := &fetcher{config: config, helpers: helpers, log: log}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// Receive handles one message.
func (f *fetcher) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		f.worker, f.fault = fetch.NewWorker(f.ctx, f.config)
		if f.fault != nil {
			f.log.Error("fetcher can't start", zap.Error(f.fault))
		}
	case *actor.Stopping, *actor.Restarting:
		f.close()
	case fetcherAdd:
		f.run(c, func() error { return f.worker.Add(f.ctx, m.assignment) })
	case fetcherRemove:
		f.run(c, func() error { return f.worker.Remove(f.ctx, m.tp) })
	case fetcherThrottle:
		if f.worker != nil {
			f.worker.SetThrottled(m.tp, m.throttled)
		}
	}
}

// run does work that may wait for an append, and answers the sender.
func (f *fetcher) run(c actor.Context, work func() error) {
	root, to := c.ActorSystem().Root, c.Sender()
	if f.worker == nil {
		root.Send(to, fetcherAnswer{err: f.fault})
		return
	}
	f.helpers.Go(func() {
		err := work()
		if to != nil {
			root.Send(to, fetcherAnswer{err: err})
		}
	})
}

func (f *fetcher) close() {
	f.cancel()
	if w := f.worker; w != nil {
		f.worker = nil
		f.fault = fetch.ErrClosed
		f.helpers.Go(func() {
			if err := w.Close(); err != nil {
				f.log.Warn("close fetcher", zap.Error(err))
			}
		})
	}
}
