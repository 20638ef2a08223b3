package broker

// ListPartitionReassignments: served version 0. A partition is listed while a live
// replica of it isn't in sync: that one is being added, or catches up. Nothing is ever
// being removed: that is done at once.

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

func (s *Server) handleListPartitionReassignments(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.ListPartitionReassignmentsRequest)
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	resp.Version = req.Version
	if !s.allowedCluster(r, OpDescribe) {
		err := messages.ErrClusterNotAuthorized
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	whole := s.wholeReplica()
	img := s.image()
	add := func(t *metadata.Topic, only []int32) {
		rt := kmsg.NewListPartitionReassignmentsResponseTopic()
		rt.Topic = t.Name
		for n := range t.Partitions {
			if only != nil && !slices.Contains(only, int32(n)) {
				continue
			}
			rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			rp.Partition, rp.Replicas = int32(n), nodeIDs(t.Partitions[n].Replicas)
			rp.AddingReplicas, rp.RemovingReplicas = []int32{}, []int32{}
			for _, node := range t.Partitions[n].Replicas {
				if (s.cfg.Live == nil || s.cfg.Live(node)) && !whole(node, t.Key(int32(n))) {
					rp.AddingReplicas = append(rp.AddingReplicas, int32(node))
				}
			}
			if len(rp.AddingReplicas) > 0 {
				rt.Partitions = append(rt.Partitions, rp)
			}
		}
		if len(rt.Partitions) > 0 {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	if req.Topics == nil {
		for _, t := range img.Topics() {
			add(t, nil)
		}
	}
	for _, t := range req.Topics {
		if topic := img.Topic(t.Topic); topic != nil {
			add(topic, append([]int32{}, t.Partitions...))
		}
	}
	return answer(resp)
}
