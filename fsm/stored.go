package fsm

import (
	"fmt"

	"kagami/messages"
)

// Write is one partition's part of a WriteMirrorStates request. Start from
// [NewWrite]; zero is not every field's "nothing".
type Write struct {
	Mirror    string
	Partition messages.TopicPartition
	// State to store; StateUnknown keeps the stored one: with an LME "LME only",
	// without one the reset write over FAILED, else a note (below).
	State messages.State
	LME   int32 // last mirror epoch to store, NoEpoch = none

	// LeaderEpoch of the sender and number of the write (OP-42). NoEpoch = unknown
	// sender, nothing is compared. Number 0 = never a repeat.
	LeaderEpoch int32
	Number      int64
	// Ticket of the read that the write builds on, 0 = none: a coordinator that
	// gave another one refuses it, because what the writer knows may be history.
	Ticket int64

	// Notes (OP-37): absolute values, kept by the coordinator where they say
	// nothing ("" , 0, NoOffset). A write that keeps the state and brings new notes
	// makes a record of its own.
	Notes Notes

	// For the audit headers.
	Cause, Principal, RequestID string

	// Created is the metadata offset at which the topic was created, as the
	// coordinator's image has it; NoOffset if it doesn't know the topic. A state of
	// an earlier life of the topic counts as none.
	Created int64
}

// Notes are the private facts that a leader reports with its writes.
type Notes struct {
	Error                string
	CutRecords, CutBytes int64
	CutFrom, CutTo       int64
	GapFrom, GapTo       int64
	GapAtMillis          int64
}

// NoNotes says nothing.
func NoNotes() Notes {
	return Notes{CutFrom: messages.NoOffset, CutTo: messages.NoOffset, GapFrom: messages.NoOffset, GapTo: messages.NoOffset}
}

// NewWrite keeps the state, stores no LME and says nothing.
func NewWrite(mirror string, tp messages.TopicPartition) Write {
	return Write{
		Mirror: mirror, Partition: tp, State: messages.StateUnknown, LME: messages.NoEpoch,
		LeaderEpoch: messages.NoEpoch, Notes: NoNotes(), Created: messages.NoOffset,
	}
}

// note lays n over s.
func (n Notes) over(s messages.PartitionState) messages.PartitionState {
	if n.Error != "" {
		s.Error = n.Error
	}
	s.CutRecords, s.CutBytes = max(s.CutRecords, n.CutRecords), max(s.CutBytes, n.CutBytes)
	if n.CutFrom != messages.NoOffset {
		s.CutFrom, s.CutTo = n.CutFrom, n.CutTo
	}
	if n.GapFrom != messages.NoOffset {
		s.GapFrom, s.GapTo, s.GapAtMillis = n.GapFrom, n.GapTo, n.GapAtMillis
	}
	return s
}

// Next is what a write makes of the stored state: the rules of "Writing a state"
// in states.md. changed is false where no record is to be written. dropLME: the
// record takes the partition's LME entry out of the map (OP-5). A refusal wraps
// [messages.ErrFencedLeaderEpoch] or [messages.ErrInvalidMirrorStates].
//
// The leader uses it too, to know what its own write will have stored.
func Next(cur messages.PartitionState, w Write) (next messages.PartitionState, changed, dropLME bool, err error) {
	if err := fenced(cur, w); err != nil {
		return cur, false, false, err
	}
	if repeat(cur, w) {
		return cur, false, false, nil
	}
	next = w.Notes.over(cur)
	// Notes alone make no record over STOPPING: it would drop the LME that this stop
	// has stored, or, stored just before the LME that came with it, make a repeat of
	// the write look done. They are totals, a later write brings them again.
	noted := next != cur && cur.State != sStopping
	switch {
	case w.State == messages.StateUnknown && w.LME == messages.NoEpoch && cur.State == messages.StateFailed:
		next.RetryAttempt = 0
		changed = true
	case w.State == messages.StateUnknown:
		changed = noted && cur.State != messages.StateUnknown
	case !w.State.Storable():
		return cur, false, false, fmt.Errorf("%w: %s can't be stored", messages.ErrInvalidMirrorStates, w.State)
	case w.State == cur.State && w.State != messages.StateFailed:
		// Same state: no record, but for the health write and for notes.
		changed = noted
		if w.State == messages.StateMirroring && cur.RetryAttempt != 0 {
			next.Previous, next.RetryAttempt, next.Error = messages.StateUnknown, 0, ""
			changed = true
		}
	default:
		if err := allowed(cur, w.State); err != nil {
			return cur, false, false, err
		}
		next, dropLME = entering(next, cur, w.State)
		changed = true
	}
	if !changed {
		return cur, false, false, nil
	}
	if w.LeaderEpoch != messages.NoEpoch {
		next.LeaderEpoch, next.WriteNumber = w.LeaderEpoch, w.Number
	}
	return next, true, dropLME, nil
}

