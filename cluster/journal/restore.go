package journal

import (
	"hash/fnv"
	"math"

	"kagami/messages"
)

// ShardRecord is what a node remembers of a shard, durably: every operation up to
// Sequence is in the checkpoints of its partitions. It is written after them.
type ShardRecord struct {
	Sequence uint64 // 0 = nothing
	Print    uint64 // Fingerprint of the message at Sequence; 0 = behind a hole, or nothing
	Covered  int64  // see Newborn
}

// Fingerprint tells messages apart: author, number and checksum.
func Fingerprint(payload []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(payload[:min(len(payload), messageHeaderSize)]) // never fails
	return h.Sum64()
}

// Start is how a node goes on with a shard.
type Start int8

// The ways to go on.
const (
	// StartFollow: from the message behind the record.
	StartFollow Start = iota + 1
	// StartCopy: what comes next can't be had, or can't be trusted to come next.
	StartCopy
	// StartRewound: the stream isn't the one that this node followed: it was put back
	// to an older copy, or made anew. The node empties its logs of the shard, whatever
	// their states say, and copies from a node that was not so far; if all of them
	// were, somebody has to decide which history is to be lost.
	StartRewound
)

// String is the way in lower case.
func (s Start) String() string {
	switch s {
	case StartFollow:
		return "follow"
	case StartCopy:
		return "copy"
	case StartRewound:
		return "rewound"
	default:
		return "Start(?)"
	}
}

// AfterHole is the record of a node that goes on behind sequence without having the
// message: there is nothing to compare, and nothing of it that the stream has to keep.
func AfterHole(sequence uint64) ShardRecord {
	return ShardRecord{Sequence: sequence, Covered: math.MaxInt64}
}

// Needs is the lowest sequence that the node asks the stream for when it starts.
func (r ShardRecord) Needs() uint64 {
	if r.Print == 0 {
		return r.Sequence + 1
	}
	return r.Sequence
}

// Compare says how to go on with a stream whose sequences are first to last, and which
// has the payload at r.Sequence (nil if it doesn't). A running node asks the same of
// what it applied last, whenever it connects to a stream again.
func (r ShardRecord) Compare(first, last uint64, payload []byte) Start {
	switch {
	case last < r.Sequence:
		return StartRewound
	case r.Print == 0 && first <= r.Sequence+1:
		return StartFollow
	case first > r.Sequence || payload == nil:
		return StartCopy
	case Fingerprint(payload) != r.Print:
		return StartRewound
	default:
		return StartFollow
	}
}

// Newborn reports whether a replica of a partition that this node has no checkpoint of
// begins with NewState: only if the partition has had no operation up to where the
// node is in the shard. Otherwise it must copy, for with NewState it would accept
// operations that every other replica refuses, and a leader would acknowledge them.
//
// passed: the node has passed an operation of the partition without having a replica
// of it. That is durable like a checkpoint, before the shard record is behind it.
// covered, of the shard record: of all topics created at that metadata offset or above
// the node has passed every operation from the first on. Zero for a node that follows
// from sequence 1; after a hole, the metadata log's end as of after the hole.
func Newborn(key messages.PartitionKey, covered int64, passed bool) bool {
	return key.CreatedAt >= covered && !passed
}

// RemovesBytes reports whether op takes bytes away from the log's end. Before it does,
// the state behind it, with the operation as pending, has to be durable, and what
// stays flushed: a log that is cut back to an older checkpoint after a crash would
// keep bytes of before the cut as if they were those that came after it.
func RemovesBytes(op Operation) bool {
	return op.Kind == OpTruncate || op.Kind == OpRestartAt
}

// Newer reports whether a checkpoint of state s may replace one of state old: a round
// that began before a cut must not write over what the cut wrote.
func Newer(s, old State) bool { return s.Sequence >= old.Sequence }

// Extends reports whether a log that ends at end and is right at mine.Sequence, or the
// beginning of a log that is, can be made that of theirs by appending alone: theirs is
// not older, and no cut has happened in between. If not, a copy begins anew at
// theirs.LogStart, and the log is then right at theirs.CutAt, whatever mine.Sequence was:
// with a higher one, pieces of an older source would pass for what a newer one has.
func Extends(mine State, end int64, theirs State) bool {
	return mine.Sequence > 0 && theirs.CutAt <= mine.Sequence && mine.Sequence <= theirs.Sequence && theirs.LogStart <= end && end <= theirs.LogEnd
}

// Install is the state that a replica goes on with after a copy: theirs, in which
// every operation up to position is. The replica kept every operation above keptFrom
// and applies those above the result's Sequence. ok is false if there are operations
// in neither: then the source has to be asked later.
func Install(theirs State, position, keptFrom int64) (s State, ok bool) {
	if position < keptFrom {
		return theirs, false
	}
	theirs.Sequence = max(theirs.Sequence, position)
	return theirs, true
}
