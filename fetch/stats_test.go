package fetch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages/batch"
	"kagami/test/kafka/stub"
)

func TestStatsOfWorkers(t *testing.T) {
	one := stub.Build(stub.Spec{Records: value(100)})
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		for i := range 3 {
			b := append([]byte{}, one...)
			batch.SetOffsetAndEpoch(b, int64(i), 0)
			topic.Partitions[0].Put(b)
		}
	})
	stats := fetch.NewStats(clock.Wall{})
	w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) { cfg.Stats = stats })
	sink := &discard{goal: 3, done: make(chan struct{})}
	require.NoError(t, w.Add(t.Context(), fetch.Assignment{TopicPartition: tp("t", 0), TopicID: topicID, Sink: sink, Lag: fetch.NewLag()}))
	select {
	case <-sink.done:
	case <-within(t, 10*time.Second).Done():
		t.Fatal("nothing was copied")
	}
	require.Eventually(t, func() bool { // the sink has them before they are counted
		of := stats.Workers()
		return len(of) == 1 && of[0].ClientID == "broker-7-fetcher-0-mirror-m" && of[0].Mirror == "m" && of[0].Host == "127.0.0.1" &&
			of[0].Requests > 0 && of[0].Rate > 0 && of[0].Bytes == int64(3*len(one)) && stats.Bytes() == int64(3*len(one))
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, w.Close())
	require.Empty(t, stats.Workers())
	require.EqualValues(t, 3*len(one), stats.Bytes(), "stays")
}
