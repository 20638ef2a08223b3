package fetch_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCluster is a kfake cluster of one broker with topic t of n partitions.
func fakeCluster(tb testing.TB, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, string) {
	tb.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t")}, opts...)...)
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c, c.ListenAddrs()[0]
}

func plainConfig(tb testing.TB, address string) fetch.Config {
	tb.Helper()
	c, err := fetch.ParseConfig(map[string]string{"bootstrap.servers": address})
	require.NoError(tb, err)
	return c
}

func newWorker(tb testing.TB, address string, change func(*fetch.WorkerConfig)) *fetch.Worker {
	tb.Helper()
	cfg := fetch.WorkerConfig{
		Source: plainConfig(tb, address), Mirror: "m", Node: 7, SourceBroker: 0, Address: address,
		MaxWait: 100 * time.Millisecond, Backoff: 20 * time.Millisecond, RequestTimeout: 5 * time.Second,
		Clock: clock.Wall{}, Log: zaptest.NewLogger(tb),
	}
	if change != nil {
		change(&cfg)
	}
	w, err := fetch.NewWorker(tb.Context(), cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, w.Close()) })
	return w
}

func tp(topic string, partition int32) messages.TopicPartition {
	return messages.TopicPartition{Topic: topic, Partition: partition}
}

func produce(tb testing.TB, address string, topic string, partition int32, from, n int) {
	tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(tb, err)
	defer cl.Close()
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "v%d", from+i)}
		require.NoError(tb, cl.ProduceSync(tb.Context(), r).FirstErr())
	}
}

func TestCopiesFromKfake(t *testing.T) {
	c, address := fakeCluster(t, 3)
	_, _, err := net.SplitHostPort(address)
	require.NoError(t, err)
	id := messages.TopicID(c.TopicInfo("t").TopicID)
	w := newWorker(t, address, nil)
	sinks := make([]*memSink, 3)
	for i := range sinks {
		sinks[i] = newMemSink()
		require.NoError(t, w.Add(t.Context(), fetch.Assignment{
			TopicPartition: tp("t", int32(i)), TopicID: id, LeaderEpoch: c.PartitionInfo("t", int32(i)).Epoch,
			Sink: sinks[i], Lag: fetch.NewLag(), Notify: sinks[i].notify,
		}))
		produce(t, address, "t", int32(i), 0, 10*(i+1))
	}
	for i, s := range sinks {
		s.waitEnd(t, int64(10*(i+1)))
		waitEvent[fetch.FirstSuccess](t, s)
	}
	require.Equal(t, 3, w.Len())
	produce(t, address, "t", 1, 20, 5)
	sinks[1].waitEnd(t, 25)
}
