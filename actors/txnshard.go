package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fsm/txn"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/txns"
	"kagami/persistence"
)

// txnIDTimeout bounds getting producer ids.
const txnIDTimeout = 10 * time.Second

type (
	txnRequest = shardRequest[txns.Request, txns.Answer]
	txnLoaded  = shardLoaded[*txn.Core]
	// txnIDs brings producer ids.
	txnIDs struct {
		attempt int64
		ids     []int64
		err     error
	}
)

// txnShard is the transaction coordinator of one partition of __transaction_state,
// on the node that leads it. What it knows is a replay of that partition's log. One
// append is on its way at a time; what is to be stored meanwhile becomes the next
// one. Markers are written beside it.
type txnShard struct {
	askedShard[txn.Ticket, txns.Request, txns.Answer, txn.Write]

	owner   *Txns
	core    *txn.Core // nil while loading
	asking  bool      // for producer ids
	began   int64     // to load, ms
	markers txnSender
}

// Receive handles one message; it never waits.
func (s *txnShard) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.load(c)
		s.age(c, s.owner.settings().check)
	case *actor.Stopping, *actor.Restarting:
		s.close()
	case txnRequest:
		s.request(c, m)
	case shardList[txns.Listed]:
		s.list(m)
	case txnLoaded:
		s.loaded(c, m)
	case shardReload:
		if m.attempt == s.attempt {
			s.load(c)
		}
	case shardStored:
		if m.attempt == s.attempt && s.storing != nil {
			s.stored(c, m)
		}
	case txnIDs:
		s.supplied(c, m)
	case txnMarked:
		s.marked(c, m)
	case txnMarkAgain:
		if m.attempt == s.attempt && s.core != nil {
			s.markAgain(c)
		}
	case shardTick:
		if m.attempt == s.attempt && s.core != nil {
			s.armed = 0
			s.perform(c, s.core.Tick(s.now()))
		}
	case shardExpire:
		s.expire(c)
		s.age(c, s.owner.settings().check)
	}
}

// forget drops what was loaded and all that is on its way.
func (s *txnShard) forget() {
	s.askedShard.forget()
	s.owner.counts.pending.Add(-int64(s.markers.pending))
	s.core, s.asking, s.markers = nil, false, txnSender{}
}

// load replays the log in a worker.
func (s *txnShard) load(c actor.Context) {
	s.forget()
	s.began = s.now()
	root, self, ctx, attempt, log, config := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.replica.Log(), s.owner.settings().Config
	s.helpers.Go(func() {
		end := log.End()
		core, n, err := replayTxns(ctx, log, end, config, s.epoch, s.log)
		reached(s.what, "load", "after")
		root.Send(self, txnLoaded{attempt: attempt, core: core, records: n, end: end, err: err})
	})
}

// replayTxns folds a log of __transaction_state up to end. A corrupt record is
// logged and left out; damage of the log itself is an error.
func replayTxns(ctx context.Context, log persistence.Log, end int64, config txn.Config, epoch int32, zl *zap.Logger) (*txn.Core, int, error) {
	core := txn.New(config, epoch)
	n, err := replayDecoded(ctx, log, end, "transactions", txns.Decode, core.Apply, zl)
	return core, n, err
}

func (s *txnShard) loaded(c actor.Context, m txnLoaded) {
	if !s.came(c, m.attempt, m.err) {
		return
	}
	s.core, s.end = m.core, m.end
	s.owner.counts.loaded(s.now() - s.began)
	s.log.Debug("transaction coordinator is ready", zap.Int("records", m.records), zap.Int("ids", m.core.Size()))
	s.perform(c, s.core.Loaded(s.now()))
}

// request hands a request to the core, or refuses it.
func (s *txnShard) request(c actor.Context, m txnRequest) {
	if err := s.refuses(c); err != nil {
		m.reply <- txns.Refusal(m.req, err)
		return
	}
	ticket := s.wait(m)
	s.core.SetConfig(s.owner.settings().Config)
	s.perform(c, s.core.Handle(s.now(), ticket, m.req))
}

