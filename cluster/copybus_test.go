package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestCopierNobody: that there is no other replica may only be said when it is known; a
// replica without a checkpoint begins at nothing then.
func TestCopierNobody(t *testing.T) {
	copier := func(nodes []messages.NodeID) *BusCopier {
		return NewCopier(nil, func(messages.PartitionKey) []messages.NodeID { return nodes }, func(messages.NodeID) bool { return false })
	}
	_, err := copier([]messages.NodeID{}).Copy(t.Context(), testKey, 0, 0)
	require.ErrorIs(t, err, errSole)
	for _, nodes := range [][]messages.NodeID{nil, {2}} {
		_, err = copier(nodes).Copy(t.Context(), testKey, 0, 0)
		require.ErrorIs(t, err, ErrNoReplica)
		require.NotErrorIs(t, err, errAllBlank)
	}
	_, err = copier([]messages.NodeID{}).Copy(t.Context(), messages.PartitionKey{TopicID: MetadataTopicID}, 0, 0)
	require.ErrorIs(t, err, ErrNoReplica)
}
