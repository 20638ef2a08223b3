package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// trimAll has a node trim all streams as if the others were dead for good.
func (n *severalNode) trimAll() {
	n.s.t.Helper()
	require.NoError(n.s.t, n.journal.Checkpoint())
	shards := n.journal.Shards()
	v := TrimView{
		Turn: true, Nodes: []messages.NodeID{1, 2, 3},
		Beat: func(id messages.NodeID) (Beat, bool, bool) {
			if id == n.id {
				return Beat{Shards: shards}, true, true
			}
			return Beat{}, false, false
		},
		Sole: func(messages.NodeID, int32) bool { return false },
	}
	for id := MetadataShard; id < severalShards; id++ {
		require.NoError(n.s.t, n.journal.trim(n.s.t.Context(), v, id))
	}
}

// create writes a topic of one partition through node n; its replicas may be down.
func (n *severalNode) create(name string, id byte, replicas ...messages.NodeID) {
	n.s.t.Helper()
	r := wire.NewPtrTopicRecord()
	r.Name, r.TopicID = name, messages.TopicID{id}
	n.change(r, metadata.PartitionRecord(r.TopicID, 0, metadata.Partition{Leader: replicas[0], Replicas: replicas, ISR: replicas}))
}

// TestSeveralBlankBehindATrim: the streams were trimmed past nodes that are down, then a
// topic was created on just these. They find a hole and nobody who has anything, but
// nothing of the topic can be in that hole.
func TestSeveralBlankBehindATrim(t *testing.T) {
	s := newSeveral(t, 1, 2, 3)
	s.wait = true
	s.topic("t", 7, 1, 2, 3)
	for range 20 {
		s.nodes[1].append("t", "a")
	}
	s.equal(1, "t")
	s.nodes[2].stop()
	s.nodes[3].stop()
	for range 20 {
		s.nodes[1].append("t", "b")
	}
	require.Eventually(t, func() bool { // every shard has something to trim
		for id, st := range s.streams {
			if _, last, _ := st.Bounds(t.Context()); id != MetadataShard && s.nodes[1].journal.shards[id].applied.Load() < 30 || last < 30 {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond)
	s.nodes[1].trimAll()
	for i, name := range []string{"u", "v", "w", "x"} {
		s.nodes[1].create(name, byte(20+i), 2, 3)
	}
	s.nodes[2].start()
	s.nodes[3].start()
	for _, name := range []string{"u", "v", "w", "x"} {
		require.Eventually(t, func() bool {
			r, err := s.nodes[2].replicas.Get(messages.TopicPartition{Topic: name})
			return err == nil && r.Leads()
		}, 20*time.Second, time.Millisecond, name)
		s.nodes[2].append(name, "first")
		require.Eventually(t, func() bool {
			r, err := s.nodes[3].replicas.Get(messages.TopicPartition{Topic: name})
			return err == nil && r.order.inOrder() && r.order.State().LogEnd == 1
		}, 20*time.Second, time.Millisecond, name)
	}
	require.Positive(t, s.nodes[2].journal.shards[0].holes.Load(), "the streams were trimmed past it")
}
