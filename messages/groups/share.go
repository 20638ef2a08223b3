package groups

import (
	"fmt"

	"kagami/messages"
)

// TypeShare is the type of groups whose members share partitions (KIP-932).
const TypeShare = "share"

// ShareGroup is the value of a ShareGroupMetadata record.
type ShareGroup struct {
	Epoch int32
	Hash  int64
}

// SharePartitions is the value of a ShareGroupStatePartitionMetadata record: the
// partitions that the group has a state of.
type SharePartitions struct{ Topics []ShareTopic }

// ShareTopic is partitions of a topic, in rising order.
type ShareTopic struct {
	ID         messages.TopicID
	Name       string
	Partitions []int32
}

// LookShare asks for a share group; the answer is *ShareLooked.
type LookShare struct{ Group string }

// ShareLooked answers LookShare. Err wraps ErrUnknownGroup if there is no share group
// of that name.
type ShareLooked struct {
	Err    error
	State  string
	Epoch  int32
	Topics []ShareTopic // that the group has a state of
}

// AlterShare notes which partitions a share group without members has a state of; the
// answer is *Done. A group that isn't there is made, unless there is nothing to add.
type AlterShare struct {
	Group  string
	Add    []ShareTopic
	Remove []messages.TopicID
}

// GroupID names the group.
func (r LookShare) GroupID() string { return r.Group }

// GroupID names the group.
func (r AlterShare) GroupID() string { return r.Group }

func (*ShareLooked) answer() {}

// ShareKey names the state of a share group in a partition.
type ShareKey struct {
	Group     string
	Topic     messages.TopicID
	Partition int32
}

// String is what Kafka finds the partition of __share_group_state by.
func (k ShareKey) String() string { return fmt.Sprintf("%s:%s:%d", k.Group, k.Topic, k.Partition) }

// ShareState is the value of a ShareSnapshot record.
type ShareState struct {
	SnapshotEpoch, StateEpoch, LeaderEpoch int32
	Start                                  int64 // where the group begins, NoOffset if it has no state
	Complete                               int32 // offsets from there on that are done with, -1 if not known
	CreatedMillis, WrittenMillis           int64
}

// ShareRecord is one record of __share_group_state; State is nil in a tombstone.
type ShareRecord struct {
	Key   ShareKey
	State *ShareState
}

// ShareStates asks a coordinator of share states; the answer is *ShareStated. All is
// done together.
type ShareStates struct {
	Set    []ShareSet
	Forget []ShareKey
	Get    []ShareKey
}

// ShareSet begins the state of a group in a partition anew.
type ShareSet struct {
	Key   ShareKey
	Start int64
}

// ShareStated answers ShareStates: the states of Get, in order.
type ShareStated struct {
	Err    error
	States []ShareState
}
