package actors

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fsm/group"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/groups"
	"kagami/persistence/metadata"
)

// GroupsConfig of NewGroups. All fields are required.
type GroupsConfig struct {
	System *actor.ActorSystem
	Node   messages.NodeID
	// Replica finds this node's replica of a partition of __consumer_offsets; an
	// error means that there is none (yet).
	Replica func(tp messages.TopicPartition) (StateReplica, error)
	Static  map[string]string // settings of the node's file
	Clock   clock.Clock
	Log     *zap.Logger
}

// Groups are the group coordinators of a node: an actor for each partition of
// __consumer_offsets that the node leads.
type Groups struct {
	config  GroupsConfig
	pid     *actor.PID
	topics  atomic.Pointer[groupTopics]
	current atomic.Pointer[groupSettings]
	shards  atomic.Pointer[map[int32]groupChild] // replaced, never changed
	helpers sync.WaitGroup
	ctx     context.Context //nolint:containedctx // parent of the shards' contexts, ended by Close
	cancel  context.CancelFunc
	closed  atomic.Bool
}

type groupSettings struct {
	group.Config
	check time.Duration
}

type groupChild struct {
	pid *actor.PID
	shardLife
	ctx    context.Context //nolint:containedctx // ends with the shard, for those who wait for it
	cancel context.CancelFunc
}

// groupsImage says that a new image has been carried out by the replicas.
type groupsImage struct {
	image *metadata.Image
	gone  bool // topics may be gone
}

// groupsTenure says that the node began or ended to lead a shard.
type groupsTenure struct{ number int32 }

// NewGroups starts with no shard; ctx carries values only, they live until Close.
func NewGroups(ctx context.Context, config GroupsConfig) *Groups {
	gs := &Groups{config: config}
	gs.topics.Store(&groupTopics{image: metadata.EmptyImage()})
	gs.shards.Store(&map[int32]groupChild{})
	gs.Settle(metadata.EmptyImage())
	gs.ctx, gs.cancel = context.WithCancel(context.WithoutCancel(ctx))
	gs.pid = config.System.Root.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		return &groupsParent{owner: gs, led: ledShards{
			topic: messages.ConsumerOffsetsTopic, node: config.Node, replica: config.Replica, log: config.Log, led: map[int32]ledShard{},
			tell: func(n int32) any { return groupsTenure{number: n} },
		}}
	}), "groups")
	return gs
}

// Apply takes an image that the replicas have carried out, in order. topics are
// the names it touched, nil stands for all. It doesn't block.
func (gs *Groups) Apply(image *metadata.Image, topics map[string]struct{}) {
	old := gs.topics.Load().image
	gs.topics.Store(gs.topics.Load().next(image, topics))
	gone := false
	for name := range topics {
		gone = gone || old.Topic(name) != nil && image.Topic(name) == nil
	}
	gs.config.System.Root.Send(gs.pid, groupsImage{image: image, gone: gone})
}

// Settle takes the node's settings from an image.
func (gs *Groups) Settle(image *metadata.Image) {
	v := configs.BrokerValues(image.BrokerConfig(gs.config.Node), gs.config.Static)
	of := map[string]group.ConsumerConfig{}
	for name, own := range image.GroupConfigs() {
		session, interval := configs.GroupValues(own, v)
		of[name] = group.ConsumerConfig{Session: session, Interval: interval}
	}
	gs.current.Store(&groupSettings{
		Config: group.Config{
			SessionMin: v.Int64(configs.GroupMinSessionTimeout), SessionMax: v.Int64(configs.GroupMaxSessionTimeout),
			SizeMax: v.Int(configs.GroupMaxSize), InitialDelay: v.Int64(configs.GroupInitialRebalanceDelay),
			MetadataMax: v.Int(configs.OffsetMetadataMaxBytes), Retention: v.Int64(configs.OffsetsRetentionMinutes) * time.Minute.Milliseconds(),
			Consumer:        group.ConsumerConfig{Session: v.Int64(configs.ConsumerSessionTimeout), Interval: v.Int64(configs.ConsumerHeartbeatInterval)},
			ConsumerOf:      of,
			ConsumerSizeMax: v.Int(configs.ConsumerMaxSize), Assignors: v.List(configs.ConsumerAssignors),
			Migration: group.ParseMigration(v.String(configs.ConsumerMigrationPolicy)),
		},
		check: time.Duration(v.Int64(configs.OffsetsRetentionCheck)) * time.Millisecond,
	})
}

func (gs *Groups) settings() group.Config { return gs.current.Load().Config }

func (gs *Groups) retentionCheck() time.Duration { return gs.current.Load().check }

