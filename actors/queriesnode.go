package actors

import (
	"cmp"
	"context"
	"slices"

	pb "kagami/messages/proto"
)

// partitionListLimit is how many partitions one answer has: some MiB.
const partitionListLimit = 5000

// PartitionList is the mirror partitions that this node leads, in order of topic and
// partition: one answer for a whole page of them.
func (n *Node) PartitionList(q *pb.PartitionListQuery) *pb.PartitionList {
	limit := partitionListLimit
	if l := int(q.GetLimit()); l > 0 && l < limit {
		limit = l
	}
	var found []*PartitionHandle
	n.Partitions.Range(func(h *PartitionHandle) bool {
		tp := h.TopicPartition
		after := q.GetAfterTopic() == "" || cmp.Or(cmp.Compare(tp.Topic, q.GetAfterTopic()), cmp.Compare(tp.Partition, q.GetAfterPartition())) > 0
		if after && (q.GetMirror() == "" || h.Mirror == q.GetMirror()) && (q.GetTopic() == "" || tp.Topic == q.GetTopic()) {
			found = append(found, h)
		}
		return true
	})
	slices.SortFunc(found, func(a, b *PartitionHandle) int {
		return cmp.Or(cmp.Compare(a.TopicPartition.Topic, b.TopicPartition.Topic), cmp.Compare(a.TopicPartition.Partition, b.TopicPartition.Partition))
	})
	out := &pb.PartitionList{Truncated: len(found) > limit}
	for _, h := range found[:min(limit, len(found))] {
		out.Partitions = append(out.Partitions, n.describe(h))
	}
	return out
}

// MirrorList is this node's share of the mirrors, or of one of them.
func (n *Node) MirrorList(ctx context.Context, mirror string) (*pb.MirrorList, error) {
	out := &pb.MirrorList{}
	for _, m := range n.config.Store.Image().Mirrors() {
		if mirror != "" && m.Name != mirror {
			continue
		}
		s, err := n.mirrorSummary(ctx, m.Name)
		if err != nil {
			return nil, err
		}
		out.Mirrors = append(out.Mirrors, s)
	}
	return out, nil
}
