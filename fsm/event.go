package fsm

import "fmt"

// Event is what can happen to a partition, as the table knows it.
type Event int8

// The events. The first three are the operator's wish, found to differ from the
// state ([Evaluate] says when); the others are reports.
const (
	EventActive        Event = iota + 1 // desired = active
	EventPaused                         // desired = paused
	EventStopped                        // desired = stopped
	EventAligned                        // the log is cut and the replicas may have converged
	EventEpochAhead                     // a fetched batch epoch is above DLE
	EventEpochRaised                    // a higher DLE is visible in local metadata
	EventFetcherGone                    // the fetcher is removed, no append runs or can start
	EventStopDone                       // the last step of the stop sequence is done
	EventError                          // an error inside the state
	EventRetry                          // the retry timer, or at once after a reset write
	EventRecover                        // RecoverMirrorTopics, re-arm (OP-21, OP-26)
	EventSourceChanged                  // the source's cluster id isn't the remembered one
	EventMirrorDeleted                  // the mirror is gone
	EventReenter                        // same state again: restart, new leader, reconnect
)

// Events lists every event.
func Events() []Event {
	out := make([]Event, 0, EventReenter)
	for e := EventActive; e <= EventReenter; e++ {
		out = append(out, e)
	}
	return out
}

// String is the event's name in diagrams and logs.
func (e Event) String() string {
	switch e {
	case EventActive:
		return "desired active"
	case EventPaused:
		return "desired paused"
	case EventStopped:
		return "desired stopped"
	case EventAligned:
		return "aligned"
	case EventEpochAhead:
		return "epoch ahead"
	case EventEpochRaised:
		return "epoch raised"
	case EventFetcherGone:
		return "fetcher gone"
	case EventStopDone:
		return "stop done"
	case EventError:
		return "error"
	case EventRetry:
		return "retry"
	case EventRecover:
		return "recover"
	case EventSourceChanged:
		return "source changed"
	case EventMirrorDeleted:
		return "mirror deleted"
	case EventReenter:
		return "re-enter"
	default:
		return fmt.Sprintf("Event(%d)", int8(e))
	}
}

// Effect is something that the owner of a partition does because of a
// transition. The table names effects; the partition core turns each into an
// [Output] with its arguments.
type Effect int8

// The effects.
const (
	CloseGate       Effect = iota + 1 // refuse client writes
	OpenGate                          // writable mode, accept client writes
	StartTruncation                   // seal, ask the source for the LME, cut, wait for replicas
	CreateFetcher                     // mirroring mode, fetch from the log end
	RemoveFetcher                     // and wait until no append runs or can start
	RequestBump                       // refresh the source epoch, raise DLE, wait for it
	RunStopSequence                   // the six steps, each skipped if done
	CancelWork                        // give up truncation wait, bump wait or steps
	ScheduleRetry                     // by the retry policy, or none if permanent or held
	CancelRetry                       // stop the timer
	RetryNow                          // after the reset write
	DropState                         // the coordinator writes tombstones
)

// String is the effect's name in diagrams and logs.
func (e Effect) String() string {
	switch e {
	case CloseGate:
		return "close gate"
	case OpenGate:
		return "open gate"
	case StartTruncation:
		return "start truncation"
	case CreateFetcher:
		return "create fetcher"
	case RemoveFetcher:
		return "remove fetcher"
	case RequestBump:
		return "request bump"
	case RunStopSequence:
		return "run stop sequence"
	case CancelWork:
		return "cancel work"
	case ScheduleRetry:
		return "schedule retry"
	case CancelRetry:
		return "cancel retry"
	case RetryNow:
		return "retry now"
	case DropState:
		return "drop state"
	default:
		return fmt.Sprintf("Effect(%d)", int8(e))
	}
}

// Persist says what a transition writes at the coordinator before its effects.
type Persist int8

// The kinds of write.
const (
	PersistState     Persist = iota + 1 // a MirrorPartitionState record of the target
	PersistNothing                      // same state: nothing new
	PersistReset                        // FAILED again, attempt 0 (reset write)
	PersistTombstone                    // by the coordinator, when the mirror is deleted
)

// String is the kind in words.
func (p Persist) String() string {
	switch p {
	case PersistState:
		return "state"
	case PersistNothing:
		return "nothing"
	case PersistReset:
		return "reset"
	case PersistTombstone:
		return "tombstone"
	default:
		return fmt.Sprintf("Persist(%d)", int8(p))
	}
}
