package fsm

import (
	"slices"

	"kagami/messages"
)

// Row is one line of the transition table.
type Row struct {
	Number  string // of states.md; a letter where the spec's row needs several
	From    []messages.State
	On      []Event
	If      Guard
	To      messages.State
	Persist Persist
	Before  []Effect // safe to do before the record is acknowledged
	Then    []Effect // only after it is
	Why     string
}

// Short names keep a row on a few lines.
const (
	sTruncation = messages.StateLogTruncation
	sFencing    = messages.StateEpochFencing
	sMirroring  = messages.StateMirroring
	sPausing    = messages.StatePausing
	sPaused     = messages.StatePaused
	sStopping   = messages.StateStopping
	sStopped    = messages.StateStopped
	sFailed     = messages.StateFailed
	sUnknown    = messages.StateUnknown
)

type (
	states  = []messages.State
	events  = []Event
	effects = []Effect
)

// rows is the table of states.md. The first row whose source, event and guard
// match counts; Validate and the tests check that no two ever do.
var rows = []Row{
	{
		Number: "1", From: states{sUnknown}, On: events{EventActive, EventPaused}, If: always, To: sTruncation,
		Persist: PersistState, Before: effects{CloseGate}, Then: effects{StartTruncation},
		Why: "nothing is stored: align with the source before anything is fetched, also when a pause overtook the start",
	},
	{
		Number: "2", From: states{sStopped}, On: events{EventActive, EventPaused}, If: always, To: sTruncation,
		Persist: PersistState, Before: effects{CloseGate, CancelWork}, Then: effects{StartTruncation},
		Why: "a start makes the topic read-only at once and cuts what the source doesn't have",
	},
	{
		Number: "3", From: states{sTruncation}, On: events{EventAligned}, If: converged, To: sMirroring,
		Persist: PersistState, Then: effects{CreateFetcher},
		Why: "every relevant replica has cut its log, so source data can't meet divergent records",
	},
	{
		Number: "4", From: states{sTruncation}, On: events{EventError}, If: always, To: sFailed,
		Persist: PersistState, Before: effects{CancelWork}, Then: effects{ScheduleRetry},
		Why: "LME lookup or truncation failed; a source that lacks the API or the mirror is no error",
	},
	{
		Number: "5", From: states{sMirroring}, On: events{EventEpochAhead}, If: always, To: sFencing,
		Persist: PersistState, Then: effects{RemoveFetcher, RequestBump},
		Why: "DLE must never be below a batch epoch, so the batch is refused until DLE is raised",
	},
	{
		Number: "6", From: states{sFencing}, On: events{EventEpochRaised}, If: epochRaised, To: sMirroring,
		Persist: PersistState, Then: effects{CreateFetcher},
		Why: "the new DLE is visible, the refused batch may come again",
	},
	{
		Number: "7", From: states{sFencing}, On: events{EventError}, If: always, To: sFailed,
		Persist: PersistState, Before: effects{CancelWork}, Then: effects{ScheduleRetry},
		Why: "the bump failed or timed out",
	},
	{
		Number: "8", From: states{sMirroring}, On: events{EventPaused}, If: always, To: sPausing,
		Persist: PersistState, Then: effects{RemoveFetcher},
		Why: "the operator paused the topic",
	},
	{
		Number: "9", From: states{sPausing}, On: events{EventFetcherGone}, If: always, To: sPaused,
		Persist: PersistState,
		Why:     "no append runs or can start any more",
	},
	{
		Number: "10", From: states{sPaused}, On: events{EventActive}, If: always, To: sMirroring,
		Persist: PersistState, Then: effects{CreateFetcher},
		Why: "a resume goes on at the log end, without truncation",
	},
	{
		Number: "11", From: states{sTruncation, sFencing, sMirroring, sPausing, sPaused}, On: events{EventStopped}, If: always, To: sStopping,
		Persist: PersistState, Before: effects{CancelWork}, Then: effects{RunStopSequence},
		Why: "a stop must work from every state and without the source (OP-2)",
	},
	{
		Number: "11 FAILED", From: states{sFailed}, On: events{EventStopped}, If: notFromStop, To: sStopping,
		Persist: PersistState, Before: effects{CancelRetry}, Then: effects{RunStopSequence},
		Why: "a failed partition stops at once; a stop that failed itself waits for its retry timer",
	},
	{
		Number: "12", From: states{sStopping}, On: events{EventStopDone}, If: resetAcked, To: sStopped,
		Persist: PersistState, Then: effects{OpenGate},
		Why: "LME stored, epoch raised, transactions closed, producers forgotten: clients may write",
	},
	{
		Number: "13", From: states{sStopping}, On: events{EventError}, If: always, To: sFailed,
		Persist: PersistState, Before: effects{CancelWork}, Then: effects{ScheduleRetry},
		Why: "a step failed and its own retries are used up",
	},
	{
		Number: "14", From: states{sMirroring, sPausing, sPaused}, On: events{EventError}, If: always, To: sFailed,
		Persist: PersistState, Before: effects{CancelWork}, Then: effects{RemoveFetcher, ScheduleRetry},
		Why: "an error inside the state fails this partition and no other",
	},
	{
		Number: "14 FAILED", From: states{sFailed}, On: events{EventError}, If: always, To: sFailed,
		Persist: PersistState, Before: effects{CancelRetry}, Then: effects{ScheduleRetry},
		Why: "FAILED over FAILED counts one more and keeps the previous state",
	},
	{
		Number: "15a", From: states{sFailed}, On: events{EventRetry}, If: retryAlign, To: sTruncation,
		Persist: PersistState, Then: effects{StartTruncation},
		Why: "it never aligned: align first, also when a pause is wanted",
	},
	{
		Number: "15b", From: states{sFailed}, On: events{EventRetry}, If: retryFencing, To: sFencing,
		Persist: PersistState, Then: effects{RequestBump},
		Why: "DLE is still too low (OP-7)",
	},
	{
		Number: "15c", From: states{sFailed}, On: events{EventRetry}, If: retryMirroring, To: sMirroring,
		Persist: PersistState, Then: effects{CreateFetcher},
		Why: "never through LOG_TRUNCATION, which could cut good data; the default when nothing is recorded",
	},
	{
		Number: "15d", From: states{sFailed}, On: events{EventRetry}, If: retryPausing, To: sPausing,
		Persist: PersistState, Then: effects{RemoveFetcher},
		Why: "finish the pause; the wish is looked at again then",
	},
	{
		Number: "15e", From: states{sFailed}, On: events{EventRetry}, If: retryStopping, To: sStopping,
		Persist: PersistState, Then: effects{RunStopSequence},
		Why: "finish the stop; the wish is looked at again then",
	},
	{
		Number: "16", From: states{sFailed}, On: events{EventRetry}, If: retryStopped, To: sStopping,
		Persist: PersistState, Then: effects{RunStopSequence},
		Why: "the stop sequence is resumed after the delay, not at once",
	},
	{
		Number: "17", From: states{sFailed}, On: events{EventRetry}, If: retryPaused, To: sPausing,
		Persist: PersistState, Then: effects{RemoveFetcher},
		Why: "the operator wants a pause, so nothing is fetched for it",
	},
	{
		Number: "18", From: states{sFailed}, On: events{EventRetry}, If: exhausted, To: sFailed,
		Persist: PersistNothing, Then: effects{CancelRetry},
		Why: "the failure is permanent: someone must act",
	},
	{
		Number: "19a", From: states{sTruncation}, On: events{EventReenter}, If: always, To: sTruncation,
		Persist: PersistNothing, Then: effects{CloseGate, StartTruncation},
		Why: "a full re-run: lookup, cut (idempotent), wait",
	},
	{
		Number: "19b", From: states{sFencing}, On: events{EventReenter}, If: always, To: sFencing,
		Persist: PersistNothing, Then: effects{CloseGate, RequestBump},
		Why: "finishes at once if DLE is high enough already",
	},
	{
		Number: "19c", From: states{sMirroring}, On: events{EventReenter}, If: always, To: sMirroring,
		Persist: PersistNothing, Then: effects{CloseGate, CreateFetcher},
		Why: "idempotent, because a change of leaders may have removed the fetcher",
	},
	{
		Number: "19d", From: states{sPausing}, On: events{EventReenter}, If: always, To: sPausing,
		Persist: PersistNothing, Then: effects{CloseGate, RemoveFetcher},
		Why: "removing what isn't there is cheap",
	},
	{
		Number: "19e", From: states{sPaused}, On: events{EventReenter}, If: always, To: sPaused,
		Persist: PersistNothing, Then: effects{CloseGate},
		Why: "nothing to do but to stay read-only",
	},
	{
		Number: "19f", From: states{sStopping}, On: events{EventReenter}, If: always, To: sStopping,
		Persist: PersistNothing, Then: effects{CloseGate, RunStopSequence},
		Why: "the stop sequence is resumable: done steps are skipped",
	},
	{
		Number: "19g", From: states{sStopped}, On: events{EventReenter}, If: always, To: sStopped,
		Persist: PersistNothing, Then: effects{OpenGate},
		Why: "writable again after a restart",
	},
	{
		Number: "19h", From: states{sFailed}, On: events{EventReenter}, If: always, To: sFailed,
		Persist: PersistNothing, Then: effects{CloseGate, ScheduleRetry},
		Why: "a new leader goes on with the stored attempt, its delay counted from now",
	},
	{
		Number: "20", From: states{sStopped}, On: events{EventMirrorDeleted}, If: allStopped, To: sUnknown,
		Persist: PersistTombstone, Then: effects{DropState},
		Why: "the mirror is gone, the topic stays as an ordinary one",
	},
	{
		Number: "21", From: states{sUnknown}, On: events{EventStopped}, If: emptyLog, To: sStopped,
		Persist: PersistState, Then: effects{OpenGate},
		Why: "nothing was ever mirrored by this cluster",
	},
	{
		Number: "21 OP-44", From: states{sUnknown}, On: events{EventStopped}, If: dataInLog, To: sStopping,
		Persist: PersistState, Before: effects{CloseGate}, Then: effects{RunStopSequence},
		Why: "the state may have been lost: open it only after a whole stop sequence; no LME, the log may be ours alone",
	},
	{
		Number: "22", From: states{sFailed}, On: events{EventRecover}, If: always, To: sFailed,
		Persist: PersistReset, Before: effects{CancelRetry}, Then: effects{RetryNow},
		Why: "a fresh counter first, then as rows 15 to 17, at once",
	},
	{
		Number: "23", From: states{sTruncation, sFencing, sMirroring, sPausing, sPaused}, On: events{EventSourceChanged}, If: always, To: sFailed,
		Persist: PersistState, Before: effects{CancelWork, RemoveFetcher},
		Why: "nothing may be fetched from another cluster; no timer, row 22 leads out (OP-26)",
	},
	{
		Number: "23 FAILED", From: states{sFailed}, On: events{EventSourceChanged}, If: notFromStop, To: sFailed,
		Persist: PersistNothing, Before: effects{CancelRetry},
		Why: "a retry would fetch from another cluster; a stop needs no source and goes on",
	},
}

// Rows is a copy of the transition table, in the order of states.md.
func Rows() []Row { return slices.Clone(rows) }

func (r *Row) matches(from messages.State, on Event, f Facts) bool {
	return slices.Contains(r.From, from) && slices.Contains(r.On, on) && r.If.Holds(f)
}

// find returns the row for an event, nil if the table has none.
func find(from messages.State, on Event, f Facts) *Row {
	for i := range rows {
		if rows[i].matches(from, on, f) {
			return &rows[i]
		}
	}
	return nil
}

// Leads reports whether some row with a stored target leads from one state to
// another, whatever its guard. The coordinator refuses every other write.
func Leads(from, to messages.State) bool {
	for i := range rows {
		if rows[i].Persist == PersistState && rows[i].To == to && slices.Contains(rows[i].From, from) {
			return true
		}
	}
	return false
}
