package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// LogStore owns the logs in a data folder; *persistence.Manager is one. All
// methods may be called from many goroutines for different partitions.
type LogStore interface {
	// Infos lists what is on disk.
	Infos() []persistence.Info
	// Open opens a log. It wraps persistence.ErrNotFound if there is none.
	Open(ctx context.Context, tp messages.TopicPartition, cfg persistence.Config) (persistence.Log, error)
	// Create makes an empty log. It wraps persistence.ErrExists if there is one.
	Create(ctx context.Context, info persistence.Info, cfg persistence.Config) (persistence.Log, error)
	// Delete removes a log; an open one is closed first.
	Delete(ctx context.Context, tp messages.TopicPartition) error
}

// ReplicasOptions of NewReplicas. Node, Logs, Checkpoints and Logger are
// required.
type ReplicasOptions struct {
	Node        messages.NodeID
	Logs        LogStore
	Checkpoints *Checkpoints
	// Journal of a node of several; nil: each partition's journal is direct.
	Journal *Journal
	// Metadata is the metadata log's replica of a node that is alone; with the others it
	// is brought back after a failure of the disk. May be nil.
	Metadata *Replica
	// Static is the node's own configuration, with Kafka's key names.
	Static map[string]string
	// FlushAlways syncs every append of data too. Internal topics always are. With a
	// Journal neither is: what isn't synced here is in the stream.
	FlushAlways bool
	// RetentionInterval is log.retention.check.interval.ms. Default 5 minutes.
	RetentionInterval time.Duration
	// Parallel is how many partitions are opened, claimed or closed at a time.
	// Default 32: they wait for the disk and share its syncs. With a Journal more are
	// claimed at a time.
	Parallel int
	// ClaimTimeout bounds one claim. Default 10 s.
	ClaimTimeout time.Duration
	// ClaimRetry is when a claim that came to nothing is tried again, at the latest.
	// Default 1 s.
	ClaimRetry time.Duration
	Clock      clock.Clock // default clock.Wall
	Logger     *zap.Logger
}

