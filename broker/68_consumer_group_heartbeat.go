package broker

// ConsumerGroupHeartbeat: served versions 0-1 (KIP-848).
//
// v1 regular expressions in RE2 syntax, which match whole names; member ids are the
// client's own (KIP-1082), in v0 the coordinator gives one to who has none. Epoch 0
// joins, -1 leaves, -2 is a static member that will come back. Null and -1 mean "as
// before". An answer means that what it says is stored.
//
// Left out: racks in the assignment (Kafka 4 has none either), and
// group.consumer.assignment.interval.ms: each change of a group has its target at
// once.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

// beatOwnIDSince is the version in which members make up their ids.
const beatOwnIDSince = 1

func (s *Server) handleConsumerGroupHeartbeat(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.ConsumerGroupHeartbeatRequest)
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.Version = req.Version
	beat := groups.Beat{
		Group: req.Group, Member: req.MemberID, Epoch: req.MemberEpoch, Instance: textOf(req.InstanceID), Rack: textOf(req.RackID),
		RebalanceMillis: req.RebalanceTimeoutMillis, Topics: req.SubscribedTopicNames, Regex: req.SubscribedTopicRegex, Assignor: req.ServerAssignor,
		ClientID: r.who.ClientID, ClientHost: "/" + r.who.Host,
	}
	if !s.unguarded {
		beat.Visible = func(topic string) bool { return s.allowed(r, OpDescribe, KindTopic, topic) }
	}
	if req.Topics != nil {
		beat.Owned = []groups.TopicPartitions{}
	}
	for _, t := range req.Topics {
		beat.Owned = append(beat.Owned, groups.TopicPartitions{Topic: t.TopicID, Partitions: t.Partitions})
	}
	var a *groups.Beaten
	err := s.topicsVisible(r, req.SubscribedTopicNames)
	if req.Version >= beatOwnIDSince && req.MemberID == "" {
		err = fmt.Errorf("%w: MemberId can't be empty", messages.ErrInvalidRequest)
	}
	for _, text := range []*string{req.InstanceID, req.RackID} {
		if text != nil && *text == "" {
			err = fmt.Errorf("%w: InstanceId and RackId can't be empty", messages.ErrInvalidRequest)
		}
	}
	if !s.allowed(r, OpRead, KindGroup, req.Group) {
		err = messages.ErrGroupNotAuthorized
	}
	if err == nil {
		a, err = ask[*groups.Beaten](ctx, s, r, OpRead, beat)
	}
	if err == nil {
		err = a.Err
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &a.Member, a.Epoch, a.IntervalMillis
	if a.Assigned != nil {
		resp.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{Topics: []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}}
		for _, t := range a.Assigned {
			rt := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			rt.TopicID, rt.Partitions = t.Topic, t.Partitions
			resp.Assignment.Topics = append(resp.Assignment.Topics, rt)
		}
	}
	return answer(resp)
}

// topicsVisible: a member subscribes only to topics that it may know of.
func (s *Server) topicsVisible(r *request, names []string) error {
	for _, name := range names {
		if !s.allowed(r, OpDescribe, KindTopic, name) {
			return messages.ErrTopicNotAuthorized
		}
	}
	return nil
}
