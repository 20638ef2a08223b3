package tool

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
)

// fetchBytes of one Fetch, bytes; a larger batch comes whole all the same.
const fetchBytes = 4 << 20

// dumpCluster dumps __mirror_state of a running cluster, each partition from its
// log start to the high watermark that it has now.
func (t *dumpTool) dumpCluster(ctx context.Context) error {
	cl, err := connect(*t.bootstrap, *t.commandConfig)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	meta, err := adm.Metadata(ctx, messages.MirrorStateTopic)
	if err != nil {
		return readable(fmt.Errorf("look up %s: %w", messages.MirrorStateTopic, err))
	}
	topic := meta.Topics[messages.MirrorStateTopic]
	if topic.Err != nil {
		return fmt.Errorf("%s: %w (it is created with the first mirror)", messages.MirrorStateTopic, topic.Err)
	}
	starts, err := adm.ListStartOffsets(ctx, messages.MirrorStateTopic)
	if err != nil {
		return fmt.Errorf("list offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, messages.MirrorStateTopic)
	if err != nil {
		return fmt.Errorf("list offsets: %w", err)
	}
	for _, p := range topic.Partitions.Sorted() {
		start, _ := starts.Lookup(messages.MirrorStateTopic, p.Partition)
		end, ok := ends.Lookup(messages.MirrorStateTopic, p.Partition)
		switch {
		case !ok || start.Err != nil || end.Err != nil:
			t.errf("Warning: partition %d of %s can't be read: %v %v\n", p.Partition, messages.MirrorStateTopic, start.Err, end.Err)
		case start.Offset < end.Offset:
			if err := t.dumpPartition(ctx, cl, topic.ID, p, start.Offset, end.Offset); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *dumpTool) dumpPartition(ctx context.Context, cl *kgo.Client, id kadm.TopicID, p kadm.PartitionDetail, offset, end int64) error {
	if *t.format == formatText {
		t.outf("Dumping %s-%d\nLog starting offset: %d\n", messages.MirrorStateTopic, p.Partition, offset)
	}
	pr := &printer{tool: t}
	position := int64(0)
	for offset < end {
		records, err := fetchAt(ctx, cl.Broker(int(p.Leader)), id, p.Partition, offset)
		if err != nil {
			return readable(fmt.Errorf("fetch %s-%d at %d: %w", messages.MirrorStateTopic, p.Partition, offset, err))
		}
		before := offset
		for len(records) > 0 {
			h, whole, rest, err := batch.Next(records)
			if err != nil {
				break // the last batch of an answer may be cut off
			}
			if h.LastOffset() >= before {
				if err := pr.batch(slices.Clone(whole), position); err != nil {
					return err
				}
				position += int64(len(whole))
				offset = h.LastOffset() + 1
			}
			records = rest
		}
		if offset == before {
			return nil // nothing more is there, such as after a cut
		}
	}
	return nil
}

func fetchAt(ctx context.Context, broker *kgo.Broker, id kadm.TopicID, partition int32, offset int64) ([]byte, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 500, 1, fetchBytes
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = messages.MirrorStateTopic, id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, fetchBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, broker)
	if err != nil {
		return nil, err
	}
	if err := wire.ErrorForCode(resp.ErrorCode, ""); err != nil {
		return nil, err
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			return rp.RecordBatches, wire.ErrorForCode(rp.ErrorCode, "")
		}
	}
	return nil, nil
}
