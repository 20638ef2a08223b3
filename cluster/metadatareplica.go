package cluster

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence"
)

// MetadataTopicID is Kafka's reserved id of __cluster_metadata.
var MetadataTopicID = messages.TopicID{15: 1}

// metadataSegmentBytes keeps segments of the metadata log small, so that
// snapshots free space soon (Kafka's metadata.log.segment.bytes is 1 GiB).
const metadataSegmentBytes = 64 << 20

// OpenMetadataReplica opens or creates this node's copy of the metadata log,
// which has to be there before any image is. Every append is synced (on a node of
// several by the journal). The
// controller claims it (under its own epochs) before it appends; the caller
// closes it, after the metadata store.
func OpenMetadataReplica(ctx context.Context, node messages.NodeID, logs LogStore, checkpoints *Checkpoints, zl *zap.Logger) (*Replica, error) {
	return openMetadataReplica(ctx, node, logs, checkpoints, nil, zl)
}

// OpenMetadataReplica is that of a node of several. [Journal.StartMetadata] has it
// follow.
func (j *Journal) OpenMetadataReplica(ctx context.Context, logs LogStore) (*Replica, error) {
	return openMetadataReplica(ctx, j.opts.Node, logs, j.checkpoints, j.shards[MetadataShard], j.opts.Logger)
}

func openMetadataReplica(ctx context.Context, node messages.NodeID, logs LogStore, checkpoints *Checkpoints, s *shard, zl *zap.Logger) (*Replica, error) {
	info := persistence.Info{
		TopicPartition: messages.TopicPartition{Topic: messages.ClusterMetadataTopic},
		Key:            messages.PartitionKey{TopicID: MetadataTopicID},
	}
	cfg := persistence.Config{FlushAlways: s == nil, SegmentBytes: metadataSegmentBytes}
	log, err := openOrCreate(ctx, logs, info, cfg)
	if err != nil {
		return nil, fmt.Errorf("open metadata log: %w", err)
	}
	r, err := OpenReplica(ReplicaOptions{
		Key: info.Key, Partition: info.TopicPartition, Node: node, Log: log, Checkpoints: checkpoints, Admit: true, Logger: zl.Named("metadata"),
		shard: s, newborn: true,
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	r.localStart = true
	return r, nil
}
