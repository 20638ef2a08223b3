package cluster

import (
	"strings"

	"kagami/cluster/journal"
	"kagami/internal/invariant"
	"kagami/messages"
)

// pointScope is what a partition's fault points begin with, so that a test can
// end the node in an append of data and not in one of metadata.
func pointScope(tp messages.TopicPartition) string {
	switch {
	case tp.Topic == messages.ClusterMetadataTopic:
		return "metadata"
	case tp.Topic == messages.MirrorStateTopic:
		return "states"
	case strings.HasPrefix(tp.Topic, "__"):
		return "internal"
	default:
		return "data"
	}
}

// reached names a fault point within an operation, like
// "journal.data.Mode(sealed).checkpointed". place is one of
//
//	before         decided, nothing done
//	flushed        bytes below a seal are durable
//	checkpointed   the checkpoint is durable
//	cut            the log is cut, the checkpoint still says that it is to be
//	written        the log has the bytes, or the new log start
//	repeated       a cut that an earlier process left is about to be repeated
//	after          durable, and neither published nor answered
func (d *direct) reached(op journal.Operation, place string) {
	if invariant.FaultPoints {
		invariant.Reached("journal." + d.scope + "." + pointOf(op) + "." + place)
	}
}

func pointOf(op journal.Operation) string {
	switch op.Kind {
	case journal.OpAppend:
		return op.Kind.String() + "(" + op.Class.String() + ")"
	case journal.OpMode:
		return op.Kind.String() + "(" + op.Mode.String() + ")"
	case journal.OpClaim, journal.OpTruncate, journal.OpRestartAt, journal.OpRaiseLogStart, journal.OpBaseline:
	}
	return op.Kind.String()
}

// reachedReplica names a fault point in what a new image does to a replica:
// before or after its log is opened, created or deleted.
func reachedReplica(tp messages.TopicPartition, effect, place string) {
	if invariant.FaultPoints {
		invariant.Reached("replica." + pointScope(tp) + "." + effect + "." + place)
	}
}
