package audit

import (
	"fmt"

	"kagami/actors"
	"kagami/fsm"
	"kagami/messages"
	"kagami/messages/batch"
)

// states folds the mirror's partition of __mirror_state.
type states struct {
	mirror string
	shard  *fsm.Shard
	since  map[messages.TopicPartition]int64 // when it entered its state, ms
	others map[string]struct{}               // names of mirrors met, this one too

	unreadable      int // records of which not even the mirror is known
	firstUnreadable error

	frozen *states // as it was at the time that was asked for
}

func newStates(mirror string) *states {
	return &states{
		mirror: mirror, shard: fsm.NewShard(0), since: map[messages.TopicPartition]int64{}, others: map[string]struct{}{},
	}
}

// freeze keeps the state as it is. What follows is folded apart: it only tells
// when the mirror's history begins.
func (s *states) freeze() {
	s.frozen = &states{mirror: s.mirror, shard: s.shard, since: s.since}
	s.shard, s.since = fsm.NewShard(0), map[messages.TopicPartition]int64{}
}

// take folds one batch and returns what it tells of the mirror. Records that
// can't be read count as unknown, as a coordinator has it.
func (s *states) take(b []byte) ([]Event, error) {
	var out []Event
	for rec, err := range batch.Records(b) {
		if err != nil {
			return out, err
		}
		r, err := actors.DecodeStateRecord(rec)
		if err != nil {
			out = append(out, s.damaged(rec, r.Mirror, err)...)
			continue
		}
		s.others[r.Mirror] = struct{}{}
		if r.Mirror != s.mirror {
			continue
		}
		at := newEvent("", LogStates, s.mirror, rec.Timestamp, rec.Offset)
		at.Cause, at.By.Principal, at.By.RequestID = r.Cause, r.Principal, r.RequestID
		switch r.Kind {
		case fsm.RecordState:
			out = append(out, s.state(r, at))
		case fsm.RecordEpochs:
			out = append(out, s.epochs(r, at)...)
		case fsm.RecordStatesTombstone, fsm.RecordEpochsTombstone:
			at.Kind, at.Detail = KindForgotten, "all states"
			if r.Kind == fsm.RecordEpochsTombstone {
				at.Detail = "all last mirror epochs"
			} else {
				clear(s.since)
			}
			if err := s.shard.Apply(r); err != nil {
				return out, err
			}
			out = append(out, at)
		}
	}
	return out, nil
}

// damaged is the event of a record that can't be read, if it is known to be of
// this mirror; where not even that can be read, there is a note at the end.
func (s *states) damaged(rec batch.Record, mirror string, err error) []Event {
	switch mirror {
	case s.mirror:
		e := newEvent(KindDamaged, LogStates, s.mirror, rec.Timestamp, rec.Offset)
		e.Error = err.Error()
		return []Event{e}
	case "":
		if s.unreadable++; s.unreadable == 1 {
			s.firstUnreadable = fmt.Errorf("offset %d: %w", rec.Offset, err)
		}
	}
	return nil
}

func (s *states) state(r fsm.Record, e Event) Event {
	tp := r.Partition
	e.Topic, e.Partition, e.LeaderEpoch = tp.Topic, tp.Partition, r.State.LeaderEpoch
	before := s.shard.Get(s.mirror, tp, r.Created)
	if err := s.shard.Apply(r); err != nil {
		e.Kind, e.Error = KindDamaged, err.Error()
		delete(s.since, tp)
		return e
	}
	now := s.shard.Get(s.mirror, tp, r.Created)
	e.Kind, e.From, e.To, e.Attempt = KindTransition, before.State.String(), now.State.String(), now.RetryAttempt
	again := now.State == messages.StateFailed && now.RetryAttempt > before.RetryAttempt
	if before.State == now.State && !again {
		e.Kind = KindNote
	} else {
		s.since[tp] = e.Millis
	}
	if now.State == messages.StateFailed || now.Error != before.Error {
		e.Error = now.Error
	}
	if cut := now.CutRecords > 0 || now.CutFrom != messages.NoOffset; cut && (now.CutRecords != before.CutRecords || now.CutFrom != before.CutFrom || now.CutTo != before.CutTo) {
		e.Cut = &Cut{
			Records: now.CutRecords - before.CutRecords, Bytes: now.CutBytes - before.CutBytes, From: now.CutFrom, To: now.CutTo,
			TotalRecords: now.CutRecords, TotalBytes: now.CutBytes,
		}
	}
	if now.GapFrom != messages.NoOffset && (now.GapFrom != before.GapFrom || now.GapTo != before.GapTo) {
		e.Gap = &Gap{From: now.GapFrom, To: now.GapTo}
		if now.GapAtMillis > 0 {
			e.Gap.Time = timeText(now.GapAtMillis)
		}
	}
	return e
}

// epochs tells what an LME record, which holds all of the mirror, changes.
func (s *states) epochs(r fsm.Record, at Event) []Event {
	before := map[messages.TopicPartition]int32{}
	for _, tp := range s.shard.Partitions(s.mirror) {
		before[tp] = s.shard.Get(s.mirror, tp, messages.NoOffset).LME
	}
	_ = s.shard.Apply(r) // an LME record that was decoded always applies
	var out []Event
	for _, tp := range s.shard.Partitions(s.mirror) {
		e := at
		e.Kind, e.Topic, e.Partition = KindLME, tp.Topic, tp.Partition
		e.LME = s.shard.Get(s.mirror, tp, messages.NoOffset).LME
		old, known := before[tp]
		delete(before, tp)
		switch {
		case known && old == e.LME, !known && e.LME == messages.NoEpoch:
			continue
		case e.LME == messages.NoEpoch:
			e.Kind, e.Detail = KindLMEGone, fmt.Sprintf("was %d", old)
		}
		out = append(out, e)
	}
	for tp, old := range before { // nothing is left of these
		e := at
		e.Kind, e.Topic, e.Partition, e.Detail = KindLMEGone, tp.Topic, tp.Partition, fmt.Sprintf("was %d", old)
		out = append(out, e)
	}
	sortByPartition(out)
	return out
}
