package messages

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
)

// TopicID is a topic's 128-bit id (KIP-516). The zero id means "none".
type TopicID [16]byte

// IsZero reports whether id is the zero id, which names no topic.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String is the form that Kafka's tools print: base64 for URLs, no padding.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// MarshalText makes JSON show what String prints.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *TopicID) UnmarshalText(text []byte) error {
	parsed, err := ParseTopicID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// ParseTopicID reads the form that String prints.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("parse topic id %q: want 22 characters of URL base64", s)
	}
	copy(id[:], b)
	return id, nil
}

// NewTopicID returns a random id: never the zero id, never one of Kafka's
// reserved ids (0 and 1), and never one whose text starts with "-", which
// command line tools would take for an option.
func NewTopicID() TopicID {
	for {
		var id TopicID
		if _, err := rand.Read(id[:]); err != nil {
			continue // crypto/rand never returns an error on supported systems
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' {
			return id
		}
	}
}

// NodeID is the id of a node of this cluster (Kafka's broker id). Range 0 to
// 2147483647; -1 means none.
type NodeID int32

// NoNode is the id of no node: a partition without a leader.
const NoNode NodeID = -1

// TopicPartition names a partition for people and for Kafka clients.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is topic-partition, the name of the partition's folder as well.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

// PartitionKey names one life of a partition: a mirror topic that was deleted
// may come back with the same id, so the metadata offset of the creation tells
// the lives apart. The journal names partitions by it.
type PartitionKey struct {
	TopicID   TopicID
	CreatedAt int64 // offset of the TopicRecord in the metadata log
	Partition int32
}

// String is topic id/partition@creation.
func (k PartitionKey) String() string {
	return fmt.Sprintf("%s/%d@%d", k.TopicID, k.Partition, k.CreatedAt)
}

// Names of the internal topics. Clients may read them and never write them.
const (
	ClusterMetadataTopic  = "__cluster_metadata"
	MirrorStateTopic      = "__mirror_state"
	ConsumerOffsetsTopic  = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
	ShareGroupStateTopic  = "__share_group_state"
)

// IsInternalTopic reports whether name is one of this cluster's own topics.
func IsInternalTopic(name string) bool {
	switch name {
	case ClusterMetadataTopic, MirrorStateTopic, ConsumerOffsetsTopic, TransactionStateTopic, ShareGroupStateTopic:
		return true
	}
	return false
}

// Offsets and epochs that mean "not known".
const (
	NoOffset int64 = -1
	NoEpoch  int32 = -1
)
