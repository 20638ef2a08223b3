package broker

// DeleteRecords: served versions 0-2.
//
// Offset -1 means the high watermark. The topic's cleanup.policy must hold
// "delete", as in Kafka. A mirror topic that isn't STOPPED: POLICY_VIOLATION
// (OP-23); the answer has no place for a text.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence"
)

func (s *Server) handleDeleteRecords(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DeleteRecordsRequest)
	ctx, cancel := context.WithTimeoutCause(ctx, clampTimeout(millis(req.TimeoutMillis)), messages.ErrTimedOut)
	defer cancel()
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version = req.Version
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		answered := map[int32]bool{}
		for _, p := range slices.Backward(t.Partitions) { // of one that is named twice the last counts
			if answered[p.Partition] {
				continue
			}
			answered[p.Partition] = true
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition = p.Partition
			low, err := s.deleteRecords(ctx, r, t.Topic, p.Partition, p.Offset)
			rp.LowWatermark, rp.ErrorCode = low, r.code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		slices.Reverse(rt.Partitions)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

func (s *Server) deleteRecords(ctx context.Context, r *request, topic string, partition int32, offset int64) (int64, error) {
	t := s.image().Topic(topic)
	switch {
	case !s.allowed(r, OpDelete, KindTopic, topic):
		return messages.NoOffset, messages.ErrTopicNotAuthorized
	case t == nil:
		return messages.NoOffset, messages.ErrUnknownTopicOrPartition
	case messages.IsInternalTopic(topic):
		return messages.NoOffset, fmt.Errorf("%w: %s is internal", messages.ErrInvalidTopic, topic)
	}
	part, err := s.checkPartition(t, partition, messages.NoEpoch)
	if err != nil {
		return messages.NoOffset, err
	}
	state := part.State()
	if state.ReadOnly {
		return messages.NoOffset, s.readOnly(t, partition)
	}
	if !strings.Contains(s.topicConfig(t, configCleanupPolicy), "delete") {
		return messages.NoOffset, fmt.Errorf("%w: cleanup.policy of %s doesn't delete", messages.ErrPolicyViolation, topic)
	}
	if offset == messages.NoOffset {
		offset = state.HighWatermark
	}
	if offset < 0 || offset > state.HighWatermark {
		return messages.NoOffset, fmt.Errorf("%w: %d, high watermark is %d", persistence.ErrOffsetOutOfRange, offset, state.HighWatermark)
	}
	if offset > state.LogStart {
		if err := part.RaiseLogStart(ctx, offset); err != nil {
			return messages.NoOffset, err
		}
	}
	return part.State().LogStart, nil
}
