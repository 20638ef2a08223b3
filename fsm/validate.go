package fsm

import (
	"errors"
	"fmt"
	"slices"

	"kagami/messages"
)

// Validate checks the table and reports every fault in it. looplab/fsm accepts
// a misspelt name, a doubled row and an unknown first state without a word, so a
// node calls this at start, and a test does.
func Validate() error { return validate(rows) }

func validate(table []Row) error {
	var faults []error
	fault := func(r Row, format string, args ...any) {
		faults = append(faults, fmt.Errorf("row %s: "+format, append([]any{r.Number}, args...)...))
	}
	numbers := map[string]bool{}
	reached := map[messages.State]bool{messages.StateUnknown: true}
	type cell struct {
		from messages.State
		on   Event
		when string
	}
	cells := map[cell]string{}
	for _, r := range table {
		if r.Number == "" || numbers[r.Number] {
			fault(r, "number is empty or used twice")
		}
		numbers[r.Number] = true
		if r.Why == "" {
			fault(r, "doesn't say why")
		}
		if r.If.ok == nil {
			fault(r, "has no guard")
		}
		validateCodes(r, fault)
		reached[r.To] = true
		for _, from := range r.From {
			if why := forbidden(r, from); why != "" {
				fault(r, "%s", why)
			}
			for _, on := range r.On {
				c := cell{from, on, r.If.Name}
				if other, twice := cells[c]; twice {
					fault(r, "%s on %q repeats row %s", from, on, other)
				}
				cells[c] = r.Number
			}
		}
	}
	for _, s := range messages.States() {
		if !reached[s] {
			faults = append(faults, fmt.Errorf("state %s can't be reached", s))
		}
	}
	return errors.Join(faults...)
}

func validateCodes(r Row, fault func(Row, string, ...any)) {
	if len(r.From) == 0 || len(r.On) == 0 {
		fault(r, "has no source or no event")
	}
	for _, s := range append(slices.Clone(r.From), r.To) {
		if !slices.Contains(messages.States(), s) {
			fault(r, "unknown state %s", s)
		}
	}
	for _, e := range r.On {
		if e < EventActive || e > EventReenter {
			fault(r, "unknown event %s", e)
		}
	}
	for _, e := range append(slices.Clone(r.Before), r.Then...) {
		if e < CloseGate || e > DropState {
			fault(r, "unknown effect %s", e)
		}
	}
	// What changes the log or the network needs a record first.
	for _, e := range r.Before {
		if e != CloseGate && e != CancelWork && e != CancelRetry && e != RemoveFetcher {
			fault(r, "effect %q can't come before the record", e)
		}
	}
	switch {
	case r.Persist < PersistState || r.Persist > PersistTombstone:
		fault(r, "unknown kind of write %s", r.Persist)
	case r.Persist == PersistState && !r.To.Storable():
		fault(r, "%s can't be stored", r.To)
	case r.Persist == PersistNothing && (len(r.From) != 1 || r.From[0] != r.To):
		fault(r, "changes the state and stores nothing")
	}
}

// forbidden names what states.md rules out in words below its table.
func forbidden(r Row, from messages.State) string {
	switch {
	case from == messages.StatePaused && r.To == messages.StateLogTruncation:
		return "PAUSED never goes to LOG_TRUNCATION"
	case from == messages.StateStopped && r.To == messages.StateMirroring:
		return "STOPPED never goes to MIRRORING directly"
	case from == messages.StateUnknown && r.To == messages.StateStopping && r.If.Name != dataInLog.Name:
		return "UNKNOWN never goes to STOPPING, but for data whose state was lost (OP-44)"
	}
	return ""
}
