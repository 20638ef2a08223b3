package messages

import (
	"fmt"
	"strings"
)

// State is what one partition of a mirror topic is actually doing. The codes
// are those of the records in __mirror_state (spec: states.md, Codes).
type State int8

// The states. StateUnknown is never stored: it says that nothing is cached or
// stored, and as a previous state that none was recorded.
const (
	StateLogTruncation State = 0
	StateEpochFencing  State = 1
	StateMirroring     State = 2
	StatePausing       State = 3
	StatePaused        State = 4
	StateStopping      State = 5
	StateStopped       State = 6
	StateFailed        State = 7
	StateUnknown       State = 16
)

// States lists every state, StateUnknown last.
func States() []State {
	return []State{
		StateLogTruncation, StateEpochFencing, StateMirroring, StatePausing,
		StatePaused, StateStopping, StateStopped, StateFailed, StateUnknown,
	}
}

// String is the name that DescribeClusterMirrors and the tools show.
func (s State) String() string {
	switch s {
	case StateLogTruncation:
		return "LOG_TRUNCATION"
	case StateEpochFencing:
		return "EPOCH_FENCING"
	case StateMirroring:
		return "MIRRORING"
	case StatePausing:
		return "PAUSING"
	case StatePaused:
		return "PAUSED"
	case StateStopping:
		return "STOPPING"
	case StateStopped:
		return "STOPPED"
	case StateFailed:
		return "FAILED"
	case StateUnknown:
		return "UNKNOWN"
	default:
		return fmt.Sprintf("State(%d)", int8(s))
	}
}

// Storable reports whether s may stand as the state of a stored record.
func (s State) Storable() bool { return s >= StateLogTruncation && s <= StateFailed }

// Desired is what the operator asked for, read from the suffix of mirror.name.
type Desired int8

// The wishes. DesiredNone: the topic is in no mirror.
const (
	DesiredNone Desired = iota + 1
	DesiredActive
	DesiredPaused
	DesiredStopped
)

// String is the wish in lower case.
func (d Desired) String() string {
	switch d {
	case DesiredNone:
		return "none"
	case DesiredActive:
		return "active"
	case DesiredPaused:
		return "paused"
	case DesiredStopped:
		return "stopped"
	default:
		return fmt.Sprintf("Desired(%d)", int8(d))
	}
}

// The topic config that holds membership and wish, and its two suffixes.
const (
	MirrorNameConfig = "mirror.name"
	PausedSuffix     = ".paused"
	StoppedSuffix    = ".stopped"
)

// ParseMirrorName splits a value of mirror.name. It looks at the suffix only,
// from the right, and strips at most one. An empty value is no mirror.
func ParseMirrorName(value string) (mirror string, desired Desired) {
	if value == "" {
		return "", DesiredNone
	}
	if m, ok := strings.CutSuffix(value, StoppedSuffix); ok {
		return m, DesiredStopped
	}
	if m, ok := strings.CutSuffix(value, PausedSuffix); ok {
		return m, DesiredPaused
	}
	return value, DesiredActive
}

// FormatMirrorName is the value of mirror.name for a mirror and a wish.
func FormatMirrorName(mirror string, desired Desired) string {
	switch desired {
	case DesiredActive:
		return mirror
	case DesiredPaused:
		return mirror + PausedSuffix
	case DesiredStopped:
		return mirror + StoppedSuffix
	case DesiredNone:
		return ""
	default:
		return ""
	}
}

// PartitionState is what the coordinator knows of one partition: the content of
// its last MirrorPartitionState record, its last mirror epoch, and the private
// facts of OP-37.
type PartitionState struct {
	State        State
	Previous     State // state before FAILED; StateUnknown = not recorded
	RetryAttempt int16 // failures in a row, 1 on the first
	LME          int32 // last mirror epoch, NoEpoch if none

	Error       string // text of the last failure, empty if none
	CutRecords  int64  // records removed by truncation in this mirror's life
	CutBytes    int64
	CutFrom     int64 // offsets of the last cut, [CutFrom, CutTo); NoOffset if none
	CutTo       int64
	GapFrom     int64 // offsets never copied, [GapFrom, GapTo); NoOffset if none
	GapTo       int64
	GapAtMillis int64 // when the gap was met, ms since 1970

	// LeaderEpoch and WriteNumber of the last accepted write (OP-42).
	LeaderEpoch int32
	WriteNumber int64
}

// UnknownPartitionState is the answer for a partition of which nothing is stored.
func UnknownPartitionState() PartitionState {
	return PartitionState{
		State: StateUnknown, Previous: StateUnknown, LME: NoEpoch,
		CutFrom: NoOffset, CutTo: NoOffset, GapFrom: NoOffset, GapTo: NoOffset, LeaderEpoch: NoEpoch,
	}
}
