package broker

// ConsumerGroupDescribe: served versions 0-1 (KIP-848).
//
// v1 the protocol that each member speaks (KIP-1099). A group of the classic
// protocol is GROUP_ID_NOT_FOUND. Partitions of topics that don't exist any more
// aren't shown; a member that reads a topic which the client may not know of makes
// it TOPIC_AUTHORIZATION_FAILED for its group.

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/persistence/metadata"
)

// Protocols that members speak.
const (
	memberClassic  int8 = 0
	memberConsumer int8 = 1
)

func (s *Server) handleConsumerGroupDescribe(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.ConsumerGroupDescribeRequest)
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.Version = req.Version
	img := s.image()
	for _, id := range bounded(req.Groups) {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group = id
		a, err := ask[*groups.ConsumerDescribed](ctx, s, r, OpDescribe, groups.DescribeConsumer{Group: id})
		if err == nil {
			err = a.Err
		}
		if id == "" && !errors.Is(err, messages.ErrGroupNotAuthorized) {
			err = messages.ErrInvalidGroupID
		}
		if err == nil {
			g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = a.State, a.Epoch, a.TargetEpoch, a.Assignor
			g.Members, err = s.describedMembers(r, img, a.Members)
		}
		if err != nil {
			g.ErrorCode, g.ErrorMessage = r.code(err), errorText(err)
		} else if req.IncludeAuthorizedOperations {
			g.AuthorizedOperations = s.operations(r, KindGroup, id)
		}
		resp.Groups = append(resp.Groups, g)
	}
	return answer(resp)
}

func (s *Server) describedMembers(r *request, img *metadata.Image, members []groups.ConsumerDescribedMember) ([]kmsg.ConsumerGroupDescribeResponseGroupMember, error) {
	var out []kmsg.ConsumerGroupDescribeResponseGroupMember
	for _, m := range members {
		gm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		gm.MemberID, gm.InstanceID, gm.RackID, gm.MemberEpoch = m.Member, nullable(m.Instance), nullable(m.Rack), m.Epoch
		gm.ClientID, gm.ClientHost, gm.SubscribedTopics, gm.SubscribedTopicRegex = m.ClientID, m.ClientHost, m.Topics, &m.Regex
		gm.Assignment, gm.TargetAssignment = namedAssignment(img, m.Assigned), namedAssignment(img, m.Target)
		gm.MemberType = memberConsumer
		if m.Classic != nil {
			gm.MemberType = memberClassic
		}
		names := m.Topics
		for _, a := range []kmsg.Assignment{gm.Assignment, gm.TargetAssignment} {
			for _, t := range a.TopicPartitions {
				names = append(slices.Clip(names), t.Topic)
			}
		}
		if err := s.topicsVisible(r, names); err != nil {
			return nil, messages.ErrTopicNotAuthorized
		}
		out = append(out, gm)
	}
	return out, nil
}

func namedAssignment(img *metadata.Image, partitions []groups.TopicPartitions) kmsg.Assignment {
	out := kmsg.NewAssignment()
	for _, p := range partitions {
		if t := img.TopicByID(p.Topic); t != nil {
			tp := kmsg.NewAssignmentTopicPartition()
			tp.TopicID, tp.Topic, tp.Partitions = p.Topic, t.Name, p.Partitions
			out.TopicPartitions = append(out.TopicPartitions, tp)
		}
	}
	return out
}
