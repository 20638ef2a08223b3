package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// StateReplica is the replica of one partition of __mirror_state on the node
// that leads it. *cluster.Replica is one.
type StateReplica interface {
	Log() persistence.Log
	// AppendInternal stores whole batches in one operation, durably.
	AppendInternal(ctx context.Context, batches []byte) (persistence.AppendInfo, error)
	// Leads: this node has claimed the partition and still holds it.
	Leads() bool
	// Tenure is odd while it leads, and another number after each change of that;
	// Watch tells of those.
	Tenure() uint64
	Watch(f func()) (cancel func())
}

// StateServer answers the requests of one shard. *cluster.Bus is one.
type StateServer interface {
	MirrorRead(shard, epoch int32) string
	MirrorWrite(shard, epoch int32) string
	Serve(subject string, h func(ctx context.Context, payload []byte) []byte) (stop func(), err error)
}

// Limits of a shard.
const (
	stateGroupMax      = 5000            // partitions stored by one append
	stateQueueMax      = 4096            // requests that wait; more are refused
	stateAppendTimeout = 5 * time.Second // states.md, "Writing a state"
	stateReloadDelay   = time.Second     // before a failed replay is tried again
)

// Messages to a coordinator shard.
type (
	// coordinatorRequest is a body of WriteMirrorStates or ReadMirrorStates; the
	// answer's body goes to reply, which has room for it.
	coordinatorRequest struct {
		write bool
		body  []byte
		reply chan<- []byte
	}
	coordinatorLoaded struct {
		attempt int64
		shard   *fsm.Shard
		records int
		end     int64
		err     error
	}
	coordinatorStored struct {
		attempt int64
		info    persistence.AppendInfo
		err     error
	}
	coordinatorReload struct{ attempt int64 }
	// coordinatorImage says that mirrors or topics may be gone.
	coordinatorImage struct{}
)

// coordinator is one shard: the leader of __mirror_state-n. What it knows is a
// replay of that partition's log. One append is on its way at a time; requests
// that arrive meanwhile become the next one (group commit), and are answered when
// their records are stored.
type coordinator struct {
	number  int32
	epoch   int32 // of the leadership
	replica StateReplica
	server  StateServer
	image   func() *metadata.Image
	clock   clock.Clock
	log     *zap.Logger
	helpers *sync.WaitGroup

	ctx     context.Context //nolint:containedctx // bounds the shard's workers, ended in Stopping
	cancel  context.CancelFunc
	attempt int64      // of loading; answers of an older one are dropped
	shard   *fsm.Shard // nil while loading
	end     int64      // of the log, as far as shard is a replay of it
	queue   []pendingRequest
	reads   []pendingRead // arrived while a group was on its way
	storing *stateGroup
	tidy    bool // the image changed, look for what is gone
}

type pendingRequest struct {
	req    *wire.WriteMirrorStatesRequest
	writes []fsm.Write
	reply  chan<- []byte
}

type pendingRead struct {
	req   *wire.ReadMirrorStatesRequest
	reply chan<- []byte
}

// stateGroup is what one append stores.
type stateGroup struct {
	plan     fsm.Plan
	requests []pendingRequest // answered with the plan's answers, in order
}

// Receive handles one message; it never waits.
func (s *coordinator) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.serve(c)
		s.load(c)
	case *actor.Stopping, *actor.Restarting:
		s.close()
	case coordinatorRequest:
		s.request(c, m)
	case coordinatorLoaded:
		s.loaded(c, m)
	case coordinatorReload:
		if m.attempt == s.attempt {
			s.load(c)
		}
	case coordinatorStored:
		if m.attempt == s.attempt && s.storing != nil {
			s.stored(c, m.info, m.err)
		}
	case coordinatorImage:
		s.tidy = true
		s.next(c)
	}
}

// serve answers on the bus from the first moment: while the replay runs, with
// COORDINATOR_LOAD_IN_PROGRESS.
func (s *coordinator) serve(c actor.Context) {
	root, self, ctx := c.ActorSystem().Root, c.Self(), s.ctx
	handler := func(write bool) func(context.Context, []byte) []byte {
		return func(reqCtx context.Context, body []byte) []byte {
			reply := make(chan []byte, 1)
			root.Send(self, coordinatorRequest{write: write, body: body, reply: reply})
			select {
			case out := <-reply:
				return out
			case <-reqCtx.Done():
			case <-ctx.Done():
			}
			return nil // the asking side repeats
		}
	}
	s.helpers.Go(func() {
		for _, sub := range []struct {
			subject string
			write   bool
		}{{s.server.MirrorRead(s.number, s.epoch), false}, {s.server.MirrorWrite(s.number, s.epoch), true}} {
			stop, err := s.server.Serve(sub.subject, handler(sub.write))
			if err != nil {
				s.log.Error("serve mirror states", zap.String("subject", sub.subject), zap.Error(err))
				continue
			}
			defer stop()
		}
		<-ctx.Done()
	})
}

