package configs

// Keys of nodes for consumer groups.
const (
	OffsetsTopicPartitions     = "offsets.topic.num.partitions"
	OffsetsTopicRF             = "offsets.topic.replication.factor"
	OffsetsTopicSegmentBytes   = "offsets.topic.segment.bytes"
	OffsetsRetentionMinutes    = "offsets.retention.minutes"
	OffsetsRetentionCheck      = "offsets.retention.check.interval.ms"
	OffsetMetadataMaxBytes     = "offset.metadata.max.bytes"
	GroupMinSessionTimeout     = "group.min.session.timeout.ms"
	GroupMaxSessionTimeout     = "group.max.session.timeout.ms"
	GroupInitialRebalanceDelay = "group.initial.rebalance.delay.ms"
	GroupMaxSize               = "group.max.size"

	ConsumerSessionTimeout    = "group.consumer.session.timeout.ms"
	ConsumerHeartbeatInterval = "group.consumer.heartbeat.interval.ms"
	ConsumerMaxSize           = "group.consumer.max.size"
	ConsumerAssignors         = "group.consumer.assignors"
	ConsumerMigrationPolicy   = "group.consumer.migration.policy"

	ConsumerMinSessionTimeout    = "group.consumer.min.session.timeout.ms"
	ConsumerMaxSessionTimeout    = "group.consumer.max.session.timeout.ms"
	ConsumerMinHeartbeatInterval = "group.consumer.min.heartbeat.interval.ms"
	ConsumerMaxHeartbeatInterval = "group.consumer.max.heartbeat.interval.ms"

	ConsumerAssignmentInterval    = "group.consumer.assignment.interval.ms"
	ConsumerMinAssignmentInterval = "group.consumer.min.assignment.interval.ms"
	ConsumerMaxAssignmentInterval = "group.consumer.max.assignment.interval.ms"

	ShareStateTopicPartitions   = "share.coordinator.state.topic.num.partitions"
	ShareStateTopicRF           = "share.coordinator.state.topic.replication.factor"
	ShareStateTopicSegmentBytes = "share.coordinator.state.topic.segment.bytes"
)

func brokerGroupDefs() []Def {
	return []Def{
		{Name: OffsetsTopicPartitions, Type: TypeInt, Default: new("50"), Change: ChangeRestart, check: atLeast(1), Doc: "Partitions of __consumer_offsets. Read when the topic is created; must never change afterwards."},
		{Name: OffsetsTopicRF, Type: TypeShort, Default: new("3"), Change: ChangeRestart, check: atLeast(1), Doc: "Replicas of __consumer_offsets: at most as many as there are live nodes when it is created."},
		{Name: OffsetsTopicSegmentBytes, Type: TypeInt, Default: new("104857600"), Change: ChangeRestart, check: atLeast(1), Doc: "segment.bytes of __consumer_offsets, read when the topic is created."},
		{Name: OffsetsRetentionMinutes, Type: TypeInt, Default: new("10080"), Change: ChangeRestart, check: atLeast(1), Doc: "How long, minutes, committed offsets of a group without members are kept, and those of topics that no member reads any more."},
		{Name: OffsetsRetentionCheck, Type: TypeLong, Default: new("600000"), Change: ChangeRestart, check: atLeast(1), Doc: "Pause, ms, between two looks for offsets that are too old."},
		{Name: OffsetMetadataMaxBytes, Type: TypeInt, Default: new("4096"), Change: ChangeRestart, check: atLeast(0), Doc: "Largest metadata, bytes, that a client may commit with an offset."},
		{Name: GroupMinSessionTimeout, Type: TypeInt, Default: new("6000"), Change: ChangeRestart, check: atLeast(0), Doc: "Shortest session timeout, ms, that a member of a group may ask for."},
		{Name: GroupMaxSessionTimeout, Type: TypeInt, Default: new("1800000"), Change: ChangeRestart, check: atLeast(0), Doc: "Longest session timeout, ms."},
		{Name: GroupInitialRebalanceDelay, Type: TypeInt, Default: new("3000"), Change: ChangeRestart, check: atLeast(0), Doc: "How long, ms, an empty group waits for more members before its first generation begins."},
		{Name: GroupMaxSize, Type: TypeInt, Default: new("2147483647"), Change: ChangeRestart, check: atLeast(1), Doc: "Most members of a group of the classic protocol."},
		{Name: ConsumerSessionTimeout, Type: TypeInt, Default: new("45000"), Change: ChangeRestart, check: atLeast(1), Doc: "How long, ms, a member of a group of the consumer protocol may be silent. Groups may have their own."},
		{Name: ConsumerMinSessionTimeout, Type: TypeInt, Default: new("45000"), Change: ChangeRestart, check: atLeast(1), Doc: "Shortest session timeout, ms, that a group may have of its own."},
		{Name: ConsumerMaxSessionTimeout, Type: TypeInt, Default: new("60000"), Change: ChangeRestart, check: atLeast(1), Doc: "Longest session timeout, ms, that a group may have of its own."},
		{Name: ConsumerHeartbeatInterval, Type: TypeInt, Default: new("5000"), Change: ChangeRestart, check: atLeast(1), Doc: "Pause, ms, between two heartbeats of a member of a group of the consumer protocol. Groups may have their own."},
		{Name: ConsumerMinHeartbeatInterval, Type: TypeInt, Default: new("5000"), Change: ChangeRestart, check: atLeast(1), Doc: "Shortest heartbeat interval, ms, that a group may have of its own."},
		{Name: ConsumerMaxHeartbeatInterval, Type: TypeInt, Default: new("15000"), Change: ChangeRestart, check: atLeast(1), Doc: "Longest heartbeat interval, ms, that a group may have of its own."},
		{Name: ConsumerAssignmentInterval, Type: TypeInt, Default: new("1000"), Change: ChangeRestart, check: atLeast(0), Doc: "Shortest time, ms, between two assignments of a group of the consumer protocol: what changes meanwhile waits for the next one. Groups may have their own."},
		{Name: ConsumerMinAssignmentInterval, Type: TypeInt, Default: new("0"), Change: ChangeRestart, check: atLeast(0), Doc: "Shortest such time, ms, that a group may have of its own."},
		{Name: ConsumerMaxAssignmentInterval, Type: TypeInt, Default: new("15000"), Change: ChangeRestart, check: atLeast(0), Doc: "Longest such time, ms, that a group may have of its own."},
		{Name: ConsumerMaxSize, Type: TypeInt, Default: new("2147483647"), Change: ChangeRestart, check: atLeast(1), Doc: "Most members of a group of the consumer protocol."},
		{Name: ConsumerAssignors, Type: TypeList, Default: new("uniform,range"), Change: ChangeRestart, check: someOf("uniform", "range").notEmpty(), Doc: "Assignors that members of the consumer protocol may ask for. The first one is the default."},
		{Name: ConsumerMigrationPolicy, Type: TypeString, Default: new("bidirectional"), Change: ChangeRestart, check: oneOf("disabled", "upgrade", "downgrade", "bidirectional"), Doc: "Whether groups with members may change from the classic to the consumer protocol (upgrade), back (downgrade), or both."},
		{Name: ShareStateTopicPartitions, Type: TypeInt, Default: new("50"), Change: ChangeRestart, check: atLeast(1), Doc: "Partitions of __share_group_state. Read when the topic is created; must never change afterwards."},
		{Name: ShareStateTopicRF, Type: TypeShort, Default: new("3"), Change: ChangeRestart, check: atLeast(1), Doc: "Replicas of __share_group_state: at most as many as there are live nodes when it is created."},
		{Name: ShareStateTopicSegmentBytes, Type: TypeInt, Default: new("104857600"), Change: ChangeRestart, check: atLeast(14), Doc: "segment.bytes of __share_group_state, read when the topic is created."},
	}
}

