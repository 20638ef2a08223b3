package fsm

import (
	"slices"
	"strings"

	"kagami/messages"
)

// Facts are all that guards may look at.
type Facts struct {
	Desired  messages.Desired
	Previous messages.State // recorded in the state record, StateUnknown if none
	// Attempts is the failures in a row, Limit mirror.failed.retry.max.attempts
	// (0 = unlimited).
	Attempts int16
	Limit    int32

	LogEmpty    bool // log end offset 0: nothing was ever here (OP-44)
	Converged   bool // Convergence.Done
	EpochRaised bool // DLE is above the minimum that was asked for
	ResetAcked  bool // MIRROR_PID_RESET is acknowledged by the ISR
	StopFailed  bool // FAILED was entered from STOPPING
	AllStopped  bool // every partition of the mirror is STOPPED
}

// attemptsLeft: when the counter has reached the limit the failure is permanent.
func (f Facts) attemptsLeft() bool { return f.Limit == 0 || int32(f.Attempts) < f.Limit }

// fromStop: the stop sequence itself failed. A STOPPING record with previous
// state 0 keeps that 0 over a failure, so the leader's memory counts as well.
func (f Facts) fromStop() bool { return f.StopFailed || f.Previous == messages.StateStopping }

// Guard is a named condition of a row.
type Guard struct {
	Name string
	ok   func(Facts) bool
}

// Holds evaluates the guard.
func (g Guard) Holds(f Facts) bool { return g.ok(f) }

var (
	always       = Guard{"", func(Facts) bool { return true }}
	emptyLog     = Guard{"log is empty", func(f Facts) bool { return f.LogEmpty }}
	dataInLog    = Guard{"log is not empty", func(f Facts) bool { return !f.LogEmpty }}
	converged    = Guard{"replicas converged", func(f Facts) bool { return f.Converged }}
	epochRaised  = Guard{"DLE above the minimum", func(f Facts) bool { return f.EpochRaised }}
	resetAcked   = Guard{"MIRROR_PID_RESET acknowledged", func(f Facts) bool { return f.ResetAcked }}
	notFromStop  = Guard{"stop itself did not fail", func(f Facts) bool { return !f.fromStop() }}
	allStopped   = Guard{"all partitions of the mirror STOPPED", func(f Facts) bool { return f.AllStopped }}
	exhausted    = Guard{"attempts exhausted", func(f Facts) bool { return !f.attemptsLeft() }}
	retryStopped = Guard{"attempts left, desired stopped", func(f Facts) bool {
		return f.attemptsLeft() && f.Desired == messages.DesiredStopped
	}}
	retryPaused = Guard{"attempts left, desired paused, previous not LOG_TRUNCATION", func(f Facts) bool {
		return f.attemptsLeft() && f.Desired == messages.DesiredPaused && f.Previous != messages.StateLogTruncation
	}}
	// A partition that never aligned must align before it may pause.
	retryAlign = Guard{"attempts left, desired active or paused, previous LOG_TRUNCATION", func(f Facts) bool {
		return f.attemptsLeft() && f.Previous == messages.StateLogTruncation &&
			(f.Desired == messages.DesiredActive || f.Desired == messages.DesiredPaused)
	}}
	retryFencing   = retryActive(messages.StateEpochFencing)
	retryPausing   = retryActive(messages.StatePausing)
	retryStopping  = retryActive(messages.StateStopping)
	retryMirroring = retryActive(messages.StateMirroring, messages.StatePaused, messages.StateUnknown)
)

func retryActive(previous ...messages.State) Guard {
	name := "attempts left, desired active, previous " + strings.Join(stateNames(previous), " or ")
	return Guard{name, func(f Facts) bool {
		return f.attemptsLeft() && f.Desired == messages.DesiredActive && slices.Contains(previous, f.Previous)
	}}
}
