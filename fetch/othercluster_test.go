package fetch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/fetch"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

// TestU12WorkerMeetsAnotherCluster: a connection that was lost leads to another cluster. It
// has a topic of that name, even of that id, as a copy made by a mirror has; nothing of it is
// appended, and nothing cut because of it, before the next refresh knows. Back at the first
// cluster the worker goes on.
func TestU12WorkerMeetsAnotherCluster(t *testing.T) {
	for name, row := range map[string]struct {
		id     messages.TopicID
		change func(*stub.Partition)
	}{
		"more, by id":             {topicID, func(p *stub.Partition) { p.Fill(5) }},
		"more, by name":           {messages.TopicID{}, func(p *stub.Partition) { p.Fill(5) }},
		"another start, by id":    {topicID, func(p *stub.Partition) { p.Trim(4) }},
		"another start, by name":  {messages.TopicID{}, func(p *stub.Partition) { p.Trim(4) }},
		"starts later, by id":     {topicID, func(p *stub.Partition) { p.Fill(20); p.Trim(15) }},
		"starts later, by name":   {messages.TopicID{}, func(p *stub.Partition) { p.Fill(20); p.Trim(15) }},
		"ends before, by id":      {topicID, func(p *stub.Partition) { p.Truncate(3) }},
		"ends before, by name":    {messages.TopicID{}, func(p *stub.Partition) { p.Truncate(3) }},
		"refuses the topic by id": {messages.TopicID{9}, func(p *stub.Partition) { p.Code = 100 }},
	} {
		t.Run(name, func(t *testing.T) {
			c := oneTopic(t, 1, func(s *stub.State, topic *stub.Topic) {
				s.ClusterID = "right"
				topic.ID = row.id
				topic.Partitions[0].Fill(10)
			})
			sink := newMemSink()
			w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) { cfg.ClusterID = "right" })
			a := assignment(sink, 0)
			a.TopicID = row.id
			require.NoError(t, w.Add(t.Context(), a))
			sink.waitEnd(t, 10)
			want := sink.bytes()

			var right stub.Partition
			c.Broker(0).Down()
			c.Update(func(s *stub.State) {
				right = *s.Topics["t"].Partitions[0]
				right.Batches = append([]stub.Batch(nil), right.Batches...)
				s.ClusterID = "other"
				row.change(s.Topics["t"].Partitions[0])
			})
			asked := len(c.Seen(keyFetch))
			require.NoError(t, c.Broker(0).Up())
			require.NoError(t, c.Wait(within(t, 30*time.Second), func(_ *stub.State, seen []stub.Seen) bool { return len(fetches(seen)) >= asked+3 }))
			require.ErrorIs(t, a.Lag.Snapshot().LastError.Err, fetch.ErrOtherCluster)
			require.ErrorContains(t, a.Lag.Snapshot().LastError.Err, "other")
			require.Equal(t, want, sink.bytes())
			require.Equal(t, int64(10), sink.State().End)
			require.Zero(t, sink.State().LogStart)

			c.Broker(0).Down()
			c.Update(func(s *stub.State) {
				s.ClusterID = "right"
				*s.Topics["t"].Partitions[0] = right
				s.Topics["t"].Partitions[0].Fill(7)
			})
			require.NoError(t, c.Broker(0).Up())
			sink.waitEnd(t, 17)
			require.Equal(t, sourceBytes(c, 0), sink.bytes())
		})
	}
}

// TestClusterCheckIsPerConnection: the source's cluster is asked for once for a connection,
// not with each fetch.
func TestClusterCheckIsPerConnection(t *testing.T) {
	c := oneTopic(t, 1, func(s *stub.State, topic *stub.Topic) {
		s.ClusterID = "right"
		topic.ID = topicID
		topic.Partitions[0].Fill(10)
	})
	sink := newMemSink()
	w := newWorker(t, c.Address(), func(cfg *fetch.WorkerConfig) { cfg.ClusterID, cfg.MaxWait = "right", 10*time.Millisecond })
	a := assignment(sink, 0)
	a.TopicID = topicID
	require.NoError(t, w.Add(t.Context(), a))
	sink.waitEnd(t, 10)
	for round := 1; round <= 3; round++ {
		asked := len(c.Seen(keyFetch))
		require.NoError(t, c.Wait(within(t, 30*time.Second), func(_ *stub.State, seen []stub.Seen) bool { return len(fetches(seen)) >= asked+30 }))
		require.Len(t, c.Seen(keyMetadata), round)
		c.Broker(0).Down()
		require.NoError(t, c.Broker(0).Up())
	}
}
