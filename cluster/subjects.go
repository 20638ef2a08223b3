package cluster

import (
	"fmt"
	"strings"

	"kagami/messages"
)

// Subjects names the bus subjects of one cluster:
//
//	kagami.<cluster>.mirror.<shard>.<epoch>.read    ReadMirrorStates
//	kagami.<cluster>.mirror.<shard>.<epoch>.write   WriteMirrorStates
//	kagami.<cluster>.controller.bump        BumpLeaderEpochs
//	kagami.<cluster>.node.<id>.actor        actor RPC
//	kagami.<cluster>.node.<id>.txn.join     AddPartitionsToTxn
//	kagami.<cluster>.node.<id>.txn.markers  WriteTxnMarkers
//	kagami.<cluster>.beat                   heartbeats
type Subjects struct{ prefix string }

// NewSubjects is for the cluster of that id, which may have any characters.
func NewSubjects(clusterID string) Subjects {
	return Subjects{prefix: "kagami." + subjectToken(clusterID) + "."}
}

// MirrorRead is where the coordinator of a shard answers ReadMirrorStates. epoch is
// that of its leadership: one that was succeeded is never asked.
func (s Subjects) MirrorRead(shard, epoch int32) string {
	return fmt.Sprintf("%smirror.%d.%d.read", s.prefix, shard, epoch)
}

// MirrorWrite is where the coordinator of a shard answers WriteMirrorStates.
func (s Subjects) MirrorWrite(shard, epoch int32) string {
	return fmt.Sprintf("%smirror.%d.%d.write", s.prefix, shard, epoch)
}

// ControllerBump is where a node answers BumpLeaderEpochs while it is controller.
func (s Subjects) ControllerBump(node messages.NodeID) string {
	return fmt.Sprintf("%scontroller.%d.bump", s.prefix, node)
}

// ControllerCommand is where a node takes the commands that others forward to it
// as the controller.
func (s Subjects) ControllerCommand(node messages.NodeID) string {
	return fmt.Sprintf("%scontroller.%d.command", s.prefix, node)
}

// NodeActor is where a node answers actor RPC.
func (s Subjects) NodeActor(node messages.NodeID) string {
	return fmt.Sprintf("%snode.%d.actor", s.prefix, node)
}

// NodeTxnJoin is where a node's transaction coordinators take partitions for
// producers.
func (s Subjects) NodeTxnJoin(node messages.NodeID) string {
	return fmt.Sprintf("%snode.%d.txn.join", s.prefix, node)
}

// NodeTxnMarkers is where a node writes markers into partitions that it leads.
func (s Subjects) NodeTxnMarkers(node messages.NodeID) string {
	return fmt.Sprintf("%snode.%d.txn.markers", s.prefix, node)
}

// NodeRecover is where a node takes its share of RecoverMirrorTopics.
func (s Subjects) NodeRecover(node messages.NodeID) string {
	return fmt.Sprintf("%snode.%d.recover", s.prefix, node)
}

// NodeCopy is where a node answers those who copy its logs.
func (s Subjects) NodeCopy(node messages.NodeID) string {
	return fmt.Sprintf("%snode.%d.copy", s.prefix, node)
}

// Beat is where nodes tell that they are alive.
func (s Subjects) Beat() string { return s.prefix + "beat" }

// NodeSnapshot is where a node gives its newest snapshot of the metadata.
func (s Subjects) NodeSnapshot(node messages.NodeID) string {
	return fmt.Sprintf("%snode.%d.snapshot", s.prefix, node)
}

// subjectToken makes any text one token of a NATS subject, where '.', '*', '>'
// and white space have a meaning: those, '%' itself and everything else that
// isn't a letter, a digit, '-' or '_' become %XX. Different texts stay different.
func subjectToken(s string) string {
	if s == "" {
		return "%"
	}
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
