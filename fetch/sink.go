package fetch

import (
	"context"

	"kagami/messages"
)

// Sink is the local end of one partition: what a worker reads of it and what it
// may do to it. One step runs at a time for a partition; a step never starts
// after [Worker.Remove] has returned.
type Sink interface {
	SinkState
	SinkWriter
}

// SinkState is what a worker asks before it decides.
type SinkState interface {
	// State is a consistent snapshot.
	State() LocalState
	// EpochEndOffset finds the largest epoch <= epoch in the log's epoch cache and
	// the offset at which it ends; found is false if there is none.
	EpochEndOffset(epoch int32) (e int32, end int64, found bool)
}

// SinkWriter is what a worker does to the local log. Errors that wrap
// messages.ErrNotLeader, ErrFencedLeaderEpoch or ErrReadOnlyTopic say that the
// partition changed hands or mode meanwhile: the data is dropped and the offset
// is fetched again after a pause. Any other error fails the partition.
type SinkWriter interface {
	// AppendMirror appends whole batches, bytes unchanged. at is the log end they
	// were fetched for; the first base offset is at or above it (a compaction gap).
	// Must not keep the slice after it returned.
	AppendMirror(ctx context.Context, at int64, batches []byte) (Appended, error)
	// Truncate cuts the log to offset, whole batches only.
	Truncate(ctx context.Context, offset int64, reason string) (Cut, error)
	// RestartAt empties the log and goes on at offset.
	RestartAt(ctx context.Context, offset int64, reason string) (Cut, error)
	// RaiseLogStart moves the log start up to offset.
	RaiseLogStart(ctx context.Context, offset int64) error
}

// LocalState is a snapshot of the local log and of who leads it.
type LocalState struct {
	LogStart      int64
	HighWatermark int64
	End           int64
	LeaderEpoch   int32 // DLE
	LatestEpoch   int32 // newest epoch in the log, NoEpoch when empty
}

// Appended is what an append did.
type Appended struct {
	End          int64 // log end after it
	MaxTimestamp int64 // largest batch timestamp, ms; -1 if unknown
}

// Cut is what a truncation or restart removed; From = To when nothing was.
type Cut struct {
	From    int64 // log end after
	To      int64 // log end before
	Records int64
	Bytes   int64
}

// Assignment puts a partition on a worker.
type Assignment struct {
	TopicPartition messages.TopicPartition
	// TopicID is the id of the copy, which is the source's: not the one that the
	// source names now, else a topic that was made again would be taken for the
	// same one (C11). Zero only if the source has no topic ids.
	TopicID     messages.TopicID
	LeaderEpoch int32 // SLE, NoEpoch if the source gives none
	Sink        Sink
	// Lag is filled as long as the partition is with a worker; nil = not wanted.
	Lag *Lag
	// Notify is told of events, from any goroutine, one at a time for a partition.
	// It must not block and must not call back into the worker. The worker may
	// still be in the middle of a step of the partition when it is called.
	Notify func(Event)
	// Throttled: a replica listed in mirror.replication.throttled.replicas.
	Throttled bool
}