// load replays the log in a worker.
func (s *coordinator) load(c actor.Context) {
	s.attempt++
	s.shard, s.storing = nil, nil
	root, self, ctx, attempt, log := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.replica.Log()
	ticket := s.clock.Now().UnixNano() // another one for each load: two never take less than a nanosecond
	s.helpers.Go(func() {
		end := log.End()
		shard, n, err := replayStates(ctx, log, end, ticket, s.log)
		root.Send(self, coordinatorLoaded{attempt: attempt, shard: shard, records: n, end: end, err: err})
	})
}

// replayStates folds a log of __mirror_state up to end. A corrupt record is logged and
// left out; damage of the log itself is an error.
func replayStates(ctx context.Context, log persistence.Log, end, ticket int64, zl *zap.Logger) (*fsm.Shard, int, error) {
	shard := fsm.NewShard(ticket)
	n, err := replayShard(ctx, log, end, func(rec batch.Record) {
		r, err := decodeStateRecord(rec)
		if err == nil {
			err = shard.Apply(r)
		}
		if err != nil {
			zl.Error("mirror state record is left out", zap.Int64(messages.FieldOffset, rec.Offset), zap.Error(err))
		}
	})
	if err != nil {
		return nil, n, fmt.Errorf("mirror states: %w", err)
	}
	return shard, n, nil
}

func (s *coordinator) loaded(c actor.Context, m coordinatorLoaded) {
	if m.attempt != s.attempt {
		return
	}
	if m.err != nil {
		if s.ctx.Err() == nil {
			s.log.Error("load mirror states, will try again", zap.Error(m.err))
			s.retryLoad(c)
		}
		return
	}
	s.shard, s.end, s.tidy = m.shard, m.end, true
	s.log.Debug("coordinator is ready", zap.Int("records", m.records), zap.Int("mirrors", len(m.shard.Mirrors())))
	s.next(c)
}

func (s *coordinator) retryLoad(c actor.Context) {
	root, self, attempt := c.ActorSystem().Root, c.Self(), s.attempt
	s.clock.AfterFunc(stateReloadDelay, func() { root.Send(self, coordinatorReload{attempt: attempt}) })
}

// compare loads again when an append that was given up has landed after all: nothing
// may be decided on less than the log has.
func (s *coordinator) compare(c actor.Context) {
	if s.shard != nil && s.storing == nil && s.replica.Log().End() != s.end {
		s.log.Warn("more came into the log than is known, reading it again")
		for _, r := range s.queue {
			r.reply <- writeRefusal(r.req, fmt.Errorf("shard %d: %w", s.number, messages.ErrCoordinatorLoading))
		}
		s.queue = nil
		s.load(c)
	}
}

// request answers a read from what is stored, and queues a write.
func (s *coordinator) request(c actor.Context, m coordinatorRequest) {
	s.compare(c)
	if m.write {
		req := wire.NewPtrWriteMirrorStatesRequest()
		if err := req.ReadFrom(m.body); err != nil {
			resp := wire.NewWriteMirrorStatesResponse()
			text := err.Error()
			resp.ErrorCode, resp.ErrorMessage = kafkaInvalidRequest, &text
			m.reply <- resp.AppendTo(nil)
			return
		}
		switch err := s.refuses(); {
		case err != nil:
			m.reply <- writeRefusal(req, err)
		default:
			s.queue = append(s.queue, pendingRequest{req: req, writes: writesOf(req, s.lives()), reply: m.reply})
			s.next(c)
		}
		return
	}
	req := wire.NewPtrReadMirrorStatesRequest()
	if err := req.ReadFrom(m.body); err != nil {
		resp := wire.NewReadMirrorStatesResponse()
		text := err.Error()
		resp.ErrorCode, resp.ErrorMessage = kafkaInvalidRequest, &text
		m.reply <- resp.AppendTo(nil)
		return
	}
	if s.storing != nil {
		// That group was planned before this read: its records come first.
		s.reads = append(s.reads, pendingRead{req: req, reply: m.reply})
		return
	}
	s.read(req, m.reply)
}

func (s *coordinator) read(req *wire.ReadMirrorStatesRequest, reply chan<- []byte) {
	err := s.refuses()
	if err != nil {
		reply <- readAnswer(req, nil, 0, err)
		return
	}
	lives := s.lives()
	reply <- readAnswer(req, func(tp messages.TopicPartition, epoch int32, number int64) messages.PartitionState {
		created, ok := lives(tp.Topic)
		if !ok {
			created = messages.NoOffset
		}
		return s.shard.Read(req.MirrorName, tp, created, epoch, number)
	}, s.shard.Ticket(), nil)
}

func (s *coordinator) answerReads() {
	reads := s.reads
	s.reads = nil
	for _, r := range reads {
		s.read(r.req, r.reply)
	}
}

func (s *coordinator) refuses() error {
	switch {
	case !s.replica.Leads():
		return fmt.Errorf("shard %d: %w", s.number, messages.ErrNotCoordinator)
	case s.shard == nil:
		return fmt.Errorf("shard %d: %w", s.number, messages.ErrCoordinatorLoading)
	case len(s.queue) >= stateQueueMax:
		return fmt.Errorf("shard %d has %d requests waiting: %w", s.number, len(s.queue), messages.ErrTimedOut)
	}
	return nil
}

