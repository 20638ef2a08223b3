package broker

// OffsetForLeaderEpoch: served versions 2-4.
//
// v2 CurrentLeaderEpoch (KIP-320); v3 replica id.
//
// The answer is the largest epoch of the log at or below the one asked, and
// where it ends. On a mirror topic the log's epochs are the source's: an epoch
// above them (our own leader epoch) is answered with the newest of them and the
// log end, so that a consumer doesn't see a truncation where there was none. An
// epoch below all of the log's ends where the first begins, as in Kafka; an
// empty history is -1, -1.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleOffsetForLeaderEpoch(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition = p.Partition
			epoch, end, err := s.epochEnd(r, t.Topic, p)
			rp.LeaderEpoch, rp.EndOffset, rp.ErrorCode = epoch, end, r.code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

func (s *Server) epochEnd(r *request, topic string, ask kmsg.OffsetForLeaderEpochRequestTopicPartition) (epoch int32, end int64, err error) {
	t := s.image().Topic(topic)
	if !s.allowed(r, OpDescribe, KindTopic, topic) {
		return messages.NoEpoch, messages.NoOffset, messages.ErrTopicNotAuthorized
	}
	if t == nil {
		return messages.NoEpoch, messages.NoOffset, messages.ErrUnknownTopicOrPartition
	}
	part, err := s.checkPartition(t, ask.Partition, ask.CurrentLeaderEpoch)
	if err != nil {
		return messages.NoEpoch, messages.NoOffset, err
	}
	if ask.LeaderEpoch < 0 {
		return messages.NoEpoch, messages.NoOffset, nil
	}
	log := part.Log()
	epoch, end, found := log.EpochEndOffset(ask.LeaderEpoch)
	if !found {
		entries := log.Epochs()
		switch own := part.State(); {
		case len(entries) == 0 && ask.LeaderEpoch == own.LeaderEpoch:
			return own.LeaderEpoch, own.End, nil // it has begun, with nothing in it yet
		case len(entries) == 0:
			return messages.NoEpoch, messages.NoOffset, nil
		}
		return ask.LeaderEpoch, entries[0].StartOffset, nil
	}
	return epoch, end, nil
}
