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
		{Name: GroupMaxSize, Type: TypeInt, Default: new("2147483647"), Change: ChangeRestart, check: atLeast(1), Doc: "Most members of a group."},
	}
}
