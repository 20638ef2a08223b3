package fetch

import (
	"context"
	"sync"
	"time"

	"kagami/messages"
)

// partition is one partition at a worker. A new one is made for every Add, so
// that an answer to a request of an earlier life finds nobody.
type partition struct {
	tp        messages.TopicPartition
	id        messages.TopicID
	sink      Sink
	lag       *Lag
	notifyFn  func(Event)
	baseBytes int32

	mu        sync.Mutex
	gone      bool
	throttled bool
	sle       int32
	next      int64 // offset to ask for: the log end once everything queued is appended
	lastEpoch int32 // epoch of the batch before next
	// hold: nothing is fetched until a step has cleared it; the last answer holds
	// something that isn't plain data.
	hold    bool
	until   time.Time // backing off
	pending int       // bytes queued or being appended
	queue   []item
	active  bool          // an appender has it or will
	running chan struct{} // closed when the running step ends; nil between steps
	abort   context.CancelFunc
	maxSize int32 // PartitionMaxBytes of the next request
	unsure  bool  // the connection was lost since data was taken

	// Owned by the steps, one of which runs at a time.
	succeeded   bool
	refreshSent bool
	nearEpoch   int32
	cutOffs     int // answers in a row with nothing but a cut-off batch
	rangeTries  int
	checkID     bool // make sure that the topic is the same before data is taken
	faults      int  // error codes in a row
}

// item is one answer that waits for its step.
type item struct {
	offset  int64 // that was asked for
	reply   Reply
	version int16
}

func newPartition(a Assignment, maxSize int32) *partition {
	p := &partition{
		tp: a.TopicPartition, id: a.TopicID, sink: a.Sink, lag: a.Lag, notifyFn: a.Notify, baseBytes: maxSize,
		sle: a.LeaderEpoch, throttled: a.Throttled, maxSize: maxSize, nearEpoch: messages.NoEpoch,
		unsure: true, // nobody watched the topic until now
	}
	if p.lag == nil {
		p.lag = NewLag()
	}
	p.rewind()
	return p
}

func (p *partition) notify(e Event) {
	if p.notifyFn != nil {
		p.notifyFn(e)
	}
}

func (p *partition) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

func (p *partition) setThrottled(on bool) {
	p.mu.Lock()
	p.throttled = on
	p.mu.Unlock()
}

func (p *partition) sourceEpoch() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sle
}

// rewind goes back to what the log really has and lets fetching go on.
func (p *partition) rewind() {
	local := p.sink.State()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.lastEpoch, p.hold = local.End, local.LatestEpoch, false
}

// backoff leaves the partition out until then.
func (p *partition) backoff(until time.Time) {
	p.mu.Lock()
	p.until = until
	p.mu.Unlock()
}

// quit ends the partition: no step starts any more. Returns the running step's
// end, nil if none runs. May be called again.
func (p *partition) quit(b *Budget) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, it := range p.queue {
		b.Give(int64(len(it.reply.Batches)))
	}
	p.queue = nil
	if p.abort != nil {
		p.abort()
	}
	p.lag.reset()
	if p.running == nil {
		return nil
	}
	return p.running
}

// begin takes the next item; false ends the appender's work on p.
func (p *partition) begin() (item, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || len(p.queue) == 0 {
		p.active = false
		return item{}, false
	}
	it := p.queue[0]
	p.queue[0] = item{}
	p.queue = p.queue[1:]
	p.running = make(chan struct{})
	return it, true
}

// waiting is the bytes queued or being appended.
func (p *partition) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending
}

func (p *partition) end(it item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending -= len(it.reply.Batches)
	if p.gone {
		p.lag.reset() // the step may have written to it after quit
	}
	close(p.running)
	p.running = nil
}

// abortable makes a context for a network call of a step, which Remove ends
// early. Appends don't get one: whether they happened must be known.
func (p *partition) abortable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abort = cancel
	if p.gone {
		cancel()
	}
	return ctx, cancel
}

// offer queues an answer. wake says that no appender has the partition yet.
func (p *partition) offer(it item, batchBytesMax int) (taken, wake bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.hold || it.offset != p.next {
		return false, false // an answer to a question that we no longer ask
	}
	plain := it.reply.Code == 0 && it.reply.DivergingEpoch < 0 && it.reply.DivergingEnd < 0
	switch {
	case !plain:
		p.hold = true
	case len(it.reply.Batches) > 0:
		if next, epoch, ok := glance(it.reply.Batches, it.offset, batchBytesMax); ok {
			p.next, p.lastEpoch = next, epoch
		} else {
			p.hold = true
		}
	}
	p.queue = append(p.queue, it)
	p.pending += len(it.reply.Batches)
	wake = !p.active
	p.active = true
	return true, wake
}

// readiness is why a partition is or isn't in the next request.
type readiness int8

const (
	readyYes      readiness = iota + 1
	readyGone               // or failed
	readyBusy               // waits for its own appends
	readyLater              // backs off, see when
	readyQuenched           // held by the throttle
)

// ready says whether the partition goes into a request that is made now.
func (p *partition) ready(now time.Time, credit int, quench bool, window *window) (w want, r readiness, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := p.maxSize
	if window.stretch > 1 && !p.throttled { // a throttle is kept by small steps
		size = window.size(size)
		credit = max(credit, int(size)+1)
	}
	switch {
	case p.gone:
		return w, readyGone, until
	case now.Before(p.until):
		return w, readyLater, p.until
	case p.hold || p.pending >= credit:
		return w, readyBusy, until
	case p.throttled && quench:
		return w, readyQuenched, until
	}
	w = want{tp: p.tp, id: p.id, position: position{offset: p.next, leaderEpoch: p.sle, lastEpoch: p.lastEpoch, maxBytes: size}, throttled: p.throttled && !p.caughtUp()}
	return w, readyYes, until
}

// caughtUp: the source had nothing more when it answered last.
func (p *partition) caughtUp() bool {
	hw := p.lag.sourceHW.Load()
	return hw >= 0 && hw <= p.next
}

func (p *partition) isThrottled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.throttled
}
