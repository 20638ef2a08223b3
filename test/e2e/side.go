package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Side is one cluster of a comparison.
type Side struct {
	Name  string // A, B: for messages
	Admin *kadm.Client
	cl    *kgo.Client
}

// NewSide connects to a cluster; the caller closes it.
func NewSide(name, bootstrap string) (*Side, error) {
	// By default what kadm says of topics is up to 5 s old.
	const metadataMinAge = 10 * time.Millisecond
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(metadataMinAge))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return &Side{Name: name, Admin: kadm.NewClient(cl), cl: cl}, nil
}

// Close ends the connections.
func (s *Side) Close() { s.cl.Close() }

// Batch is one record batch as it came over the wire. Two batches are equal if
// all fields are: Sum covers every byte, base offset and leader epoch included.
type Batch struct {
	Base, Last int64
	Epoch      int32
	Attributes int16
	Count      int32
	Size       int
	Sum        [sha256.Size]byte
}

// Positions of the batch header's fields, as in Kafka's protocol guide.
const (
	posLength     = 8
	posEpoch      = 12
	posAttributes = 21
	posLastDelta  = 23
	posCount      = 57
	batchOverhead = 12
	headerSize    = 61
)

// splitBatches cuts a fetch answer into whole batches; a cut-off last one is dropped.
func splitBatches(b []byte) ([]Batch, error) {
	var out []Batch
	for len(b) >= batchOverhead {
		size := int(int32(binary.BigEndian.Uint32(b[posLength:]))) + batchOverhead
		if size < headerSize {
			return out, fmt.Errorf("batch of %d bytes", size)
		}
		if size > len(b) {
			break
		}
		base := int64(binary.BigEndian.Uint64(b))
		out = append(out, Batch{
			Base:       base,
			Last:       base + int64(int32(binary.BigEndian.Uint32(b[posLastDelta:]))),
			Epoch:      int32(binary.BigEndian.Uint32(b[posEpoch:])),
			Attributes: int16(binary.BigEndian.Uint16(b[posAttributes:])),
			Count:      int32(binary.BigEndian.Uint32(b[posCount:])),
			Size:       size,
			Sum:        sha256.Sum256(b[:size]),
		})
		b = b[size:]
	}
	return out, nil
}

// Ends are the bounds of one partition.
type Ends struct{ Start, End int64 }

// TopicEnds returns the bounds of every partition of a topic.
func (s *Side) TopicEnds(ctx context.Context, topic string) (map[int32]Ends, error) {
	starts, err := s.Admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list start offsets of %s: %w", s.Name, topic, err)
	}
	ends, err := s.Admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list end offsets of %s: %w", s.Name, topic, err)
	}
	out := map[int32]Ends{}
	for p, o := range ends[topic] {
		start, ok := starts.Lookup(topic, p)
		if !ok {
			return nil, fmt.Errorf("%s: list start offsets of %s: no partition %d", s.Name, topic, p)
		}
		out[p] = Ends{Start: start.Offset, End: o.Offset}
	}
	return out, nil
}

// Topic is a topic's id and leaders.
func (s *Side) Topic(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	list, err := s.Admin.ListTopics(ctx, topic)
	if err != nil {
		return kadm.TopicDetail{}, fmt.Errorf("%s: look up %s: %w", s.Name, topic, err)
	}
	d := list[topic]
	if d.Err != nil {
		return d, fmt.Errorf("%s: look up %s: %w", s.Name, topic, d.Err)
	}
	return d, nil
}

// Batches reads a partition from offset on to end, raw and uncommitted.
func (s *Side) Batches(ctx context.Context, topic kadm.TopicDetail, partition int32, from, end int64) ([]Batch, error) {
	leader := topic.Partitions[partition].Leader
	var all []Batch
	for from < end {
		raw, err := s.fetch(ctx, topic, partition, leader, from)
		if err != nil {
			return all, err
		}
		batches, err := splitBatches(raw)
		if err != nil {
			return all, fmt.Errorf("%s: %s-%d at %d: %w", s.Name, topic.Topic, partition, from, err)
		}
		progress := false
		for _, b := range batches {
			if b.Base >= end {
				return all, nil
			}
			if b.Last < from { // a server may start below what was asked for
				continue
			}
			all, from, progress = append(all, b), b.Last+1, true
		}
		if !progress {
			return all, fmt.Errorf("%s: %s-%d at %d of %d: no batch in %d bytes", s.Name, topic.Topic, partition, from, end, len(raw))
		}
	}
	return all, nil
}