// Ask hands a request to its group's coordinator and waits for the answer, which
// may take as long as a rebalance, or for the end of ctx, or gone. A refusal is an
// answer. What has begun goes on when nobody waits any more.
func (gs *Groups) Ask(ctx context.Context, gone <-chan struct{}, req groups.Request) groups.Answer {
	child, err := gs.shardOf(req.GroupID())
	if err != nil {
		return groups.Refusal(req, err)
	}
	reply := make(chan groups.Answer, 1)
	gs.config.System.Root.Send(child.pid, groupRequest{req: req, reply: reply})
	select {
	case a := <-reply:
		return a
	case <-child.ctx.Done():
		return groups.Refusal(req, messages.ErrNotCoordinator)
	case <-gone:
		return groups.Refusal(req, messages.ErrTimedOut)
	case <-ctx.Done():
		return groups.Refusal(req, fmt.Errorf("ask the group coordinator: %w", messages.ErrTimedOut))
	}
}

// List is the groups that this node coordinates, in no order.
func (gs *Groups) List(ctx context.Context) ([]groups.Listed, error) {
	shards := *gs.shards.Load()
	reply := make(chan groupListed, len(shards))
	for _, child := range shards {
		gs.config.System.Root.Send(child.pid, groupList{reply: reply})
	}
	var out []groups.Listed
	for _, child := range shards {
		select {
		case l := <-reply:
			if l.err != nil {
				return nil, l.err
			}
			out = append(out, l.groups...)
		case <-child.ctx.Done():
			return nil, fmt.Errorf("list groups: %w", messages.ErrCoordinatorNotAvailable)
		case <-ctx.Done():
			return nil, fmt.Errorf("list groups: %w", messages.ErrTimedOut)
		}
	}
	return out, nil
}

func (gs *Groups) shardOf(id string) (groupChild, error) {
	t := gs.topics.Load().image.Topic(messages.ConsumerOffsetsTopic)
	if t == nil || len(t.Partitions) == 0 {
		return groupChild{}, fmt.Errorf("%s doesn't exist yet: %w", messages.ConsumerOffsetsTopic, messages.ErrNotCoordinator)
	}
	n := messages.CoordinatorShard(id, int32(len(t.Partitions)))
	child, ok := (*gs.shards.Load())[n]
	switch {
	case ok:
		return child, nil
	case t.Partitions[n].Leader == gs.config.Node:
		return groupChild{}, fmt.Errorf("groups of shard %d: %w", n, messages.ErrCoordinatorLoading) // led any moment
	default:
		return groupChild{}, fmt.Errorf("groups of shard %d: %w", n, messages.ErrNotCoordinator)
	}
}

// Close stops all shards and waits for their workers. It may be called twice.
func (gs *Groups) Close() error {
	if gs.closed.Swap(true) {
		gs.helpers.Wait()
		return nil
	}
	err := gs.config.System.Root.StopFuture(gs.pid).Wait()
	gs.cancel()
	gs.helpers.Wait()
	if err != nil {
		return fmt.Errorf("stop group coordinators: %w", err)
	}
	return nil
}

// groupsParent starts and stops shards as leadership comes and goes.
type groupsParent struct {
	owner *Groups
	led   ledShards
}

// Receive handles one message.
func (p *groupsParent) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case groupsImage:
		p.follow(c, m.image)
		if m.gone {
			for _, child := range p.shards() {
				c.Send(child.pid, groupTopicsGone{})
			}
		}
	case groupsTenure:
		p.shard(c, m.number)
	case *actor.Stopping, *actor.Restarting:
		p.led.forget()
		for _, child := range p.shards() {
			child.cancel()
		}
		p.owner.shards.Store(&map[int32]groupChild{}) // children stop with their parent
	}
}

func (p *groupsParent) shards() map[int32]groupChild { return *p.owner.shards.Load() }

func (p *groupsParent) follow(c actor.Context, image *metadata.Image) {
	seen := p.led.follow(c, image)
	for n := range p.shards() {
		p.shard(c, n)
	}
	for n := range seen {
		p.shard(c, n)
	}
}

// shard runs while the node leads, anew in each tenure.
func (p *groupsParent) shard(c actor.Context, n int32) {
	life, replica, led := p.led.now(n)
	child, runs := p.shards()[n]
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

func (p *groupsParent) publish(n int32, child *groupChild) {
	next := maps.Clone(p.shards())
	delete(next, n)
	if child != nil {
		next[n] = *child
	}
	p.owner.shards.Store(&next)
}

func (p *groupsParent) spawn(c actor.Context, n int32, life shardLife, replica StateReplica) {
	config := p.owner.config
	child := groupChild{shardLife: life}
	child.ctx, child.cancel = context.WithCancel(p.owner.ctx)
	child.pid = c.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		s := &groupShard{
			number: n, replica: replica, owner: p.owner, waiting: map[group.Ticket]groupRequest{}, clock: config.Clock,
			log: config.Log.Named("groups").With(zap.Int32("shard", n), zap.Int32(messages.FieldEpoch, life.epoch)), helpers: &p.owner.helpers,
		}
		s.ctx, s.cancel = context.WithCancel(child.ctx)
		return s
	}), fmt.Sprintf("groups-%d", n))
	p.publish(n, &child)
}
