package actors

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// CoordinatorsConfig of NewCoordinators. All fields are required.
type CoordinatorsConfig struct {
	System *actor.ActorSystem
	Node   messages.NodeID
	// Replica finds this node's replica of a partition of __mirror_state; an error
	// means that there is none (yet).
	Replica func(tp messages.TopicPartition) (StateReplica, error)
	Server  StateServer
	Clock   clock.Clock
	Log     *zap.Logger
}

// Coordinators are the coordinator shards of a node: an actor for each partition
// of __mirror_state that the node leads.
type Coordinators struct {
	config  CoordinatorsConfig
	pid     *actor.PID
	image   atomic.Pointer[metadata.Image]
	helpers sync.WaitGroup
	cancel  context.CancelFunc
	closed  atomic.Bool
}

// coordinatorsImage says that a new image has been carried out by the replicas.
type coordinatorsImage struct {
	image *metadata.Image
	// gone: mirrors or topics may be gone
	gone bool
}

// NewCoordinators starts with no shard; ctx carries values only, they live until
// Close.
func NewCoordinators(ctx context.Context, config CoordinatorsConfig) *Coordinators {
	cs := &Coordinators{config: config}
	cs.image.Store(metadata.EmptyImage())
	ctx, cs.cancel = context.WithCancel(context.WithoutCancel(ctx))
	cs.pid = config.System.Root.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		return &coordinatorParent{owner: cs, ctx: ctx, shards: map[int32]coordinatorChild{}, led: ledShards{
			topic: messages.MirrorStateTopic, node: config.Node, replica: config.Replica, log: config.Log, led: map[int32]ledShard{},
			tell: func(n int32) any { return coordinatorTenure{number: n} },
		}}
	}), "coordinators")
	return cs
}

// Apply takes an image that the replicas have carried out, in order. topics are
// the names it touched, nil stands for all. It doesn't block.
func (cs *Coordinators) Apply(image *metadata.Image, topics map[string]struct{}) {
	old := cs.image.Swap(image)
	cs.config.System.Root.Send(cs.pid, coordinatorsImage{image: image, gone: topics == nil || somethingGone(old, image, topics)})
}

// somethingGone reports whether a mirror or a topic may have ended, so that most
// images cost the shards nothing.
func somethingGone(old, image *metadata.Image, topics map[string]struct{}) bool {
	for _, m := range old.Mirrors() {
		if image.Mirror(m.Name) == nil {
			return true
		}
	}
	for name := range topics {
		was, is := old.Topic(name), image.Topic(name)
		if was != nil && (is == nil || is.CreatedAt != was.CreatedAt) {
			return true
		}
	}
	return false
}

// shardsOf is the partition count of __mirror_state, 0 while the topic doesn't exist.
func shardsOf(image *metadata.Image) int32 {
	if t := image.Topic(messages.MirrorStateTopic); t != nil {
		return int32(len(t.Partitions))
	}
	return 0
}

// Coordinates reports whether this node leads the shard of a mirror.
func (cs *Coordinators) Coordinates(mirror string) bool {
	image := cs.image.Load()
	t := image.Topic(messages.MirrorStateTopic)
	if t == nil || len(t.Partitions) == 0 {
		return false
	}
	p, ok := t.Partition(messages.CoordinatorShard(mirror, int32(len(t.Partitions))))
	return ok && p.Leader == cs.config.Node
}

// Close stops all shards and waits for their workers. It may be called twice.
func (cs *Coordinators) Close() error {
	if cs.closed.Swap(true) {
		cs.helpers.Wait()
		return nil
	}
	err := cs.config.System.Root.StopFuture(cs.pid).Wait()
	cs.cancel()
	cs.helpers.Wait()
	if err != nil {
		return fmt.Errorf("stop coordinators: %w", err)
	}
	return nil
}

// coordinatorParent starts and stops shards as leadership comes and goes.
type coordinatorParent struct {
	owner  *Coordinators
	ctx    context.Context //nolint:containedctx // parent of the shards' contexts, ended by Close
	led    ledShards
	shards map[int32]coordinatorChild
}

type coordinatorChild struct {
	pid *actor.PID
	shardLife
}

// coordinatorTenure says that the node began or ended to lead a shard.
type coordinatorTenure struct{ number int32 }

// Receive handles one message.
func (p *coordinatorParent) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case coordinatorsImage:
		p.follow(c, m.image)
		if m.gone {
			for _, child := range p.shards {
				c.Send(child.pid, coordinatorImage{})
			}
		}
	case coordinatorTenure:
		p.shard(c, m.number)
	case *actor.Stopping:
		p.led.forget()
	case *actor.Restarting:
		p.led.forget()
		clear(p.shards) // children stop with their parent
	}
}

func (p *coordinatorParent) follow(c actor.Context, image *metadata.Image) {
	seen := p.led.follow(c, image)
	for n := range p.shards {
		p.shard(c, n)
	}
	for n := range seen {
		p.shard(c, n)
	}
}

// shard runs while the node leads, anew in each tenure: what was loaded before isn't
// what another coordinator may have stored since.
func (p *coordinatorParent) shard(c actor.Context, n int32) {
	life, replica, led := p.led.now(n)
	child, runs := p.shards[n]
	if runs && (!led || child.shardLife != life) {
		c.Stop(child.pid)
		delete(p.shards, n)
		runs = false
	}
	if led && !runs {
		p.spawn(c, n, life, replica)
	}
}

func (p *coordinatorParent) spawn(c actor.Context, n int32, life shardLife, replica StateReplica) {
	config := p.owner.config
	pid := c.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		s := &coordinator{
			number: n, epoch: life.epoch, replica: replica, server: config.Server, image: p.owner.image.Load,
			clock: config.Clock, log: config.Log.Named("coordinator").With(zap.Int32("shard", n), zap.Int32(messages.FieldEpoch, life.epoch)), helpers: &p.owner.helpers,
		}
		s.ctx, s.cancel = context.WithCancel(p.ctx)
		return s
	}), fmt.Sprintf("coordinator-%d", n))
	p.shards[n] = coordinatorChild{pid: pid, shardLife: life}
}
