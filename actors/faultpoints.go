package actors

import (
	"fmt"
	"strings"

	"kagami/fsm"
	"kagami/fsm/group"
	"kagami/fsm/txn"
	"kagami/internal/invariant"
	"kagami/messages"
	"kagami/messages/txns"
)

// reachedOutput names the fault point before or after an output of a partition
// is performed (begun: its job runs), like "partition.RunStep(abort).before" and
// "partition.PersistWrite(STOPPING).after". A write is after when its answer is
// about to be told to the core.
func reachedOutput(o fsm.Output, place string) {
	if invariant.FaultPoints && o != nil {
		invariant.Reached("partition." + outputName(o) + "." + place)
	}
}

func outputName(o fsm.Output) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", o), "fsm.")
	switch o := o.(type) {
	case fsm.RunStep:
		return name + "(" + o.Step.String() + ")"
	case fsm.PersistWrite:
		return name + "(" + writeName(o.Write) + ")"
	default:
		return name
	}
}

// writeName is the state that a write stores, LME for one that stores the last
// mirror epoch under the present state, "note" for a reset write or a note.
func writeName(w fsm.Write) string {
	switch {
	case w.State != messages.StateUnknown:
		return w.State.String()
	case w.LME != messages.NoEpoch:
		return "LME"
	default:
		return "note"
	}
}

// storeOfTxn and storeOfGroup name an append of a coordinator by its first write, like
// "transactions.store(PrepareCommit).before": in the middle between the log and what
// follows from it.
func storeOfTxn(w txn.Write) string {
	if !invariant.FaultPoints {
		return ""
	}
	if w.Record.State == nil {
		return "store(tombstone)"
	}
	return "store(" + w.Record.State.Status.String() + ")"
}

func storeOfGroup(w group.Write) string {
	switch {
	case !invariant.FaultPoints:
		return ""
	case w.Marker != nil:
		return "store(" + markerName(*w.Marker) + ")"
	case len(w.Records) == 0:
		return "store(nothing)"
	case w.Txn != nil:
		return "store(pending " + w.Records[0].Kind.String() + ")"
	default:
		return "store(" + w.Records[0].Kind.String() + ")"
	}
}

func markerName(m txns.Marker) string {
	if m.Commit {
		return "COMMIT"
	}
	return "ABORT"
}

// reachedMarker names the fault point before or after a marker is written on the
// partition's leader, like "marker.data.COMMIT.before".
func reachedMarker(tp messages.TopicPartition, m txns.Marker, place string) {
	if !invariant.FaultPoints {
		return
	}
	scope := "data"
	if tp.Topic == messages.ConsumerOffsetsTopic {
		scope = "offsets"
	}
	invariant.Reached("marker." + scope + "." + markerName(m) + "." + place)
}

// reached names the fault point before or after an effect of a coordinator or of
// the controller.
func reached(actor, effect, place string) {
	if invariant.FaultPoints {
		invariant.Reached(actor + "." + effect + "." + place)
	}
}
