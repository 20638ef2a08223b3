package journal

import (
	"cmp"
	"slices"

	"kagami/messages"
)

// Progress is what is known of one node that follows a shard. A node that must
// follow it and hasn't reported yet counts with zeros.
type Progress struct {
	Node messages.NodeID
	// Checkpointed is the sequence of the node's shard record, durable.
	Checkpointed uint64
	// Hold is the sequence that a copy on this node goes on from, 0 without a copy.
	Hold uint64
	// Live is whether the node's heartbeats come.
	Live bool
	// Sole: the node has a replica of the shard that no other live node has whole.
	Sole bool
}

// needs is the lowest sequence that the node may ask for: after a restart it compares
// the message at its shard record before it goes on above it.
func (p Progress) needs() uint64 {
	if p.Hold > 0 {
		return p.Hold
	}
	return p.Checkpointed
}

// Trim says what the stream must keep: everything from keep on. (A purge of JetStream
// takes just this number.) first and size are the stream's first sequence and bytes.
//
// Everything that a node needs is kept. Those that are dead and stand in the way are
// given up, the furthest back first, while the stream is larger than limit bytes; it
// isn't known how much one gives, so at most one goes in each call. Never given up is
// a node with a sole replica: acknowledged appends that it has not checkpointed are
// nowhere but in the stream. (The stream then becomes full and refuses new ones, of
// all partitions: better than to lose old ones.) What a node needs
// below first it can't get any more: it copies, and holds nothing until it reports
// that.
//
// The numbers may be old: then less is purged. A node whose disk was put back reports
// less than before and may find a hole; it notices (ShardRecord.Compare).
func Trim(first uint64, size, limit int64, nodes []Progress) (keep uint64, givenUp []messages.NodeID) {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b Progress) int { return cmp.Compare(a.needs(), b.needs()) })
	for _, n := range nodes {
		switch {
		case n.needs() < first && first > 1: // has a hole already
			continue
		case !n.Live && !n.Sole && size > limit && len(givenUp) == 0:
			givenUp = append(givenUp, n.Node)
		default:
			return max(first, n.needs()), givenUp
		}
	}
	return first, nil // nobody left who would have what is purged
}
