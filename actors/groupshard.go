package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/fsm/group"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/groups"
	"kagami/messages/wire"
	"kagami/persistence"
)

// Limits of a shard of groups.
const (
	groupWriteBytes    = 1 << 20 // stored by one append, beyond the first write
	groupWaitMax       = 100_000 // requests that wait, most of them for a generation; more are refused
	groupAppendTimeout = 5 * time.Second
	groupReloadDelay   = time.Second
)

// Messages to a shard of groups.
type (
	groupRequest struct {
		req   groups.Request
		reply chan<- groups.Answer // has room for it
	}
	groupLoaded struct {
		attempt int64
		core    *group.Core
		records int
		end     int64
		err     error
	}
	groupStored struct {
		attempt int64
		end     int64
		err     error
	}
	groupReload struct{ attempt int64 }
	groupTick   struct{ attempt int64 }
	groupExpire struct{}
	// groupTopicsGone says that topics are gone.
	groupTopicsGone struct{}
)

// groupShard is the group coordinator of one partition of __consumer_offsets, on
// the node that leads it. What it knows is a replay of that partition's log, and
// members that are about to join. One append is on its way at a time; what is to be
// stored meanwhile becomes the next one.
type groupShard struct {
	shardStart // whose context bounds the shard's workers, ended in Stopping

	owner *Groups
	clock clock.Clock

	cancel  context.CancelFunc
	attempt int64       // of loading; answers of an older one are dropped
	core    *group.Core // nil while loading
	end     int64       // of the log, as far as core is a replay of it
	ticket  group.Ticket
	waiting map[group.Ticket]groupRequest
	queue   []group.Write
	storing []group.Write
	armed   int64 // when the timer will tick, ms; 0 without one
	stop    func() bool
	stopAge func() bool
}

// Receive handles one message; it never waits.
func (s *groupShard) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.load(c)
		s.age(c)
	case *actor.Stopping, *actor.Restarting:
		s.close()
	case groupRequest:
		s.request(c, m)
	case shardList[groups.Listed]:
		s.list(m)
	case groupLoaded:
		s.loaded(c, m)
	case groupReload:
		if m.attempt == s.attempt {
			s.load(c)
		}
	case groupStored:
		if m.attempt == s.attempt && s.storing != nil {
			s.stored(c, m)
		}
	case groupTick:
		if m.attempt == s.attempt && s.core != nil {
			s.armed = 0
			s.prepare()
			s.perform(c, s.core.Tick(s.now()))
		}
	case groupExpire:
		s.expire(c)
		s.age(c)
	case groupTopicsGone:
		s.topicsGone(c)
	}
}

func (s *groupShard) now() int64 { return s.clock.Now().UnixMilli() }

// load replays the log in a worker.
func (s *groupShard) load(c actor.Context) {
	s.attempt++
	s.core, s.storing, s.queue = nil, nil, nil
	root, self, ctx, attempt, log, config := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.replica.Log(), s.owner.settings()
	s.helpers.Go(func() {
		end := log.End()
		core, n, err := replayGroups(ctx, log, end, config, s.log)
		root.Send(self, groupLoaded{attempt: attempt, core: core, records: n, end: end, err: err})
	})
}

// replayGroups folds a log of __consumer_offsets up to end. A corrupt record is
// logged and left out; damage of the log itself is an error.
func replayGroups(ctx context.Context, log persistence.Log, end int64, config group.Config, zl *zap.Logger) (*group.Core, int, error) {
	core := group.New(config)
	n, err := replayBatches(ctx, log, end, func(h batch.Header, whole []byte) (int, error) {
		if h.IsControl() {
			replayGroupMarker(core, h, whole)
			return 0, nil
		}
		return eachRecord(whole, func(rec batch.Record) {
			r, err := wire.DecodeGroupRecord(rec.Key, rec.Value)
			switch {
			case err != nil:
				zl.Error("group record is left out", zap.Int64(messages.FieldOffset, rec.Offset), zap.Error(err))
			case h.IsTransactional():
				core.ApplyTxn(h.ProducerID, r)
			default:
				core.ApplyLoaded(r)
			}
		})
	})
	if err != nil {
		return nil, n, fmt.Errorf("groups: %w", err)
	}
	return core, n, nil
}

