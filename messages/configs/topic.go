package configs

import (
	"fmt"

	"kagami/messages"
)

// Keys of topics that other parts of this module name.
const (
	MirrorName = messages.MirrorNameConfig

	// MirrorCopiedConfigs remembers which keys of a topic were copied from the
	// source (OP-28). Set by the controller whenever the mirror manager changes
	// configs; a comma separated list.
	MirrorCopiedConfigs = "mirror.copied.configs"

	MirrorSupportUncleanElection = "mirror.support.unclean.leader.election"
	MirrorThrottledReplicas      = "mirror.replication.throttled.replicas"

	CleanupPolicy          = "cleanup.policy"
	CompressionType        = "compression.type"
	RetentionMs            = "retention.ms"
	RetentionBytes         = "retention.bytes"
	SegmentBytes           = "segment.bytes"
	SegmentMs              = "segment.ms"
	SegmentIndexBytes      = "segment.index.bytes"
	FlushMessages          = "flush.messages"
	FlushMs                = "flush.ms"
	IndexIntervalBytes     = "index.interval.bytes"
	MaxMessageBytes        = "max.message.bytes"
	MaxDecompressedBytes   = "max.decompressed.message.bytes"
	MessageTimestampType   = "message.timestamp.type"
	MessageTimestampBefore = "message.timestamp.before.max.ms"
	MessageTimestampAfter  = "message.timestamp.after.max.ms"
	MinInsyncReplicas      = "min.insync.replicas"
	DeleteRetentionMs      = "delete.retention.ms"
	MinCompactionLagMs     = "min.compaction.lag.ms"
	MaxCompactionLagMs     = "max.compaction.lag.ms"
	MinCleanableDirtyRatio = "min.cleanable.dirty.ratio"
	FileDeleteDelayMs      = "file.delete.delay.ms"
	RemoteStorageEnable    = "remote.storage.enable"
)

var topicSet = newSet("topic", topicCross, topicLogDefs(), topicCleanDefs(), topicRemoteDefs(), topicMirrorDefs())

// Topic is the set of topic configs.
func Topic() *Set { return topicSet }

