package cluster

import (
	"errors"
	"fmt"

	"kagami/cluster/journal"
	"kagami/messages"
)

// Sentinels of this package.
var (
	// ErrNotLogEnd: an append whose base offset isn't the log end. The author read
	// an older state; it reads the log end again and starts from there.
	ErrNotLogEnd = journal.ErrNotLogEnd
	// ErrWritable: a cut of a partition that clients may write to. Seal it first.
	ErrWritable = errors.New("partition is writable")
	// ErrOfSeveral: the data folder is that of a node of several, and the node was
	// started as one alone. Configure its peers.
	ErrOfSeveral = errors.New("data folder of a node of a cluster of several: set cluster.peers")
	// ErrNoReplica: no node has a replica of the partition that isn't behind itself.
	ErrNoReplica = errors.New("no replica to copy from")
	// ErrClosed: the replica, bus or store was closed.
	ErrClosed = errors.New("closed")
	// ErrDamaged: the checkpoint file can't be read as one.
	ErrDamaged = errors.New("checkpoint file is damaged")

	// ErrNoResponders: nobody serves the subject. A node that isn't there, or no
	// leader of that shard at the moment.
	ErrNoResponders = errors.New("nobody serves this subject")
	// ErrTooLarge: a bus message above the limit.
	ErrTooLarge = errors.New("message is too large for the bus")
	// ErrHandler: the serving side failed; the text says how.
	ErrHandler = errors.New("handler failed")
	// ErrUnknownActor: the node has no actor of that name.
	ErrUnknownActor = errors.New("unknown actor")
	// ErrBadOption: an option of the cluster can't be used; the text says which.
	ErrBadOption = errors.New("bad option")
	// ErrNodeIDTaken: another process runs under the same node id. Each node needs
	// an id of its own.
	ErrNodeIDTaken = errors.New("another process runs under this node id")
	// ErrTakenOut: this node was taken out of the cluster, and has a folder of before.
	ErrTakenOut = errors.New("this node was taken out of the cluster")
	// ErrForeignCluster: the data folder or the configuration has the id of another
	// cluster than the other nodes have. Give the node an empty folder, or the right
	// peers.
	ErrForeignCluster = errors.New("node belongs to another cluster")
	// ErrOutcomeUnknown: a message was published and may be stored or not.
	ErrOutcomeUnknown = errors.New("outcome is unknown")
	// ErrJournalFull: the stream has its maximum of bytes or too much to take in at
	// the moment. Trim it or wait; nothing was stored.
	ErrJournalFull = errors.New("journal is full")
	// ErrJournalWentBack: the journal ends below what was read of it before: its
	// folders were put back to an older copy. Who has read it must copy.
	ErrJournalWentBack = errors.New("journal went back")
	// ErrNoStream: the journal has no stream of that name.
	ErrNoStream = errors.New("no such journal")
	// ErrNotReady: the actor is loading or restarting; ask again.
	ErrNotReady = errors.New("actor is not ready")
)

// EpochAheadError refuses mirrored batches whose epoch is above the claimed
// leader epoch: DLE >= batch epoch is an invariant (spec: fetcher.md, step 5a).
// The way out is a bump of the leader epoch.
type EpochAheadError struct {
	Partition  messages.TopicPartition
	BatchEpoch int32 // highest epoch of the refused batches
	Claimed    int32 // the partition's leader epoch
}

// Error names both epochs.
func (e *EpochAheadError) Error() string {
	return fmt.Sprintf("append to %s: batch epoch %d is above leader epoch %d", e.Partition, e.BatchEpoch, e.Claimed)
}

// Unwrap makes errors.Is(err, messages.ErrUnknownLeaderEpoch) true.
func (e *EpochAheadError) Unwrap() error { return messages.ErrUnknownLeaderEpoch }

// HoleError says that messages which a follower hasn't seen are gone: they were
// purged. It has to copy from somebody who has applied them.
type HoleError struct {
	Journal string
	Next    uint64 // the first that is missing
	First   uint64 // the first that the journal still has, or will have
}

// Error names both sequences.
func (e *HoleError) Error() string {
	return fmt.Sprintf("journal %s: messages from %d to %d are gone", e.Journal, e.Next, e.First-1)
}
