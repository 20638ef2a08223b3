package journal

import (
	"fmt"

	"kagami/messages"
)

// OpKind is the kind of an operation in the journal.
type OpKind int8

// The operations. Claim, Truncate, RestartAt, Mode and Baseline start a new
// generation; Append and RaiseLogStart don't.
const (
	OpClaim OpKind = iota + 1
	OpAppend
	OpTruncate
	OpRestartAt
	OpRaiseLogStart
	OpMode
	OpBaseline
	// opMark is no change of a partition, and refused as one: see Mark.
	opMark OpKind = 64
)

// String is the operation's name as design and logs have it.
func (k OpKind) String() string {
	switch k {
	case OpClaim:
		return "Claim"
	case OpAppend:
		return "Append"
	case OpTruncate:
		return "Truncate"
	case OpRestartAt:
		return "RestartAt"
	case OpRaiseLogStart:
		return "RaiseLogStart"
	case OpMode:
		return "Mode"
	case OpBaseline:
		return "Baseline"
	case opMark:
		return "Mark"
	default:
		return fmt.Sprintf("OpKind(%d)", int8(k))
	}
}

// Operation is one proposed change of a partition. Which fields count depends
// on Kind.
type Operation struct {
	Kind OpKind
	// Generation the author believes in; all kinds but Claim.
	Generation int64

	Class   messages.Class // Append
	Base    int64          // Append, Truncate, RestartAt: the log end the author saw
	End     int64          // Append: log end after it. Baseline: log end
	Batches []byte         // Append; never looked at by the rules

	Offset int64         // Truncate, RestartAt, RaiseLogStart. Baseline: log start
	Mode   messages.Mode // Mode, Baseline

	Epoch int32           // Claim, Baseline
	Node  messages.NodeID // Claim, Baseline

	Reason string // Truncate, RestartAt: for logs and audit
}

// State is what the journal's rules know of one partition. It is a pure
// function of the operations in their order, so every replica has the same.
type State struct {
	Sequence   int64 // of the last operation seen, valid or not; 0 = none
	Generation int64 // sequence of the last valid Claim, Truncate, RestartAt, Mode or Baseline
	Mode       messages.Mode
	Epoch      int32           // claimed leader epoch, NoEpoch = never claimed
	Node       messages.NodeID // who claimed it
	LogStart   int64
	LogEnd     int64
	// ModeOffset is the log end at which the mode last changed, never above LogEnd:
	// of a sealed partition the offset below which LME is computed (OP-43).
	ModeOffset int64
	// CutAt is the sequence of the last valid Truncate, RestartAt or Baseline: a copy
	// of the log that is as new as that is a prefix of this one.
	CutAt int64
}

// NewState is the state of a partition without history.
func NewState() State {
	return State{Mode: messages.ModeWritable, Epoch: messages.NoEpoch, Node: messages.NoNode}
}

// Refusal says why an operation isn't valid at its place in the journal.
type Refusal int8

// The refusals; Accepted is none.
const (
	Accepted          Refusal = iota + 1
	RefusedGeneration         // proposed under a generation that ended
	RefusedEpoch              // Claim: a lower epoch, or an equal one of another node
	RefusedBase               // Append, Truncate, RestartAt: base isn't the log end
	RefusedMode               // Append: the mode doesn't take the class
	RefusedMalformed          // impossible numbers; an author's bug
)

// String is the refusal in words.
func (r Refusal) String() string {
	switch r {
	case Accepted:
		return "accepted"
	case RefusedGeneration:
		return "stale generation"
	case RefusedEpoch:
		return "stale leader epoch"
	case RefusedBase:
		return "base offset is not the log end"
	case RefusedMode:
		return "mode does not take this class"
	case RefusedMalformed:
		return "malformed operation"
	default:
		return fmt.Sprintf("Refusal(%d)", int8(r))
	}
}

