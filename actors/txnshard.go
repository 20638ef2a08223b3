package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fsm/txn"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/txns"
	"kagami/persistence"
)

// Limits of a shard of transactions.
const (
	txnWriteBytes    = 1 << 20 // stored by one append, beyond the first write
	txnWaitMax       = 100_000 // requests that wait; more are refused
	txnAppendTimeout = 5 * time.Second
	txnIDTimeout     = 10 * time.Second
	txnReloadDelay   = time.Second
)

// Messages to a shard of transactions.
type (
	txnRequest struct {
		req   txns.Request
		reply chan<- txns.Answer // has room for it
	}
	txnLoaded struct {
		attempt int64
		core    *txn.Core
		records int
		end     int64
		err     error
	}
	txnStored struct {
		attempt int64
		end     int64
		err     error
	}
	txnIDs struct {
		attempt int64
		ids     []int64
		err     error
	}
	txnReload struct{ attempt int64 }
	txnTick   struct{ attempt int64 }
	txnExpire struct{}
)

// txnShard is the transaction coordinator of one partition of __transaction_state,
// on the node that leads it. What it knows is a replay of that partition's log. One
// append is on its way at a time; what is to be stored meanwhile becomes the next
// one. Markers are written beside it.
type txnShard struct {
	shardStart // whose context bounds the shard's workers, ended in Stopping

	owner *Txns
	clock clock.Clock

	cancel  context.CancelFunc
	attempt int64     // of loading; answers of an older one are dropped
	core    *txn.Core // nil while loading
	end     int64     // of the log, as far as core is a replay of it
	ticket  txn.Ticket
	waiting map[txn.Ticket]txnRequest
	queue   []txn.Write
	storing []txn.Write
	asking  bool // for producer ids
	markers txnSender
	armed   int64 // when the timer will tick, ms; 0 without one
	stop    func() bool
	stopAge func() bool
}

// Receive handles one message; it never waits.
func (s *txnShard) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.load(c)
		s.age(c)
	case *actor.Stopping, *actor.Restarting:
		s.close()
	case txnRequest:
		s.request(c, m)
	case shardList[txns.Listed]:
		s.list(m)
	case txnLoaded:
		s.loaded(c, m)
	case txnReload:
		if m.attempt == s.attempt {
			s.load(c)
		}
	case txnStored:
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
	case txnTick:
		if m.attempt == s.attempt && s.core != nil {
			s.armed = 0
			s.perform(c, s.core.Tick(s.now()))
		}
	case txnExpire:
		s.expire(c)
		s.age(c)
	}
}

func (s *txnShard) now() int64 { return s.clock.Now().UnixMilli() }

// forget drops what was loaded and all that is on its way.
func (s *txnShard) forget() {
	s.attempt++
	s.core, s.storing, s.queue, s.asking = nil, nil, nil, false
	s.markers = txnSender{}
}

// load replays the log in a worker.
func (s *txnShard) load(c actor.Context) {
	s.forget()
	root, self, ctx, attempt, log, config := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.replica.Log(), s.owner.settings().Config
	s.helpers.Go(func() {
		end := log.End()
		core, n, err := replayTxns(ctx, log, end, config, s.epoch, s.log)
		root.Send(self, txnLoaded{attempt: attempt, core: core, records: n, end: end, err: err})
	})
}

// replayTxns folds a log of __transaction_state up to end. A corrupt record is
// logged and left out; damage of the log itself is an error.
func replayTxns(ctx context.Context, log persistence.Log, end int64, config txn.Config, epoch int32, zl *zap.Logger) (*txn.Core, int, error) {
	core := txn.New(config, epoch)
	n, err := replayShard(ctx, log, end, func(rec batch.Record) {
		r, err := txns.Decode(rec.Key, rec.Value)
		if err != nil {
			zl.Error("transaction record is left out", zap.Int64(messages.FieldOffset, rec.Offset), zap.Error(err))
			return
		}
		core.Apply(r)
	})
	if err != nil {
		return nil, n, fmt.Errorf("transactions: %w", err)
	}
	return core, n, nil
}

func (s *txnShard) loaded(c actor.Context, m txnLoaded) {
	if m.attempt != s.attempt {
		return
	}
	if m.err != nil {
		if s.ctx.Err() == nil {
			s.log.Error("load transactions, will try again", zap.Error(m.err))
			s.retryLoad(c)
		}
		return
	}
	s.core, s.end = m.core, m.end
	s.log.Debug("transaction coordinator is ready", zap.Int("records", m.records), zap.Int("ids", m.core.Size()))
	s.perform(c, s.core.Loaded(s.now()))
}

func (s *txnShard) retryLoad(c actor.Context) {
	root, self, attempt := c.ActorSystem().Root, c.Self(), s.attempt
	s.clock.AfterFunc(txnReloadDelay, func() { root.Send(self, txnReload{attempt: attempt}) })
}