// lives tells a topic's life by the newest image.
func (s *coordinator) lives() fsm.Lives {
	image := s.image()
	return func(topic string) (int64, bool) {
		t := image.Topic(topic)
		if t == nil {
			return messages.NoOffset, false
		}
		return t.CreatedAt, true
	}
}

// next stores the next group, unless one is on its way: first what is gone, then
// what waits.
func (s *coordinator) next(c actor.Context) {
	for s.shard != nil && s.storing == nil {
		if s.compare(c); s.shard == nil {
			return
		}
		switch {
		case s.tidy:
			s.tidy = false
			s.store(c, stateGroup{plan: s.gone()})
		case len(s.queue) > 0:
			s.store(c, s.takeGroup())
		default:
			return
		}
	}
}

// gone plans tombstones of deleted mirrors and drops what deleted topics left.
func (s *coordinator) gone() fsm.Plan {
	image := s.image()
	var plan fsm.Plan
	for _, mirror := range s.shard.Stale(func(name string) bool { return image.Mirror(name) != nil }) {
		plan.Records = append(plan.Records, s.shard.PlanDeleteMirror(mirror, "mirror deleted").Records...)
	}
	if len(plan.Records) > 0 {
		s.tidy = true // topics after the tombstones are stored
		return plan
	}
	return s.shard.PlanForget(s.lives(), "topic deleted")
}

func (s *coordinator) takeGroup() stateGroup {
	var g stateGroup
	var writes []fsm.Write
	n := 0
	for _, r := range s.queue {
		if n > 0 && len(writes)+len(r.writes) > stateGroupMax {
			break
		}
		writes = append(writes, r.writes...)
		n++
	}
	g.requests = append(g.requests, s.queue[:n]...)
	s.queue = append(s.queue[:0:0], s.queue[n:]...)
	g.plan = s.shard.Plan(writes)
	return g
}

// store appends a group's records, or answers at once where none are due.
func (s *coordinator) store(c actor.Context, g stateGroup) {
	s.storing = &g
	if len(g.plan.Records) == 0 {
		s.finish(nil)
		s.answerReads()
		return
	}
	millis := s.clock.Now().UnixMilli()
	var batches []byte
	for _, r := range g.plan.Records {
		b, err := encodeStateRecord(r, millis)
		if err != nil {
			s.finish(err)
			s.answerReads()
			return
		}
		batches = append(batches, b...)
	}
	root, self, ctx, attempt, end := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.end
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, stateAppendTimeout, messages.ErrTimedOut)
		defer cancel()
		reached("coordinator", "append", "before")
		var info persistence.AppendInfo
		err := errStatesMoved
		if s.replica.Log().End() == end {
			info, err = s.replica.AppendInternal(ctx, batches)
		}
		reached("coordinator", "append", "after")
		if err == nil && info.FirstOffset != end {
			err = errStatesMoved
		}
		root.Send(self, coordinatorStored{attempt: attempt, info: info, err: err})
	})
}

// errStatesMoved: an append that was given up has landed after all, so the log has
// more than was replayed.
var errStatesMoved = fmt.Errorf("more came into the log than is known: %w", messages.ErrCoordinatorLoading)

// stored takes the outcome of an append. After a failure nobody knows how much
// of the group is in the log, so the log is read again.
func (s *coordinator) stored(c actor.Context, info persistence.AppendInfo, err error) {
	s.finish(err)
	if err == nil {
		s.end = info.LastOffset + 1
		s.answerReads()
		s.next(c)
		return
	}
	s.log.Error("append mirror states, reading them again", zap.Error(err))
	for _, r := range s.queue {
		r.reply <- writeRefusal(r.req, fmt.Errorf("shard %d: %w", s.number, messages.ErrCoordinatorLoading))
	}
	s.queue = nil
	s.attempt++
	s.shard = nil
	s.answerReads()
	s.retryLoad(c)
}

// finish commits the group, or not, and answers its requests.
func (s *coordinator) finish(err error) {
	g := s.storing
	s.storing = nil
	if err == nil {
		s.shard.Commit(g.plan)
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = fmt.Errorf("append mirror states: %w", messages.ErrTimedOut)
	}
	answers := g.plan.Answers
	for _, r := range g.requests {
		if err != nil {
			r.reply <- writeRefusal(r.req, err)
			continue
		}
		r.reply <- writeAnswer(r.req, answers[:len(r.writes)])
		answers = answers[len(r.writes):]
		reached("coordinator", "answer", "after")
	}
}

// close resigns: everything loaded is dropped with the actor.
func (s *coordinator) close() {
	s.cancel()
	for _, r := range s.queue {
		r.reply <- writeRefusal(r.req, messages.ErrNotCoordinator)
	}
	if s.storing != nil {
		for _, r := range s.storing.requests {
			r.reply <- writeRefusal(r.req, messages.ErrNotCoordinator)
		}
	}
	for _, r := range s.reads {
		r.reply <- readAnswer(r.req, nil, 0, messages.ErrNotCoordinator)
	}
	s.queue, s.reads, s.storing, s.shard = nil, nil, nil, nil
}
