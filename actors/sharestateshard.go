package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fsm/sharestate"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/groups"
	"kagami/messages/wire"
	"kagami/persistence"
)

type (
	shareRequest = shardRequest[groups.ShareStates, *groups.ShareStated]
	shareLoaded  = shardLoaded[*sharestate.Core]
)

// shareStateShard is the coordinator of one partition of __share_group_state, on the
// node that leads it. What it knows is a replay of that partition's log.
type shareStateShard struct {
	askedShard[sharestate.Ticket, groups.ShareStates, *groups.ShareStated, sharestate.Write]

	owner *ShareGroups
	core  *sharestate.Core // nil while loading
}

func refuseShareStates(_ groups.ShareStates, err error) *groups.ShareStated {
	return &groups.ShareStated{Err: err}
}

// Receive handles one message; it never waits.
func (s *shareStateShard) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.load(c)
	case *actor.Stopping, *actor.Restarting:
		s.resign()
		s.forget()
	case shareRequest:
		s.request(c, m)
	case shareLoaded:
		s.loaded(c, m)
	case shardReload:
		if m.attempt == s.attempt {
			s.load(c)
		}
	case shardStored:
		if m.attempt == s.attempt && s.storing != nil {
			s.stored(c, m)
		}
	case groupTopicsGone:
		s.topicsGone(c)
	}
}

func (s *shareStateShard) forget() {
	s.askedShard.forget()
	s.core = nil
}

// load replays the log in a worker.
func (s *shareStateShard) load(c actor.Context) {
	s.forget()
	root, self, ctx, attempt, log := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.replica.Log()
	s.helpers.Go(func() {
		end := log.End()
		core, n, err := replayShareStates(ctx, log, end, s.epoch, s.log)
		root.Send(self, shareLoaded{attempt: attempt, core: core, records: n, end: end, err: err})
	})
}

// replayShareStates folds a log of __share_group_state up to end. A corrupt record is
// logged and left out; damage of the log itself is an error.
func replayShareStates(ctx context.Context, log persistence.Log, end int64, epoch int32, zl *zap.Logger) (*sharestate.Core, int, error) {
	core := sharestate.New(epoch)
	n, err := replayDecoded(ctx, log, end, "share states", wire.DecodeShareRecord, core.Apply, zl)
	return core, n, err
}

func (s *shareStateShard) loaded(c actor.Context, m shareLoaded) {
	if !s.came(c, m.attempt, m.err) {
		return
	}
	s.core, s.end = m.core, m.end
	s.log.Debug("coordinator of share states is ready", zap.Int("records", m.records), zap.Int("states", m.core.Len()))
	s.topicsGone(c)
}

func (s *shareStateShard) request(c actor.Context, m shareRequest) {
	if s.core != nil && s.moved() {
		s.drop(c, errLogMoved)
	}
	if err := s.refuses(s.core != nil); err != nil {
		m.reply <- refuseShareStates(m.req, err)
		return
	}
	s.perform(c, s.core.Handle(s.now(), s.wait(m), m.req))
}

func (s *shareStateShard) perform(c actor.Context, e sharestate.Effects) {
	for _, r := range e.Replies {
		s.answer(r.Ticket, r.Answer)
	}
	s.queue = append(s.queue, e.Writes...)
	if s.core == nil || s.storing != nil || len(s.queue) == 0 {
		return
	}
	millis := s.now()
	var batches []byte
	n := 0
	for n < len(s.queue) && (n == 0 || len(batches) < shardWriteBytes) {
		records := make([]batch.Record, 0, len(s.queue[n].Records))
		for _, r := range s.queue[n].Records {
			key, value := wire.EncodeShareRecord(r)
			records = append(records, batch.Record{Timestamp: millis, Key: key, Value: value})
		}
		batches = batch.Append(batches, batch.Plain(), records...)
		n++
	}
	s.store(c, n, batches, "append")
}

// stored takes the outcome of an append.
func (s *shareStateShard) stored(c actor.Context, m shardStored) {
	if m.err != nil {
		s.drop(c, m.err)
		return
	}
	done := s.storing
	s.storing, s.end = nil, m.end
	var all sharestate.Effects
	for _, w := range done {
		e := s.core.Stored(w.ID)
		all.Replies = append(all.Replies, e.Replies...)
	}
	s.perform(c, all)
}

// drop forgets everything and reads the log again: nobody knows how much of an append
// that failed is in it.
func (s *shareStateShard) drop(c actor.Context, err error) {
	s.log.Error("share states are read again", zap.Error(err))
	s.forget()
	s.refuseStored(err)
	if errors.Is(err, errLogMoved) {
		s.load(c)
		return
	}
	s.retryLoad(c)
}

func (s *shareStateShard) topicsGone(c actor.Context) {
	if s.core != nil && s.replica.Leads() {
		image := s.owner.states.image.Load()
		s.perform(c, s.core.TopicsGone(func(id messages.TopicID) bool { return image.TopicByID(id) != nil }))
	}
}
