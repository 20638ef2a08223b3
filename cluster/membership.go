package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence"
)

// NewClusterID is a random cluster id in Kafka's form: 22 characters of URL
// base64, safe in file names, on command lines and in bus subjects.
func NewClusterID() string { return messages.NewTopicID().String() }

// ChooseClusterID is the id that a node runs under: the one in its data folder,
// else the configured one, else a new one. A folder of another cluster wraps
// persistence.ErrForeignFolder: it is never taken over.
func ChooseClusterID(stored, configured string) (string, error) {
	switch {
	case stored == "" && configured == "":
		return NewClusterID(), nil
	case stored == "":
		return configured, nil
	case configured != "" && configured != stored:
		return "", fmt.Errorf("cluster id %s is configured, the data folder has %s: %w", configured, stored, persistence.ErrForeignFolder)
	default:
		return stored, nil
	}
}

// MembershipOptions of OpenMembership. Bus and Logger are required.
type MembershipOptions struct {
	Bus *Bus
	// Incarnation of this process. Default: a random one.
	Incarnation messages.TopicID
	// Interval between two beats. Default 250 ms.
	Interval time.Duration
	// DeadAfter without a beat a node is dead. Default 2.5 s.
	DeadAfter time.Duration
	// Starting has the beats say that the node doesn't serve yet, until Serve.
	Starting bool
	// OnNodeIDTaken is told, possibly often, that two processes run under one node
	// id; the error wraps ErrNodeIDTaken and names it. It must not block.
	OnNodeIDTaken func(error)
	// OnAway is told that this process didn't run for at least DeadAfter (it was
	// stopped, or the machine slept), before its next beat goes out: others hold it
	// for dead, so it has to give up its leaderships. It must not block.
	OnAway func(time.Duration)
	Clock  clock.Clock // default clock.Wall
	Logger *zap.Logger
}

func (o MembershipOptions) withDefaults() MembershipOptions {
	setDefault(&o.Incarnation, messages.NewTopicID())
	setDefault(&o.Interval, 250*time.Millisecond)
	setDefault(&o.DeadAfter, 2500*time.Millisecond)
	if o.OnNodeIDTaken == nil {
		o.OnNodeIDTaken = func(error) {}
	}
	if o.OnAway == nil {
		o.OnAway = func(time.Duration) {}
	}
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	return o
}

// Membership knows which nodes of the cluster are alive. A cluster of one is
// always complete; among several, nodes tell one another by beats on the bus.
// All methods may be called from any goroutine.
type Membership struct {
	self messages.NodeID
	opts MembershipOptions
	log  *zap.Logger
	sub  *nats.Subscription // nil in a cluster of one

	mu       sync.Mutex
	table    *beatTable
	number   uint64 // of the last beat
	source   func() Beat
	starting bool
	leaving  bool
	watchers map[int]func()
	watched  int // number of the last watcher

	stop    context.CancelFunc
	work    sync.WaitGroup
	closing sync.Once
}

// NewMembership is the membership of a cluster of one.
func NewMembership(self messages.NodeID) *Membership {
	m := &Membership{self: self, table: newBeatTable(self, messages.TopicID{}, 0), watchers: make(map[int]func())}
	m.table.nodes[self] = &beatNode{live: true, beat: Beat{Node: self}}
	return m
}

// OpenMembership sends beats and hears those of others until Close. It starts
// one goroutine, and the bus connection another for what comes. ctx carries
// values only.
func OpenMembership(ctx context.Context, o MembershipOptions) (*Membership, error) {
	o = o.withDefaults()
	m := &Membership{self: o.Bus.opts.Node, opts: o, log: o.Logger.Named("membership"), watchers: make(map[int]func())}
	m.table = newBeatTable(m.self, o.Incarnation, o.DeadAfter)
	m.starting = o.Starting
	var err error
	if m.sub, err = o.Bus.conn.Subscribe(o.Bus.Beat(), m.receive); err != nil {
		return nil, fmt.Errorf("open membership: hear beats: %w", err)
	}
	m.beat(false)
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.work.Go(func() { m.run(ctx) })
	return m, nil
}

// Close says goodbye, so that others needn't wait until this node counts as
// dead. It comes before the bus's. It may be called twice.
func (m *Membership) Close() error {
	var err error
	m.closing.Do(func() {
		if m.sub == nil {
			return
		}
		m.stop()
		m.work.Wait()
		if err = m.sub.Unsubscribe(); errors.Is(err, nats.ErrConnectionClosed) {
			err = nil
		}
		m.beat(true)
		if !m.opts.Bus.reaches() { // nobody hears of the end
			return
		}
		if flushErr := m.opts.Bus.conn.Flush(); err == nil && !errors.Is(flushErr, nats.ErrConnectionClosed) {
			err = flushErr
		}
	})
	if err != nil {
		return fmt.Errorf("close membership: %w", err)
	}
	return nil
}

// Leave has the beats say, from one that goes out now on, that this node is about to
// end. It is alive until Close says goodbye.
func (m *Membership) Leave() {
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	if m.sub != nil {
		m.beat(false)
	}
}

