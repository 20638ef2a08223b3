package fsm

import (
	"fmt"
	"time"

	"kagami/messages"
)

// Input is something that a [Partition] is told. Inputs with a Work number are
// answers to the output of that number; a stale one is dropped and counted.
type Input interface{ input() }

type (
	// Lead says: this node leads the partition under Epoch. Repeated with a higher epoch
	// after a bump, and with a new wish at any time. NowMillis is the time: write
	// numbers of this incarnation start above it. If another node has claimed the
	// partition since the last Lead, Resign comes first, also when no image that named
	// it was seen here: what runs would go on after somebody else's work.
	Lead struct {
		Epoch     int32
		Desired   messages.Desired
		NowMillis int64
	}
	// Resign says: this node leads the partition no more.
	Resign struct{}
	// Loaded answers ReadState with what the coordinator has stored.
	Loaded struct {
		State    messages.PartitionState
		LogEmpty bool  // log end offset 0
		Ticket   int64 // of the answer; writes carry it
		// Cuts is the journal's count of cuts where it is above the stored one: of a
		// process that died before it could have them stored. Zero: nothing to add.
		Cuts Cut
	}
	// Wish says: mirror.name of the topic changed.
	Wish struct{ Desired messages.Desired }
	// Written says: the coordinator has stored a write, or had stored it before.
	Written struct {
		Number   int64
		Previous messages.State
		Attempt  int16
	}
	// WriteRefused says: the coordinator refused it for good. Retriable answers
	// (not coordinator, loading, timeout) never come here: the writer repeats.
	WriteRefused struct {
		Number int64
		Fenced bool // a newer leader has written
		Text   string
	}

	// Truncated says: the log is cut where the source's LME says.
	Truncated struct {
		Work uint32
		Cut  Cut
	}
	// Converged says: how far the replicas are after a cut; repeated when that changes.
	Converged struct {
		Work uint32
		Convergence
	}
	// Failed says: an error inside the state.
	Failed struct {
		Work  uint32
		Cause Cause
		Text  string
	}
	// Healthy says: the first successful fetch since the fetcher was created.
	Healthy struct{ Work uint32 }
	// EpochAhead says: the fetcher refused a batch and has let go of the partition.
	EpochAhead struct {
		Work       uint32
		BatchEpoch int32
	}
	// Raised says: DLE is Epoch now; Min was asked for.
	Raised struct {
		Work       uint32
		Epoch, Min int32
	}
	// FetcherGone says: no append of the fetcher runs or can start.
	FetcherGone struct{ Work uint32 }
	// Noted says: a cut or a gap that the fetcher met. Never stale: it happened.
	Noted struct {
		Cut Cut
		Gap Gap
	}
	// Sealed says: step 1 of the stop is done, with what the log shows.
	Sealed struct {
		Work       uint32
		LastEpoch  int32 // epoch of the last batch below the sealed offset, NoEpoch if none
		ResetEpoch int32 // epoch of a MIRROR_PID_RESET at or above it that ends the log, else NoEpoch
	}
	// StepDone says: a later step of the stop is done.
	StepDone struct {
		Work  uint32
		Step  StopStep
		Epoch int32 // StepBump: DLE as it is now
	}

	// RetryDue says: a timer of SetTimer fired.
	RetryDue struct{ Timer uint32 }
	// Recover says: RecoverMirrorTopics (OP-25).
	Recover struct{ By messages.Requester }
	// PolicyChanged says: the retry limits changed.
	PolicyChanged struct{}
	// Reconnect says: connection settings of the mirror changed (OP-8).
	Reconnect struct{}
	// Refreshed says: a metadata refresh of the mirror ended (OP-21).
	Refreshed struct{ OK bool }
	// SourceChanged says: the source has another cluster id (OP-26).
	SourceChanged struct{ Text string }
	// SourceBack says: it has the remembered one again, or what was remembered has
	// been cleared.
	SourceBack struct{}
	// Fault says: something about the topic that only people can end (recreated,
	// too many partitions, a loop).
	Fault struct{ Text string }
	// FaultOver says: it is over.
	FaultOver struct{}
)

func (Lead) input()          {}
func (Resign) input()        {}
func (Loaded) input()        {}
func (Wish) input()          {}
func (Written) input()       {}
func (WriteRefused) input()  {}
func (Truncated) input()     {}
func (Converged) input()     {}
func (Failed) input()        {}
func (Healthy) input()       {}
func (EpochAhead) input()    {}
func (Raised) input()        {}
func (FetcherGone) input()   {}
func (Noted) input()         {}
func (Sealed) input()        {}
func (StepDone) input()      {}
func (RetryDue) input()      {}
func (Recover) input()       {}
func (PolicyChanged) input() {}
func (Reconnect) input()     {}
func (Refreshed) input()     {}
func (SourceChanged) input() {}
func (SourceBack) input()    {}
func (Fault) input()         {}
func (FaultOver) input()     {}

