package stub_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/test/kafka/stub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stock client is the judge of the stub: it must read what the tables hold.
func TestClientReadsTables(t *testing.T) {
	c, err := stub.Start(stub.Options{Brokers: 2})
	require.NoError(t, err)
	defer c.Close()
	c.Update(func(s *stub.State) {
		topic := s.NewTopic("t", messages.NewTopicID(), 2)
		topic.Partitions[0].Fill(5)
		topic.Partitions[1].Leader = 1
		topic.Partitions[1].Fill(3)
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Address()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer cl.Close()
	got := 0
	for got < 8 {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		got += fetches.NumRecords()
	}
	c.Update(func(s *stub.State) { s.Topics["t"].Partitions[1].Fill(2) })
	for got < 10 {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		got += fetches.NumRecords()
	}
	require.Equal(t, 10, got)
}

func TestUnknownVersionCostsTheConnection(t *testing.T) {
	c, err := stub.Start(stub.Options{})
	require.NoError(t, err)
	defer c.Close()
	c.Update(func(s *stub.State) { s.Versions = stub.Versions21() })
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Address()), kgo.RetryTimeout(time.Second))
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.Ping(t.Context()))
	require.Zero(t, c.Dropped())
}

func TestBuildIsValid(t *testing.T) {
	b := stub.Build(stub.Spec{Base: 7, Epoch: 9, Records: []stub.Record{{Value: []byte("a")}, {OffsetDelta: 3, Key: []byte{}}}})
	require.NoError(t, batch.CheckCRC(b))
	h, err := batch.ParseHeader(b)
	require.NoError(t, err)
	require.Equal(t, int64(10), h.LastOffset())
	require.Equal(t, int32(2), h.Records)
	n := 0
	for r, err := range batch.Records(b) {
		require.NoError(t, err)
		n++
		require.GreaterOrEqual(t, r.Offset, int64(7))
	}
	require.Equal(t, 2, n)
}
