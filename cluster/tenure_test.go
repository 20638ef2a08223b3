package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTenure: a node that leads again after another one has claimed in between sees
// another tenure, also when no image that named the other came by; a bump of its own
// epoch doesn't change it, an isolation does.
func TestTenure(t *testing.T) {
	s := newSeveral(t, 1, 2)
	s.topic("t", 7, 1, 2)
	one, two := s.nodes[1].get("t"), s.nodes[2].get("t")
	require.Eventually(t, one.Leads, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return !two.order.(*streamed).isBehind() }, 20*time.Second, time.Millisecond)
	require.Equal(t, uint64(1), one.Tenure())
	require.Equal(t, uint64(0), two.Tenure())
	require.NoError(t, one.Claim(t.Context(), one.State().LeaderEpoch+3)) // a bump
	require.Equal(t, uint64(1), one.Tenure())

	told := make(chan uint64, 100)
	defer one.Watch(func() { told <- one.Tenure() })()
	require.NoError(t, two.Claim(t.Context(), one.State().LeaderEpoch+1)) // node 1 sees no image of it
	require.Eventually(t, func() bool { return !one.Leads() }, 20*time.Second, time.Millisecond)
	require.NoError(t, one.Claim(t.Context(), two.State().LeaderEpoch+1))
	require.True(t, one.Leads())
	require.Equal(t, uint64(3), one.Tenure())
	require.Eventually(t, func() bool { return !two.Leads() }, 20*time.Second, time.Millisecond)
	for seen := uint64(0); seen != 3; seen = <-told {
		require.LessOrEqual(t, seen, uint64(3))
	}
	for _, st := range s.streams {
		st.stall(true)
	}
	require.Eventually(t, func() bool { return !one.Leads() && one.Tenure() == 4 }, 20*time.Second, time.Millisecond)
	for _, st := range s.streams {
		st.stall(false)
	}
	require.Eventually(t, func() bool { return one.Leads() && one.Tenure() == 5 }, 20*time.Second, time.Millisecond)
}

// TestTenureAfterLateBeat: a beat that is late only for a moment, between two looks of
// the journal, ends the tenure of a replica that is looked at then. It leads again
// afterwards, although nothing happens to it.
func TestTenureAfterLateBeat(t *testing.T) {
	s := newSeveral(t, 1, 2)
	s.topic("t", 7, 1, 2)
	one := s.nodes[1].get("t")
	require.Eventually(t, one.Leads, 20*time.Second, time.Millisecond)
	sh := one.order.(*streamed).shard
	sh.beatAt.Store(1)
	one.publish()
	sh.beatAt.Store(sh.j.clock.Now().UnixNano()) // the beat is back
	require.Equal(t, uint64(2), one.Tenure())
	require.Eventually(t, func() bool { return one.Leads() && one.Tenure()%2 == 1 }, 20*time.Second, time.Millisecond)
}
