package fetch

import (
	"fmt"

	"go.uber.org/zap/zapcore"
)

// Action is what a worker does about an error code of the source.
type Action int8

// The actions of the error table (spec: fetcher.md "Error table").
const (
	// ActionBackoff: leave the partition out for mirror.fetch.backoff.ms.
	ActionBackoff Action = iota + 1
	// ActionRefresh: back off and ask for fresh source metadata.
	ActionRefresh
	// ActionOutOfRange: workflows.md "Retention".
	ActionOutOfRange
	// ActionLeader: workflows.md "Source leader change".
	ActionLeader
	// ActionNewSession: begin a new full fetch session.
	ActionNewSession
)

// String is the action in lower case.
func (a Action) String() string {
	switch a {
	case ActionBackoff:
		return "backoff"
	case ActionRefresh:
		return "refresh"
	case ActionOutOfRange:
		return "out of range"
	case ActionLeader:
		return "leader"
	case ActionNewSession:
		return "new session"
	default:
		return fmt.Sprintf("Action(%d)", int8(a))
	}
}

// Kafka's codes that the worker looks for by name.
const (
	codeOffsetOutOfRange    int16 = 1
	codeUnknownTopic        int16 = 3
	codeNotLeader           int16 = 6
	codeFencedLeaderEpoch   int16 = 74
	codeUnknownTopicID      int16 = 100
	codeInconsistentTopicID int16 = 103
)

// codeRow is one row of the error table.
type codeRow struct {
	Code   int16
	Name   string
	Action Action
	Level  zapcore.Level
	// CheckID: the topic may be another one now; ask for its id before going on.
	CheckID bool
	Why     string
}

// errorTable is fetcher.md "Error table". A code that isn't here backs off.
var errorTable = []codeRow{
	{1, "OFFSET_OUT_OF_RANGE", ActionOutOfRange, zapcore.WarnLevel, false, "retention overtook us, or the source lost data"},
	{2, "CORRUPT_MESSAGE", ActionBackoff, zapcore.ErrorLevel, false, "the source's own disk; its next answer may be good"},
	{87, "INVALID_RECORD", ActionBackoff, zapcore.ErrorLevel, false, "as CORRUPT_MESSAGE"},
	{codeUnknownTopic, "UNKNOWN_TOPIC_OR_PARTITION", ActionRefresh, zapcore.WarnLevel, true, "the refresh decides whether the topic is gone"},
	{codeUnknownTopicID, "UNKNOWN_TOPIC_ID", ActionRefresh, zapcore.WarnLevel, true, "as UNKNOWN_TOPIC_OR_PARTITION"},
	{codeInconsistentTopicID, "INCONSISTENT_TOPIC_ID", ActionRefresh, zapcore.WarnLevel, true, "as UNKNOWN_TOPIC_OR_PARTITION"},
	{5, "LEADER_NOT_AVAILABLE", ActionRefresh, zapcore.WarnLevel, false, "an election is on"},
	{9, "REPLICA_NOT_AVAILABLE", ActionRefresh, zapcore.WarnLevel, false, "an election is on"},
	{codeNotLeader, "NOT_LEADER_OR_FOLLOWER", ActionLeader, zapcore.InfoLevel, false, "the leader moved"},
	{codeFencedLeaderEpoch, "FENCED_LEADER_EPOCH", ActionLeader, zapcore.InfoLevel, false, "our epoch is old"},
	{75, "UNKNOWN_LEADER_EPOCH", ActionBackoff, zapcore.InfoLevel, false, "the source node is behind"},
	{29, "TOPIC_AUTHORIZATION_FAILED", ActionBackoff, zapcore.ErrorLevel, false, "access may be granted later"},
	{56, "KAFKA_STORAGE_ERROR", ActionBackoff, zapcore.WarnLevel, false, "the source's disk; it elects another leader"},
	{70, "FETCH_SESSION_ID_NOT_FOUND", ActionNewSession, zapcore.DebugLevel, false, "the source evicted our session"},
	{71, "INVALID_FETCH_SESSION_EPOCH", ActionNewSession, zapcore.DebugLevel, false, "an answer was lost"},
	{106, "FETCH_SESSION_TOPIC_ID_ERROR", ActionNewSession, zapcore.DebugLevel, false, "names and ids may not be mixed in a session"},
	{109, "OFFSET_MOVED_TO_TIERED_STORAGE", ActionBackoff, zapcore.WarnLevel, false, "not expected for consumers"},
	{35, "UNSUPPORTED_VERSION", ActionBackoff, zapcore.WarnLevel, false, "the source was downgraded; a new connection negotiates again"},
}

// rowFor is the table's row for a code.
func rowFor(code int16) codeRow {
	for _, r := range errorTable {
		if r.Code == code {
			return r
		}
	}
	return codeRow{Code: code, Name: "other", Action: ActionBackoff, Level: zapcore.WarnLevel, Why: "not in the table"}
}
