package fsm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/looplab/fsm"

	"kagami/messages"
)

// ErrRefused says that the table has no row for this state, event and facts.
var ErrRefused = errors.New("transition refused")

// Transition is an answer of [Machine.Ask]: where an event leads. Nothing has
// moved yet.
type Transition struct {
	From, To messages.State
	Row      *Row
}

// Machine is the state of one partition and the way to change it: ask, persist,
// act, and only then [Machine.Set]. Replay is Set alone.
//
// The machine that decides is looplab/fsm's. One costs 7 KB, so partitions that
// sit still share a few of them: a Machine is one byte, and borrows a runner for
// the length of a question.
type Machine struct{ state messages.State }

// NewMachine is a machine in state s.
func NewMachine(s messages.State) Machine { return Machine{state: s} }

// State is the current state.
func (m *Machine) State() messages.State { return m.state }

// Set moves to s without asking: after the record of a transition is
// acknowledged, and in replay.
func (m *Machine) Set(s messages.State) { m.state = s }

// Ask returns where event leads under the facts, or an error that wraps
// [ErrRefused]. The machine doesn't move.
func (m *Machine) Ask(on Event, f Facts) (Transition, error) {
	row := find(m.state, on, f)
	if row == nil {
		return Transition{}, fmt.Errorf("%w: %q in %s (desired %s)", ErrRefused, on, m.state, f.Desired)
	}
	r, ok := runners.Get().(*runner)
	if !ok {
		r = newRunner()
	}
	defer runners.Put(r)
	to, err := r.ask(m.state, row, on)
	if err != nil {
		return Transition{}, err
	}
	return Transition{From: m.state, To: to, Row: row}, nil
}

// runners are idle looplab machines; a pool, so that idle partitions cost none.
var runners sync.Pool

// runner is one looplab machine with every row of the table as an event of its
// own, since looplab has no guards: "15a retry" and "15b retry" lead to two states.
type runner struct {
	machine *fsm.FSM
	target  string
}

func newRunner() *runner {
	r := &runner{}
	var descs fsm.Events
	for i := range rows {
		for _, on := range rows[i].On {
			descs = append(descs, fsm.EventDesc{Name: eventName(&rows[i], on), Src: stateNames(rows[i].From), Dst: rows[i].To.String()})
		}
	}
	r.machine = fsm.NewFSM(messages.StateUnknown.String(), descs, fsm.Callbacks{
		// Notes the target and cancels: the record must be acknowledged before the
		// state moves, and looplab moves before its enter callbacks can fail.
		"before_event": func(_ context.Context, e *fsm.Event) {
			r.target = e.Dst
			e.Cancel()
		},
	})
	return r
}

func (r *runner) ask(from messages.State, row *Row, on Event) (messages.State, error) {
	r.machine.SetState(from.String())
	r.target = ""
	err := r.machine.Event(uncancelled{}, eventName(row, on))
	var canceled fsm.CanceledError
	var same fsm.NoTransitionError
	if r.target == "" || err != nil && !errors.As(err, &canceled) && !errors.As(err, &same) {
		return from, fmt.Errorf("%w: %q in %s: %w", ErrRefused, on, from, err)
	}
	for _, s := range messages.States() {
		if s.String() == r.target {
			return s, nil
		}
	}
	return from, fmt.Errorf("%w: unknown target %q", ErrRefused, r.target)
}

func eventName(row *Row, on Event) string { return row.Number + " " + on.String() }

func stateNames(list []messages.State) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.String()
	}
	return out
}

// uncancelled is the context of a decision, which can't be cancelled: looplab's
// Event jams the machine for good when its context ends halfway.
type uncancelled struct{}

func (uncancelled) Deadline() (time.Time, bool) { return time.Time{}, false }
func (uncancelled) Done() <-chan struct{}       { return nil }
func (uncancelled) Err() error                  { return nil }
func (uncancelled) Value(any) any               { return nil }
