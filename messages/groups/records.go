package groups

// Record is one record of __consumer_offsets. Exactly one of the pointers is set
// where Gone is false; a tombstone has the key alone.
type Record struct {
	Group string
	// Offset records are keyed by group, topic and partition, those of a member by the
	// group and the member, regular expressions by themselves, others by the group alone.
	Kind      RecordKind
	Topic     string
	Partition int32
	Member    string
	Pattern   string
	Gone      bool
	Offset    *Offset
	State     *State
	// The values of the consumer protocol's records.
	Consumer       *ConsumerGroup
	ConsumerMember *ConsumerMember
	TargetEpoch    *TargetEpoch
	Target         *Target
	Current        *Current
	Regex          *Regex
	// The values of share groups' records.
	Share           *ShareGroup
	SharePartitions *SharePartitions
}

// RecordKind is what a record is about.
type RecordKind int8

// The kinds.
const (
	KindOffset RecordKind = iota + 1
	KindGroup
	KindConsumer           // a group of the consumer protocol
	KindConsumerPartitions // topics of such a group, as Kafka 4.0 stored them; carries no value here
	KindConsumerMember
	KindTargetEpoch
	KindTarget
	KindCurrent
	KindRegex
	KindShare
	KindSharePartitions
)

// String is for logs.
func (k RecordKind) String() string {
	switch k {
	case KindOffset:
		return "offset"
	case KindGroup:
		return "group"
	case KindConsumer:
		return "consumer group"
	case KindConsumerPartitions:
		return "partition metadata"
	case KindConsumerMember:
		return "member"
	case KindTargetEpoch:
		return "target epoch"
	case KindTarget:
		return "target assignment"
	case KindCurrent:
		return "current assignment"
	case KindRegex:
		return "regular expression"
	case KindShare:
		return "share group"
	case KindSharePartitions:
		return "partitions of a share group"
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
