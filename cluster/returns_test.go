package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/wire"
)

// TestLeadsAtTheReturnOfABeat: a node that couldn't claim a partition, as the journal
// didn't reach it, claims it when its first beat comes back: neither the next beat nor
// the next try of the claim is waited for.
func TestLeadsAtTheReturnOfABeat(t *testing.T) {
	s := (&several{t: t, quiet: true}).begin(1, 2)
	s.topic("t", 7, 1, 2)
	two := s.nodes[2].get("t")
	sh := s.nodes[2].journal.shardOf(two.Key())
	st := s.streams[sh.id]
	st.stall(true)
	sh.beatAt.Store(time.Now().Add(-2 * time.Hour).UnixNano())
	s.nodes[2].journal.look(sh)
	require.True(t, sh.isolated.Load())

	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Leader = messages.TopicID{7}, 0, 2
	s.nodes[1].change(r) // and node 2 has tried to claim
	require.False(t, two.Leads())

	sh.beat(time.Now())
	require.False(t, two.Leads())
	st.stall(false)
	require.Eventually(t, two.Leads, 20*time.Second, time.Millisecond)
	s.nodes[2].append("t", "a")
	s.equal(2, "t")
}

// TestLeadsWhenItHasCaughtUp: a node that couldn't claim a partition, as its replica had
// missed operations, claims it when the copy is there, and not at the next try.
func TestLeadsWhenItHasCaughtUp(t *testing.T) {
	s := (&several{t: t, quiet: true}).begin(1, 2)
	s.topic("t", 7, 1, 2)
	s.nodes[1].leads("t")
	s.nodes[2].stop()
	s.nodes[1].append("t", "missed")
	st := s.streams[s.nodes[1].journal.shardOf(s.nodes[1].get("t").Key()).id]
	_, last, err := st.Bounds(t.Context())
	require.NoError(t, err)
	st.purge(last)
	s.alone.Store(true)
	s.nodes[2].start()
	require.NoError(t, s.nodes[2].replicas.WaitApplied(t.Context(), s.nodes[1].store.Image().Offset()))
	two := s.nodes[2].get("t")
	require.Eventually(t, two.order.(*streamed).isBehind, 20*time.Second, time.Millisecond)

	s.lead(1, 7, 2) // and node 2 has tried to claim
	require.False(t, two.Leads())
	s.alone.Store(false)
	require.Eventually(t, two.Leads, 90*time.Second, time.Millisecond)
	s.nodes[2].append("t", "a")
	s.equal(2, "t")
}
