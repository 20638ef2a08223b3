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
