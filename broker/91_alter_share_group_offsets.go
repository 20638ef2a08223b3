package broker

// AlterShareGroupOffsets: served version 0 (KIP-932).
//
// A group that isn't there is made. An answer means that the offsets are stored. They
// aren't compared with the log, as in Kafka.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

func (s *Server) handleAlterShareGroupOffsets(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.AlterShareGroupOffsetsRequest)
	resp := kmsg.NewPtrAlterShareGroupOffsetsResponse()
	resp.Version = req.Version
	img := s.image()
	var set []groups.ShareSet
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewAlterShareGroupOffsetsResponseTopic()
		rt.Topic = t.Topic
		topic := s.groupTopic(r, img, OpRead, t.Topic, messages.TopicID{}, false)
		if here := img.Topic(t.Topic); here != nil && topic.err == nil {
			rt.TopicID = here.ID
		}
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			if err := topic.check(p.Partition); err != nil {
				rp.ErrorCode, rp.ErrorMessage = r.code(err), errorText(err)
			} else {
				set = append(set, groups.ShareSet{Key: groups.ShareKey{Group: req.GroupID, Topic: rt.TopicID, Partition: p.Partition}, Start: p.StartOffset})
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	err := s.mayAlterShares(r, OpRead, req.GroupID)
	if err == nil {
		err = s.deps.Shares.Alter(ctx, req.GroupID, set)
	}
	if err != nil {
		resp.Topics, resp.ErrorCode, resp.ErrorMessage = nil, r.code(err), errorText(err)
	}
	return answer(resp)
}

func (s *Server) mayAlterShares(r *request, op Operation, group string) error {
	switch {
	case group == "":
		return messages.ErrInvalidGroupID
	case !s.allowed(r, op, KindGroup, group):
		return messages.ErrGroupNotAuthorized
	}
	return nil
}
