package fetch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
)

// Worker copies the partitions of one mirror that one source broker leads, over
// one connection of its own. All methods may be called from any goroutine.
//
//	loop:      plan -> Fetch -> take the answer apart -> plan -> ...
//	appenders:                  └-> per partition, in order: decide, append, tell
//
// The next request is on its way while the answer before it is checked and
// appended. A partition takes part ahead of its appends only up to its credit.
type Worker struct {
	cfg    WorkerConfig
	log    *zap.Logger
	clock  clock.Clock
	client *kgo.Client
	cancel context.CancelCauseFunc
	outage *atomic.Bool  // the last request got no answer
	wake   chan struct{} // one token: something changed for the loop
	done   sync.WaitGroup

	// Owned by the loop.
	session       session
	order         []*partition // rotated, so that the last ones get their turn
	quietUntil    time.Time    // throttled, or the connection backs off
	faults        int          // requests in a row without an answer
	sessionFaults int
	lastBytes     int64
	wait          *waitMeter
	checkedDials  int64 // connections up to this one lead to the right cluster
	stats         *WorkerStats
	window        window
	lastRound     round
	spareWants    []want // for the next round
	spareParts    []*partition

	mu         sync.Mutex
	partitions map[messages.TopicPartition]*partition
	changed    bool // partitions isn't what order was made from
	left       []messages.TopicPartition
	ready      []*partition // have something to append and no appender
	appenders  int
	appending  int // bytes that appenders had before them as they began
	closed     bool
}

// NewWorker starts a worker without partitions. ctx bounds its life, as does
// Close. It doesn't connect before it has a partition.
func NewWorker(ctx context.Context, cfg WorkerConfig) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	log := cfg.Log.With(zap.String(messages.FieldMirror, cfg.Mirror), zap.Int32(messages.FieldSource, int32(cfg.SourceBroker)), zap.String("worker", cfg.Name()))
	outage, wait := &atomic.Bool{}, &waitMeter{clock: cfg.Clock}
	client, err := newClient(clientOptions{
		config: cfg.Source, clientID: cfg.ClientID(), seeds: []string{cfg.Address}, timeout: cfg.RequestTimeout, log: log, quiet: outage.Load, wait: wait,
	})
	if err != nil {
		return nil, fmt.Errorf("open connection to source %s: %w", cfg.Address, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Worker{
		cfg: cfg, log: log, clock: cfg.Clock, client: client, cancel: cancel, outage: outage,
		wake: make(chan struct{}, 1), partitions: make(map[messages.TopicPartition]*partition), lastBytes: 64 << 10,
		wait: wait, stats: cfg.Stats.worker(cfg), window: window{limit: cfg.WindowMaxBytes, stretch: 1},
	}
	w.done.Go(func() { w.run(ctx) })
	return w, nil
}

// Config is what the worker was made with, defaults filled in.
func (w *Worker) Config() WorkerConfig { return w.cfg }

// Len is the number of partitions that are being copied. A worker with none
// should be closed.
func (w *Worker) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, p := range w.partitions {
		if !p.isGone() {
			n++
		}
	}
	return n
}

// Add starts copying a partition at the end of its local log. One that is here
// already is removed first, with its leader epoch and its place in the session.
func (w *Worker) Add(ctx context.Context, a Assignment) error {
	if err := w.Remove(ctx, a.TopicPartition); err != nil {
		return err
	}
	p := newPartition(a, w.cfg.PartitionMaxBytes)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return fmt.Errorf("add %s: %w", a.TopicPartition, ErrClosed)
	}
	w.partitions[a.TopicPartition] = p
	w.changed = true
	w.mu.Unlock()
	w.kick()
	return nil
}

// Remove takes a partition out. It returns nil only when no append, cut or raise
// for it runs or can start any more; what is on its way is dropped. Removing one
// that isn't here does nothing. If ctx ends first, the partition takes no new
// step, but one may still be running.
func (w *Worker) Remove(ctx context.Context, tp messages.TopicPartition) error {
	w.mu.Lock()
	p := w.partitions[tp]
	w.mu.Unlock()
	if p == nil {
		return nil
	}
	running := p.quit(w.cfg.Budget)
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
			return fmt.Errorf("remove %s: %w", tp, context.Cause(ctx))
		}
	}
	w.mu.Lock()
	if w.partitions[tp] == p {
		delete(w.partitions, tp)
		w.changed = true
		w.left = append(w.left, tp)
	}
	w.mu.Unlock()
	w.kick()
	return nil
}

// SetThrottled says whether a partition counts for and obeys the throttle
// (mirror.replication.throttled.replicas).
func (w *Worker) SetThrottled(tp messages.TopicPartition, throttled bool) {
	w.mu.Lock()
	p := w.partitions[tp]
	w.mu.Unlock()
	if p != nil {
		p.setThrottled(throttled)
		w.kick()
	}
}

// Close stops everything and waits for it. Partitions get no event.
func (w *Worker) Close() error {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	all := w.partitions
	w.mu.Unlock()
	if first {
		for _, p := range all {
			p.quit(w.cfg.Budget)
		}
		w.cancel(ErrClosed)
		w.client.Close()
		w.stats.close()
	}
	w.done.Wait()
	return nil
}

// kick wakes the loop.
func (w *Worker) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// schedule hands a partition with something in its queue to an appender.
func (w *Worker) schedule(ctx context.Context, p *partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = append(w.ready, p)
	if w.appenders >= w.appendersLocked() {
		return
	}
	w.appenders++
	w.done.Go(func() { w.appendLoop(ctx) })
}

// appendersLocked is how many there may be now.
func (w *Worker) appendersLocked() int {
	if w.appending < AppendersBytes {
		return w.cfg.AppendersMore
	}
	return w.cfg.Appenders
}

// appendLoop works until no partition is ready, or there are too many like it.
// Goroutines exist only while there is something to append.
func (w *Worker) appendLoop(ctx context.Context) {
	for {
		w.mu.Lock()
		if len(w.ready) == 0 || w.appenders > w.appendersLocked() {
			w.appenders--
			w.mu.Unlock()
			return
		}
		p := w.ready[0]
		w.ready = w.ready[1:]
		bytes := p.waiting()
		w.appending += bytes
		w.mu.Unlock()
		w.drain(ctx, p)
		w.mu.Lock()
		w.appending -= bytes
		w.mu.Unlock()
	}
}

// drain takes the steps of one partition, one after the other.
func (w *Worker) drain(ctx context.Context, p *partition) {
	for {
		item, ok := p.begin()
		if !ok {
			return
		}
		w.step(ctx, p, item)
		p.end(item)
		w.cfg.Budget.Give(int64(len(item.reply.Batches)))
		w.kick()
	}
}

// depart takes a partition out on the worker's own account: it takes no further
// step, and its owner is told why.
func (w *Worker) depart(p *partition, e Event) {
	p.quit(w.cfg.Budget)
	w.mu.Lock()
	w.changed = true
	w.left = append(w.left, p.tp)
	w.mu.Unlock()
	p.notify(e)
	w.kick()
}
