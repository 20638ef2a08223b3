package broker

// DeleteShareGroupOffsets: served version 0 (KIP-932).
//
// By topic, all partitions of it. A topic that the group has no state of is refused
// alone, with UNKNOWN_TOPIC_OR_PARTITION.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleDeleteShareGroupOffsets(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DeleteShareGroupOffsetsRequest)
	resp := kmsg.NewPtrDeleteShareGroupOffsetsResponse()
	resp.Version = req.Version
	img := s.image()
	topics := make([]named, len(req.Topics))
	var ids []messages.TopicID
	for i, t := range req.Topics {
		topics[i] = s.groupTopic(r, img, OpRead, t.Topic, messages.TopicID{}, false)
		if topics[i].err == nil {
			ids = append(ids, img.Topic(t.Topic).ID)
		}
	}
	err := s.mayAlterShares(r, OpDelete, req.GroupID)
	var had map[messages.TopicID]bool
	if err == nil {
		had, err = s.deps.Shares.Forget(ctx, req.GroupID, ids)
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	for i, t := range req.Topics {
		rt := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
		rt.Topic = t.Topic
		refused := topics[i].err
		if refused == nil {
			if id := img.Topic(t.Topic).ID; had[id] {
				rt.TopicID = id
			} else {
				refused = fmt.Errorf("%w: group %s has no offsets of topic %s", messages.ErrUnknownTopicOrPartition, req.GroupID, t.Topic)
			}
		}
		rt.ErrorCode, rt.ErrorMessage = r.code(refused), errorText(refused)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
