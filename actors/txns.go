package actors

import (
	"context"
	"fmt"
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
	shards  *shardSet
	current atomic.Pointer[txnSettings]
	counts  txnCounts
}

// txnCounts are since the start, but for pending; all shards add to them.
type txnCounts struct {
	timedOut, pending, loads, loadMillis, loadMillisMax atomic.Int64
}

// TxnCounts are what [Txns] has done since its start.
type TxnCounts struct {
	TimedOut int64 // transactions that were aborted because they lasted too long
	Pending  int64 // markers that aren't written yet, at this moment, by partition
	// Loads of shards, how long they took in all, and the longest, ms.
	Loads, LoadMillis, LoadMillisMax int64
}

// Counts are those of this node.
func (ts *Txns) Counts() TxnCounts {
	c := &ts.counts
	return TxnCounts{
		TimedOut: c.timedOut.Load(), Pending: c.pending.Load(), Loads: c.loads.Load(), LoadMillis: c.loadMillis.Load(), LoadMillisMax: c.loadMillisMax.Load(),
	}
}

func (c *txnCounts) loaded(millis int64) {
	c.loads.Add(1)
	c.loadMillis.Add(millis)
	for {
		longest := c.loadMillisMax.Load()
		if millis <= longest || c.loadMillisMax.CompareAndSwap(longest, millis) {
			return
		}
	}
}

type txnSettings struct {
	txn.Config
	check time.Duration
}

// NewTxns starts with no shard; ctx carries values only, they live until Close.
func NewTxns(ctx context.Context, config TxnsConfig) *Txns {
	ts := &Txns{config: config}
	ts.Settle(metadata.EmptyImage())
	ts.shards = newShardSet(ctx, shardSetConfig{
		topic: messages.TransactionStateTopic, name: "txns", what: "transactions", node: config.Node, replica: config.Replica,
		spawn: ts.shard, system: config.System, clock: config.Clock, log: config.Log,
	})
	return ts
}

// Apply takes an image that the replicas have carried out, in order. It doesn't
// block.
func (ts *Txns) Apply(image *metadata.Image) { ts.shards.apply(image, nil) }

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
	child, err := ts.shards.of(req.TransactionalID())
	if err != nil {
		return txns.Refusal(req, err)
	}
	reply := make(chan txns.Answer, 1)
	ts.shards.send(child.pid, txnRequest{req: req, reply: reply})
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
	return listShards[txns.Listed](ctx, ts.shards)
}

// Close stops all shards and waits for their workers. It may be called twice.
func (ts *Txns) Close() error { return ts.shards.close() }

func (ts *Txns) shard(start shardStart) actor.Actor {
	return &txnShard{
		askedShard: newAskedShard[txn.Ticket, txns.Request, txns.Answer, txn.Write](start, ts.shards.config, txns.Refusal),
		owner:      ts,
	}
}
