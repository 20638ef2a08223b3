package groups

import (
	"errors"

	"kagami/messages"
)

// ErrNone goes with the refusal of a commit to a group that doesn't exist; the versions
// of the request name it differently.
var ErrNone = errors.New("the group doesn't exist")

// TopicPartitions are partitions of one topic, in rising order.
type TopicPartitions struct {
	Topic      messages.TopicID
	Partitions []int32
	// Epochs are the member epochs at which the partitions were assigned, in the same
	// order; nil if not known.
	Epochs []int32
}

// Beat is ConsumerGroupHeartbeat (KIP-848); the answer is *Beaten.
type Beat struct {
	Group  string
	Member string // "" asks for an id, in version 0 alone
	// Epoch is the member's; 0 joins, EpochLeaves and EpochAway leave.
	Epoch    int32
	Instance string // group.instance.id of a static member, else ""
	Rack     string // "" if there is none, or it is as it was
	// RebalanceMillis is how long the member may take to give partitions up; -1 is as
	// it was.
	RebalanceMillis int32
	Topics          []string // subscribed by name; nil is as it was
	Regex           *string  // subscribed topics in RE2, "" for none; nil is as it was
	Assignor        *string  // nil is as it was
	// Owned is what the member has; nil is as it was.
	Owned      []TopicPartitions
	ClientID   string
	ClientHost string
	// Visible tells which topics the member may know of; nil is all.
	Visible func(topic string) bool
}

// Member epochs with a meaning of their own.
const (
	EpochJoins  int32 = 0
	EpochLeaves int32 = -1
	EpochAway   int32 = -2 // of a static member that will come back
)

// Beaten answers Beat.
type Beaten struct {
	Err            error
	Member         string
	Epoch          int32
	IntervalMillis int32
	// Assigned is what the member may work on; nil if it is as it was.
	Assigned []TopicPartitions
}

// DescribeConsumer is ConsumerGroupDescribe for one group; the answer is
// *ConsumerDescribed.
type DescribeConsumer struct{ Group string }

// ConsumerDescribed answers DescribeConsumer.
type ConsumerDescribed struct {
	Err         error
	State       string
	Epoch       int32
	TargetEpoch int32
	Assignor    string
	Members     []ConsumerDescribedMember
}

// ConsumerDescribedMember is a member as an administrator sees it.
type ConsumerDescribedMember struct {
	ConsumerMember
	Member   string
	Epoch    int32
	Assigned []TopicPartitions
	Target   []TopicPartitions
}

// ConsumerGroup is the value of a ConsumerGroupMetadata record.
type ConsumerGroup struct {
	Epoch int32
	Hash  int64 // of what the group's topics look like
}

// ConsumerMember is the value of a ConsumerGroupMemberMetadata record.
type ConsumerMember struct {
	Instance        string
	Rack            string
	ClientID        string
	ClientHost      string
	Topics          []string
	Regex           string
	RebalanceMillis int32
	Assignor        string
	Classic         *ClassicMember // of a member that speaks the classic protocol
}

// ClassicMember is what is kept of a member of the classic protocol in a group of
// the consumer protocol.
type ClassicMember struct {
	SessionMillis int32
	Protocols     []Protocol
}

// TargetEpoch is the value of a ConsumerGroupTargetAssignmentMetadata record.
type TargetEpoch struct {
	Epoch  int32
	Millis int64 // when it was computed
}

// Target is the value of a ConsumerGroupTargetAssignmentMember record.
type Target struct{ Partitions []TopicPartitions }

// Current is the value of a ConsumerGroupCurrentMemberAssignment record.
type Current struct {
	Epoch    int32
	Previous int32 // epoch before; the member may not have heard of Epoch
	State    MemberStage
	Assigned []TopicPartitions
	Revoking []TopicPartitions // the member still has them, and is to give them up
}

// MemberStage is where a member of a consumer group is on its way to the target,
// with Kafka's numbers.
type MemberStage int8

// The stages.
const (
	StageStable     MemberStage = 0
	StageUnrevoked  MemberStage = 1 // has partitions that it must give up first
	StageUnreleased MemberStage = 2 // waits for partitions that others have
)

// String is for logs and descriptions.
func (s MemberStage) String() string {
	switch s {
	case StageStable:
		return "stable"
	case StageUnrevoked:
		return "unrevoked partitions"
	case StageUnreleased:
		return "unreleased partitions"
	default:
		return "unknown"
	}
}

// Regex is the value of a ConsumerGroupRegularExpression record.
type Regex struct {
	Topics  []string // that match
	Version int64    // of the topics that were looked at
	Millis  int64    // when
}

// TypeConsumer is the type of groups whose coordinator assigns.
const TypeConsumer = "consumer"

// GroupID names the group.
func (r Beat) GroupID() string { return r.Group }

// GroupID names the group.
func (r DescribeConsumer) GroupID() string { return r.Group }

func (*Beaten) answer()            {}
func (*ConsumerDescribed) answer() {}
