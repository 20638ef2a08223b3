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

func startStub(t testing.TB, brokers int) *stub.Cluster {
	t.Helper()
	c, err := stub.Start(stub.Options{Brokers: brokers})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// oneTopic is a stub of one broker with topic t.
func oneTopic(t testing.TB, partitions int, change func(*stub.State, *stub.Topic)) *stub.Cluster {
	t.Helper()
	c := startStub(t, 1)
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
func follow(t testing.TB, c *stub.Cluster, s *memSink, change func(*fetch.Assignment)) (*fetch.Worker, *fetch.Lag) {
	t.Helper()
	w := newWorker(t, c.Address(), nil)
	a := assignment(s, 0)
	if change != nil {
		change(&a)
	}
	require.NoError(t, w.Add(t.Context(), a))
	return w, a.Lag
}

func sourceBytes(c *stub.Cluster, partition int) []byte {
	var b []byte
	c.Read(func(s *stub.State) { b = s.Topics["t"].Partitions[partition].Bytes() })
	return b
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
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
