package broker

// OffsetDelete: served version 0 (KIP-496).
//
// Topics that members read are GROUP_SUBSCRIBED_TO_TOPIC; a partition without an
// offset is no error.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

func (s *Server) handleOffsetDelete(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.OffsetDeleteRequest)
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.Version = req.Version
	del := groups.DeleteOffsets{Group: req.Group}
	img := s.image()
	topics := make([]named, len(req.Topics))
	for i, t := range req.Topics {
		topics[i] = s.groupTopic(r, img, OpRead, t.Topic, messages.TopicID{}, false)
		p := groups.Partitions{Topic: t.Topic}
		for _, n := range t.Partitions {
			if topics[i].check(n.Partition) == nil {
				p.Partitions = append(p.Partitions, n.Partition)
			}
		}
		del.Topics = append(del.Topics, p)
	}
	a, err := ask[*groups.Committed](ctx, s, r, OpDelete, del)
	if err == nil {
		err = a.Err
	}
	if err != nil {
		resp.ErrorCode = r.code(err)
		return answer(resp)
	}
	next := 0
	for i, t := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		for _, n := range t.Partitions {
			refused := topics[i].check(n.Partition)
			if refused == nil {
				refused = a.Positions[next]
				next++
			}
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition, rp.ErrorCode = n.Partition, r.code(refused)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
