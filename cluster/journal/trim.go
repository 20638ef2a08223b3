package journal

import (
	"cmp"
	"slices"

	"kagami/messages"
)

// Progress is what is known of one node that follows a shard.
type Progress struct {
	Node messages.NodeID
	// Needs is what the node reported: ShardRecord.Needs of its durable record. A node
	// that copies and is about to go on somewhere reports that instead. 0: the node has to
	// follow the shard and nothing was heard of it; it may need everything.
	Needs uint64
	// Live is whether the node's heartbeats come.
	Live bool
	// Sole: the node has, or is to have, a replica of the shard that no other live node
	// has whole.
	Sole bool
}

// Trim says what the stream must keep: everything from keep on. (A purge of JetStream
// takes just this number.) first and size are the stream's first sequence and bytes.
//
// Everything that a node needs is kept: after a restart it compares the message at its
// shard record before it goes on above it. Those that are dead and stand in the way are
// given up, the furthest back first, while the stream is larger than limit bytes; it
// isn't known how much one gives, so at most one goes in each call, and
// beside it those that nothing is known of: they give nothing, and would keep the next
// one from being given up for ever. Never given up is
// a node with a sole replica: acknowledged appends that it has not checkpointed are
// nowhere but in the stream. (The stream then becomes full and refuses new ones, of
// all partitions: better than to lose old ones.) Nor is anybody while a
// live node has a hole that it hasn't met, for its replicas look whole. What a node needs below first it
// can't get any more: it copies, and holds nothing until it reports again.
//
// The numbers may be old: then less is purged. (One given up that was alive after all
// is above first again, while its old report is below: with a sole replica it holds
// everything until it reports.) A node whose disk was put back reports
// less than before and may find a hole; it notices (ShardRecord.Compare).
func Trim(first uint64, size, limit int64, nodes []Progress) (keep uint64, givenUp []messages.NodeID) {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b Progress) int { return cmp.Compare(a.Needs, b.Needs) })
	// A live node that has a hole and hasn't said so yet may take its replicas for whole.
	holed := slices.ContainsFunc(nodes, func(n Progress) bool { return n.Live && 0 < n.Needs && n.Needs < first })
	known := 0 // of those given up
	for _, n := range nodes {
		switch {
		case 0 < n.Needs && n.Needs < first && !n.Sole: // has a hole already
			continue
		case !n.Live && !n.Sole && size > limit && known == 0 && !holed:
			givenUp = append(givenUp, n.Node)
			if n.Needs > 0 {
				known++
			}
		default:
			return max(first, n.Needs), givenUp
		}
	}
	return first, nil // nobody left who would have what is purged
}
