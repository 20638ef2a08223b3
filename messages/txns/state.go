package txns

import (
	"fmt"

	"kagami/messages"
)

// Status is where a transactional id stands, with the numbers of Kafka's records.
type Status int8

// The statuses. PrepareEpochFence is never stored.
//
//	Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing, Empty, Dead
//	                 -> PrepareAbort  -> CompleteAbort  -> Ongoing, Empty, Dead
const (
	Empty             Status = 0
	Ongoing           Status = 1
	PrepareCommit     Status = 2
	PrepareAbort      Status = 3
	CompleteCommit    Status = 4
	CompleteAbort     Status = 5
	Dead              Status = 6
	PrepareEpochFence Status = 7
)

var statusNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

// String is the name that clients see.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("Status(%d)", int8(s))
	}
	return statusNames[s]
}

// StatusOf finds a status by its name.
func StatusOf(name string) (Status, bool) {
	for i, n := range statusNames {
		if n == name {
			return Status(i), true
		}
	}
	return 0, false
}

// Preparing reports that the outcome is decided and markers are on their way.
func (s Status) Preparing() bool { return s == PrepareCommit || s == PrepareAbort }

// Version is the level of the feature transaction.version that a client works
// with: from V2 on each transaction has an epoch of its own (KIP-890 part 2).
type Version int8

// The versions that matter.
const (
	V0 Version = 0
	V2 Version = 2
)

// Bumps reports that the epoch grows with each transaction.
func (v Version) Bumps() bool { return v >= V2 }

// Values that mean none.
const (
	NoProducer int64 = -1
	NoEpoch    int16 = -1
)

// Producer is a producer id with its epoch.
type Producer struct {
	ID    int64
	Epoch int16
}

// None is no producer.
func None() Producer { return Producer{ID: NoProducer, Epoch: NoEpoch} }

// State is the value of a record: all that is stored of a transactional id.
type State struct {
	Producer
	PreviousID    int64 // producer id before the present one; NoProducer without
	NextID        int64 // that takes over when the transaction has ended; NoProducer without
	TimeoutMillis int32
	Status        Status
	Partitions    []messages.TopicPartition // of the transaction, in order of topic and partition
	UpdatedMillis int64
	StartedMillis int64 // of the transaction; -1 without
	Version       Version
}

// Record is one record of __transaction_state; State is nil in a tombstone.
type Record struct {
	ID    string // transactional id
	State *State
}
