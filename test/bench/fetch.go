package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/e2e"
)

// Sizes of a fetch, those of the mirror's defaults.
const (
	responseBytesMax  = 10 << 20
	partitionBytesMax = 1 << 20
)

// FetchAll reads a topic on one broker from start to end by raw Fetch requests,
// one at a time, and does nothing with the answers but find where the next batch
// begins and, if dir isn't empty, write the bytes into one file per partition
// there. It returns the bytes of whole batches.
func FetchAll(ctx context.Context, bootstrap, topic, dir string) (int64, error) {
	side, err := e2e.NewSide("A", bootstrap)
	if err != nil {
		return 0, err
	}
	defer side.Close()
	detail, err := side.Topic(ctx, topic)
	if err != nil {
		return 0, err
	}
	ends, err := side.TopicEnds(ctx, topic)
	if err != nil {
		return 0, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.BrokerMaxReadBytes(100<<20))
	if err != nil {
		return 0, fmt.Errorf("make client: %w", err)
	}
	defer cl.Close()
	next := map[int32]int64{}
	for p, e := range ends {
		if e.End > e.Start {
			next[p] = e.Start
		}
	}
	out := files{dir: dir, open: map[int32]*os.File{}}
	defer out.close()
	var total int64
	for len(next) > 0 {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 500, 1, responseBytesMax, -1
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, detail.ID
		for p, offset := range next { // in any order, so that no partition starves
			part := kmsg.NewFetchRequestTopicPartition()
			part.Partition, part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch = p, offset, partitionBytesMax, -1
			t.Partitions = append(t.Partitions, part)
		}
		req.Topics = append(req.Topics, t)
		resp, err := cl.Broker(int(detail.Partitions[0].Leader)).Request(ctx, req)
		if err != nil {
			return total, fmt.Errorf("fetch %s: %w", topic, err)
		}
		for _, t := range resp.(*kmsg.FetchResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return total, fmt.Errorf("fetch %s-%d: %w", topic, p.Partition, err)
				}
				n, last := walk(p.RecordBatches)
				if err := out.append(p.Partition, p.RecordBatches[:n]); err != nil {
					return total, err
				}
				total += n
				if n > 0 {
					next[p.Partition] = last + 1
				}
				if next[p.Partition] >= ends[p.Partition].End {
					delete(next, p.Partition)
				}
			}
		}
	}
	return total, nil
}

// files takes the bytes of each partition; none if dir is empty.
type files struct {
	dir  string
	open map[int32]*os.File
}

func (w files) append(partition int32, b []byte) error {
	if w.dir == "" || len(b) == 0 {
		return nil
	}
	f := w.open[partition]
	if f == nil {
		var err error
		if f, err = os.Create(filepath.Join(w.dir, strconv.Itoa(int(partition)))); err != nil {
			return fmt.Errorf("keep what was fetched: %w", err)
		}
		w.open[partition] = f
	}
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("keep what was fetched: %w", err)
	}
	return nil
}

func (w files) close() {
	for _, f := range w.open {
		_ = f.Close() // nobody reads them
	}
}

// walk returns the bytes of the whole batches and the last offset in them.
func walk(b []byte) (n, last int64) {
	const overhead, posLength, posLastDelta, header = 12, 8, 23, 61
	for len(b) >= header {
		size := overhead + int(binary.BigEndian.Uint32(b[posLength:]))
		if size > len(b) {
			break
		}
		last = int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[posLastDelta:]))
		n += int64(size)
		b = b[size:]
	}
	return n, last
}
