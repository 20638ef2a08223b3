package journal

import "hash/fnv"

// ShardRecord is what a node remembers of a shard, durably: every operation up to
// Sequence is in the checkpoints of its partitions. It is written after them.
type ShardRecord struct {
	Sequence uint64 // 0 = nothing
	Print    uint64 // Fingerprint of the message at Sequence
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
	// to an older copy, or made anew. The node copies from one that was not so far; if
	// all of them were, somebody has to decide which history is to be lost.
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

// Compare says how to go on with a stream whose sequences are first to last, and which
// has the payload at r.Sequence (nil if it doesn't). A running node asks the same of
// what it applied last, whenever it connects to a stream again.
func (r ShardRecord) Compare(first, last uint64, payload []byte) Start {
	switch {
	case r.Sequence == 0 && first <= 1:
		return StartFollow
	case last < r.Sequence:
		return StartRewound
	case first > r.Sequence || payload == nil:
		return StartCopy
	case Fingerprint(payload) != r.Print:
		return StartRewound
	default:
		return StartFollow
	}
}

// How a node has a partition. Whoever follows a shard keeps the State of each of its
// partitions, of those too that it has no replica of: only so does it know, when it
// becomes a replica, whether the partition is new or has a history that it must copy.
// (A replica that begins with NewState instead accepts a Claim that all others refuse.)
//
// A replica also has a log, which is right below an offset of its own, held: it has
// the bytes of [State.LogStart, held) as the partition has them at State.Sequence.
// It is complete when held is State.LogEnd; only then may it lead or be copied from.
// A checkpoint has held beside the state.

// Hold is held after the accepted operation op, and what the log has to do for it:
// an append of its bytes if held was op.Base, a cut or a restart to the result, or
// nothing. after is the state behind op. own is about a Baseline: whether this node's
// log is what it describes, so on the node that wrote it and nowhere else.
func Hold(held int64, after State, op Operation, own bool) int64 {
	switch op.Kind {
	case OpAppend:
		if held == op.Base {
			return op.End
		}
	case OpTruncate:
		return min(held, after.LogEnd)
	case OpRestartAt:
		return op.Offset
	case OpRaiseLogStart:
		return max(held, after.LogStart)
	case OpBaseline:
		if own {
			return op.End
		}
		return op.Offset
	case OpClaim, OpMode:
	}
	return held
}

// RemovesBytes reports whether op takes bytes away. Before it does, the state behind
// it, with the operation as pending, has to be durable, and everything below it
// flushed: a log that is cut back to an older checkpoint after a crash would keep
// bytes of before the cut, or miss those that the older end counts on.
func RemovesBytes(op Operation) bool {
	return op.Kind == OpTruncate || op.Kind == OpRestartAt || op.Kind == OpRaiseLogStart
}

// Applies reports whether the operation at position is one that s hasn't seen.
func Applies(s State, position int64) bool { return position > s.Sequence }

// Newer reports whether a checkpoint of state s may replace one of state old: a round
// that began before a cut must not write over what the cut wrote.
func Newer(s, old State) bool { return s.Sequence >= old.Sequence }

// Chunk is a part of a complete log that another node asked for.
type Chunk struct {
	Generation int64 // of the source's state when it read the batches
	From, End  int64 // whole batches
}

// TakeChunk says up to where the batches of c may be appended to a log that is right
// below held, of a partition in state s: whole batches whose ends are at or below the
// result. ok is false for those that don't follow, or that were read under another
// generation: within one generation no byte changes, so what two nodes have below both
// of their ends is equal, whichever of them is ahead; between two, a cut may have been.
func TakeChunk(s State, held int64, c Chunk) (end int64, ok bool) {
	if c.Generation != s.Generation || c.From != held || c.From >= s.LogEnd {
		return held, false
	}
	return min(c.End, s.LogEnd), true
}

// Recover is what happens to a log after a crash, given its checkpoint: it is cut back
// to held, and the journal goes on from the shard record. lost says that the log
// doesn't have what the checkpoint promised (another disk, a lost sync): it is worth
// nothing, and held begins at the log start again.
func Recover(checkpoint State, held, logStart, logEnd int64) (cutTo int64, lost bool) {
	if logEnd < held || logStart > held {
		return checkpoint.LogStart, true
	}
	return held, false
}
