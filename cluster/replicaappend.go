package cluster

import (
	"context"
	"errors"
	"fmt"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// AppendClient stores a producer's batches: gives them offsets, stamps the
// leader epoch (and the time, with LogAppendTime) into the headers in place, and
// checks idempotence. The bytes belong to the replica until it returns and are
// changed by it. The caller has checked CRCs, sizes and records.
//
// Besides the errors at [Replica]: *persistence.DuplicateError is a success at
// the offsets that it carries; persistence.ErrOutOfOrderSequence and its
// siblings; messages.ErrUnknownLeaderEpoch if the client is ahead of us;
// messages.ErrInvalidRequest for batches that no client may send.
func (r *Replica) AppendClient(ctx context.Context, batches []byte, opts persistence.ClientAppend) (persistence.AppendInfo, error) {
	r.mu.Lock()
	info, err := r.placeLocked(func() (persistence.AppendInfo, error) { return r.appendClientLocked(ctx, batches, opts) })
	r.mu.Unlock()
	if err == nil {
		r.notify()
	}
	return info, err
}

// placeLocked tries an append whose offsets are ours to give again at the log end
// as it is now: an earlier one that was given up may have landed meanwhile.
func (r *Replica) placeLocked(try func() (persistence.AppendInfo, error)) (info persistence.AppendInfo, err error) {
	for range 8 {
		if info, err = try(); !errors.Is(err, ErrNotLogEnd) {
			return info, err
		}
	}
	return info, fmt.Errorf("%w: %w", messages.ErrNotLeader, err)
}

func (r *Replica) appendClientLocked(ctx context.Context, batches []byte, opts persistence.ClientAppend) (persistence.AppendInfo, error) {
	s := r.order.State()
	if err := r.ledHere(s); err != nil {
		return persistence.AppendInfo{}, err
	}
	if opts.LeaderEpoch != messages.NoEpoch && opts.LeaderEpoch != s.Epoch {
		why := messages.ErrFencedLeaderEpoch
		if opts.LeaderEpoch > s.Epoch {
			why = messages.ErrUnknownLeaderEpoch
		}
		return persistence.AppendInfo{}, fmt.Errorf("append to %s under epoch %d, leader epoch is %d: %w", r.tp, opts.LeaderEpoch, s.Epoch, why)
	}
	if r.gate.Load() != gateAdmit || s.Mode != messages.ModeWritable {
		return persistence.AppendInfo{}, fmt.Errorf("append to %s, which is read-only (%s): %w", r.tp, s.Mode, messages.ErrReadOnlyTopic)
	}
	if err := r.epochGrows(s); err != nil {
		return persistence.AppendInfo{}, err
	}
	end := s.LogEnd
	count := 0
	err := eachBatch(batches, func(h batch.Header, b []byte) error {
		if err := r.checkClientBatch(h, count, len(b) == len(batches)); err != nil {
			return err
		}
		count++
		if h.ProducerID >= 0 {
			if err := r.log.CheckProducer(h); err != nil {
				return err
			}
		}
		if h.IsTransactional() {
			if err := r.checkTxn(h, opts.Txn); err != nil {
				return err
			}
		}
		batch.SetOffsetAndEpoch(b, end, s.Epoch)
		if opts.LogAppendTime {
			batch.SetLogAppendTime(b, opts.NowMillis)
		}
		end += int64(h.LastOffsetDelta) + 1
		return nil
	})
	if err != nil {
		return persistence.AppendInfo{}, fmt.Errorf("append to %s: %w", r.tp, err)
	}
	return r.appendLocked(ctx, journal.Operation{Generation: s.Generation, Class: messages.ClassClient, Base: s.LogEnd, End: end, Batches: batches})
}

// checkClientBatch refuses what would damage the log whoever sent it.
func (r *Replica) checkClientBatch(h batch.Header, before int, only bool) error {
	switch {
	case h.IsControl():
		return fmt.Errorf("control batch of a client: %w", messages.ErrInvalidRequest)
	case h.Records != h.LastOffsetDelta+1:
		return fmt.Errorf("batch of %d records with last offset delta %d: %w", h.Records, h.LastOffsetDelta, messages.ErrInvalidRequest)
	case h.ProducerID >= 0 && (before > 0 || !only):
		// The sequence check knows the log, not the batches in front of this one.
		return fmt.Errorf("idempotent batch with others in one request: %w", messages.ErrInvalidRequest)
	default:
		return nil
	}
}

// AppendMirror stores batches copied from a source, bytes unchanged. base is
// the log end that the caller fetched at; unless it still is the log end, the
// error wraps ErrNotLogEnd. The first batch may begin above base: gaps are
// normal on compacted topics, and AppendInfo shows them. A batch epoch above the
// claimed leader epoch gives *EpochAheadError and nothing is stored. CRCs are
// the caller's business.
//
// It proposes under the current generation, so it relies on the caller having
// stopped its workers before every cut; AppendMirrorAt doesn't.
func (r *Replica) AppendMirror(ctx context.Context, base int64, batches []byte) (persistence.AppendInfo, error) {
	return r.appendMirror(ctx, nil, base, batches)
}

// AppendMirrorAt is AppendMirror under the generation that the caller saw when
// it began (State().Generation): if the partition was claimed, cut or sealed
// since, the error wraps messages.ErrNotLeader whatever the offsets are.
func (r *Replica) AppendMirrorAt(ctx context.Context, generation, base int64, batches []byte) (persistence.AppendInfo, error) {
	return r.appendMirror(ctx, &generation, base, batches)
}

func (r *Replica) appendMirror(ctx context.Context, generation *int64, base int64, batches []byte) (persistence.AppendInfo, error) {
	end, top := base, messages.NoEpoch
	err := eachBatch(batches, func(h batch.Header, _ []byte) error {
		if h.BaseOffset < end {
			return fmt.Errorf("batch at offset %d, expected %d or more: %w", h.BaseOffset, end, batch.ErrCorrupt)
		}
		end, top = h.LastOffset()+1, max(top, h.LeaderEpoch)
		return nil
	})
	if err != nil {
		return persistence.AppendInfo{}, fmt.Errorf("append to %s: %w", r.tp, err)
	}
	r.mu.Lock()
	s := r.order.State()
	op := journal.Operation{Generation: s.Generation, Class: messages.ClassMirror, Base: base, End: end, Batches: batches}
	if generation != nil {
		op.Generation = *generation
	}
	var info persistence.AppendInfo
	if err = r.ledHere(s); err == nil && top > s.Epoch {
		err = &EpochAheadError{Partition: r.tp, BatchEpoch: top, Claimed: s.Epoch}
	}
	if err == nil {
		info, err = r.appendLocked(ctx, op)
	}
	r.mu.Unlock()
	if err == nil {
		r.notify()
	}
	return info, err
}

// AppendInternal stores batches of our own, markers and records of internal
// topics: gives them offsets and stamps the leader epoch in place, without any
// gate or idempotence check. Sealed and writable partitions take them.
func (r *Replica) AppendInternal(ctx context.Context, batches []byte) (persistence.AppendInfo, error) {
	r.mu.Lock()
	info, err := r.placeLocked(func() (persistence.AppendInfo, error) { return r.appendInternalLocked(ctx, batches) })
	r.mu.Unlock()
	if err == nil {
		r.notify()
	}
	return info, err
}

func (r *Replica) appendInternalLocked(ctx context.Context, batches []byte) (persistence.AppendInfo, error) {
	s := r.order.State()
	if err := r.ledHere(s); err != nil {
		return persistence.AppendInfo{}, err
	}
	if err := r.epochGrows(s); err != nil {
		return persistence.AppendInfo{}, err
	}
	end := s.LogEnd
	err := eachBatch(batches, func(h batch.Header, b []byte) error {
		batch.SetOffsetAndEpoch(b, end, s.Epoch)
		end += int64(h.LastOffsetDelta) + 1
		return nil
	})
	if err != nil {
		return persistence.AppendInfo{}, fmt.Errorf("append to %s: %w", r.tp, err)
	}
	return r.appendLocked(ctx, journal.Operation{Generation: s.Generation, Class: messages.ClassInternal, Base: s.LogEnd, End: end, Batches: batches})
}

func (r *Replica) appendLocked(ctx context.Context, op journal.Operation) (persistence.AppendInfo, error) {
	op.Kind = journal.OpAppend
	done, err := r.proposeLocked(ctx, op)
	return done.Append, err
}

// ledHere refuses work on a partition that this node hasn't claimed.
func (r *Replica) ledHere(s journal.State) error {
	if !r.isLedHere(s) {
		return fmt.Errorf("append to %s, which node %d has not claimed: %w", r.tp, r.node, messages.ErrNotLeader)
	}
	return nil
}

func (r *Replica) isLedHere(s journal.State) bool {
	return !r.closed.Load() && r.claimed.Load() && s.Node == r.node && r.order.inOrder()
}

// epochGrows refuses to stamp an epoch below the newest in the log: epochs in a
// log never go back, and a stop bumps before it appends anything of ours.
func (r *Replica) epochGrows(s journal.State) error {
	if newest := r.log.LatestEpoch(); newest > s.Epoch {
		return fmt.Errorf("append to %s under epoch %d, the log's newest is %d: %w", r.tp, s.Epoch, newest, messages.ErrFencedLeaderEpoch)
	}
	return nil
}

// eachBatch walks whole batches; anything else wraps batch.ErrCorrupt.
func eachBatch(b []byte, f func(h batch.Header, b []byte) error) error {
	if len(b) == 0 {
		return fmt.Errorf("no batch: %w", messages.ErrInvalidRequest)
	}
	for len(b) > 0 {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return err
		}
		if h.Size() > len(b) {
			return fmt.Errorf("%w: batch at offset %d cut off: %d of %d bytes", batch.ErrCorrupt, h.BaseOffset, len(b), h.Size())
		}
		if err := f(h, b[:h.Size()]); err != nil {
			return err
		}
		b = b[h.Size():]
	}
	return nil
}