// request hands a request to the core, or refuses it.
func (s *txnShard) request(c actor.Context, m txnRequest) {
	if err := s.refuses(c); err != nil {
		m.reply <- txns.Refusal(m.req, err)
		return
	}
	s.ticket++
	s.waiting[s.ticket] = m
	s.core.SetConfig(s.owner.settings().Config)
	s.perform(c, s.core.Handle(s.now(), s.ticket, m.req))
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
	if s.core != nil && s.storing == nil && s.replica.Log().End() != s.end {
		s.drop(c, errTxnsMoved)
	}
	switch {
	case !s.replica.Leads():
		return fmt.Errorf("transactions of shard %d: %w", s.number, messages.ErrNotCoordinator)
	case s.core == nil:
		return fmt.Errorf("transactions of shard %d: %w", s.number, messages.ErrCoordinatorLoading)
	case len(s.waiting) >= txnWaitMax:
		return fmt.Errorf("transactions of shard %d: %d requests wait: %w", s.number, len(s.waiting), messages.ErrCoordinatorNotAvailable)
	}
	return nil
}

// perform does what the core wants: answers, appends, markers, producer ids and a
// timer.
func (s *txnShard) perform(c actor.Context, e txn.Effects) {
	s.answer(e.Replies)
	s.queue = append(s.queue, e.Writes...)
	if e.NeedID {
		s.askIDs(c)
	}
	if len(e.Markers) > 0 {
		s.mark(c, e.Markers)
	}
	s.next(c)
	s.arm(c)
}

// arm has the core called at its next deadline.
func (s *txnShard) arm(c actor.Context) {
	if s.core == nil {
		return
	}
	at, ok := s.core.Wake()
	if !ok || s.armed != 0 && s.armed <= at {
		return
	}
	if s.stop != nil {
		s.stop()
	}
	s.armed = at
	root, self, attempt := c.ActorSystem().Root, c.Self(), s.attempt
	s.stop = s.clock.AfterFunc(time.Duration(max(0, at-s.now()))*time.Millisecond, func() { root.Send(self, txnTick{attempt: attempt}) })
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
	for n < len(s.queue) && (n == 0 || size < txnWriteBytes) {
		key, value := txns.Encode(s.queue[n].Record)
		records = append(records, batch.Record{Timestamp: millis, Key: key, Value: value})
		size += len(key) + len(value)
		n++
	}
	batches := batch.Append(nil, batch.Plain(), records...)
	s.storing = append([]txn.Write(nil), s.queue[:n]...)
	s.queue = append(s.queue[:0:0], s.queue[n:]...)
	root, self, ctx, attempt, end := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.end
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, txnAppendTimeout, messages.ErrTimedOut)
		defer cancel()
		var info persistence.AppendInfo
		err := errTxnsMoved
		if s.replica.Log().End() == end {
			info, err = s.replica.AppendInternal(ctx, batches)
		}
		if err == nil && info.FirstOffset != end {
			err = errTxnsMoved
		}
		root.Send(self, txnStored{attempt: attempt, end: info.LastOffset + 1, err: err})
	})
}

// errTxnsMoved: the log has more than was replayed; an append that was given up has
// landed after all.
var errTxnsMoved = fmt.Errorf("more came into the log than is known: %w", messages.ErrCoordinatorLoading)

// stored takes the outcome of an append.
func (s *txnShard) stored(c actor.Context, m txnStored) {
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
		all.NeedID = all.NeedID || e.NeedID
	}
	s.perform(c, all)
}

func (s *txnShard) answer(replies []txn.Reply) {
	for _, r := range replies {
		if w, ok := s.waiting[r.Ticket]; ok {
			delete(s.waiting, r.Ticket)
			w.reply <- r.Answer
		}
	}
}

// drop forgets everything and reads the log again: nobody knows how much of an
// append that failed is in it.
func (s *txnShard) drop(c actor.Context, err error) {
	s.log.Error("transactions are read again", zap.Error(err))
	s.forget()
	s.refuseAll(txnRefusal(err))
	if errors.Is(err, errTxnsMoved) {
		s.load(c)
		return
	}
	s.retryLoad(c)
}

// txnRefusal is what clients are told of an append that failed: ask for the
// coordinator again, or later.
func txnRefusal(err error) error {
	switch {
	case errors.Is(err, messages.ErrCoordinatorLoading):
		return err
	case errors.Is(err, messages.ErrNotLeader), errors.Is(err, messages.ErrFencedLeaderEpoch), errors.Is(err, messages.ErrStorage), errors.Is(err, persistence.ErrStorage):
		return fmt.Errorf("append to %s: %w", messages.TransactionStateTopic, messages.ErrNotCoordinator)
	default:
		return fmt.Errorf("append to %s: %w", messages.TransactionStateTopic, messages.ErrCoordinatorNotAvailable)
	}
}

func (s *txnShard) refuseAll(err error) {
	for t, w := range s.waiting {
		delete(s.waiting, t)
		w.reply <- txns.Refusal(w.req, err)
	}
	if s.stop != nil {
		s.stop()
	}
	s.armed = 0
}

// age has unused ids looked for.
func (s *txnShard) age(c actor.Context) {
	root, self := c.ActorSystem().Root, c.Self()
	s.stopAge = s.clock.AfterFunc(s.owner.settings().check, func() { root.Send(self, txnExpire{}) })
}

func (s *txnShard) expire(c actor.Context) {
	if s.core != nil && s.replica.Leads() {
		s.core.SetConfig(s.owner.settings().Config)
		s.perform(c, s.core.Expire(s.now()))
	}
}

// close resigns: everything loaded is dropped with the actor.
func (s *txnShard) close() {
	s.cancel()
	s.refuseAll(messages.ErrNotCoordinator)
	if s.stopAge != nil {
		s.stopAge()
	}
	s.forget()
}
