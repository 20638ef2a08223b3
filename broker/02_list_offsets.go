package broker

// ListOffsets: served versions 1-11.
//
// v2 isolation level; v4 leader epochs (KIP-320); v7 -3; v8 -4 (KIP-405); v9 -5
// (KIP-1005); v10 timeout; v11 -6 (KIP-1023).
//
// Special timestamps: -1 latest (high watermark, or last stable offset for
// committed readers), -2 earliest, -3 the record with the largest timestamp, -4
// earliest on local disk (= -2: nothing is tiered), -5 latest tiered and -6
// earliest pending upload (both "none": offset -1). Any other timestamp finds
// the first record at or after it; none is offset -1 and timestamp -1, no error.
//
// Left out: v0 (several offsets per answer).

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence"
)

const (
	offsetLatest        = -1
	offsetEarliest      = -2
	offsetMaxTimestamp  = -3
	offsetEarliestLocal = -4
	offsetLatestTiered  = -5
	offsetPendingUpload = -6

	replicaDebug = -2 // sees up to the log end, as Kafka's debugging tools want
)

func (s *Server) handleListOffsets(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.ListOffsetsRequest)
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	times := map[messages.TopicPartition]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			times[messages.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			tp := messages.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if times[tp] == 0 {
				continue // named twice, refused once
			}
			var found persistence.TimestampOffset
			err := fmt.Errorf("%w: %s is named %d times", messages.ErrInvalidRequest, tp, times[tp])
			if times[tp] == 1 {
				found, err = s.listOffset(r, req, t.Topic, p)
			}
			times[tp] = 0
			if err != nil {
				rp.ErrorCode = r.code(err)
				found = noOffset
			}
			rp.Offset, rp.Timestamp, rp.LeaderEpoch = found.Offset, found.Timestamp, found.Epoch
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

var noOffset = persistence.TimestampOffset{Offset: messages.NoOffset, Timestamp: -1, Epoch: messages.NoEpoch}

func (s *Server) listOffset(r *request, req *kmsg.ListOffsetsRequest, topic string, p *kmsg.ListOffsetsRequestTopicPartition) (persistence.TimestampOffset, error) {
	t := s.image().Topic(topic)
	if !s.allowed(r, OpDescribe, KindTopic, topic) {
		return noOffset, messages.ErrTopicNotAuthorized
	}
	if t == nil {
		return noOffset, messages.ErrUnknownTopicOrPartition
	}
	if err := specialOffset(p.Timestamp, req.Version); err != nil {
		return noOffset, err
	}
	part, err := s.checkPartition(t, p.Partition, p.CurrentLeaderEpoch)
	if err != nil {
		return noOffset, err
	}
	state, log := part.State(), part.Log()
	end := state.HighWatermark
	switch {
	case req.ReplicaID == replicaDebug:
		end = state.End
	case req.IsolationLevel == isolationCommitted:
		if open, ok := log.FirstUnstable(); ok {
			end = min(end, open)
		}
	}
	switch p.Timestamp {
	case offsetLatest:
		return persistence.TimestampOffset{Offset: end, Timestamp: -1, Epoch: log.LatestEpoch()}, nil
	case offsetEarliest, offsetEarliestLocal:
		return persistence.TimestampOffset{Offset: state.LogStart, Timestamp: -1, Epoch: log.EpochForOffset(state.LogStart)}, nil
	case offsetLatestTiered, offsetPendingUpload:
		return noOffset, nil
	}
	var found persistence.TimestampOffset
	var ok bool
	if p.Timestamp == offsetMaxTimestamp {
		found, ok, err = log.MaxTimestamp()
	} else {
		found, ok, err = log.OffsetForTimestamp(p.Timestamp)
	}
	if err != nil || !ok || found.Offset >= end {
		return noOffset, err
	}
	return found, nil
}

// specialOffset refuses negative timestamps that the version doesn't know.
func specialOffset(ts int64, version int16) error {
	var since int16
	switch {
	case ts >= offsetEarliest:
		since = 1
	case ts == offsetMaxTimestamp:
		since = 7
	case ts == offsetEarliestLocal:
		since = 8
	case ts == offsetLatestTiered:
		since = 9
	case ts == offsetPendingUpload:
		since = 11
	default:
		return fmt.Errorf("%w: timestamp %d has no meaning", messages.ErrUnsupportedVersion, ts)
	}
	if version < since {
		return fmt.Errorf("%w: timestamp %d needs version %d", messages.ErrUnsupportedVersion, ts, since)
	}
	return nil
}
