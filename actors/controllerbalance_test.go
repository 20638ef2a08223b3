package actors

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/configs"
)

// preferred counts preferred leaders, of one topic or, with no name, of all.
func (w *world) preferred(topic string) map[messages.NodeID]int {
	out := map[messages.NodeID]int{}
	for _, t := range w.img.Topics() {
		for _, p := range t.Partitions {
			if topic == "" && !messages.IsInternalTopic(t.Name) || t.Name == topic {
				out[p.Replicas[0]]++
			}
		}
	}
	return out
}

// placeAll gives the controller its duty until nothing is left, and returns how many
// leaderships moved. It fails where a step moves more than it may.
func (w *world) placeAll(t *testing.T, cmd messages.PlaceLeaders) (moved int) {
	t.Helper()
	for step := 0; PlacementDue(w.img, cmd, 1, w.env.static); step++ {
		require.Less(t, step, 10_000, "it doesn't come to an end")
		before := w.img
		w.ok(cmd)
		changed := 0
		for _, topic := range w.img.Topics() {
			for i, p := range topic.Partitions {
				if p.Leader != before.TopicByID(topic.ID).Partitions[i].Leader {
					changed++
				}
			}
		}
		require.LessOrEqual(t, changed, cmd.Back)
		moved += changed
	}
	return moved
}

// New partitions are led by all nodes alike: those of one large topic, and those of
// many small ones.
func TestNewLeadersAreSpread(t *testing.T) {
	for _, factor := range []int16{1, 2, 3} {
		w := newWorld(t, 1, 2, 3)
		w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "large", Partitions: 60, ReplicationFactor: factor}}})
		require.Equal(t, map[messages.NodeID]int{1: 20, 2: 20, 3: 20}, w.preferred("large"))
		var small []messages.NewTopic
		for i := range 30 {
			small = append(small, messages.NewTopic{Name: fmt.Sprint("small-", i), Partitions: 1, ReplicationFactor: factor})
		}
		w.ok(messages.CreateTopics{Topics: small[:10]})
		w.ok(messages.CreateTopics{Topics: small[10:]})
		require.Equal(t, map[messages.NodeID]int{1: 30, 2: 30, 3: 30}, w.preferred(""))
		w.ok(messages.CreatePartitions{Topics: []messages.PartitionCount{{Topic: "small-3", Count: 7}}})
		for node, n := range w.preferred("small-3") {
			require.Contains(t, []int{2, 3}, n, "node %d", node)
		}
		require.False(t, PlacementDue(w.img, messages.PlaceLeaders{Live: w.env.live, Back: 10}, 1, nil))
	}
}

// A cluster of one grows: its topics get the configured replicas, whoever made them,
// and when those are in order the leaderships are spread in small steps, those of each
// topic and of the coordinators, too.
func TestLeadersAreSpreadAfterGrowth(t *testing.T) {
	w := newWorld(t, 1)
	w.env.static = map[string]string{configs.DefaultReplicationFactor: "3", configs.OffsetsTopicRF: "3"}
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: messages.ConsumerOffsetsTopic}}})
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "t", Partitions: 60, ReplicationFactor: 1}}})
	for i := range 12 {
		w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: fmt.Sprint("small-", i), Partitions: 1, ReplicationFactor: 1}}})
	}
	alone := w.img.Offset() + 1
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "later", Partitions: 3, ReplicationFactor: 1}}})
	for _, n := range []messages.NodeID{2, 3} {
		w.ok(messages.RegisterNode{Node: messages.Node{ID: n, Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9094}}}})
	}
	w.env.live = []messages.NodeID{1, 2, 3}
	cmd := messages.PlaceLeaders{Live: w.env.live, Lagging: []messages.NodeID{2, 3}, Alone: alone, Back: 7, Max: 1000}
	require.Zero(t, w.placeAll(t, cmd), "the new nodes aren't in order yet")
	behind := map[messages.NodeID][]messages.PartitionKey{}
	for _, topic := range w.img.Topics() {
		for i, p := range topic.Partitions {
			require.Equal(t, messages.NodeID(1), p.Leader)
			if topic.Name == "later" {
				require.Len(t, p.Replicas, 1, "what was made with a choice stays")
				continue
			}
			require.Len(t, p.Replicas, 3)
			for _, n := range []messages.NodeID{2, 3} {
				behind[n] = append(behind[n], topic.Key(int32(i)))
			}
		}
	}
	cmd.Lagging, cmd.Behind = nil, behind
	require.Zero(t, w.placeAll(t, cmd), "their replicas have holes")
	cmd.Behind = nil
	require.Positive(t, w.placeAll(t, cmd))
	require.Equal(t, map[messages.NodeID]int{1: 20, 2: 20, 3: 20}, w.preferred("t"))
	for node, n := range w.preferred("") {
		require.InDelta(t, 25, n, 2.5, "node %d", node)
	}
	for node, n := range w.preferred(messages.ConsumerOffsetsTopic) {
		require.InDelta(t, 16.5, n, 1, "node %d", node)
	}
}

// While a node of the cluster is away or not in order, leaderships go to others only
// from it, and come back to it.
func TestLeadersAreNotSpreadWhileNodesAreAway(t *testing.T) {
	w := newWorld(t, 1, 2, 3)
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "t", Partitions: 60, ReplicationFactor: 3}}})
	before := slices.Clone(w.img.Topic("t").Partitions)
	away := messages.PlaceLeaders{Live: []messages.NodeID{1, 2}, Back: 60, Max: 1000}
	require.Equal(t, 20, w.placeAll(t, away))
	back := messages.PlaceLeaders{Live: []messages.NodeID{1, 2, 3}, Lagging: []messages.NodeID{3}, Back: 60, Max: 1000}
	require.Zero(t, w.placeAll(t, back))
	back.Lagging = nil
	require.Equal(t, 20, w.placeAll(t, back))
	for i, p := range w.img.Topic("t").Partitions {
		require.Equal(t, before[i].Leader, p.Leader)
		require.Equal(t, before[i].Replicas, p.Replicas)
	}
}

// Whatever was there before, spreading comes to an end, no topic is worse off, and only
// replicas lead.
func TestSpreadingEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		w := newWorld(t, 1, 2, 3, 4)
		for i := range 1 + random.IntN(12) {
			assignment := map[int32][]messages.NodeID{}
			factor := 1 + random.IntN(4)
			first := random.IntN(4)
			for p := range int32(1 + random.IntN(9)) {
				all := []messages.NodeID{1, 2, 3, 4}
				random.Shuffle(4, func(a, b int) { all[a], all[b] = all[b], all[a] })
				if random.IntN(2) == 0 { // most of the lead on one node
					at := slices.Index(all, messages.NodeID(first+1))
					all[0], all[at] = all[at], all[0]
				}
				assignment[p] = all[:factor]
			}
			w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: fmt.Sprint("t", i), Partitions: -1, ReplicationFactor: -1, Assignment: assignment}}})
		}
		worst := map[string]int{}
		for _, topic := range w.img.Topics() {
			for _, n := range w.preferred(topic.Name) {
				worst[topic.Name] = max(worst[topic.Name], n)
			}
		}
		w.placeAll(t, messages.PlaceLeaders{Live: []messages.NodeID{1, 2, 3, 4}, Back: 3, Max: 1000})
		for _, topic := range w.img.Topics() {
			for node, n := range w.preferred(topic.Name) {
				require.LessOrEqual(t, n, worst[topic.Name], "%s on node %d", topic.Name, node)
			}
			for _, p := range topic.Partitions {
				require.Equal(t, p.Replicas[0], p.Leader)
			}
		}
	}
}
