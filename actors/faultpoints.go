package actors

import (
	"fmt"
	"strings"

	"kagami/fsm"
	"kagami/internal/invariant"
	"kagami/messages"
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

// reached names the fault point before or after an effect of a coordinator or of
// the controller.
func reached(actor, effect, place string) {
	if invariant.FaultPoints {
		invariant.Reached(actor + "." + effect + "." + place)
	}
}
