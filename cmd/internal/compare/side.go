package compare

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
)

const fetchBytesMax = 8 << 20

// Side is one of the two clusters.
type Side struct {
	Name   string // "source" or "destination", for error texts
	Client *kgo.Client

	topics map[string]topicInfo
}

type topicInfo struct {
	id      messages.TopicID
	leaders map[int32]int32
}

// bounds of a partition.
type bounds struct{ start, end int64 }

// load reads ids and leaders of the topics. A missing topic is no error here.
func (s *Side) load(ctx context.Context, topics []string) error {
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = new(t)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, s.Client)
	if err != nil {
		return fmt.Errorf("read topics of the %s: %w", s.Name, err)
	}
	s.topics = map[string]topicInfo{}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				continue
			}
			return fmt.Errorf("read topic %s of the %s: %w", *t.Topic, s.Name, err)
		}
		info := topicInfo{id: t.TopicID, leaders: map[int32]int32{}}
		for _, p := range t.Partitions {
			info.leaders[p.Partition] = p.Leader
		}
		s.topics[*t.Topic] = info
	}
	return nil
}

func (s *Side) leader(topic string, partition int32) (*kgo.Broker, error) {
	id, ok := s.topics[topic].leaders[partition]
	if !ok || id < 0 {
		return nil, fmt.Errorf("%s-%d has no leader on the %s", topic, partition, s.Name)
	}
	return s.Client.Broker(int(id)), nil
}

// bounds asks for log start offset and log end offset (high watermark).
func (s *Side) bounds(ctx context.Context, topic string, partition int32) (bounds, error) {
	var b bounds
	for _, q := range []struct {
		timestamp int64
		into      *int64
	}{{-2, &b.start}, {-1, &b.end}} {
		br, err := s.leader(topic, partition)
		if err != nil {
			return b, err
		}
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, q.timestamp, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := br.RetriableRequest(ctx, req)
		if err != nil {
			return b, fmt.Errorf("list offsets of %s-%d on the %s: %w", topic, partition, s.Name, err)
		}
		resp, ok := kresp.(*kmsg.ListOffsetsResponse)
		if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return b, fmt.Errorf("list offsets of %s-%d on the %s: answer without the partition", topic, partition, s.Name)
		}
		p := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return b, fmt.Errorf("list offsets of %s-%d on the %s: %w", topic, partition, s.Name, err)
		}
		*q.into = p.Offset
	}
	return b, nil
}

// fetch returns whole batches from offset on; empty at the end of the log.
func (s *Side) fetch(ctx context.Context, topic string, partition int32, offset int64) ([]byte, error) {
	br, err := s.leader(topic, partition)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 100, 1, fetchBytesMax
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, s.topics[topic].id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.CurrentLeaderEpoch, rp.PartitionMaxBytes = partition, offset, -1, fetchBytesMax
	rp.LastFetchedEpoch, rp.LogStartOffset = -1, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := br.RetriableRequest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("fetch %s-%d at %d from the %s: %w", topic, partition, offset, s.Name, err)
	}
	resp, ok := kresp.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("fetch %s-%d from the %s: unexpected answer", topic, partition, s.Name)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetch %s-%d from the %s: %w", topic, partition, s.Name, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("fetch %s-%d from the %s: answer without the partition", topic, partition, s.Name)
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetch %s-%d at %d from the %s: %w", topic, partition, offset, s.Name, err)
	}
	return p.RecordBatches, nil
}

// reader walks the batches of one partition, [offset, end).
type reader struct {
	side      *Side
	topic     string
	partition int32
	offset    int64
	end       int64
	buf       []byte
}

// emptyAnswersMax is how often a side may answer with nothing below its log end
// before it has nothing there: a throttled source does so at times.
const emptyAnswersMax = 5

// fill fetches from the position.
func (r *reader) fill(ctx context.Context) (err error) {
	for range emptyAnswersMax {
		if r.buf, err = r.side.fetch(ctx, r.topic, r.partition, r.offset); err != nil || len(r.buf) >= batch.HeaderSize {
			return err
		}
	}
	return nil
}

// next returns the next batch whose last offset is at or above the position, or
// ok = false at the end.
func (r *reader) next(ctx context.Context) (h batch.Header, raw []byte, ok bool, err error) {
	for r.offset < r.end {
		fresh := len(r.buf) < batch.HeaderSize
		if fresh {
			if err = r.fill(ctx); err != nil {
				return h, nil, false, err
			}
			if len(r.buf) < batch.HeaderSize {
				return h, nil, false, nil // nothing up to the log end
			}
		}
		if h, err = batch.ParseHeader(r.buf); err != nil {
			return h, nil, false, fmt.Errorf("%s-%d on the %s: %w", r.topic, r.partition, r.side.Name, err)
		}
		if len(r.buf) < h.Size() {
			if fresh { // a source sends at least one whole batch
				return h, nil, false, fmt.Errorf("%s-%d on the %s: batch at offset %d of %d bytes arrives cut off", r.topic, r.partition, r.side.Name, h.BaseOffset, h.Size())
			}
			r.buf = nil // cut-off tail: fetch again from here
			continue
		}
		raw, r.buf = r.buf[:h.Size()], r.buf[h.Size():]
		if h.LastOffset() < r.offset {
			continue
		}
		r.offset = h.LastOffset() + 1
		return h, raw, true, nil
	}
	return h, nil, false, nil
}
