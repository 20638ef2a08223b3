package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTrafficIsCounted(t *testing.T) {
	w := newWorld(t, onDisk)
	topic := w.topic("t", 1, nil)
	c := w.dial()
	sent := oneBatch("a", "b", "c")
	require.Zero(t, produceOne(t, c, produceRequest(9, 1, "t", topic.ID, 0, sent)).ErrorCode)
	require.NotZero(t, produceOne(t, c, produceRequest(9, 1, "nowhere", topic.ID, 0, sent)).ErrorCode)
	resp := c.call(fetchRequest(12, fetchPart{"t", topic.ID, 0, 0})).(*kmsg.FetchResponse)
	require.Len(t, resp.Topics[0].Partitions[0].RecordBatches, len(sent))
	c.call(fetchRequest(12, fetchPart{"t", topic.ID, 0, 99}))
	require.Equal(t, Traffic{
		BytesIn: int64(len(sent)), MessagesIn: 3, BytesOut: int64(len(sent)),
		Produce: 2, Fetch: 2, FailedProduce: 1, FailedFetch: 1,
	}, w.srv.Traffic())
}
