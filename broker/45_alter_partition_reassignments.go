package broker

// AlterPartitionReassignments: served versions 0-1.
//
// v1 AllowReplicationFactorChange (KIP-860). A request changes the order of the
// replicas (the first is the preferred leader), adds some, or takes some away; what it
// adds copies the partition by itself. To replace replicas, add first and take away when
// the new ones are in sync: two requests, since one that did both could leave a partition
// to replicas that are still empty. Replicas are taken away only where one that stays is
// in sync. A change is made at once, so there is never one to cancel:
// NO_REASSIGNMENT_IN_PROGRESS.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleAlterPartitionAssignments(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.Version, resp.AllowReplicationFactorChange = req.Version, req.AllowReplicationFactorChange
	if !s.allowedCluster(r, OpAlter) {
		err := messages.ErrClusterNotAuthorized
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	img, whole := s.image(), s.wholeReplica()
	mayResize := req.Version < 1 || req.AllowReplicationFactorChange
	var items []messages.Item
	var sent []int
	var cmd messages.ReassignPartitions
	for _, t := range req.Topics {
		topic := img.Topic(t.Topic)
		for _, p := range t.Partitions {
			var err error
			var change messages.Reassignment
			switch {
			case topic == nil || p.Partition < 0 || int(p.Partition) >= len(topic.Partitions):
				err = fmt.Errorf("%w: %s-%d", messages.ErrUnknownTopicOrPartition, t.Topic, p.Partition)
			case p.Replicas == nil:
				err = refuse(kerr.NoReassignmentInProgress, "")
			default:
				change = messages.Reassignment{TopicID: topic.ID, Partition: p.Partition, Resize: mayResize}
				for _, n := range p.Replicas {
					change.Replicas = append(change.Replicas, messages.NodeID(n))
				}
				for _, n := range topic.Partitions[p.Partition].Replicas {
					if whole(n, topic.Key(p.Partition)) {
						change.InSync = append(change.InSync, n)
					}
				}
				sent = append(sent, len(items))
				cmd.Changes = append(cmd.Changes, change)
			}
			items = append(items, messages.Item{Name: t.Topic, Partition: p.Partition, Err: err})
		}
	}
	if len(sent) > 0 {
		spread(items, sent, s.submit(ctx, r, millis(req.TimeoutMillis), cmd))
	}
	n := 0
	for _, t := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.ErrorMessage = p.Partition, r.code(items[n].Err), errorText(items[n].Err)
			n++
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
