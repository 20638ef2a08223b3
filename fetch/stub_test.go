package fetch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/fetch"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

const (
	keyFetch       = 1
	keyListOffsets = 2
	keyMetadata    = 3
	keyEpochEnd    = 23
)

var topicID = messages.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func startStub(tb testing.TB, brokers int) *stub.Cluster {
	tb.Helper()
	c, err := stub.Start(stub.Options{Brokers: brokers})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c
}

// oneTopic is a stub of one broker with topic t.
func oneTopic(tb testing.TB, partitions int, change func(*stub.State, *stub.Topic)) *stub.Cluster {
	tb.Helper()
	c := startStub(tb, 1)
	c.Update(func(s *stub.State) {
		topic := s.NewTopic("t", topicID, partitions)
		if change != nil {
			change(s, topic)
		}
	})
	return c
}

func assignment(s *memSink, partition int32) fetch.Assignment {
	return fetch.Assignment{TopicPartition: tp("t", partition), TopicID: topicID, Sink: s, Lag: fetch.NewLag(), Notify: s.notify}
}

// follow puts a new sink for partition 0 on a new worker.
func follow(tb testing.TB, c *stub.Cluster, s *memSink, change func(*fetch.Assignment)) (*fetch.Worker, *fetch.Lag) {
	tb.Helper()
	w := newWorker(tb, c.Address(), nil)
	a := assignment(s, 0)
	if change != nil {
		change(&a)
	}
	require.NoError(tb, w.Add(tb.Context(), a))
	return w, a.Lag
}

func sourceBytes(c *stub.Cluster, partition int) []byte {
	var b []byte
	c.Read(func(s *stub.State) { b = s.Topics["t"].Partitions[partition].Bytes() })
	return b
}

func within(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	tb.Cleanup(cancel)
	return ctx
}

func fetches(seen []stub.Seen) []*kmsg.FetchRequest {
	var out []*kmsg.FetchRequest
	for _, s := range seen {
		if r, ok := s.Body.(*kmsg.FetchRequest); ok {
			out = append(out, r)
		}
	}
	return out
}

func value(n int) []stub.Record {
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(i * 7)
	}
	return []stub.Record{{Value: v}}
}
