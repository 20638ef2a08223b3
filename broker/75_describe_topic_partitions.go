package broker

// DescribeTopicPartitions: served version 0 (KIP-966).
//
// Topics come in order of name, partitions in order of number, at most
// ResponsePartitionLimit (and 2000) of them; NextCursor says where to go on. No
// topic named = all that the client may see. Eligible leader replicas: none.

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

const describePartitionsMax = 2000

func (s *Server) handleDescribeTopicPartitions(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeTopicPartitionsRequest)
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	resp.Version = req.Version
	left := min(describePartitionsMax, max(int(req.ResponsePartitionLimit), 1))
	if c := req.Cursor; c != nil && (c.Partition < 0 || len(req.Topics) > 0 && !slices.ContainsFunc(req.Topics, func(t kmsg.DescribeTopicPartitionsRequestTopic) bool { return t.Topic == c.Topic })) {
		for _, t := range req.Topics {
			rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
			rt.Topic, rt.AuthorizedOperations, rt.ErrorCode = &t.Topic, noOperations, r.code(messages.ErrInvalidRequest)
			resp.Topics = append(resp.Topics, rt)
		}
		return answer(resp)
	}
	names, first := s.namesToDescribe(r, req)
	for i, name := range names {
		from := int32(0)
		if i == 0 {
			from = first
		}
		if left == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: from}
			break
		}
		t, next := s.describeTopic(r, name, from, left)
		left -= len(t.Partitions)
		resp.Topics = append(resp.Topics, t)
		if next >= 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: next}
			break
		}
	}
	return answer(resp)
}

// namesToDescribe is the topics from the cursor on, and the first partition
// wanted of the first of them.
func (s *Server) namesToDescribe(r *request, req *kmsg.DescribeTopicPartitionsRequest) (names []string, from int32) {
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if len(req.Topics) == 0 {
		for _, t := range s.image().Topics() {
			if s.allowed(r, OpDescribe, KindTopic, t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor == nil {
		return names, 0
	}
	at, found := slices.BinarySearch(names, req.Cursor.Topic)
	if found {
		from = max(req.Cursor.Partition, 0)
	}
	return names[at:], from
}

// describeTopic describes at most limit partitions of a topic; next is the first
// one left out, -1 for none.
func (s *Server) describeTopic(r *request, name string, from int32, limit int) (out kmsg.DescribeTopicPartitionsResponseTopic, next int32) {
	out = kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.AuthorizedOperations, next = &name, noOperations, -1
	img := s.image()
	t := img.Topic(name)
	switch err := messages.CheckTopicName(name); {
	case !s.allowed(r, OpDescribe, KindTopic, name):
		out.ErrorCode = r.code(messages.ErrTopicNotAuthorized)
		return out, next
	case err != nil:
		out.ErrorCode = r.code(err)
		return out, next
	case t == nil:
		out.ErrorCode = r.code(messages.ErrUnknownTopicOrPartition)
		return out, next
	}
	out.TopicID, out.IsInternal = t.ID, messages.IsInternalTopic(name)
	out.AuthorizedOperations = s.operations(r, KindTopic, name)
	inSync := s.inSync()
	for n := int(from); n < len(t.Partitions); n++ {
		if len(out.Partitions) == limit {
			return out, int32(n)
		}
		p := &t.Partitions[n]
		dp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		dp.Partition, dp.LeaderEpoch = int32(n), p.LeaderEpoch
		dp.Replicas, dp.ISR = nodeIDs(p.Replicas), inSync(p, t.Key(int32(n)))
		// Empty, not null: the Java admin client fails on null.
		dp.EligibleLeaderReplicas, dp.LastKnownELR, dp.OfflineReplicas = []int32{}, []int32{}, s.offline(p.Replicas)
		dp.LeaderID = int32(s.shownLeader(img, p, r.listener))
		if dp.LeaderID == int32(messages.NoNode) {
			dp.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		out.Partitions = append(out.Partitions, dp)
	}
	return out, next
}
