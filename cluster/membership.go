package cluster

import (
	"fmt"

	"kagami/messages"
	"kagami/persistence"
)

// NewClusterID is a random cluster id in Kafka's form: 22 characters of URL
// base64, safe in file names, on command lines and in bus subjects.
func NewClusterID() string { return messages.NewTopicID().String() }

// ChooseClusterID is the id that a node runs under: the one in its data folder,
// else the configured one, else a new one. A folder of another cluster wraps
// persistence.ErrForeignFolder: it is never taken over.
func ChooseClusterID(stored, configured string) (string, error) {
	switch {
	case stored == "" && configured == "":
		return NewClusterID(), nil
	case stored == "":
		return configured, nil
	case configured != "" && configured != stored:
		return "", fmt.Errorf("cluster id %s is configured, the data folder has %s: %w", configured, stored, persistence.ErrForeignFolder)
	default:
		return stored, nil
	}
}

// Membership knows which nodes of the cluster are alive. A cluster of one is
// always complete.
type Membership struct{ self messages.NodeID }

// NewMembership is the membership of a cluster of one.
func NewMembership(self messages.NodeID) *Membership { return &Membership{self: self} }

// Self is this node.
func (m *Membership) Self() messages.NodeID { return m.self }

// Live lists the nodes that are alive, by id, this node included. It doesn't
// block; the result belongs to the caller.
func (m *Membership) Live() []messages.NodeID { return []messages.NodeID{m.self} }

// IsLive reports whether a node is alive.
func (m *Membership) IsLive(node messages.NodeID) bool { return node == m.self }

// Watch has f called after the list of live nodes changed, until cancel is
// called. f must not block. A cluster of one never changes.
func (m *Membership) Watch(func()) (cancel func()) { return func() {} }
