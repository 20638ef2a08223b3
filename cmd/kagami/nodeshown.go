package main

import (
	"kagami/cluster"
	"kagami/messages"
)

// shown reports whether clients may be sent to a node. To a node that is cut off all
// others look dead: it shows every node, for a client that hears only of this one
// would never find the others again.
func (n *node) shown(id messages.NodeID) bool {
	if n.members.IsLive(id) || n.journal == nil {
		return true
	}
	return n.journal.Isolated(cluster.MetadataShard) || 2*len(n.members.Live()) <= len(n.store.Image().Nodes())
}
