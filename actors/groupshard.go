package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/fsm/group"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/groups"
	"kagami/messages/wire"
	"kagami/persistence"
)

type (
	groupRequest = shardRequest[groups.Request, groups.Answer]
	groupLoaded  = shardLoaded[*group.Core]
	// groupTopicsGone says that topics are gone.
	groupTopicsGone struct{}
)

// groupShard is the group coordinator of one partition of __consumer_offsets, on
// the node that leads it. What it knows is a replay of that partition's log, and
// members that are about to join. One append is on its way at a time; what is to be
// stored meanwhile becomes the next one.
type groupShard struct {
	askedShard[group.Ticket, groups.Request, groups.Answer, group.Write]

	owner *Groups
	core  *group.Core // nil while loading
}

// Receive handles one message; it never waits.
func (s *groupShard) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.load(c)
		s.age(c, s.owner.retentionCheck())
	case *actor.Stopping, *actor.Restarting:
		s.close()
	case groupRequest:
		s.request(c, m)
	case shardList[groups.Listed]:
		s.list(m)
	case groupLoaded:
		s.loaded(c, m)
	case shardReload:
		if m.attempt == s.attempt {
			s.load(c)
		}
	case shardStored:
		if m.attempt == s.attempt && s.storing != nil {
			s.stored(c, m)
		}
	case shardTick:
		if m.attempt == s.attempt && s.core != nil {
			s.armed = 0
			s.prepare()
			s.perform(c, s.core.Tick(s.now()))
		}
	case shardExpire:
		s.expire(c)
		s.age(c, s.owner.retentionCheck())
	case groupTopicsGone:
		s.topicsGone(c)
	}
}

// forget drops what was loaded and all that is on its way.
func (s *groupShard) forget() {
	s.askedShard.forget()
	s.core = nil
}

// load replays the log in a worker.
func (s *groupShard) load(c actor.Context) {
	s.forget()
	root, self, ctx, attempt, log, config := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.replica.Log(), s.owner.settings()
	s.helpers.Go(func() {
		end := log.End()
		core, n, err := replayGroups(ctx, log, end, config, s.log)
		reached(s.what, "load", "after")
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
	if !s.came(c, m.attempt, m.err) {
		return
	}
	s.core, s.end = m.core, m.end
	s.prepare()
	s.core.Loaded(s.now())
	s.log.Debug("group coordinator is ready", zap.Int("records", m.records), zap.Int("groups", m.core.Groups()))
	s.perform(c, group.Effects{})
	s.topicsGone(c)
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
	ticket := s.wait(m)
	s.prepare()
	s.perform(c, s.core.Handle(s.now(), ticket, freshID(), m.req))
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
	if s.core != nil && s.moved() {
		s.drop(c, errLogMoved)
	}
	return s.askedShard.refuses(s.core != nil)
}

// freshID is a random UUID.
func freshID() string {
	b := messages.NewTopicID()
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// perform does what the core wants: answers, appends, and a timer.
func (s *groupShard) perform(c actor.Context, e group.Effects) {
	s.answers(e.Replies)
	s.queue = append(s.queue, e.Writes...)
	s.next(c)
	if s.core != nil {
		at, ok := s.core.Wake()
		s.arm(c, at, ok)
	}
}

// next stores what waits, unless an append is on its way.
func (s *groupShard) next(c actor.Context) {
	if s.core == nil || s.storing != nil || len(s.queue) == 0 {
		return
	}
	millis := s.now()
	var batches []byte
	n := 0
	for n < len(s.queue) && (n == 0 || len(batches) < shardWriteBytes) {
		batches = appendGroupBatch(batches, s.queue[n], millis)
		n++
	}
	s.store(c, n, batches, storeOfGroup(s.queue[0]))
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

// stored takes the outcome of an append.
func (s *groupShard) stored(c actor.Context, m shardStored) {
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
		s.answers(e.Replies)
	}
	s.perform(c, group.Effects{})
}

func (s *groupShard) answers(replies []group.Reply) {
	for _, r := range replies {
		s.answer(r.Ticket, r.Answer)
	}
}

// drop forgets everything and reads the log again: nobody knows how much of an
// append that failed is in it. Members are those of the log then; who was about to
// join does so again.
func (s *groupShard) drop(c actor.Context, err error) {
	s.log.Error("groups are read again", zap.Error(err))
	s.forget()
	s.refuseStored(err)
	if errors.Is(err, errLogMoved) {
		s.load(c)
		return
	}
	s.retryLoad(c)
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
	s.resign()
	s.forget()
}