func (s *Side) fetch(ctx context.Context, topic kadm.TopicDetail, partition, leader int32, offset int64) ([]byte, error) {
	const most = 8 << 20
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 1000, 1, most
	req.SessionEpoch = -1 // no session
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic.Topic, topic.ID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, most, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	raw, err := s.cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%s: fetch %s-%d at %d: %w", s.Name, topic.Topic, partition, offset, err)
	}
	resp := raw.(*kmsg.FetchResponse)
	err = kerr.ErrorForCode(resp.ErrorCode)
	if err == nil && (len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1) {
		err = errors.New("the answer names other partitions")
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: fetch %s-%d at %d: %w", s.Name, topic.Topic, partition, offset, err)
	}
	return resp.Topics[0].Partitions[0].RecordBatches, nil
}

// Different returns nil if both sides hold the topic alike: partition count, log
// start, log end, and every byte of every batch; with ids also the topic id. Else
// the first difference.
func Different(ctx context.Context, a, b *Side, topic string, ids bool) error {
	ta, err := a.Topic(ctx, topic)
	if err != nil {
		return err
	}
	tb, err := b.Topic(ctx, topic)
	if err != nil {
		return err
	}
	if ids && ta.ID != tb.ID {
		return fmt.Errorf("id of %s: %s on %s, %s on %s", topic, ta.ID, a.Name, tb.ID, b.Name)
	}
	ea, err := a.TopicEnds(ctx, topic)
	if err != nil {
		return err
	}
	eb, err := b.TopicEnds(ctx, topic)
	if err != nil {
		return err
	}
	if !maps.Equal(ea, eb) {
		return fmt.Errorf("bounds of %s: %v on %s, %v on %s", topic, ea, a.Name, eb, b.Name)
	}
	for _, p := range slices.Sorted(maps.Keys(ea)) {
		ba, err := a.Batches(ctx, ta, p, ea[p].Start, ea[p].End)
		if err != nil {
			return err
		}
		bb, err := b.Batches(ctx, tb, p, ea[p].Start, ea[p].End)
		if err != nil {
			return err
		}
		for i := range max(len(ba), len(bb)) {
			switch {
			case i >= len(ba):
				return fmt.Errorf("%s-%d: only on %s: %v", topic, p, b.Name, bb[i])
			case i >= len(bb):
				return fmt.Errorf("%s-%d: only on %s: %v", topic, p, a.Name, ba[i])
			case ba[i] != bb[i]:
				return fmt.Errorf("%s-%d: batch %d: %v on %s, %v on %s", topic, p, i, ba[i], a.Name, bb[i], b.Name)
			}
		}
	}
	return nil
}

// String names the parts of a batch that tell two apart.
func (b Batch) String() string {
	return fmt.Sprintf("[%d..%d epoch %d attributes %#x records %d size %d sum %x]", b.Base, b.Last, b.Epoch, b.Attributes, b.Count, b.Size, b.Sum[:4])
}

// lsoAtEnd is nil when no transaction of the topic is open.
func (s *Side) lsoAtEnd(ctx context.Context, topic string) error {
	committed, err := s.Admin.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = committed.Error()
	}
	if err != nil {
		return fmt.Errorf("%s: list stable offsets of %s: %w", s.Name, topic, err)
	}
	ends, err := s.TopicEnds(ctx, topic)
	if err != nil {
		return err
	}
	for p, e := range ends {
		if lso, _ := committed.Lookup(topic, p); lso.Offset != e.End {
			return fmt.Errorf("%s: %s-%d: last stable offset %d, end %d", s.Name, topic, p, lso.Offset, e.End)
		}
	}
	return nil
}
