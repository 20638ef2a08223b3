package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/cluster"
	"kagami/messages"
)

// A node is in sync while it has what was the end replica.lag.time.max.ms ago, and
// again as soon as it has what was that long ago then.
func TestReplicaLag(t *testing.T) {
	const lag = 800 * time.Millisecond
	beat := func(applied uint64) cluster.Beat {
		return cluster.Beat{Shards: []cluster.ShardProgress{{Shard: 3, Applied: applied}}}
	}
	var l replicaLag
	now := time.Unix(100, 0)
	mark := func(after time.Duration, leader, follower uint64) {
		now = now.Add(after)
		l.mark(now, lag, map[messages.NodeID]cluster.Beat{1: beat(leader), 2: beat(follower)})
	}
	require.True(t, l.reached(beat(0), 3), "nothing is known yet")
	mark(0, 10, 5)
	for range 7 {
		mark(lag/8, 20, 5)
		require.True(t, l.reached(beat(5), 3), "not that long yet")
	}
	mark(lag/8, 20, 5)
	require.False(t, l.reached(beat(5), 3))
	require.False(t, l.reached(cluster.Beat{}, 3), "it says nothing of the shard")
	require.True(t, l.reached(beat(10), 3), "what was the end then")
	require.True(t, l.reached(beat(20), 3))
	require.True(t, l.reached(beat(5), 4), "a shard without messages")
	mark(lag/8, 30, 5)
	require.False(t, l.reached(beat(10), 3), "the end moves on")
	require.True(t, l.reached(beat(20), 3))
	mark(10*lag, 30, 30)
	require.True(t, l.reached(beat(30), 3))
	require.LessOrEqual(t, len(l.marks), lagMarks+2)
}
