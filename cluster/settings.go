package cluster

import (
	"slices"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// topicSettings is what a topic's effective configs mean for its logs.
type topicSettings struct {
	log             persistence.Config
	deletes         bool  // cleanup.policy has delete
	retentionMillis int64 // -1: no limit
	retentionBytes  int64 // -1: no limit
	compacts        bool  // cleanup.policy has compact
	compaction      CompactionSettings
}

func (s topicSettings) retains() bool {
	return s.deletes && (s.retentionMillis >= 0 || s.retentionBytes >= 0)
}

// mayExpire spares logs from being looked at that can't have anything to delete.
func (s topicSettings) mayExpire(sizeBytes int64) bool {
	return sizeBytes > 0 && (s.retentionMillis >= 0 || sizeBytes > s.retentionBytes)
}

// producerExpiry is the node config that bounds producer state, in ms.
const producerExpiry = "producer.id.expiration.ms"

// settingsOf reads the configs of t over those of the node. Internal topics are
// synced in every append, whatever the configs say; others with flush.messages=1
// or flush.ms=0. On a node of several the journal does that, see settings.
func settingsOf(t *metadata.Topic, node map[string]string, flushAlways bool) topicSettings {
	v := configs.TopicValues(t.Configs, node)
	s := topicSettings{
		log: persistence.Config{
			SegmentBytes:       v.Int(configs.SegmentBytes),
			SegmentMillis:      v.Int64(configs.SegmentMs),
			IndexBytesMax:      v.Int(configs.SegmentIndexBytes),
			IndexIntervalBytes: v.Int(configs.IndexIntervalBytes),
			FlushAlways:        flushAlways || messages.IsInternalTopic(t.Name) || v.Int64(configs.FlushMessages) == 1 || v.Int64(configs.FlushMs) == 0,
			ProducerExpiryMs:   configs.BrokerValues(node, nil).Int64(producerExpiry),
		},
		deletes:         slices.Contains(v.List(configs.CleanupPolicy), "delete"),
		retentionMillis: v.Int64(configs.RetentionMs),
		retentionBytes:  v.Int64(configs.RetentionBytes),
	}
	s.compactAs(t.Name, v, node)
	return s
}

// settings are those of a topic's replicas. A stream has what isn't synced here: after
// a crash the log is cut back to its checkpoint, whatever else was synced, and the
// stream is applied again from there.
func (rs *Replicas) settings(t *metadata.Topic, node map[string]string) topicSettings {
	s := settingsOf(t, node, rs.opts.FlushAlways)
	s.log.FlushAlways = s.log.FlushAlways && rs.opts.Journal == nil
	return s
}

func (rs *Replicas) nodeConfig(img *metadata.Image) map[string]string {
	return configs.BrokerMap(img.BrokerConfig(rs.opts.Node), rs.opts.Static)
}
