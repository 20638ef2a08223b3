package broker

// DescribeProducers: served version 0.
//
// What a partition's leader knows about producers (KIP-664).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

func (s *Server) handleDescribeProducers(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeProducersRequest)
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.Version = req.Version
	img := s.image()
	seen := repeats[messages.TopicPartition]{}
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			if seen.often(messages.TopicPartition{Topic: t.Topic, Partition: p}) {
				continue
			}
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = p
			producers, err := s.producersOf(r, img.Topic(t.Topic), t.Topic, p)
			rp.ErrorCode, rp.ErrorMessage, rp.ActiveProducers = r.code(err), errorText(err), producers
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

func (s *Server) producersOf(r *request, t *metadata.Topic, name string, partition int32) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	if !s.allowed(r, OpRead, KindTopic, name) {
		return nil, messages.ErrTopicNotAuthorized
	}
	if t == nil {
		return nil, messages.ErrUnknownTopicOrPartition
	}
	part, err := s.checkPartition(t, partition, messages.NoEpoch)
	if err != nil {
		return nil, err
	}
	var out []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for _, e := range part.Log().Producers() {
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.ProducerEpoch, p.LastTimestamp = e.ProducerID, int32(e.ProducerEpoch), e.LastTimestamp
		p.CoordinatorEpoch, p.CurrentTxnStartOffset, p.LastSequence = e.CoordinatorEpoch, e.TxnFirstOffset, -1
		if n := len(e.Batches); n > 0 {
			p.LastSequence = e.Batches[n-1].LastSequence
		}
		out = append(out, p)
	}
	return out, nil
}