func (s *groupShard) loaded(c actor.Context, m groupLoaded) {
	if m.attempt != s.attempt {
		return
	}
	if m.err != nil {
		if s.ctx.Err() == nil {
			s.log.Error("load groups, will try again", zap.Error(m.err))
			s.retryLoad(c)
		}
		return
	}
	s.core, s.end = m.core, m.end
	s.prepare()
	s.core.Loaded(s.now())
	s.log.Debug("group coordinator is ready", zap.Int("records", m.records), zap.Int("groups", m.core.Groups()))
	s.perform(c, group.Effects{})
	s.topicsGone(c)
}

func (s *groupShard) retryLoad(c actor.Context) {
	root, self, attempt := c.ActorSystem().Root, c.Self(), s.attempt
	s.clock.AfterFunc(groupReloadDelay, func() { root.Send(self, groupReload{attempt: attempt}) })
}

// request hands a request to the core, or refuses it.
func (s *groupShard) request(c actor.Context, m groupRequest) {
	err := s.refuses(c)
	if err == nil {
		err = s.refusesTxn(m.req)
	}
	if err != nil {
		m.reply <- groups.Refusal(m.req, err)
		return
	}
	s.ticket++
	s.waiting[s.ticket] = m
	s.prepare()
	s.perform(c, s.core.Handle(s.now(), s.ticket, freshID(), m.req))
}

// prepare tells the core what it decides by.
func (s *groupShard) prepare() {
	s.core.SetConfig(s.owner.settings())
	s.core.SetTopics(s.owner.topics.Load())
}

func (s *groupShard) list(m shardList[groups.Listed]) {
	switch {
	case !s.replica.Leads():
		m.reply <- listed[groups.Listed]{}
	case s.core == nil:
		m.reply <- listed[groups.Listed]{err: fmt.Errorf("groups of shard %d: %w", s.number, messages.ErrCoordinatorLoading)}
	default:
		m.reply <- listed[groups.Listed]{items: s.core.List()}
	}
}

func (s *groupShard) refuses(c actor.Context) error {
	if s.core != nil && s.storing == nil && s.replica.Log().End() != s.end {
		s.drop(c, errGroupsMoved)
	}
	switch {
	case !s.replica.Leads():
		return fmt.Errorf("groups of shard %d: %w", s.number, messages.ErrNotCoordinator)
	case s.core == nil:
		return fmt.Errorf("groups of shard %d: %w", s.number, messages.ErrCoordinatorLoading)
	case len(s.waiting) >= groupWaitMax:
		return fmt.Errorf("groups of shard %d: %d requests wait: %w", s.number, len(s.waiting), messages.ErrCoordinatorNotAvailable)
	}
	return nil
}

// freshID is a random UUID.
func freshID() string {
	b := messages.NewTopicID()
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// perform does what the core wants: answers, appends, and a timer.
func (s *groupShard) perform(c actor.Context, e group.Effects) {
	s.answer(e.Replies)
	s.queue = append(s.queue, e.Writes...)
	s.next(c)
	s.arm(c)
}

// arm has the core called at its next deadline.
func (s *groupShard) arm(c actor.Context) {
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
	s.stop = s.clock.AfterFunc(time.Duration(max(0, at-s.now()))*time.Millisecond, func() { root.Send(self, groupTick{attempt: attempt}) })
}

// next stores what waits, unless an append is on its way.
func (s *groupShard) next(c actor.Context) {
	if s.core == nil || s.storing != nil || len(s.queue) == 0 {
		return
	}
	millis := s.now()
	var batches []byte
	n := 0
	for n < len(s.queue) && (n == 0 || len(batches) < groupWriteBytes) {
		batches = appendGroupBatch(batches, s.queue[n], millis)
		n++
	}
	s.storing = append([]group.Write(nil), s.queue[:n]...)
	s.queue = append(s.queue[:0:0], s.queue[n:]...)
	root, self, ctx, attempt, end := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.end
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, groupAppendTimeout, messages.ErrTimedOut)
		defer cancel()
		var info persistence.AppendInfo
		err := errGroupsMoved
		if s.replica.Log().End() == end {
			info, err = s.replica.AppendInternal(ctx, batches)
		}
		if err == nil && info.FirstOffset != end {
			err = errGroupsMoved
		}
		root.Send(self, groupStored{attempt: attempt, end: info.LastOffset + 1, err: err})
	})
}

