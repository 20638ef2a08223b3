package broker

// CreatePartitions: served versions 0-3.
//
// A topic of a mirror that isn't .stopped: POLICY_VIOLATION with a text that
// starts with READ_ONLY_TOPIC (OP-23); the controller refuses it.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

const createPartitionsThrottled = 3 // KIP-599

func (s *Server) handleCreatePartitions(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.CreatePartitionsRequest)
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.Version = req.Version
	img := s.image()
	cmd := messages.CreatePartitions{ValidateOnly: req.ValidateOnly}
	items := make([]messages.Item, len(req.Topics))
	var sent []int
	times := map[string]int{}
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		switch {
		case times[t.Topic] > 1:
			items[i].Err = fmt.Errorf("%w: topic %q is named %d times", messages.ErrInvalidRequest, t.Topic, times[t.Topic])
		case !s.allowed(r, OpAlter, KindTopic, t.Topic):
			items[i].Err = messages.ErrTopicNotAuthorized
		case img.Topic(t.Topic) == nil:
			items[i].Err = messages.ErrUnknownTopicOrPartition
		case messages.IsInternalTopic(t.Topic):
			items[i].Err = fmt.Errorf("%w: %s is internal", messages.ErrInvalidTopic, t.Topic)
		default:
			pc := messages.PartitionCount{Topic: t.Topic, Count: t.Count}
			for _, a := range t.Assignment {
				var nodes []messages.NodeID
				for _, n := range a.Replicas {
					nodes = append(nodes, messages.NodeID(n))
				}
				pc.Assignment = append(pc.Assignment, nodes)
			}
			if more := int(t.Count) - len(img.Topic(t.Topic).Partitions); more > 0 && !req.ValidateOnly {
				if items[i].Err = s.mutate(r, more, req.Version >= createPartitionsThrottled); items[i].Err != nil {
					continue
				}
			}
			cmd.Topics = append(cmd.Topics, pc)
			sent = append(sent, i)
		}
	}
	if len(sent) > 0 {
		spread(items, sent, s.submit(ctx, r, millis(req.TimeoutMillis), cmd))
	}
	for i := range req.Topics {
		if times[req.Topics[i].Topic] == 0 {
			continue // named twice, refused once
		}
		times[req.Topics[i].Topic] = 0
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = req.Topics[i].Topic
		rt.ErrorCode, rt.ErrorMessage = r.code(items[i].Err), errorText(items[i].Err)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
