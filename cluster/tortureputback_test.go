package cluster

import (
	"slices"
	"time"

	"kagami/cluster/journal"
	"kagami/messages"
)

// putBack is the end of a history: while all nodes are down a stream is put back to an
// older copy, and others write what they lack. No node may take the new messages for the
// ones that it followed: its logs, and what it acknowledged, would be a mixture.
func (x *torture) putBack() {
	id := int32(x.intn(severalShards))
	st := x.shared[id]
	st.mu.Lock()
	first, last := st.first, st.first+uint64(len(st.stored))
	st.mu.Unlock()
	for _, n := range x.nodes {
		last = min(last, n.run.Load().journal.shards[id].applied.Load())
	}
	keep := last - 1 - uint64(x.intn(20)) // every node has followed what comes behind
	if last < 22 || keep < first {
		return
	}
	x.note(storyStep+"shard %d is put back to %d", id, keep)
	before := make(map[messages.NodeID]map[messages.PartitionKey]journal.State)
	for _, n := range x.nodes {
		states := make(map[messages.PartitionKey]journal.State)
		n.run.Load().each(func(r *Replica) {
			if x.shardOf(r.key) == id {
				states[r.key] = r.order.State()
			}
		})
		before[n.id] = states
		n.stop()
	}
	x.rewound.Store(true)
	st.mu.Lock()
	other := journal.Message{Author: journal.Author{Node: 9, Incarnation: messages.NewTopicID()}}
	lost := len(st.stored) - int(keep-st.first) - 1
	st.stored = slices.Clone(st.stored[:len(st.stored)-lost])
	for range lost + x.intn(5) {
		other.Number++
		st.stored = append(st.stored, other.AppendTo(nil))
	}
	clear(st.ids)
	st.mu.Unlock()
	x.restartAll()
	x.sleep(5 * time.Second)
	for _, n := range x.nodes {
		run := n.run.Load()
		if run == nil {
			continue
		}
		run.each(func(r *Replica) {
			was, ok := before[n.id][r.key]
			if !ok || r.order.(*streamed).isBehind() {
				return
			}
			if now := r.order.State(); now != was || r.Leads() {
				x.blame(r.key, r.tp.String())
				x.errorf("node %d went on with another journal: %s leads %t, %+v, was %+v", n.id, r.tp, r.Leads(), now, was)
			}
		})
		if s := run.journal.shards[id]; !s.alone() {
			x.errorf("node %d follows shard %d, which was put back", n.id, id)
		}
	}
}
