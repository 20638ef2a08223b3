package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// lifecycleConfigs make a topic that is cleaned soon, whose segments hold about 130
// records of lifecycleRecords.
func lifecycleConfigs() map[string]*string {
	return map[string]*string{
		"cleanup.policy": new("compact"), "segment.bytes": new("1048576"), "min.cleanable.dirty.ratio": new("0.01"), "retention.ms": new("-1"),
	}
}

// lifecycleWriter writes the same records, batch for batch, to whatever cluster it is
// given: a few keys again and again, tombstones, two codecs, transactions both ways.
type lifecycleWriter struct {
	plain, txn *kgo.Client
	topic      string
	rng        *rand.Rand
	next       int
	want       map[string]string // last committed value of each key
}

func newLifecycleWriter(tb testing.TB, bootstrap, topic string) *lifecycleWriter {
	tb.Helper()
	w := &lifecycleWriter{topic: topic, rng: rand.New(rand.NewPCG(1, 2)), want: map[string]string{}}
	var err error
	w.plain, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(tb, err)
	tb.Cleanup(w.plain.Close)
	w.txn, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("lifecycle-"+topic), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	require.NoError(tb, err)
	tb.Cleanup(w.txn.Close)
	return w
}

func (w *lifecycleWriter) record() *kgo.Record {
	r := &kgo.Record{Topic: w.topic, Key: fmt.Appendf(nil, "key-%d", w.rng.IntN(23)), Timestamp: loadStart.Add(time.Duration(w.next) * time.Millisecond)}
	if w.rng.IntN(9) > 0 {
		r.Value = make([]byte, 8000)
		for i := range r.Value {
			r.Value[i] = "abcdefghijklmnop"[w.rng.IntN(16)]
		}
		copy(r.Value, fmt.Sprintf("value-%d-", w.next))
	}
	w.next++
	return r
}

func (w *lifecycleWriter) stored(r *kgo.Record) {
	w.want[string(r.Key)] = string(r.Value)
	if r.Value == nil {
		delete(w.want, string(r.Key))
	}
}

// write stores n records one by one, and after every tenth a transaction.
func (w *lifecycleWriter) write(ctx context.Context, n int) error {
	for i := range n {
		r := w.record()
		if err := w.plain.ProduceSync(ctx, r).FirstErr(); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		if w.stored(r); i%10 != 9 {
			continue
		}
		if err := w.transact(ctx, i%20 == 9); err != nil {
			return err
		}
	}
	return nil
}

func (w *lifecycleWriter) transact(ctx context.Context, commit bool) error {
	if err := w.txn.BeginTransaction(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	for range 3 {
		r := w.record()
		if err := w.txn.ProduceSync(ctx, r).FirstErr(); err != nil {
			return fmt.Errorf("produce in a transaction: %w", err)
		}
		if commit {
			w.stored(r)
		}
	}
	if err := w.txn.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		return fmt.Errorf("end a transaction: %w", err)
	}
	return nil
}

// survivor is a record that is still there, control records included.
type survivor struct {
	offset  int64
	key     string
	value   string
	control bool
}

// survivors reads partition 0 from its start to end.
func survivors(ctx context.Context, bootstrap, topic string, end int64, opts ...kgo.Opt) ([]survivor, error) {
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(64<<20), kgo.FetchMaxBytes(64<<20),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []survivor
	for len(out) == 0 || out[len(out)-1].offset < end-1 {
		f := cl.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			return nil, err
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset < end {
				out = append(out, survivor{r.Offset, string(r.Key), string(r.Value), r.Attrs.IsControl()})
			}
		})
		if len(f.Records()) == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return out, nil
}

// lastValues is what a reader of committed records comes to. Tombstones take keys away.
func lastValues(all []survivor) map[string]string {
	out := map[string]string{}
	for _, s := range all {
		if s.control {
			continue
		}
		if out[s.key] = s.value; s.value == "" {
			delete(out, s.key)
		}
	}
	return out
}

// lifecyclePoints are places in a swap of segments where a node is killed.
var lifecyclePoints = []string{
	"file.data.cleaned.write.half", "file.data.cleaned.sync.before", "file.data.swap.rename.before", "file.data.swap.rename.after",
	"file.data.index.rename.after", "file.data.timeindex.rename.before", "file.data.log.rename.before", "file.data.log.rename.after",
}

// TestLifecycleKilledWhileCleaning: kill -9 at a place in the middle of a cleaning, and
// the node comes back with every last value, in order, and cleans on. With
// KAGAMI_CRASHPOINTS set every place is tried, else half of them.
func TestLifecycleKilledWhileCleaning(t *testing.T) {
	server, err := FaultServer()
	require.NoError(t, err)
	points := lifecyclePoints
	if os.Getenv("KAGAMI_CRASHPOINTS") == "" {
		points = spread(points, len(points)/2)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			node := StartNode(t, NodeOptions{Program: server, Properties: map[string]string{"log.cleaner.backoff.ms": "100", "log.cleaner.enable": "false"}})
			side, err := node.Side()
			require.NoError(t, err)
			_, err = side.Admin.CreateTopic(ctx, 1, 1, lifecycleConfigs(), "t")
			require.NoError(t, err)
			w := newLifecycleWriter(t, node.Bootstrap(), "t")
			require.NoError(t, w.write(ctx, 220))
			ends, err := side.TopicEnds(ctx, "t")
			require.NoError(t, err)
			side.Close()
			require.NoError(t, node.Stop())
			require.NoError(t, node.Configure(map[string]string{"log.cleaner.enable": "true"}))
			node.SetEnv("KAGAMI_FAULT_POINT=" + point + ":1")
			_ = node.Start(ctx) // it may die before it is ready
			select {
			case <-node.Process().Done():
			case <-ctx.Done():
				t.Fatal("the node didn't reach the point")
			}
			node.SetEnv()
			require.NoError(t, node.Start(ctx))
			ours, err := survivors(ctx, node.Bootstrap(), "t", ends[0].End, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			require.NoError(t, err)
			require.True(t, slices.IsSortedFunc(ours, func(a, b survivor) int { return int(a.offset - b.offset) }))
			require.Equal(t, w.want, lastValues(ours))
			require.NoError(t, kafka.Poll(ctx, func() error {
				n := 0
				err := node.eachBatch("t-0", func(b Batch, _ []byte) error { n += int(b.Count); return nil })
				if err == nil && n > int(ends[0].End)*4/5 {
					err = fmt.Errorf("%d of %d records are left", n, ends[0].End)
				}
				return err
			}))
		})
	}
}
