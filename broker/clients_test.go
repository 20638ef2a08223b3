package broker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/metadata"
	"kagami/test/kafka"
)

// offsetsOf polls until n records are there and returns their offsets.
func offsetsOf(t *testing.T, cl *kgo.Client, n int) []int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out []int64
	for len(out) < n {
		fs := cl.PollFetches(ctx)
		require.NoError(t, fs.Err0())
		fs.EachError(func(_ string, _ int32, err error) { require.NoError(t, err) })
		fs.EachRecord(func(r *kgo.Record) { out = append(out, r.Offset) })
	}
	return out
}

// TestC04ClientsAfterFailover: a mirrored log that ended inside a transaction,
// closed by ABORT and MIRROR_PID_RESET. Committed readers get 1, 2 and 8,
// uncommitted ones the data of aborted transactions too; nobody sees control
// records.
func TestC04ClientsAfterFailover(t *testing.T) {
	w := newWorld(t, onDisk)
	w.topic("t", 1, nil)
	w.part("t", 0).mirror(t,
		txnBatch(0, 1, batch.AttrTransactional), made(1, 0, "plain"), txnBatch(2, 2, batch.AttrTransactional),
		at(batch.AbortMarker(1, 0, 0, 1), 3), at(batch.CommitMarker(2, 0, 0, 1), 4), txnBatch(5, 3, batch.AttrTransactional),
		at(batch.AbortMarker(3, 0, 0, 1), 6), at(batch.MirrorPIDReset(1, 1, "source"), 7), made(8, 1, "after"))
	for _, row := range []struct {
		name string
		opt  kgo.Opt
		want []int64
	}{
		{"committed", kgo.FetchIsolationLevel(kgo.ReadCommitted()), []int64{1, 2, 8}},
		{"uncommitted", kgo.FetchIsolationLevel(kgo.ReadUncommitted()), []int64{0, 1, 2, 5, 8}},
	} {
		t.Run("kgo "+row.name, func(t *testing.T) {
			cl := w.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), row.opt)
			require.Equal(t, row.want, offsetsOf(t, cl, len(row.want)))
		})
	}
	for isolation, want := range map[string]string{"read_committed": "1 2 8 ", "read_uncommitted": "0 1 2 5 8 "} {
		t.Run("kcat "+isolation, func(t *testing.T) {
			require.Equal(t, want, kcat(t, w, "", "-C", "-t", "t", "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o ", "-X", "isolation.level="+isolation))
		})
		t.Run("java "+isolation, func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a JVM")
			}
			kafka.Require(t)
			n := len(strings.Fields(want))
			res, err := kafka.Tool(t.Context(), kafka.ConsoleConsumer, "--bootstrap-server", w.addr, "--topic", "t", "--partition", "0", "--offset", "earliest",
				"--isolation-level", isolation, "--max-messages", fmt.Sprint(n), "--timeout-ms", "30000", "--formatter-property", "print.offset=true", "--formatter-property", "print.value=false")
			require.NoError(t, err)
			require.Equal(t, strings.Fields(want), strings.Fields(strings.ReplaceAll(res.Stdout, "Offset:", "")))
		})
	}
}

// TestC16ClientsWithSourceEpochs: consumers that hold a position with the
// source's epoch read on, while our leader epoch is higher and grows.
func TestC16ClientsWithSourceEpochs(t *testing.T) {
	w := newWorld(t, onDisk)
	topic := w.topic("t", 1, nil)
	p := w.part("t", 0)
	lead := func(epoch int32) {
		w.apply(metadata.PartitionRecord(topic.ID, 0, metadata.Partition{Leader: 1, LeaderEpoch: epoch, Replicas: []messages.NodeID{1}, ISR: []messages.NodeID{1}}))
		p.change(func(s *persistence.ReplicaState) { s.LeaderEpoch = epoch })
	}
	lead(22)
	for i := range int64(50) {
		p.mirror(t, made(i, 12, "v"))
	}
	cl := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(40).WithEpoch(12)}}))
	require.Equal(t, int64(40), offsetsOf(t, cl, 10)[0])
	for epoch := int32(13); epoch <= 25; epoch++ {
		if epoch > 22 {
			lead(epoch + 10)
		}
		p.mirror(t, made(p.log.End(), epoch, "v"))
	}
	got := offsetsOf(t, cl, 13)
	require.Equal(t, int64(62), got[len(got)-1])
	require.True(t, strings.HasPrefix(kcat(t, w, "", "-C", "-t", "t", "-p", "0", "-o", "40", "-e", "-q", "-f", "%o "), "40 41 "))
}

// TestConcurrentClients: two idempotent producers and three consumers at once,
// on segments; every consumer gets every record once and in order.
func TestConcurrentClients(t *testing.T) {
	const partitions, perProducer, producers, consumers = 4, 3000, 2, 3
	w := newWorld(t, onDisk)
	w.topic("t", partitions, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for id := range producers {
		cl := w.client(kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
		g.Go(func() error {
			var failed atomic.Pointer[error]
			for i := range perProducer {
				cl.Produce(ctx, &kgo.Record{Partition: int32(i % partitions), Key: fmt.Append(nil, id), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
					if err != nil {
						failed.Store(&err)
					}
				})
			}
			if err := cl.Flush(ctx); err != nil {
				return err
			}
			if err := failed.Load(); err != nil {
				return *err
			}
			return nil
		})
	}
	for range consumers {
		cl := w.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(64<<10), kgo.FetchMaxPartitionBytes(16<<10))
		g.Go(func() error { return readAll(ctx, cl, producers*perProducer) })
	}
	require.NoError(t, g.Wait())
}

// readAll wants n records, offsets without holes per partition, and each
// producer's values in order.
func readAll(ctx context.Context, cl *kgo.Client, n int) error {
	next, last := map[int32]int64{}, map[string]int{}
	for got := 0; got < n; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		for it := fs.RecordIter(); !it.Done(); got++ {
			r := it.Next()
			if r.Offset != next[r.Partition] {
				return fmt.Errorf("partition %d: offset %d, want %d", r.Partition, r.Offset, next[r.Partition])
			}
			next[r.Partition]++
			key := fmt.Sprintf("%d/%s", r.Partition, r.Key)
			value, err := strconv.Atoi(string(r.Value))
			if prev, ok := last[key]; err != nil || ok && value <= prev {
				return fmt.Errorf("producer and partition %s: %q after %d", key, r.Value, prev)
			}
			last[key] = value
		}
	}
	return nil
}
