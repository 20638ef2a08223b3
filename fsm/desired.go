package fsm

import "kagami/messages"

// Reason is why the wish is compared with the state.
type Reason int8

// The reasons (a) to (d) of states.md.
const (
	ReasonLeader  Reason = iota + 1 // (a) became leader
	ReasonDesired                   // (b) mirror.name changed
	ReasonRead                      // (c) the state has just been read
	ReasonDone                      // (d) a transition has just finished
)

// Evaluate compares the wish with the stored state: which event to feed, if any
// (states.md, "Desired state versus stored state"). fromStop: FAILED was entered
// from STOPPING.
//
// "Enter again" is fed on (a) and (c) only: on (b) and (d) what runs goes on.
func Evaluate(desired messages.Desired, state messages.State, fromStop bool, why Reason) (Event, bool) {
	enter := why == ReasonLeader || why == ReasonRead
	switch desired {
	case messages.DesiredStopped:
		switch state {
		case sStopped, sStopping:
			return EventReenter, enter
		case sFailed:
			if fromStop {
				return EventReenter, enter
			}
		case sUnknown, sTruncation, sFencing, sMirroring, sPausing, sPaused:
		}
		return EventStopped, true
	case messages.DesiredPaused:
		switch state {
		case sUnknown, sStopped, sMirroring:
			return EventPaused, true
		case sPaused, sPausing, sTruncation, sFencing, sFailed, sStopping:
		}
		return EventReenter, enter
	case messages.DesiredActive:
		switch state {
		case sUnknown, sStopped, sPaused:
			return EventActive, true
		case sMirroring, sPausing, sTruncation, sFencing, sFailed, sStopping:
		}
		return EventReenter, enter
	case messages.DesiredNone:
	}
	return 0, false
}
