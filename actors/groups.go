package actors

import (
	"context"
	"fmt"
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
	shards  *shardSet
	topics  atomic.Pointer[groupTopics]
	current atomic.Pointer[groupSettings]
}

type groupSettings struct {
	group.Config
	check time.Duration
}

// NewGroups starts with no shard; ctx carries values only, they live until Close.
func NewGroups(ctx context.Context, config GroupsConfig) *Groups {
	gs := &Groups{config: config}
	gs.topics.Store(&groupTopics{image: metadata.EmptyImage()})
	gs.Settle(metadata.EmptyImage())
	gs.shards = newShardSet(ctx, shardSetConfig{
		topic: messages.ConsumerOffsetsTopic, name: "groups", what: "groups", node: config.Node, replica: config.Replica,
		spawn: gs.shard, system: config.System, clock: config.Clock, log: config.Log,
	})
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
	var then any
	if gone {
		then = groupTopicsGone{}
	}
	gs.shards.apply(image, then)
}

// Settle takes the node's settings from an image.
func (gs *Groups) Settle(image *metadata.Image) {
	v := configs.BrokerValues(image.BrokerConfig(gs.config.Node), gs.config.Static)
	of := map[string]group.ConsumerConfig{}
	for name, own := range image.GroupConfigs() {
		own := configs.GroupValues(own, v)
		of[name] = group.ConsumerConfig{Session: own.Session, Interval: own.Heartbeat, Assignment: own.Assignment}
	}
	gs.current.Store(&groupSettings{
		Config: group.Config{
			SessionMin: v.Int64(configs.GroupMinSessionTimeout), SessionMax: v.Int64(configs.GroupMaxSessionTimeout),
			SizeMax: v.Int(configs.GroupMaxSize), InitialDelay: v.Int64(configs.GroupInitialRebalanceDelay),
			MetadataMax: v.Int(configs.OffsetMetadataMaxBytes), Retention: v.Int64(configs.OffsetsRetentionMinutes) * time.Minute.Milliseconds(),
			Consumer:        group.ConsumerConfig{Session: v.Int64(configs.ConsumerSessionTimeout), Interval: v.Int64(configs.ConsumerHeartbeatInterval), Assignment: v.Int64(configs.ConsumerAssignmentInterval)},
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
	child, err := gs.shards.of(req.GroupID())
	if err != nil {
		return groups.Refusal(req, err)
	}
	reply := make(chan groups.Answer, 1)
	gs.shards.send(child.pid, groupRequest{req: req, reply: reply})
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
	return listShards[groups.Listed](ctx, gs.shards)
}

// Close stops all shards and waits for their workers. It may be called twice.
func (gs *Groups) Close() error { return gs.shards.close() }

func (gs *Groups) shard(start shardStart) actor.Actor {
	return &groupShard{
		askedShard: newAskedShard[group.Ticket, groups.Request, groups.Answer, group.Write](start, gs.shards.config, groups.Refusal),
		owner:      gs,
	}
}
