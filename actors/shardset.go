package actors

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// shardSetConfig of newShardSet.
type shardSetConfig struct {
	topic string // the internal topic
	name  string // of the actors and in logs
	what  string // what is coordinated, in errors
	node  messages.NodeID
	// replica finds this node's replica of a partition of the topic; an error means
	// that there is none (yet).
	replica func(tp messages.TopicPartition) (StateReplica, error)
	// spawn makes the actor of a shard, whose context ends with the shard.
	spawn  func(shardStart) actor.Actor
	system *actor.ActorSystem
	clock  clock.Clock
	log    *zap.Logger
}

// shardStart is what the actor of a shard begins with.
type shardStart struct {
	number  int32
	epoch   int32
	replica StateReplica
	ctx     context.Context //nolint:containedctx // ends with the shard
	log     *zap.Logger
	helpers *sync.WaitGroup
}

// shardSet is the coordinators of a node that clients ask: an actor for each
// partition of an internal topic that the node leads.
type shardSet struct {
	config  shardSetConfig
	pid     *actor.PID
	image   atomic.Pointer[metadata.Image]
	running atomic.Pointer[map[int32]shardChild] // replaced, never changed
	helpers sync.WaitGroup
	ctx     context.Context //nolint:containedctx // parent of the shards' contexts, ended by close
	cancel  context.CancelFunc
	closed  atomic.Bool
}

type shardChild struct {
	pid *actor.PID
	shardLife
	ctx    context.Context //nolint:containedctx // ends with the shard, for those who wait for it
	cancel context.CancelFunc
}

// shardImage says that a new image has been carried out by the replicas.
type shardImage struct {
	image *metadata.Image
	then  any // sent to every shard afterwards; nil for nothing
}

// shardTenure says that the node began or ended to lead a shard.
type shardTenure struct{ number int32 }

// newShardSet starts with no shard; ctx carries values only, they live until close.
func newShardSet(ctx context.Context, config shardSetConfig) *shardSet {
	s := &shardSet{config: config}
	s.image.Store(metadata.EmptyImage())
	s.running.Store(&map[int32]shardChild{})
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.pid = config.system.Root.SpawnPrefix(props(config.clock, config.log, func() actor.Actor {
		return &shardParent{owner: s, led: ledShards{
			topic: config.topic, node: config.node, replica: config.replica, log: config.log, led: map[int32]ledShard{},
			tell: func(n int32) any { return shardTenure{number: n} },
		}}
	}), config.name)
	return s
}

// apply takes an image that the replicas have carried out, in order, and then has a
// message sent to every shard, if it isn't nil. It doesn't block.
func (s *shardSet) apply(image *metadata.Image, then any) {
	s.image.Store(image)
	s.send(s.pid, shardImage{image: image, then: then})
}

func (s *shardSet) send(pid *actor.PID, message any) { s.config.system.Root.Send(pid, message) }

// all is the shards that run, by partition.
func (s *shardSet) all() map[int32]shardChild { return *s.running.Load() }

// of is the shard of a key, if it is here.
func (s *shardSet) of(key string) (shardChild, error) {
	t := s.image.Load().Topic(s.config.topic)
	if t == nil || len(t.Partitions) == 0 {
		return shardChild{}, fmt.Errorf("%s doesn't exist yet: %w", s.config.topic, messages.ErrNotCoordinator)
	}
	n := messages.CoordinatorShard(key, int32(len(t.Partitions)))
	child, ok := s.all()[n]
	switch {
	case ok:
		return child, nil
	case t.Partitions[n].Leader == s.config.node:
		return shardChild{}, fmt.Errorf("%s of shard %d: %w", s.config.what, n, messages.ErrCoordinatorLoading) // led any moment
	default:
		return shardChild{}, fmt.Errorf("%s of shard %d: %w", s.config.what, n, messages.ErrNotCoordinator)
	}
}

// listed is what one shard has, asked by a shardList.
type listed[T any] struct {
	items []T
	err   error
}

// shardList asks a shard for what it has.
type shardList[T any] struct {
	reply chan<- listed[T] // has room for it
}

// listShards is what all shards of this node have, in no order.
func listShards[T any](ctx context.Context, s *shardSet) ([]T, error) {
	shards := s.all()
	reply := make(chan listed[T], len(shards))
	for _, child := range shards {
		s.send(child.pid, shardList[T]{reply: reply})
	}
	var out []T
	for _, child := range shards {
		select {
		case l := <-reply:
			if l.err != nil {
				return nil, l.err
			}
			out = append(out, l.items...)
		case <-child.ctx.Done():
			return nil, fmt.Errorf("list %s: %w", s.config.what, messages.ErrCoordinatorNotAvailable)
		case <-ctx.Done():
			return nil, fmt.Errorf("list %s: %w", s.config.what, messages.ErrTimedOut)
		}
	}
	return out, nil
}

// close stops all shards and waits for their workers. It may be called twice.
func (s *shardSet) close() error {
	if s.closed.Swap(true) {
		s.helpers.Wait()
		return nil
	}
	err := s.config.system.Root.StopFuture(s.pid).Wait()
	s.cancel()
	s.helpers.Wait()
	if err != nil {
		return fmt.Errorf("stop coordinators of %s: %w", s.config.what, err)
	}
	return nil
}

// shardParent starts and stops shards as leadership comes and goes.
type shardParent struct {
	owner *shardSet
	led   ledShards
}

// Receive handles one message.
func (p *shardParent) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case shardImage:
		seen := p.led.follow(c, m.image)
		for n := range p.owner.all() {
			p.shard(c, n)
		}
		for n := range seen {
			p.shard(c, n)
		}
		if m.then != nil {
			for _, child := range p.owner.all() {
				c.Send(child.pid, m.then)
			}
		}
	case shardTenure:
		p.shard(c, m.number)
	case *actor.Stopping, *actor.Restarting:
		p.led.forget()
		for _, child := range p.owner.all() {
			child.cancel()
		}
		p.owner.running.Store(&map[int32]shardChild{}) // children stop with their parent
	}
}

// shard runs while the node leads, anew in each tenure.
func (p *shardParent) shard(c actor.Context, n int32) {
	life, replica, led := p.led.now(n)
	child, runs := p.owner.all()[n]
	if runs && (!led || child.shardLife != life) {
		p.publish(n, nil)
		child.cancel()
		c.Stop(child.pid)
		runs = false
	}
	if led && !runs {
		p.spawn(c, n, life, replica)
	}
}

func (p *shardParent) publish(n int32, child *shardChild) {
	next := maps.Clone(p.owner.all())
	delete(next, n)
	if child != nil {
		next[n] = *child
	}
	p.owner.running.Store(&next)
}

func (p *shardParent) spawn(c actor.Context, n int32, life shardLife, replica StateReplica) {
	config := p.owner.config
	child := shardChild{shardLife: life}
	child.ctx, child.cancel = context.WithCancel(p.owner.ctx)
	start := shardStart{
		number: n, epoch: life.epoch, replica: replica, ctx: child.ctx, helpers: &p.owner.helpers,
		log: config.log.Named(config.name).With(zap.Int32("shard", n), zap.Int32(messages.FieldEpoch, life.epoch)),
	}
	child.pid = c.SpawnPrefix(props(config.clock, config.log, func() actor.Actor { return config.spawn(start) }), fmt.Sprintf("%s-%d", config.name, n))
	p.publish(n, &child)
}
