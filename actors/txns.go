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

	"kagami/fsm/txn"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/txns"
	"kagami/persistence/metadata"
)

// TxnsConfig of NewTxns. All fields are required.
type TxnsConfig struct {
	System *actor.ActorSystem
	Node   messages.NodeID
	// Replica finds this node's replica of a partition of __transaction_state; an
	// error means that there is none (yet).
	Replica func(tp messages.TopicPartition) (StateReplica, error)
	// ProducerIDs gives ids that nobody else gets, at least one.
	ProducerIDs func(ctx context.Context) ([]int64, error)
	// WriteMarkers has a node write markers into partitions that it leads: one error
	// per partition, in order. A refusal wraps what [TxnMarkers.Write] says.
	WriteMarkers func(ctx context.Context, node messages.NodeID, markers []txns.Marker) ([]error, error)
	Static       map[string]string // settings of the node's file
	Clock        clock.Clock
	Log          *zap.Logger
}

// Txns are the transaction coordinators of a node: an actor for each partition of
// __transaction_state that the node leads.
type Txns struct {
	config  TxnsConfig
	pid     *actor.PID
	image   atomic.Pointer[metadata.Image]
	current atomic.Pointer[txnSettings]
	shards  atomic.Pointer[map[int32]txnChild] // replaced, never changed
	helpers sync.WaitGroup
	ctx     context.Context //nolint:containedctx // parent of the shards' contexts, ended by Close
	cancel  context.CancelFunc
	closed  atomic.Bool
}

type txnSettings struct {
	txn.Config
	check time.Duration
}

type txnChild struct {
	pid *actor.PID
	shardLife
	ctx    context.Context //nolint:containedctx // ends with the shard, for those who wait for it
	cancel context.CancelFunc
}

// txnsImage says that a new image has been carried out by the replicas.
type txnsImage struct{ image *metadata.Image }

// txnsTenure says that the node began or ended to lead a shard.
type txnsTenure struct{ number int32 }

// NewTxns starts with no shard; ctx carries values only, they live until Close.
func NewTxns(ctx context.Context, config TxnsConfig) *Txns {
	ts := &Txns{config: config}
	ts.image.Store(metadata.EmptyImage())
	ts.shards.Store(&map[int32]txnChild{})
	ts.Settle(metadata.EmptyImage())
	ts.ctx, ts.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ts.pid = config.System.Root.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		return &txnsParent{owner: ts, led: ledShards{
			topic: messages.TransactionStateTopic, node: config.Node, replica: config.Replica, log: config.Log, led: map[int32]ledShard{},
			tell: func(n int32) any { return txnsTenure{number: n} },
		}}
	}), "txns")
	return ts
}

// Apply takes an image that the replicas have carried out, in order. It doesn't
// block.
func (ts *Txns) Apply(image *metadata.Image) {
	ts.image.Store(image)
	ts.config.System.Root.Send(ts.pid, txnsImage{image: image})
}

// Settle takes the node's settings from an image.
func (ts *Txns) Settle(image *metadata.Image) {
	v := configs.BrokerValues(image.BrokerConfig(ts.config.Node), ts.config.Static)
	ts.current.Store(&txnSettings{
		Config: txn.Config{TimeoutMax: int32(v.Int(configs.TransactionMaxTimeout)), Expiration: v.Int64(configs.TransactionalIDExpiration)},
		check:  time.Duration(v.Int64(configs.TransactionalIDCheck)) * time.Millisecond,
	})
}

func (ts *Txns) settings() txnSettings { return *ts.current.Load() }

// Ask hands a request to the coordinator of its id, if that is here, and waits for
// the answer or for the end of ctx. A refusal is an answer. What has begun goes on
// when nobody waits any more.
func (ts *Txns) Ask(ctx context.Context, req txns.Request) txns.Answer {
	child, err := ts.shardOf(req.TransactionalID())
	if err != nil {
		return txns.Refusal(req, err)
	}
	reply := make(chan txns.Answer, 1)
	ts.config.System.Root.Send(child.pid, txnRequest{req: req, reply: reply})
	select {
	case a := <-reply:
		return a
	case <-child.ctx.Done():
		return txns.Refusal(req, messages.ErrNotCoordinator)
	case <-ctx.Done():
		return txns.Refusal(req, fmt.Errorf("ask the transaction coordinator: %w", messages.ErrTimedOut))
	}
}

