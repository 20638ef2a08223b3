package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// TestISRIsWhatIsAliveAndWhole: the image's ISR is what was assigned.
func TestISRIsWhatIsAliveAndWhole(t *testing.T) {
	looks := 0
	w := newWorld(t, func(_ *world, c *Config) {
		c.InSync = func() func(messages.NodeID, messages.PartitionKey) bool {
			looks++
			return func(node messages.NodeID, key messages.PartitionKey) bool {
				return node == 1 || node == 2 && key.Partition == 0
			}
		}
	})
	topic := w.topic("t", 2, nil)
	all := []messages.NodeID{1, 2, 3}
	for n := range int32(2) {
		w.apply(metadata.PartitionRecord(topic.ID, n, metadata.Partition{Leader: 1, LeaderEpoch: 4, Replicas: all, ISR: all}))
	}
	c := w.dial()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	parts := c.call(req).(*kmsg.MetadataResponse).Topics[0].Partitions
	require.Equal(t, [][]int32{{1, 2}, {1}}, [][]int32{parts[0].ISR, parts[1].ISR})
	require.Equal(t, []int32{1, 2, 3}, parts[0].Replicas)
	require.Equal(t, 1, looks, "once a topic, not once a partition")
	described := c.call(kmsg.NewPtrDescribeTopicPartitionsRequest()).(*kmsg.DescribeTopicPartitionsResponse).Topics[0].Partitions
	require.Equal(t, [][]int32{{1, 2}, {1}}, [][]int32{described[0].ISR, described[1].ISR})
}