func (s *txnShard) list(m shardList[txns.Listed]) {
	switch {
	case !s.replica.Leads():
		m.reply <- listed[txns.Listed]{}
	case s.core == nil:
		m.reply <- listed[txns.Listed]{err: fmt.Errorf("transactions of shard %d: %w", s.number, messages.ErrCoordinatorLoading)}
	default:
		m.reply <- listed[txns.Listed]{items: s.core.List()}
	}
}

func (s *txnShard) refuses(c actor.Context) error {
	if s.core != nil && s.moved() {
		s.drop(c, errLogMoved)
	}
	return s.askedShard.refuses(s.core != nil)
}

// perform does what the core wants: answers, appends, markers, producer ids and a
// timer.
func (s *txnShard) perform(c actor.Context, e txn.Effects) {
	s.answers(e.Replies)
	s.owner.counts.timedOut.Add(int64(e.TimedOut))
	s.queue = append(s.queue, e.Writes...)
	if e.NeedID {
		s.askIDs(c)
	}
	if len(e.Markers) > 0 {
		s.mark(c, e.Markers)
	}
	s.next(c)
	if s.core != nil {
		at, ok := s.core.Wake()
		s.arm(c, at, ok)
	}
}

// askIDs gets producer ids in a worker.
func (s *txnShard) askIDs(c actor.Context) {
	if s.asking {
		return
	}
	s.asking = true
	root, self, parent, attempt := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(parent, txnIDTimeout, messages.ErrTimedOut)
		defer cancel()
		ids, err := s.owner.config.ProducerIDs(ctx)
		root.Send(self, txnIDs{attempt: attempt, ids: ids, err: err})
	})
}

func (s *txnShard) supplied(c actor.Context, m txnIDs) {
	switch {
	case m.attempt != s.attempt || s.core == nil:
	case m.err != nil || len(m.ids) == 0:
		s.asking = false
		s.log.Warn("no producer id", zap.Error(m.err))
		s.perform(c, s.core.NoIDs(s.now(), fmt.Errorf("%w: no producer id", messages.ErrCoordinatorNotAvailable)))
	default:
		s.asking = false
		s.perform(c, s.core.Supply(s.now(), m.ids...))
	}
}

// next stores what waits, unless an append is on its way.
func (s *txnShard) next(c actor.Context) {
	if s.core == nil || s.storing != nil || len(s.queue) == 0 {
		return
	}
	millis := s.now()
	var records []batch.Record
	size, n := 0, 0
	for n < len(s.queue) && (n == 0 || size < shardWriteBytes) {
		key, value := txns.Encode(s.queue[n].Record)
		records = append(records, batch.Record{Timestamp: millis, Key: key, Value: value})
		size += len(key) + len(value)
		n++
	}
	batches := batch.Append(nil, batch.Plain(), records...)
	s.store(c, n, batches, storeOfTxn(s.queue[0]))
}

// stored takes the outcome of an append.
func (s *txnShard) stored(c actor.Context, m shardStored) {
	if m.err != nil {
		s.drop(c, m.err)
		return
	}
	done := s.storing
	s.storing, s.end = nil, m.end
	var all txn.Effects
	for _, w := range done {
		e := s.core.Stored(s.now(), w.ID)
		all.Replies, all.Writes, all.Markers = append(all.Replies, e.Replies...), append(all.Writes, e.Writes...), append(all.Markers, e.Markers...)
		all.NeedID, all.TimedOut = all.NeedID || e.NeedID, all.TimedOut+e.TimedOut
	}
	s.perform(c, all)
}

func (s *txnShard) answers(replies []txn.Reply) {
	for _, r := range replies {
		s.answer(r.Ticket, r.Answer)
	}
}

// drop forgets everything and reads the log again: nobody knows how much of an
// append that failed is in it.
func (s *txnShard) drop(c actor.Context, err error) {
	s.log.Error("transactions are read again", zap.Error(err))
	s.forget()
	s.refuseStored(err)
	if errors.Is(err, errLogMoved) {
		s.load(c)
		return
	}
	s.retryLoad(c)
}

func (s *txnShard) expire(c actor.Context) {
	if s.core != nil && s.replica.Leads() {
		s.core.SetConfig(s.owner.settings().Config)
		s.perform(c, s.core.Expire(s.now()))
	}
}

// close resigns: everything loaded is dropped with the actor.
func (s *txnShard) close() {
	s.resign()
	s.forget()
}