// List is the ids that this node coordinates, in no order.
func (ts *Txns) List(ctx context.Context) ([]txns.Listed, error) {
	shards := *ts.shards.Load()
	reply := make(chan txnListed, len(shards))
	for _, child := range shards {
		ts.config.System.Root.Send(child.pid, txnList{reply: reply})
	}
	var out []txns.Listed
	for _, child := range shards {
		select {
		case l := <-reply:
			if l.err != nil {
				return nil, l.err
			}
			out = append(out, l.ids...)
		case <-child.ctx.Done():
			return nil, fmt.Errorf("list transactions: %w", messages.ErrCoordinatorNotAvailable)
		case <-ctx.Done():
			return nil, fmt.Errorf("list transactions: %w", messages.ErrTimedOut)
		}
	}
	return out, nil
}

func (ts *Txns) shardOf(id string) (txnChild, error) {
	image := ts.image.Load()
	t := image.Topic(messages.TransactionStateTopic)
	if t == nil || len(t.Partitions) == 0 {
		return txnChild{}, fmt.Errorf("%s doesn't exist yet: %w", messages.TransactionStateTopic, messages.ErrNotCoordinator)
	}
	n := messages.CoordinatorShard(id, int32(len(t.Partitions)))
	child, ok := (*ts.shards.Load())[n]
	switch {
	case ok:
		return child, nil
	case t.Partitions[n].Leader == ts.config.Node:
		return txnChild{}, fmt.Errorf("transactions of shard %d: %w", n, messages.ErrCoordinatorLoading) // led any moment
	default:
		return txnChild{}, fmt.Errorf("transactions of shard %d: %w", n, messages.ErrNotCoordinator)
	}
}

// Close stops all shards and waits for their workers. It may be called twice.
func (ts *Txns) Close() error {
	if ts.closed.Swap(true) {
		ts.helpers.Wait()
		return nil
	}
	err := ts.config.System.Root.StopFuture(ts.pid).Wait()
	ts.cancel()
	ts.helpers.Wait()
	if err != nil {
		return fmt.Errorf("stop transaction coordinators: %w", err)
	}
	return nil
}

// txnsParent starts and stops shards as leadership comes and goes.
type txnsParent struct {
	owner *Txns
	led   ledShards
}

// Receive handles one message.
func (p *txnsParent) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case txnsImage:
		seen := p.led.follow(c, m.image)
		for n := range p.shards() {
			p.shard(c, n)
		}
		for n := range seen {
			p.shard(c, n)
		}
	case txnsTenure:
		p.shard(c, m.number)
	case *actor.Stopping, *actor.Restarting:
		p.led.forget()
		for _, child := range p.shards() {
			child.cancel()
		}
		p.owner.shards.Store(&map[int32]txnChild{}) // children stop with their parent
	}
}

func (p *txnsParent) shards() map[int32]txnChild { return *p.owner.shards.Load() }

// shard runs while the node leads, anew in each tenure.
func (p *txnsParent) shard(c actor.Context, n int32) {
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

func (p *txnsParent) publish(n int32, child *txnChild) {
	next := maps.Clone(p.shards())
	delete(next, n)
	if child != nil {
		next[n] = *child
	}
	p.owner.shards.Store(&next)
}

func (p *txnsParent) spawn(c actor.Context, n int32, life shardLife, replica StateReplica) {
	config := p.owner.config
	child := txnChild{shardLife: life}
	child.ctx, child.cancel = context.WithCancel(p.owner.ctx)
	child.pid = c.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		s := &txnShard{
			number: n, epoch: life.epoch, replica: replica, owner: p.owner, waiting: map[txn.Ticket]txnRequest{}, clock: config.Clock,
			log: config.Log.Named("txns").With(zap.Int32("shard", n), zap.Int32(messages.FieldEpoch, life.epoch)), helpers: &p.owner.helpers,
		}
		s.ctx, s.cancel = context.WithCancel(child.ctx)
		return s
	}), fmt.Sprintf("txns-%d", n))
	p.publish(n, &child)
}