// appendGroupBatch is one batch of the records of one write.
func appendGroupBatch(dst []byte, w group.Write, millis int64) []byte {
	if w.Marker != nil {
		return append(dst, cluster.MarkerBatch(*w.Marker, millis)...)
	}
	out := make([]batch.Record, 0, len(w.Records))
	for _, r := range w.Records {
		key, value := wire.EncodeGroupRecord(r)
		out = append(out, batch.Record{Timestamp: millis, Key: key, Value: value})
	}
	return batch.Append(dst, groupBatchProps(w), out...)
}

// errGroupsMoved: the log has more than was replayed; an append that was given up
// has landed after all.
var errGroupsMoved = fmt.Errorf("more came into the log than is known: %w", messages.ErrCoordinatorLoading)

// stored takes the outcome of an append.
func (s *groupShard) stored(c actor.Context, m groupStored) {
	if m.err != nil {
		s.drop(c, m.err)
		return
	}
	done := s.storing
	s.storing, s.end = nil, m.end
	s.prepare()
	for _, w := range done {
		e := s.core.Stored(s.now(), w.ID)
		s.queue = append(s.queue, e.Writes...)
		s.answer(e.Replies)
	}
	s.perform(c, group.Effects{})
}

func (s *groupShard) answer(replies []group.Reply) {
	for _, r := range replies {
		if w, ok := s.waiting[r.Ticket]; ok {
			delete(s.waiting, r.Ticket)
			w.reply <- r.Answer
		}
	}
}

// drop forgets everything and reads the log again: nobody knows how much of an
// append that failed is in it. Members are those of the log then; who was about to
// join does so again.
func (s *groupShard) drop(c actor.Context, err error) {
	s.log.Error("groups are read again", zap.Error(err))
	s.attempt++
	s.core, s.storing, s.queue = nil, nil, nil
	s.refuseAll(groupRefusal(err))
	if errors.Is(err, errGroupsMoved) {
		s.load(c)
		return
	}
	s.retryLoad(c)
}

// groupRefusal is what clients are told of an append that failed: ask for the
// coordinator again, or later.
func groupRefusal(err error) error {
	switch {
	case errors.Is(err, messages.ErrCoordinatorLoading):
		return err
	case errors.Is(err, messages.ErrNotLeader), errors.Is(err, messages.ErrFencedLeaderEpoch), errors.Is(err, messages.ErrStorage), errors.Is(err, persistence.ErrStorage):
		return fmt.Errorf("append to %s: %w", messages.ConsumerOffsetsTopic, messages.ErrNotCoordinator)
	default:
		return fmt.Errorf("append to %s: %w", messages.ConsumerOffsetsTopic, messages.ErrCoordinatorNotAvailable)
	}
}

func (s *groupShard) refuseAll(err error) {
	for t, w := range s.waiting {
		delete(s.waiting, t)
		w.reply <- groups.Refusal(w.req, err)
	}
	if s.stop != nil {
		s.stop()
	}
	s.armed = 0
}

// age has old offsets looked for.
func (s *groupShard) age(c actor.Context) {
	root, self := c.ActorSystem().Root, c.Self()
	s.stopAge = s.clock.AfterFunc(s.owner.retentionCheck(), func() { root.Send(self, groupExpire{}) })
}

func (s *groupShard) expire(c actor.Context) {
	if s.core != nil && s.replica.Leads() {
		s.prepare()
		s.perform(c, s.core.Expire(s.now()))
	}
}

func (s *groupShard) topicsGone(c actor.Context) {
	if s.core != nil && s.replica.Leads() {
		image := s.owner.topics.Load().image
		s.perform(c, s.core.TopicsGone(func(topic string) bool { return image.Topic(topic) != nil }))
	}
}

// close resigns: everything loaded is dropped with the actor.
func (s *groupShard) close() {
	s.cancel()
	s.refuseAll(messages.ErrNotCoordinator)
	if s.stopAge != nil {
		s.stopAge()
	}
	s.core, s.storing, s.queue = nil, nil, nil
}
