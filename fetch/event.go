package fetch

import "kagami/messages"

// Event tells a partition's owner what happened on the source side. The list
// below is closed. Events are rare: never one per batch.
type Event interface{ event() }

// FirstSuccess is the first good answer since the partition was added; clears the
// retry counter (states.md).
type FirstSuccess struct{}

// BatchEpochAboveDLE says that a batch is newer than the local leader epoch. Nothing of
// the answer was appended and the partition has left the worker: EPOCH_FENCING.
type BatchEpochAboveDLE struct {
	BatchEpoch  int32
	LeaderEpoch int32 // DLE at that time
}

// BatchEpochAboveSLE says that a batch is newer than the source leader epoch that the
// worker was given. The partition has left the worker: refresh, then FAILED.
type BatchEpochAboveSLE struct {
	BatchEpoch  int32
	SourceEpoch int32
}

// NearEpoch says that the source came within 3 of the local leader epoch: by batches,
// which were appended, or by the higher epoch of an unchanged leader. Sent once per
// batch epoch and per epoch that the source names.
type NearEpoch struct {
	BatchEpoch  int32 // NoEpoch if it wasn't a batch
	SourceEpoch int32 // what the source has just named; NoEpoch if it wasn't that
	LeaderEpoch int32
}

// SourceLeaderMoved says that the source named a new leader. The partition has left the
// worker; add it to the worker of that broker.
type SourceLeaderMoved struct {
	Leader Leader
}

// LeaderUnknown says that this broker no longer leads the partition and named no other.
// The partition has left the worker: refresh, then FAILED.
type LeaderUnknown struct {
	Err error
}

// RefreshWanted says that metadata of the source may be old (codes 3, 5, 9, 100, 103). The
// partition stays and backs off. Sent once per series of errors.
type RefreshWanted struct {
	Err error
}

// Failed says that the partition has left the worker and can't go on by itself.
type Failed struct {
	Err error
}

// GapSkipped says that offsets [From, To) were gone on the source before they were
// copied; the local log was restarted at To (workflows.md "Retention").
type GapSkipped struct {
	From, To int64
	// Fresh: the local log had never held anything. The copy begins where the
	// source's log begins; nothing was lost on the way.
	Fresh bool
	Cut   Cut
}

// Truncated says that the local log was cut because the source's differs.
type Truncated struct {
	Cut    Cut
	Reason string
}

func (FirstSuccess) event()       {}
func (BatchEpochAboveDLE) event() {}
func (BatchEpochAboveSLE) event() {}
func (NearEpoch) event()          {}
func (SourceLeaderMoved) event()  {}
func (LeaderUnknown) event()      {}
func (RefreshWanted) event()      {}
func (Failed) event()             {}
func (GapSkipped) event()         {}
func (Truncated) event()          {}

// Leader is who leads a source partition. Host is "" where only the id is known.
type Leader struct {
	ID    messages.NodeID // NoNode if there is none
	Host  string
	Port  int32
	Epoch int32 // SLE, NoEpoch if the source gives none
}
