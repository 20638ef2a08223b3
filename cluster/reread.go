package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
)

// errReread ends the reading of a stream that has got to its aim.
var errReread = errors.New("everything is read")

// reread carries out what was missed and the stream still has, because the shard's
// record was held for this replica. It reports whether the replica follows again;
// without that and an error it has to be copied.
func (s *streamed) reread(ctx context.Context) (bool, error) {
	s.mu.Lock()
	from, to, ok := s.from, journal.SequenceOf(s.keptAt), s.behind && s.held && !s.whole && !s.ended
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, copyTimeout, messages.ErrTimedOut)
	defer cancel()
	err := errReread
	if from <= to {
		err = s.shard.stream.Follow(ctx, from, func(sequence uint64, payload []byte) error {
			if err := s.takeMissed(sequence, payload); err != nil {
				return err
			}
			if sequence >= to {
				return errReread
			}
			return nil
		})
	}
	hole := (*HoleError)(nil)
	s.mu.Lock()
	switch {
	case errors.As(err, &hole):
		s.held, err = false, nil
	case !errors.Is(err, errReread):
		err = fmt.Errorf("read %s again: %w", s.d.key, err)
	case s.ended || journal.SequenceOf(s.keptAt) > to:
		err = fmt.Errorf("read %s again: more was dropped meanwhile", s.d.key)
	default:
		err = nil
		s.whole, s.cause = true, nil
		s.replayLocked()
		if s.behind {
			err = s.cause
		}
	}
	following := !s.behind
	s.mu.Unlock()
	if following {
		s.applied()
	}
	return following, err
}

// takeMissed carries out what a message has for this replica, which is still behind
// after it.
func (s *streamed) takeMissed(sequence uint64, payload []byte) error {
	m, err := journal.Parse(payload)
	if err != nil {
		return fmt.Errorf("journal message %d: %w", sequence, err)
	}
	for i, e := range m.Entries {
		if e.Key != s.d.key {
			continue
		}
		s.mu.Lock()
		err = s.takeMissedLocked(journal.At(sequence, i), e.Op)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *streamed) takeMissedLocked(position int64, op journal.Operation) error {
	switch {
	case s.ended:
		return ErrClosed
	case !s.behind || !s.held || s.whole:
		return fmt.Errorf("read %s again: it isn't needed any more", s.d.key)
	case position <= s.d.state.Sequence || position > s.keptAt:
		return nil
	}
	s.behind = false
	_, err := s.carryOutLocked(position, op)
	failed := s.behind
	s.behind = true
	if s.from = journal.SequenceOf(position + 1); failed && err != nil {
		s.from = journal.SequenceOf(position)
		return err
	}
	return nil
}

// spareRounds is for how many checkpoint rounds a shard's record is held for a replica
// before it is asked whether another one is as good.
const spareRounds = 12

// findSpare finds out whether another replica has what this one can't carry out. Then
// that costs this partition a copy, and its shard nothing any more.
func (s *streamed) findSpare(ctx context.Context, from copier) {
	s.mu.Lock()
	due, at := s.holdsLocked() && s.waited >= spareRounds && !s.ended, s.keptAt
	s.mu.Unlock()
	if !due {
		return
	}
	_, err := from.Copy(ctx, s.d.key, s.d.log.End(), journal.SequenceOf(at))
	if err != nil {
		s.shard.log.Error("the only replica in order can't be written: the journal keeps what comes until its disk is good again",
			zap.Stringer("replica", s.d.key), zap.NamedError("no other", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holdsLocked() && s.keptAt == at {
		s.spare = true
		s.markLocked()
	}
}

// owe notes a replica that couldn't be opened: the shard's record stays where it is until
// it is, or another one is as good.
func (s *shard) owe(key messages.PartitionKey) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	if s.owed == nil {
		s.owed = make(map[messages.PartitionKey]struct{})
	}
	s.owed[key] = struct{}{}
}

// owes reports whether the record is held for a replica, and from where on the stream has
// what it misses.
func (s *shard) owes(key messages.PartitionKey) (from uint64, ok bool) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	_, ok = s.owed[key]
	return s.stable.Needs(), ok
}

// settled ends that the record is held for a replica.
func (s *shard) settled(keys ...messages.PartitionKey) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	for _, key := range keys {
		delete(s.owed, key)
	}
}

func (s *shard) owing() []messages.PartitionKey {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	return slices.Collect(maps.Keys(s.owed))
}

// passOwed makes durable that replicas which couldn't be opened are passed by: they are
// copied when they can be.
func (j *Journal) passOwed(s *shard, keys ...messages.PartitionKey) error {
	if len(keys) == 0 {
		return nil
	}
	left := make(map[messages.PartitionKey]struct{}, len(keys))
	for _, key := range keys {
		left[key] = struct{}{}
	}
	err := j.checkpoints.Rewrite(func(cp *Checkpoint) bool {
		_, ok := left[cp.Key]
		delete(left, cp.Key)
		was := cp.Behind
		cp.Behind = cp.Behind || ok
		return cp.Behind && !was
	})
	if err == nil && len(left) > 0 {
		return fmt.Errorf("journal shard %d: %d replicas are being opened", s.id, len(left))
	}
	if err == nil {
		s.settled(keys...)
	}
	return err
}

// release ends that the record is held for a replica which can't be opened, if it isn't
// this node's any more or another one is as good.
func (j *Journal) release(ctx context.Context, key messages.PartitionKey, ours bool) {
	s := j.shardOf(key)
	if _, ok := s.owes(key); !ok {
		return
	}
	var err error
	if ours {
		_, err = j.opts.Copier.Copy(ctx, key, 0, s.applied.Load())
	}
	if err == nil {
		err = j.passOwed(s, key)
	}
	if err != nil && ctx.Err() == nil {
		j.log.Error("the only replica in order can't be opened: the journal keeps what comes for it", zap.Stringer("replica", key), zap.Error(err))
	}
}