// Serve has the beats say no more that this node is starting.
func (m *Membership) Serve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starting = false
}

// Leaving reports whether a node has said that it is about to end, and nothing else
// since.
func (m *Membership) Leaving(node messages.NodeID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.table.nodes[node]
	return n != nil && n.beat.Leaving
}

// Self is this node.
func (m *Membership) Self() messages.NodeID { return m.self }

// Incarnation is this process's, the zero one in a cluster of one.
func (m *Membership) Incarnation() messages.TopicID { return m.opts.Incarnation }

// SetSource has every beat carry what f says; node, incarnation and number are
// filled in. f must not block.
func (m *Membership) SetSource(f func() Beat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source = f
}

// Live lists the nodes that are alive, by id, this node included. It doesn't
// block; the result belongs to the caller.
func (m *Membership) Live() []messages.NodeID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table.live()
}

// IsLive reports whether a node is alive.
func (m *Membership) IsLive(node messages.NodeID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.table.nodes[node]
	return n != nil && n.live
}

// Beat is the last beat of a node, how long ago it came, and whether there was
// one. A dead node's last beat stays.
func (m *Membership) Beat(node messages.NodeID) (beat Beat, age time.Duration, ok bool) {
	if m.sub == nil {
		return m.ownBeat(node)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.table.nodes[node]
	if n == nil || n.beat.Number == 0 {
		return Beat{}, 0, false
	}
	beat = n.beat
	beat.Shards, beat.Extension = slices.Clone(beat.Shards), slices.Clone(beat.Extension)
	return beat, m.opts.Clock.Now().Sub(n.at), true
}

// ownBeat is made when it is asked for in a cluster of one.
func (m *Membership) ownBeat(node messages.NodeID) (Beat, time.Duration, bool) {
	if node != m.self {
		return Beat{}, 0, false
	}
	m.mu.Lock()
	source := m.source
	m.mu.Unlock()
	var b Beat
	if source != nil {
		b = source()
	}
	b.Node = m.self
	return b, 0, true
}

// Watch has f called after the list of live nodes changed, until cancel is
// called. f must not block and may be called by several goroutines. A cluster of one never changes.
func (m *Membership) Watch(f func()) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched++
	number := m.watched
	m.watchers[number] = f
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, number)
	}
}

// run beats, and looks who doesn't.
func (m *Membership) run(ctx context.Context) {
	last := m.opts.Clock.Now()
	for m.opts.Clock.Sleep(ctx, m.opts.Interval) == nil {
		now := m.opts.Clock.Now()
		if away := elapsed(last, now); away >= m.opts.DeadAfter {
			m.log.Warn("this process didn't run for a while", zap.Duration("away", away))
			m.mu.Lock()
			m.table.back(now)
			m.mu.Unlock()
			m.opts.OnAway(away)
		}
		last = now
		m.mu.Lock()
		changed := m.table.sweep(now)
		m.mu.Unlock()
		m.tell(changed)
		m.beat(false)
	}
}

// elapsed is by the wall or by the monotonic clock, whichever says more: the
// latter stands still while a machine sleeps.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

func (m *Membership) beat(bye bool) {
	m.mu.Lock()
	source := m.source
	m.mu.Unlock()
	var b Beat
	if source != nil && !bye {
		b = source()
	}
	b.Node, b.Incarnation, b.bye = m.self, m.opts.Incarnation, bye
	if len(b.Extension) > beatExtensionMax || len(b.Shards) > beatShardsMax {
		m.log.Error("heartbeat is too large, sent without its load", zap.Int("extension", len(b.Extension)), zap.Int("shards", len(b.Shards)))
		b.Extension, b.Shards = nil, nil
	}
	m.mu.Lock()
	m.number++
	b.Number, b.Starting, b.Leaving = m.number, m.starting, m.leaving || bye
	changed := m.table.sent(m.opts.Clock.Now(), &b)
	m.mu.Unlock()
	m.tell(changed)
	if err := m.opts.Bus.conn.Publish(m.opts.Bus.Beat(), b.encode()); err != nil {
		m.log.Warn("send heartbeat", zap.Error(err))
	}
}

// receive runs in the subscription's goroutine.
func (m *Membership) receive(msg *nats.Msg) {
	b, err := decodeBeat(msg.Data)
	if err != nil {
		m.log.Warn("heartbeat can't be read", zap.Error(err))
		return
	}
	m.mu.Lock()
	out := m.table.receive(m.opts.Clock.Now(), b)
	m.mu.Unlock()
	m.tell(out.changed)
	if out.taken {
		m.opts.OnNodeIDTaken(fmt.Errorf("node %d: %w", b.Node, ErrNodeIDTaken))
	}
}

func (m *Membership) tell(changed bool) {
	if !changed {
		return
	}
	m.mu.Lock()
	live := m.table.live()
	var watchers []func()
	for _, number := range sortedKeys(m.watchers) {
		watchers = append(watchers, m.watchers[number])
	}
	m.mu.Unlock()
	m.log.Info("live nodes", zap.Any("nodes", live))
	for _, f := range watchers {
		f()
	}
}
