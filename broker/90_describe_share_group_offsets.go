package broker

// DescribeShareGroupOffsets: served versions 0-1 (KIP-932).
//
// Null topics are all that the group has a state of. A partition without a state has
// start offset -1, and so has every one of a topic or group that isn't there. v1 tells the lag, which is -1 here: nobody consumes by share groups.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/persistence/metadata"
)

func (s *Server) handleDescribeShareGroupOffsets(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeShareGroupOffsetsRequest)
	resp := kmsg.NewPtrDescribeShareGroupOffsetsResponse()
	resp.Version = req.Version
	img := s.image()
	seen := repeats[string]{}
	for i := range req.Groups {
		if seen.often(req.Groups[i].GroupID) {
			continue
		}
		g := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		g.GroupID = req.Groups[i].GroupID
		topics, err := s.shareOffsets(ctx, r, img, &req.Groups[i])
		if g.Topics = topics; err != nil {
			g.Topics, g.ErrorCode, g.ErrorMessage = nil, r.code(err), errorText(err)
		}
		resp.Groups = append(resp.Groups, g)
	}
	return answer(resp)
}

func (s *Server) shareOffsets(ctx context.Context, r *request, img *metadata.Image, g *kmsg.DescribeShareGroupOffsetsRequestGroup) ([]kmsg.DescribeShareGroupOffsetsResponseGroupTopic, error) {
	if !s.allowed(r, OpDescribe, KindGroup, g.GroupID) {
		return nil, messages.ErrGroupNotAuthorized
	}
	looked, states, err := s.deps.Shares.Look(ctx, g.GroupID)
	if errors.Is(err, messages.ErrUnknownGroup) {
		looked, err = &groups.ShareLooked{}, nil
	}
	if err != nil {
		return nil, err
	}
	asked := g.Topics
	if asked == nil {
		for _, t := range looked.Topics {
			if here := img.TopicByID(t.ID); here != nil && s.allowed(r, OpDescribe, KindTopic, here.Name) {
				asked = append(asked, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: here.Name, Partitions: t.Partitions})
			}
		}
	}
	var out []kmsg.DescribeShareGroupOffsetsResponseGroupTopic
	for _, t := range asked {
		rt := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
		rt.Topic = t.Topic
		topic := s.groupTopic(r, img, OpDescribe, t.Topic, messages.TopicID{}, false)
		if here := img.Topic(t.Topic); here != nil {
			rt.TopicID = here.ID
		}
		for _, n := range t.Partitions {
			rp := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
			rp.Partition, rp.StartOffset = n, messages.NoOffset
			st, ok := states[groups.ShareKey{Group: g.GroupID, Topic: rt.TopicID, Partition: n}]
			switch err := topic.err; {
			case err != nil && !errors.Is(err, messages.ErrUnknownTopicOrPartition):
				rp.ErrorCode, rp.ErrorMessage = r.code(err), errorText(err)
				if errors.Is(err, messages.ErrTopicNotAuthorized) {
					rt.TopicID = [16]byte{}
				}
			case ok && st.Start >= 0:
				rp.StartOffset, rp.LeaderEpoch = st.Start, st.LeaderEpoch
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		out = append(out, rt)
	}
	return out, nil
}