// Cut is records removed by a truncation: offsets [From, To).
type Cut struct{ From, To, Records, Bytes int64 }

// Gap is offsets that were never copied, [From, To), met at AtMillis.
type Gap struct{ From, To, AtMillis int64 }

// StopStep is a step of the stop sequence (workflows.md, "Stop"). Storing the
// LME and STOPPED are writes, not steps of this type.
type StopStep int8

// The steps, in order.
const (
	StepDetach StopStep = iota + 1 // remove the fetcher, seal
	StepBump                       // raise DLE above the LME and above itself
	StepAbort                      // an ABORT marker per open transaction
	StepReset                      // MIRROR_PID_RESET, acknowledged by the ISR
)

// String is the step in words.
func (s StopStep) String() string {
	switch s {
	case StepDetach:
		return "detach"
	case StepBump:
		return "bump"
	case StepAbort:
		return "abort"
	case StepReset:
		return "reset"
	default:
		return fmt.Sprintf("StopStep(%d)", int8(s))
	}
}

// Output is something that the owner of a [Partition] does, in the order given.
// Outputs with a Work number are answered with an input of that number; each new
// one makes older answers stale, so jobs of one partition run one after the other.
type Output interface{ output() }

type (
	// ReadState asks: ask the coordinator, answer Loaded. Again: after a refused write;
	// the owner waits a little, so that a disagreement doesn't spin.
	// Epoch and Number fence older leaders ([Shard.Fence]).
	ReadState struct {
		Again  bool
		Epoch  int32
		Number int64
	}
	// PersistWrite asks: store at the coordinator, repeat until it answers for good;
	// answer Written or WriteRefused.
	PersistWrite struct{ Write Write }

	// Align asks: seal, ask the source for loops and for the LME, cut. Answer Truncated
	// or Failed.
	Align struct{ Work uint32 }
	// AwaitReplicas asks: answer Converged now and on each change, until cancelled.
	AwaitReplicas struct{ Work uint32 }
	// Fetch asks: mirroring mode, then create or replace the fetcher at the log end.
	// Answer Healthy, EpochAhead or Failed, whenever.
	Fetch struct{ Work uint32 }
	// Unfetch asks: remove the fetcher, answer FetcherGone. Not to be cancelled.
	Unfetch struct{ Work uint32 }
	// RaiseEpoch asks: refresh the source epoch, ask for max(it, BatchEpoch) + 10 if DLE
	// isn't well above, wait for it. Answer Raised or Failed. BatchEpoch NoEpoch =
	// not known.
	RaiseEpoch struct {
		Work       uint32
		BatchEpoch int32
	}
	// RunStep asks: a step of the stop. Answer Sealed, StepDone or Failed.
	RunStep struct {
		Work uint32
		Step StopStep
		Min  int32 // StepBump: minLeaderEpoch
	}
	// OpenPartition asks: writable mode; then, unless cancelled, take client writes.
	// Repeated by the owner until it works.
	OpenPartition struct{ Work uint32 }
	// ClosePartition asks: refuse client writes, at once.
	ClosePartition struct{}
	// Cancel asks: give up what runs, but for Unfetch.
	Cancel struct{}
	// SetTimer asks: one timer per partition, a new one replaces it; answer RetryDue.
	SetTimer struct {
		Timer uint32
		Delay time.Duration
	}
	// StopTimer asks: forget it.
	StopTimer struct{}
	// RefreshSource asks: refresh the mirror's source metadata at once.
	RefreshSource struct{}

	// Moved is for logs and metrics, like all that follow.
	Moved struct{ Transition }
	// Refused is an event without a row.
	Refused struct{ Err error }
	// Permanent is a failure without a retry.
	Permanent struct{ Attempt int16 }
	// Fenced is a write that the coordinator refused.
	Fenced struct{ Text string }
	// Mismatch is an LME in the map that isn't the log's (OP-43).
	Mismatch struct{ Stored, Computed int32 }
)

func (ReadState) output()      {}
func (PersistWrite) output()   {}
func (Align) output()          {}
func (AwaitReplicas) output()  {}
func (Fetch) output()          {}
func (Unfetch) output()        {}
func (RaiseEpoch) output()     {}
func (RunStep) output()        {}
func (OpenPartition) output()  {}
func (ClosePartition) output() {}
func (Cancel) output()         {}
func (SetTimer) output()       {}
func (StopTimer) output()      {}
func (RefreshSource) output()  {}
func (Moved) output()          {}
func (Refused) output()        {}
func (Permanent) output()      {}
func (Fenced) output()         {}
func (Mismatch) output()       {}