func (o ReplicasOptions) withDefaults() ReplicasOptions {
	if o.RetentionInterval == 0 {
		o.RetentionInterval = 5 * time.Minute
	}
	if o.Parallel == 0 {
		o.Parallel = 32
	}
	if o.ClaimTimeout == 0 {
		o.ClaimTimeout = 10 * time.Second
	}
	if o.ClaimRetry == 0 {
		o.ClaimRetry = time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	return o
}

// Replicas owns all replicas of topics on this node and keeps them in step with
// the metadata image: it opens, creates and deletes their logs, claims them
// under new leader epochs, closes the gate the moment mirror.name appears, sets
// configs and runs retention. The metadata log's own replica isn't among them.
//
// Apply only takes note; one goroutine opens, configures, resigns and deletes,
// always towards the newest image, and never waits for the journal; a second one
// claims, which may wait for it. WaitApplied tells when both are done. A partition
// that can't be opened costs its neighbours nothing and is tried again, after seconds
// at first.
type Replicas struct {
	opts ReplicasOptions
	log  *zap.Logger

	mu     sync.RWMutex
	byName map[string]*topicReplicas
	byID   map[messages.TopicID]*topicReplicas
	latest *metadata.Image // newest image seen; gates follow it at once

	work   sync.Mutex // guards what follows
	todo   map[string]struct{}
	target *metadata.Image               // to be applied with todo; nil = nothing to do
	newest *metadata.Image               // last target
	broker bool                          // broker configs changed: all topics' configs
	wake   chan struct{}                 // capacity 1
	wanted map[messages.TopicID]struct{} // topics that the journal waits for
	opened int64                         // offset of the last image whose replicas are open
	done   int64                         // offset of the last image applied: claimed as well
	moved  chan struct{}                 // closed and replaced when opened or done moved
	claims claimWork                     // handed from the opening goroutine to the claiming one
	subs   []*replicaSub
	closed bool

	stop    context.CancelCauseFunc
	running sync.WaitGroup
	follows bool            // the journal follows; worker only
	before  *metadata.Image // of the round before; worker only
	strays  bool            // logs without a topic have been looked for; worker only

	diskMu sync.Mutex
	disk   map[messages.TopicPartition]persistence.Info // found at start, not yet opened or deleted
}

// topicReplicas is one topic's replicas. It is replaced, never changed, but for
// what the replicas do themselves.
type topicReplicas struct {
	topic    *metadata.Topic
	settings topicSettings
	replicas []*Replica // by partition; nil: not on this node, or failed
	failed   []error    // why an own one couldn't be opened; nil if none
}

type replicaSub struct {
	f       func(AppliedImage)
	greeted bool
	gone    bool
}

// AppliedImage is an image whose changes the replicas have carried out.
type AppliedImage struct {
	Image *metadata.Image
	// Topics that were created, changed or deleted since the last call; nil at the
	// first, which stands for all.
	Topics map[string]struct{}
}

// NewReplicas starts with none. Subscribe Apply to the metadata store; ctx
// carries values only, the replicas live until Close.
func NewReplicas(ctx context.Context, o ReplicasOptions) *Replicas {
	o = o.withDefaults()
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	rs := &Replicas{
		opts: o, log: o.Logger.Named("replicas"), stop: stop,
		byName: make(map[string]*topicReplicas), byID: make(map[messages.TopicID]*topicReplicas),
		todo: make(map[string]struct{}), wake: make(chan struct{}, 1), wanted: make(map[messages.TopicID]struct{}),
		opened: messages.NoOffset, done: messages.NoOffset, moved: make(chan struct{}),
		claims: claimWork{topics: make(map[string]struct{}), retry: make(map[string]struct{}), wake: make(chan struct{}, 1)},
	}
	rs.running.Go(func() { rs.run(ctx) })
	rs.running.Go(func() { rs.claim(ctx) })
	rs.running.Go(func() { rs.retain(ctx) })
	rs.running.Go(func() { rs.reopen(ctx) })
	return rs
}

// Get returns a replica of this node. It wraps messages.ErrNotLeader if the
// partition isn't on this node, messages.ErrUnknownTopicOrPartition if there is
// none, and messages.ErrStorage if its log can't be opened.
func (rs *Replicas) Get(tp messages.TopicPartition) (*Replica, error) {
	rs.mu.RLock()
	t := rs.byName[tp.Topic]
	rs.mu.RUnlock()
	return t.get(tp.Topic, tp.Partition)
}

// ByID is Get by topic id; an unknown one wraps messages.ErrUnknownTopicID.
func (rs *Replicas) ByID(id messages.TopicID, partition int32) (*Replica, error) {
	rs.mu.RLock()
	t := rs.byID[id]
	rs.mu.RUnlock()
	if t == nil {
		return nil, fmt.Errorf("topic %s: %w", id, messages.ErrUnknownTopicID)
	}
	return t.get(t.topic.Name, partition)
}

// byKey is the replica that a journal's operation is for, nil if this node has
// none. It waits until the image knows the partition and the topic is open, which
// comes before others then.
func (rs *Replicas) byKey(ctx context.Context, key messages.PartitionKey) (*Replica, error) {
	if r, _, ok := rs.opening(key); ok {
		return r, nil
	}
	for {
		rs.work.Lock()
		opened, moved, closed := rs.opened, rs.moved, rs.closed
		rs.wanted[key.TopicID] = struct{}{}
		rs.work.Unlock()
		r, t, ok := rs.opening(key)
		switch {
		case closed:
			return nil, ErrClosed
		case ok:
			return r, nil
		case opened >= key.CreatedAt && (t == nil || t.topic.CreatedAt > key.CreatedAt):
			return nil, nil // deleted since
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// opening is the replica of a partition (nil: not on this node) if its topic is open,
// and what is open under the topic's id.
func (rs *Replicas) opening(key messages.PartitionKey) (r *Replica, t *topicReplicas, ok bool) {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	t = rs.byID[key.TopicID]
	if t != nil && t.topic.CreatedAt == key.CreatedAt && int(key.Partition) < len(t.replicas) {
		return t.replicas[key.Partition], t, true
	}
	return nil, t, false
}

// Leading is Get for whoever serves clients: the replica is led by this node,
// and id, when not zero, is its topic's id (else messages.ErrUnknownTopicID).
func (rs *Replicas) Leading(tp messages.TopicPartition, id messages.TopicID) (*Replica, error) {
	r, err := rs.Get(tp)
	switch {
	case err != nil:
		return nil, err
	case !id.IsZero() && id != r.key.TopicID:
		return nil, fmt.Errorf("%s has topic id %s, not %s: %w", tp, r.key.TopicID, id, messages.ErrUnknownTopicID)
	case !r.Leads():
		return nil, fmt.Errorf("%s: %w", tp, messages.ErrNotLeader)
	default:
		return r, nil
	}
}

func (t *topicReplicas) get(topic string, partition int32) (*Replica, error) {
	if t == nil || partition < 0 || int(partition) >= len(t.replicas) {
		return nil, fmt.Errorf("%s-%d: %w", topic, partition, messages.ErrUnknownTopicOrPartition)
	}
	if r := t.replicas[partition]; r != nil {
		return r, nil
	}
	if t.failed != nil && t.failed[partition] != nil {
		return nil, fmt.Errorf("%s-%d: %w: %w", topic, partition, messages.ErrStorage, t.failed[partition])
	}
	return nil, fmt.Errorf("%s-%d is not on this node: %w", topic, partition, messages.ErrNotLeader)
}

// Range calls f with every replica, in no order, until f returns false.
func (rs *Replicas) Range(f func(*Replica) bool) {
	for _, t := range rs.all() {
		for _, r := range t.replicas {
			if r != nil && !f(r) {
				return
			}
		}
	}
}

func (rs *Replicas) all() []*topicReplicas {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	out := make([]*topicReplicas, 0, len(rs.byName))
	for _, t := range rs.byName {
		out = append(out, t)
	}
	return out
}

// Apply takes note of a change of the image; it doesn't block. Gates of
// existing replicas follow before it returns: from then on no client write gets
// into a topic that is being mirrored or paused.
func (rs *Replicas) Apply(d metadata.Delta) {
	for _, g := range rs.note(d.New, d.Topics) {
		g.r.force(g.close)
		if g.admit {
			g.r.SetAdmit(true)
		}
	}
	rs.work.Lock()
	defer rs.work.Unlock()
	if rs.closed {
		return
	}
	for name := range d.Topics {
		rs.todo[name] = struct{}{}
	}
	rs.target, rs.newest = d.New, d.New
	rs.broker = rs.broker || d.Brokers
	rs.pokeLocked()
}

func (rs *Replicas) pokeLocked() {
	select {
	case rs.wake <- struct{}{}:
	default:
	}
}

// gateChange is what an image says about one replica's gate.
type gateChange struct {
	r            *Replica
	close, admit bool
}

func (rs *Replicas) note(img *metadata.Image, topics map[string]struct{}) []gateChange {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.latest = img
	var out []gateChange
	for name := range topics {
		now, have := img.Topic(name), rs.byName[name]
		if have == nil {
			continue
		}
		for _, r := range have.replicas {
			if r != nil {
				out = append(out, gateFor(r, now))
			}
		}
	}
	return out
}

// gateFor is the gate of r by the image's topic. A topic that is gone, or came
// again, closes the replicas of its old life.
func gateFor(r *Replica, t *metadata.Topic) gateChange {
	if t == nil || t.ID != r.key.TopicID || t.CreatedAt != r.key.CreatedAt {
		return gateChange{r: r, close: true}
	}
	return gateChange{
		r:     r,
		close: t.Desired == messages.DesiredActive || t.Desired == messages.DesiredPaused,
		admit: t.Desired == messages.DesiredNone,
	}
}

// WaitApplied waits until the replicas have carried out an image at or above
// offset. It returns the cause of ctx, or ErrClosed.
func (rs *Replicas) WaitApplied(ctx context.Context, offset int64) error {
	return rs.waitFor(ctx, offset, func() int64 { return rs.done })
}

// WaitOpened waits until the replicas of an image at or above offset are open,
// but perhaps not claimed. Errors as WaitApplied.
func (rs *Replicas) WaitOpened(ctx context.Context, offset int64) error {
	return rs.waitFor(ctx, offset, func() int64 { return rs.opened })
}

// waitFor waits for a progress, which is read under the lock.
func (rs *Replicas) waitFor(ctx context.Context, offset int64, progress func() int64) error {
	for {
		rs.work.Lock()
		at, moved, closed := progress(), rs.moved, rs.closed
		rs.work.Unlock()
		switch {
		case at >= offset:
			return nil
		case closed:
			return fmt.Errorf("wait for replicas at metadata offset %d: %w", offset, ErrClosed)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for replicas at metadata offset %d: %w", offset, context.Cause(ctx))
		}
	}
}

// Subscribe calls f after each round of changes, in order, first with the image
// that is applied already (or as soon as there is one): from then on Get finds
// what the image has, claimed under its epochs. f must not block and must not
// call WaitApplied or Close. f may still be running once when cancel returns.
func (rs *Replicas) Subscribe(f func(AppliedImage)) (cancel func()) {
	s := &replicaSub{f: f}
	rs.work.Lock()
	defer rs.work.Unlock()
	rs.subs = append(rs.subs, s)
	rs.pokeLocked()
	return func() {
		rs.work.Lock()
		defer rs.work.Unlock()
		s.gone = true
		for i, o := range rs.subs {
			if o == s {
				rs.subs = append(rs.subs[:i:i], rs.subs[i+1:]...)
				return
			}
		}
	}
}

// Close stops, closes all logs and writes their checkpoints, durably. It may be
// called twice.
func (rs *Replicas) Close() error {
	rs.work.Lock()
	if rs.closed {
		rs.work.Unlock()
		return nil
	}
	rs.closed = true
	close(rs.moved)
	rs.moved = make(chan struct{})
	rs.work.Unlock()
	rs.stop(ErrClosed)
	rs.running.Wait()
	var replicas []*Replica
	rs.Range(func(r *Replica) bool { replicas = append(replicas, r); return true })
	cps := make([]*Checkpoint, len(replicas))
	errs := make([]error, len(replicas))
	rs.parallel(len(replicas), func(i int) {
		cp, dirty, err := replicas[i].shut()
		if dirty {
			cps[i] = &cp
		}
		errs[i] = err
	})
	var dirty []Checkpoint
	for _, cp := range cps {
		if cp != nil {
			dirty = append(dirty, *cp)
		}
	}
	err := errors.Join(errs...)
	if len(dirty) > 0 {
		if put := rs.opts.Checkpoints.Put(true, dirty...); put != nil {
			if rs.opts.Journal != nil {
				rs.opts.Journal.unclean.Store(true)
			}
			err = errors.Join(err, put)
		}
	}
	return err
}

// parallel calls f for 0 to n-1 in Parallel goroutines and waits.
func (rs *Replicas) parallel(n int, f func(i int)) { inParallel(rs.opts.Parallel, n, f) }

// inParallel calls f for 0 to n-1 in at most that many goroutines and waits.
func inParallel(goroutines, n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, goroutines) {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}
