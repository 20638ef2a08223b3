package actors

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// A node that is gone for good is taken out; its leaderships and then its replicas go
// to others, the order of the rest stays. A live one and an unknown one are refused.
func TestUnregisterNode(t *testing.T) {
	w := newWorld(t, 1, 2, 3, 4)
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "t", Partitions: 8, ReplicationFactor: 3}, {Name: "one", Partitions: 4, ReplicationFactor: 1}}})
	require.ErrorIs(t, w.do(messages.UnregisterNode{ID: 3}).Err, messages.ErrInvalidRequest)
	require.ErrorIs(t, w.do(messages.UnregisterNode{ID: 9}).Err, messages.ErrBrokerNotRegistered)
	w.env.live = []messages.NodeID{1, 2, 4}
	before := slices.Clone(w.img.Topic("t").Partitions)
	w.ok(messages.PlaceLeaders{Live: w.env.live, Max: 1000})
	for p, part := range w.img.Topic("t").Partitions {
		require.Equal(t, before[p].Replicas, part.Replicas, "a node that is away keeps its replicas")
	}

	w.ok(messages.UnregisterNode{ID: 3})
	require.Nil(t, w.img.Node(3))
	require.Len(t, w.img.Nodes(), 3)
	w.ok(messages.PlaceLeaders{Live: w.env.live, Max: 1000})
	for p, part := range w.img.Topic("t").Partitions {
		require.NotContains(t, part.Replicas, messages.NodeID(3))
		require.Len(t, part.Replicas, 3)
		require.NotEqual(t, messages.NodeID(3), part.Leader)
		kept := slices.DeleteFunc(slices.Clone(before[p].Replicas), func(n messages.NodeID) bool { return n == 3 })
		require.Equal(t, kept, part.Replicas[:len(kept)])
	}
	for p, part := range w.img.Topic("one").Partitions {
		require.Len(t, part.Replicas, 1, "partition %d: what only node 3 has isn't given up", p)
	}
	require.False(t, PlacementDue(w.img, messages.PlaceLeaders{Live: w.env.live}, 1, nil))

	// With fewer nodes than replicas the rest stays.
	w.env.live = []messages.NodeID{1, 2}
	w.ok(messages.PlaceLeaders{Live: w.env.live, Max: 1000})
	w.ok(messages.UnregisterNode{ID: 4})
	w.ok(messages.PlaceLeaders{Live: w.env.live, Max: 1000})
	for _, part := range w.img.Topic("t").Partitions {
		require.ElementsMatch(t, []messages.NodeID{1, 2}, part.Replicas)
	}
}
