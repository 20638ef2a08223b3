package main

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"kagami/actors"
	"kagami/cluster"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// Duties of the controller.
const (
	dutyMax  = 5000 // partitions changed at a time
	dutyBack = 50   // leaderships that move at a time though their node is there
)

// partitionsOf are all partitions of topics.
func partitionsOf(img *metadata.Image) iter.Seq[messages.PartitionKey] {
	return func(yield func(messages.PartitionKey) bool) {
		for _, t := range img.Topics() {
			for i := range t.Partitions {
				if !yield(t.Key(int32(i))) {
					return
				}
			}
		}
	}
}

// duty is what the controller has to do about leaders now.
func (n *node) duty(img *metadata.Image) messages.Command {
	cmd := messages.PlaceLeaders{Live: n.staying(), Behind: map[messages.NodeID][]messages.PartitionKey{}, Alone: n.journal.Alone(), Back: dutyBack, Max: dutyMax}
	beats := map[messages.NodeID]cluster.Beat{}
	for _, id := range cmd.Live {
		if b, _, ok := n.members.Beat(id); ok {
			beats[id], cmd.Behind[id] = b, cluster.ExpandBehind(cluster.DecodeBehind(b.Extension), journalShards, partitionsOf(img))
		}
	}
	cmd.Lagging = n.ends.lagging(n.clock.Now(), beats)
	for _, id := range n.ends.sets.unheard(img, beats) {
		if !slices.Contains(cmd.Lagging, id) {
			cmd.Lagging = append(cmd.Lagging, id)
		}
	}
	slices.Sort(cmd.Lagging)
	seen := fmt.Sprint(img.Offset(), cmd.Live, cmd.Behind, cmd.Lagging)
	if n.placed == seen {
		return nil
	}
	if !actors.PlacementDue(img, cmd, n.settings.nodeID, n.settings.static) {
		n.placed = seen
		return nil
	}
	return cmd
}

// replicaSets remembers when it was last decided which nodes have replicas. A node
// whose beat doesn't know that yet can't have said whether a replica that it got has
// what a leader needs.
type replicaSets struct {
	image *metadata.Image
	at    int64
}

// unheard are the nodes whose beats are older than the newest replicas.
func (s *replicaSets) unheard(img *metadata.Image, beats map[messages.NodeID]cluster.Beat) []messages.NodeID {
	if s.image == nil || img != s.image && replicasDiffer(s.image, img) {
		s.at = img.Offset()
	}
	s.image = img
	var out []messages.NodeID
	for id, b := range beats {
		if opened, ok := cluster.OpenedOf(b.Extension); ok && opened < s.at {
			out = append(out, id)
		}
	}
	return out
}

// replicasDiffer reports whether a partition has other replicas than before, in any
// order, or is new.
func replicasDiffer(before, now *metadata.Image) bool {
	for _, t := range now.Topics() {
		old := before.TopicByID(t.ID)
		if old == t {
			continue
		}
		if old == nil || old.CreatedAt != t.CreatedAt || len(old.Partitions) != len(t.Partitions) {
			return true
		}
		for i, p := range t.Partitions {
			if was := old.Partitions[i].Replicas; !slices.Equal(was, p.Replicas) &&
				!slices.Equal(slices.SortedFunc(slices.Values(was), cmp.Compare), slices.SortedFunc(slices.Values(p.Replicas), cmp.Compare)) {
				return true
			}
		}
	}
	return false
}
