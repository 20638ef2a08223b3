package fetch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/fetch"
	"kagami/messages/batch"
	"kagami/test/kafka/stub"
	"kagami/test/kafka/wan"
)

// TestK13FarSource: where answers take long to come, one asks for more; a partition
// under the throttle doesn't, and neither does a worker that is told not to.
func TestK13FarSource(t *testing.T) {
	const roundTrip = 40 * time.Millisecond
	for _, row := range []struct {
		name      string
		window    int32
		throttled bool
		least     int32
		most      int32
	}{
		{"far", 8 << 20, false, 4 << 20, 8 << 20},
		{"switched off", 0, false, 1 << 20, 1 << 20},
		{"throttled", 8 << 20, true, 1 << 20, 1 << 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			const batches, batchBytes = 192, 128 << 10
			one := stub.Build(stub.Spec{Records: value(batchBytes - 80)})
			c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
				for i := range batches {
					b := append([]byte{}, one...)
					batch.SetOffsetAndEpoch(b, int64(i), 0)
					topic.Partitions[0].Put(b)
				}
			})
			link, err := wan.NewLink(c.Address(), roundTrip, 0)
			require.NoError(t, err)
			t.Cleanup(link.Close)
			w := newWorker(t, link.Addr(), func(cfg *fetch.WorkerConfig) { cfg.WindowMaxBytes = row.window })
			sink := &discard{goal: batches, done: make(chan struct{})}
			require.NoError(t, w.Add(t.Context(), fetch.Assignment{TopicPartition: tp("t", 0), TopicID: topicID, Sink: sink, Lag: fetch.NewLag(), Throttled: row.throttled}))
			select {
			case <-sink.done:
			case <-within(t, time.Minute).Done():
				t.Fatalf("at %d of %d", sink.end.Load(), batches)
			}
			var largest int32
			for _, r := range fetches(c.Seen(keyFetch)) {
				for _, topic := range r.Topics {
					for _, p := range topic.Partitions {
						largest = max(largest, p.PartitionMaxBytes)
					}
				}
			}
			require.GreaterOrEqual(t, largest, row.least)
			require.LessOrEqual(t, largest, row.most)
		})
	}
}