func syn(names ...string) []Synonym {
	out := make([]Synonym, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

func hoursSyn(ms, hours string) []Synonym {
	return []Synonym{{Name: ms}, {Name: hours, Factor: 3_600_000}}
}

func topicLogDefs() []Def {
	return []Def{
		{Name: CompressionType, Type: TypeString, Default: new("producer"), Synonyms: syn("compression.type"),
			check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
			Doc:   "Final compression of produced batches; producer keeps each batch as it came. Mirrored batches are never recompressed."},
		{Name: "compression.gzip.level", Type: TypeInt, Default: new("-1"), Synonyms: syn("compression.gzip.level"), check: levels(1, 9),
			Doc: "Level used when compression.type is gzip."},
		{Name: "compression.lz4.level", Type: TypeInt, Default: new("9"), Synonyms: syn("compression.lz4.level"), check: between(1, 17),
			Doc: "Level used when compression.type is lz4."},
		{Name: "compression.zstd.level", Type: TypeInt, Default: new("3"), Synonyms: syn("compression.zstd.level"), check: between(-131072, 22),
			Doc: "Level used when compression.type is zstd."},
		{Name: FlushMessages, Type: TypeLong, Default: new(maxLong), Synonyms: syn("log.flush.interval.messages"), check: atLeast(1),
			Doc: "1: every append is synced to disk before it is acknowledged. With any other value flush.ms alone counts."},
		{Name: FlushMs, Type: TypeLong, Default: new("1000"), Synonyms: syn("log.flush.interval.ms"), check: atLeast(0),
			Doc: "0: every append is synced to disk before it is acknowledged. Otherwise a node syncs what was appended every log.flush.interval.ms, whatever the topic says."},
		{Name: IndexIntervalBytes, Type: TypeInt, Default: new("4096"), Synonyms: syn("log.index.interval.bytes"), check: atLeast(0),
			Doc: "Bytes of log between two entries of the offset index."},
		{Name: MaxMessageBytes, Type: TypeInt, Default: new("1048588"), Synonyms: syn("message.max.bytes"), High: true, check: atLeast(0),
			Doc: "Largest batch, bytes, that a producer may send. Not enforced on mirrored batches."},
		{Name: MaxDecompressedBytes, Type: TypeInt, Default: new("2147483639"), Synonyms: syn(MaxDecompressedBytes), check: atLeast(1),
			Doc: "Largest record, bytes, in a compressed batch of a producer, decompressed. A whole batch may have 128 MiB. Not enforced on mirrored batches."},
		{Name: "errors.deadletterqueue.group.enable", Type: TypeBoolean, Default: new("false"),
			Doc: "Share groups: known for compatibility, without effect."},
		{Name: MessageTimestampType, Type: TypeString, Default: new("CreateTime"), Synonyms: syn("log.message.timestamp.type"),
			check: oneOf("CreateTime", "LogAppendTime"), Doc: "Whether records carry the producer's time or the time of the append. Not enforced on mirrored batches."},
		{Name: MessageTimestampBefore, Type: TypeLong, Default: new(maxLong), Synonyms: syn("log.message.timestamp.before.max.ms"), check: atLeast(0),
			Doc: "How far, ms, a producer's timestamp may lie in the past. Not enforced on mirrored batches."},
		{Name: MessageTimestampAfter, Type: TypeLong, Default: new("3600000"), Synonyms: syn("log.message.timestamp.after.max.ms"), check: atLeast(0),
			Doc: "How far, ms, a producer's timestamp may lie in the future. Not enforced on mirrored batches."},
		{Name: MinInsyncReplicas, Type: TypeInt, Default: new("1"), Synonyms: syn("min.insync.replicas"), High: true, check: atLeast(1),
			Doc: "In-sync replicas that acks=all needs. Never copied from a source; it also gates LOG_TRUNCATION."},
		{Name: "preallocate", Type: TypeBoolean, Default: new("false"), Synonyms: syn("log.preallocate"),
			Doc: "Known for compatibility, without effect."},
		{Name: SegmentBytes, Type: TypeInt, Default: new("1073741824"), Synonyms: syn("log.segment.bytes"), check: atLeast(14),
			Doc: "Size, bytes, at which a segment is rolled."},
		{Name: SegmentIndexBytes, Type: TypeInt, Default: new("10485760"), Synonyms: syn("log.index.size.max.bytes"), check: atLeast(4),
			Doc: "Largest offset index, bytes, of a segment."},
		{Name: "segment.jitter.ms", Type: TypeLong, Default: new("0"), Synonyms: hoursSyn("log.roll.jitter.ms", "log.roll.jitter.hours"), check: atLeast(0),
			Doc: "Known for compatibility, without effect."},
		{Name: SegmentMs, Type: TypeLong, Default: new("604800000"), Synonyms: hoursSyn("log.roll.ms", "log.roll.hours"), check: atLeast(1),
			Doc: "Age, ms, at which a segment is rolled."},
		{Name: "unclean.leader.election.enable", Type: TypeBoolean, Default: new("false"), Synonyms: syn("unclean.leader.election.enable"),
			Doc: "Whether a replica outside the ISR may become leader. Never copied from a source."},
		{Name: "leader.replication.throttled.replicas", Type: TypeList, Default: new(""), check: throttledReplicas(),
			Doc: "Known for compatibility, without effect."},
		{Name: "follower.replication.throttled.replicas", Type: TypeList, Default: new(""), check: throttledReplicas(),
			Doc: "Known for compatibility, without effect."},
	}
}

func topicCleanDefs() []Def {
	return []Def{
		{Name: CleanupPolicy, Type: TypeList, Default: new("delete"), Synonyms: syn("log.cleanup.policy"), High: true,
			check: someOf("compact", "delete"), Doc: "delete: old segments go; compact: the last record of each key stays; empty: nothing goes."},
		{Name: RetentionMs, Type: TypeLong, Default: new("604800000"), High: true, check: atLeast(-1),
			Synonyms: []Synonym{{Name: "log.retention.ms"}, {Name: "log.retention.minutes", Factor: 60_000}, {Name: "log.retention.hours", Factor: 3_600_000}},
			Doc:      "Age, ms, from which segments are deleted. -1: no limit."},
		{Name: RetentionBytes, Type: TypeLong, Default: new("-1"), Synonyms: syn("log.retention.bytes"), High: true, check: atLeast(-1),
			Doc: "Size, bytes, of a partition above which old segments are deleted. -1: no limit."},
		{Name: DeleteRetentionMs, Type: TypeLong, Default: new("86400000"), Synonyms: syn("log.cleaner.delete.retention.ms"), check: atLeast(0),
			Doc: "How long, ms, compaction keeps tombstones."},
		{Name: MinCompactionLagMs, Type: TypeLong, Default: new("0"), Synonyms: syn("log.cleaner.min.compaction.lag.ms"), check: atLeast(0),
			Doc: "Least age, ms, of a record that compaction may remove."},
		{Name: MaxCompactionLagMs, Type: TypeLong, Default: new(maxLong), Synonyms: syn("log.cleaner.max.compaction.lag.ms"), check: atLeast(1),
			Doc: "Longest time, ms, that a superseded record stays."},
		{Name: MinCleanableDirtyRatio, Type: TypeDouble, Default: new("0.5"), Synonyms: syn("log.cleaner.min.cleanable.ratio"), check: between(0, 1),
			Doc: "Share of a log that must be uncleaned before it is compacted."},
		{Name: FileDeleteDelayMs, Type: TypeLong, Default: new("60000"), Synonyms: syn("log.segment.delete.delay.ms"), check: atLeast(0),
			Doc: "Known for compatibility; files go when the last reader lets go of them."},
	}
}

func topicRemoteDefs() []Def {
	const what = "tiered storage"
	return []Def{
		{Name: RemoteStorageEnable, Type: TypeBoolean, Default: new("false"), check: unsupported("false", what), Doc: "Tiered storage. Only false is accepted."},
		{Name: "remote.log.copy.disable", Type: TypeBoolean, Default: new("false"), check: unsupported("false", what), Doc: "Tiered storage. Only false is accepted."},
		{Name: "remote.log.delete.on.disable", Type: TypeBoolean, Default: new("false"), check: unsupported("false", what), Doc: "Tiered storage. Only false is accepted."},
		{Name: "remote.copy.lag.ms", Type: TypeLong, Default: new("0"), Synonyms: syn("log.remote.copy.lag.ms"), check: atLeast(-2), Doc: "Tiered storage; without effect here."},
		{Name: "remote.copy.lag.bytes", Type: TypeLong, Default: new("-1"), Synonyms: syn("log.remote.copy.lag.bytes"), check: atLeast(-2), Doc: "Tiered storage; without effect here."},
		{Name: "local.retention.ms", Type: TypeLong, Default: new("-2"), Synonyms: syn("log.local.retention.ms"), check: atLeast(-2), Doc: "Tiered storage; without effect here."},
		{Name: "local.retention.bytes", Type: TypeLong, Default: new("-2"), Synonyms: syn("log.local.retention.bytes"), check: atLeast(-2), Doc: "Tiered storage; without effect here."},
	}
}

func topicMirrorDefs() []Def {
	return []Def{
		{Name: MirrorName, Type: TypeString, Change: ChangeNever, High: true,
			Doc: "The cluster mirror the topic belongs to, with .paused or .stopped behind it where the operator asked for that. Changed by start, stop, pause, resume and delete of mirrors."},
		{Name: MirrorThrottledReplicas, Type: TypeList, Default: new(""), check: throttledReplicas(),
			Doc: "Replicas under the mirror throttle (mirror.replication.throttled.rate). Never copied from a source."},
		{Name: MirrorSupportUncleanElection, Type: TypeBoolean, Default: new("false"),
			Doc: "true: LOG_TRUNCATION waits for all assigned replicas, not only for the ISR. Never copied from a source."},
		{Name: MirrorCopiedConfigs, Type: TypeList, Change: ChangeNever, Internal: true,
			Doc: "Keys of this topic that were copied from the source."},
	}
}

// topicCross checks values against each other, as Kafka's LogConfig does.
func topicCross(v Values) []error {
	var errs []error
	if a, b := v.Int64(MinCompactionLagMs), v.Int64(MaxCompactionLagMs); a > b {
		errs = append(errs, fmt.Errorf("%w: %s (%d) is above %s (%d)", messages.ErrInvalidConfig, MinCompactionLagMs, a, MaxCompactionLagMs, b))
	}
	return errs
}
