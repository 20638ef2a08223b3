package cluster

import (
	"context"
	"errors"
	"fmt"

	"kagami/cluster/journal"
	"kagami/messages/batch"
	"kagami/persistence"
)

// pieceBytesMax is how much of an append goes into one operation: with its header it
// fills a message of the journal.
const pieceBytesMax = journal.GatherBytesMax - 1024

// appendMirrorLocked proposes a mirror's append: a large one in pieces, for one large
// operation can't be on its way through the journal and be written here and there
// at the same time, and several can.
//
// The pieces are under one generation, each on the end of the one before: when one is
// refused, so are all behind it. A piece whose outcome isn't known may land later, on
// an end that another append has reached by then. So nothing is appended before a
// claim has begun a new generation, in which it is refused.
func (r *Replica) appendMirrorLocked(ctx context.Context, op journal.Operation) (persistence.AppendInfo, error) {
	o, ok := r.order.(*streamed)
	if !ok {
		return r.appendLocked(ctx, op)
	}
	if r.unsure {
		_, err := r.proposeLocked(ctx, journal.Operation{Kind: journal.OpClaim, Epoch: r.order.State().Epoch, Node: r.node})
		if err != nil {
			return persistence.AppendInfo{}, fmt.Errorf("begin a new generation: %w", err)
		}
		r.unsure = false
	}
	op.Kind = journal.OpAppend
	ops := pieces(op)
	if len(ops) == 1 || o.growing() {
		return r.appendLocked(ctx, op)
	}
	all := o.proposeAll(ctx, ops...)
	r.publish()
	var info persistence.AppendInfo
	for i, v := range all {
		if v.err == nil {
			info = behind(info, v.applied.Append, i)
			continue
		}
		for _, later := range all[max(i, 1):] {
			r.unsure = r.unsure || later.err != nil && !errors.Is(later.err, ErrNotLogEnd)
		}
		return persistence.AppendInfo{}, fmt.Errorf("%s: %w", r.tp, v.err)
	}
	return info, nil
}

// pieces cuts an append between batches.
func pieces(op journal.Operation) []journal.Operation {
	if len(op.Batches) <= pieceBytesMax {
		return []journal.Operation{op}
	}
	var out []journal.Operation
	rest := op.Batches
	for base := op.Base; len(rest) > 0; {
		n, end := 0, base
		for n < len(rest) {
			h, err := batch.ParseHeader(rest[n:])
			if err != nil || h.Size() > len(rest)-n {
				return []journal.Operation{op} // whole batches were checked before
			}
			if n > 0 && n+h.Size() > pieceBytesMax {
				break
			}
			n, end = n+h.Size(), h.LastOffset()+1
		}
		piece := op
		piece.Base, piece.End, piece.Batches = base, end, rest[:n:n]
		out = append(out, piece)
		base, rest = end, rest[n:]
	}
	return out
}

// behind is what two appends that follow one another did.
func behind(a, b persistence.AppendInfo, n int) persistence.AppendInfo {
	if n == 0 {
		return b
	}
	a.LastOffset, a.End = b.LastOffset, b.End
	a.MaxTimestamp, a.MaxEpoch = max(a.MaxTimestamp, b.MaxTimestamp), max(a.MaxEpoch, b.MaxEpoch)
	a.Bytes, a.Batches = a.Bytes+b.Bytes, a.Batches+b.Batches
	return a
}

// growing: the state of a cluster of one isn't in the stream yet.
func (s *streamed) growing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.baseline
}