// RefusalError is the error that an author gets for a refused operation.
func RefusalError(r Refusal, s State, op Operation) error {
	switch r {
	case Accepted:
		return nil
	case RefusedGeneration:
		return fmt.Errorf("%s refused: %s %d, now %d: %w", op.Kind, r, op.Generation, s.Generation, messages.ErrNotLeader)
	case RefusedEpoch:
		return fmt.Errorf("%s refused: epoch %d of node %d, claimed is %d of node %d: %w",
			op.Kind, op.Epoch, op.Node, s.Epoch, s.Node, messages.ErrFencedLeaderEpoch)
	case RefusedBase:
		return fmt.Errorf("%s refused: %w: base %d, log end %d", op.Kind, ErrNotLogEnd, op.Base, s.LogEnd)
	case RefusedMode:
		return fmt.Errorf("%s refused: partition is %s, which takes no %s batches: %w", op.Kind, s.Mode, op.Class, messages.ErrReadOnlyTopic)
	case RefusedMalformed:
		return fmt.Errorf("%s refused: %s (base %d, end %d, offset %d): %w", op.Kind, r, op.Base, op.End, op.Offset, messages.ErrInvalidRequest)
	default:
		return fmt.Errorf("%s refused: %s: %w", op.Kind, r, messages.ErrInvalidRequest)
	}
}

// Decide says whether op is valid at sequence seq, right after s, and what the
// partition is then. Whoever applies the same operations in the same order gets
// the same answers; nothing but s, seq and op enters the decision.
//
//	valid = generation is current               (Claim: epoch higher, or equal and same node)
//	    and base offset is the log end          (Append, Truncate, RestartAt)
//	    and the mode takes the class            (Append)
//
// A refused operation changes nothing but the sequence. A cut has a base because its
// author may have given it up and gone on: what is appended in the same generation, and
// acknowledged, isn't what the cut was about if that lands after all.
func Decide(s State, seq int64, op Operation) (State, Refusal) {
	s.Sequence = seq
	if malformed(op) {
		return s, RefusedMalformed
	}
	if op.Kind == OpClaim {
		if op.Epoch < s.Epoch || op.Epoch == s.Epoch && op.Node != s.Node {
			return s, RefusedEpoch
		}
	} else if op.Generation != s.Generation {
		return s, RefusedGeneration
	}
	switch {
	case op.hasBase() && op.Base != s.LogEnd:
		return s, RefusedBase
	case op.Kind == OpAppend && !s.Mode.Takes(op.Class):
		return s, RefusedMode
	}
	return applied(s, seq, op), Accepted
}

// hasBase: the operation is about a log of a certain length.
func (op *Operation) hasBase() bool {
	return op.Kind == OpAppend || op.Kind == OpTruncate || op.Kind == OpRestartAt
}

// applied is the state after the valid operation op.
func applied(s State, seq int64, op Operation) State {
	switch op.Kind {
	case OpAppend:
		s.LogEnd = op.End
		return s
	case OpRaiseLogStart:
		s.LogStart = max(s.LogStart, min(op.Offset, s.LogEnd))
		return s
	case OpClaim:
		s.Epoch, s.Node = op.Epoch, op.Node
	case OpTruncate:
		if op.Offset < s.LogEnd {
			s.CutAt = seq
		}
		s.LogEnd = min(s.LogEnd, op.Offset)
		s.LogStart = min(s.LogStart, s.LogEnd)
		s.ModeOffset = min(s.ModeOffset, s.LogEnd)
	case OpRestartAt:
		s.LogStart, s.LogEnd, s.ModeOffset = op.Offset, op.Offset, op.Offset
		s.CutAt = seq
	case OpMode:
		if op.Mode != s.Mode {
			// A repeated seal keeps its offset: internal batches may have come since,
			// and LME is the epoch of the last batch below the first seal.
			s.Mode, s.ModeOffset = op.Mode, s.LogEnd
		}
	case OpBaseline:
		s.Mode, s.Epoch, s.Node = op.Mode, op.Epoch, op.Node
		s.LogStart, s.LogEnd, s.ModeOffset = op.Offset, op.End, op.End
		s.CutAt = seq
	case opMark: // malformed
	}
	s.Generation = seq
	return s
}

// malformed reports an operation whose own numbers can't be.
func malformed(op Operation) bool {
	switch op.Kind {
	case OpClaim:
		return op.Epoch < 0 || op.Node < 0
	case OpAppend:
		return op.Base < 0 || op.End <= op.Base || op.Class < messages.ClassClient || op.Class > messages.ClassInternal
	case OpTruncate, OpRestartAt:
		return op.Offset < 0 || op.Base < 0
	case OpRaiseLogStart:
		return op.Offset < 0
	case OpMode:
		return !KnownMode(op.Mode)
	case OpBaseline:
		return op.Offset < 0 || op.End < op.Offset || !KnownMode(op.Mode)
	case opMark:
		return true
	default:
		return true
	}
}

// KnownMode reports whether m is one of the modes.
func KnownMode(m messages.Mode) bool {
	return m >= messages.ModeWritable && m <= messages.ModeMirroring
}