// Keys of groups of the consumer protocol; a synonym is the node's key that counts
// where the group has none.
const (
	GroupSessionTimeout    = "consumer.session.timeout.ms"
	GroupHeartbeatInterval = "consumer.heartbeat.interval.ms"

	GroupAssignmentInterval = "consumer.assignment.interval.ms"
)

var groupSet = newSet("group", nil, []Def{
	{Name: GroupSessionTimeout, Type: TypeInt, Default: new("45000"), Synonyms: syn(ConsumerSessionTimeout), check: atLeast(1), Doc: "How long, ms, a member of the group may be silent. Taken as at least and at most what the nodes allow."},
	{Name: GroupHeartbeatInterval, Type: TypeInt, Default: new("5000"), Synonyms: syn(ConsumerHeartbeatInterval), check: atLeast(1), Doc: "Pause, ms, between two heartbeats of a member. Taken as at least and at most what the nodes allow."},
	{Name: GroupAssignmentInterval, Type: TypeInt, Default: new("1000"), Synonyms: syn(ConsumerAssignmentInterval), check: atLeast(0), Doc: "Shortest time, ms, between two assignments. Taken as at least and at most what the nodes allow."},
})

// Group is the set of configs of a consumer group.
func Group() *Set { return groupSet }

// GroupTimes are configs of a group, ms.
type GroupTimes struct{ Session, Heartbeat, Assignment int64 }

// GroupValues are what is set on a group, in the bounds that the node gives; a key that
// isn't set has the node's value.
func GroupValues(own map[string]string, node Values) GroupTimes {
	v := Values{set: groupSet, values: own}
	bounded := func(name, fallback, least, most string) int64 {
		if _, ok := own[name]; !ok {
			return node.Int64(fallback)
		}
		return min(max(v.Int64(name), node.Int64(least)), node.Int64(most))
	}
	return GroupTimes{
		Session:    bounded(GroupSessionTimeout, ConsumerSessionTimeout, ConsumerMinSessionTimeout, ConsumerMaxSessionTimeout),
		Heartbeat:  bounded(GroupHeartbeatInterval, ConsumerHeartbeatInterval, ConsumerMinHeartbeatInterval, ConsumerMaxHeartbeatInterval),
		Assignment: bounded(GroupAssignmentInterval, ConsumerAssignmentInterval, ConsumerMinAssignmentInterval, ConsumerMaxAssignmentInterval),
	}
}