// fenced refuses writes of an older leader, and late copies of older writes.
func fenced(cur messages.PartitionState, w Write) error {
	switch {
	case w.LeaderEpoch == messages.NoEpoch:
		return nil
	case w.LeaderEpoch < cur.LeaderEpoch:
		return fmt.Errorf("%w: write under epoch %d, the last one was under %d", messages.ErrFencedLeaderEpoch, w.LeaderEpoch, cur.LeaderEpoch)
	case w.LeaderEpoch == cur.LeaderEpoch && w.Number != 0 && w.Number < cur.WriteNumber:
		return fmt.Errorf("%w: write %d came after write %d, read again", messages.ErrInvalidMirrorStates, w.Number, cur.WriteNumber)
	}
	return nil
}

// repeat: this very write was accepted before; it gets the same answer again.
func repeat(cur messages.PartitionState, w Write) bool {
	return w.LeaderEpoch != messages.NoEpoch && w.Number != 0 && w.LeaderEpoch == cur.LeaderEpoch && w.Number == cur.WriteNumber
}

// allowed checks the table, and for FAILED the recorded previous state.
func allowed(cur messages.PartitionState, to messages.State) error {
	ok := Leads(cur.State, to)
	if ok && cur.State == messages.StateFailed {
		switch to {
		case sTruncation:
			ok = cur.Previous == sTruncation
		case sFencing:
			ok = cur.Previous == sFencing
		case sMirroring:
			ok = cur.Previous == sMirroring || cur.Previous == sPaused || cur.Previous == sUnknown
		case sPausing:
			ok = cur.Previous != sTruncation
		case sStopping, sFailed:
		case sPaused, sStopped, sUnknown:
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("%w: %s never goes to %s (previous state %s)", messages.ErrInvalidMirrorStates, cur.State, to, cur.Previous)
	}
	return nil
}

// entering computes previous state and attempt of a new state (OP-12, OP-5).
func entering(next, cur messages.PartitionState, to messages.State) (messages.PartitionState, bool) {
	next.State = to
	switch to {
	case sFailed:
		switch {
		case cur.State == sFailed:
		case cur.State == sStopping && cur.Previous == sTruncation:
			// keeps the 0: the next STOPPING must not compute an LME either
		default:
			next.Previous = cur.State
		}
		if next.RetryAttempt < 1<<15-1 {
			next.RetryAttempt++
		}
	case sStopped, sPaused:
		next.Previous, next.RetryAttempt, next.Error = sUnknown, 0, ""
	case sStopping:
		return enteringStopping(next, cur)
	case sTruncation, sFencing, sMirroring, sPausing, sUnknown:
		// Recovering: a retry that fails again counts on. A start after a stop
		// finds both fields cleared.
	}
	return next, false
}

// enteringStopping: the record says what the partition's LME entry is worth.
func enteringStopping(next, cur messages.PartitionState) (messages.PartitionState, bool) {
	switch {
	case cur.State == sTruncation, cur.State == sFailed && cur.Previous == sTruncation, cur.State == sUnknown:
		// Not aligned in this cycle, or not as far as anybody knows (OP-44): the last
		// epoch in the log may be one of our own, and an LME made of it would have the
		// peer keep records of the same epoch number that aren't ours.
		next.Previous, next.RetryAttempt = sTruncation, 0
		return next, false
	case cur.State == sFailed && cur.Previous == sStopping:
		return next, false
	default:
		next.Previous, next.RetryAttempt = sUnknown, 0
		return next, true
	}
}
