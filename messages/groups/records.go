package groups

// Record is one record of __consumer_offsets. Exactly one of the pointers is set
// where Gone is false; a tombstone has the key alone.
type Record struct {
	Group string
	// Offset records are keyed by group, topic and partition, group records by the
	// group alone.
	Kind      RecordKind
	Topic     string
	Partition int32
	Gone      bool
	Offset    *Offset
	State     *State
}

// RecordKind is what a record is about.
type RecordKind int8

// The kinds.
const (
	KindOffset RecordKind = iota + 1
	KindGroup
)

// String is for logs.
func (k RecordKind) String() string {
	switch k {
	case KindOffset:
		return "offset"
	case KindGroup:
		return "group"
	default:
		return "unknown"
	}
}

// Offset is the value of an offset record.
type Offset struct {
	Offset       int64
	LeaderEpoch  int32 // -1 if not known
	Metadata     string
	CommitMillis int64
	// ExpireMillis is what clients asked for up to OffsetCommit v4; -1 is the rule.
	ExpireMillis int64
}

// State is the value of a group record: a generation that is settled.
type State struct {
	ProtocolType string
	Generation   int32
	Protocol     string
	Leader       string
	SinceMillis  int64 // when the group came into this state; -1 if not known
	Members      []MemberState
}

// MemberState is a member in a group record.
type MemberState struct {
	Member          string
	Instance        string
	ClientID        string
	ClientHost      string
	RebalanceMillis int32
	SessionMillis   int32
	Metadata        []byte // of the group's protocol
	Assignment      []byte
}
