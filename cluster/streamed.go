package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
)

// behindBytesMax bounds the operations that a replica which is behind keeps in
// memory; beyond it they are dropped and read from another replica.
const behindBytesMax = 4 << 20

// errPassed: the replica has that operation already. errBehind: it can't apply it
// now and keeps it for later.
var (
	errPassed = errors.New("operation is already applied")
	errBehind = fmt.Errorf("this replica is behind the journal: %w", messages.ErrNotLeader)
)

// streamed is the journal of one partition when the order is a stream's. The
// shard's follower applies what comes back, on a leader as on any other replica;
// Propose waits for that.
//
//	following ── an operation can't be carried out (disk), or some were missed ──▶ behind
//	    ▲                                                                            │
//	    └── the kept operations were carried out, or a copy of another replica ──────┘
type streamed struct {
	shard   *shard
	applied func() // the replica publishes and wakes; called without the lock

	mu  sync.Mutex // guards what follows and is held while the log is changed
	d   direct
	own *proposal // the one operation on its way

	// baseline: the state is that of a cluster of one and not in the stream yet.
	baseline bool

	behind  bool
	cause   error // why it is behind; nil: operations were missed
	kept    []keptOperation
	keptLen int   // bytes in kept
	keptAt  int64 // every operation above that position is in kept
	whole   bool  // nothing is missing between the state and kept
	// held: the shard's record hasn't gone past what is missing here, so that the stream
	// has it, from the sequence from on, and the checkpoint file is true after a crash.
	copy    copyOrigin // what the log was copied from, while it is
	held    bool
	from    uint64
	waited  int         // checkpoint rounds that the record was held for
	spare   bool        // another replica has what is missing: the record needn't be held
	dirty   atomic.Bool // changed since the last checkpoint round
	newborn bool        // opened without a checkpoint, at the creation of its topic
	ended   bool
}

type keptOperation struct {
	position int64
	op       journal.Operation
}

// openStreamed starts from the checkpoint: the log is cut back to it, for the
// stream is applied again from there. Without a checkpoint the replica is new if
// newborn says so, and else one that has to copy.
func openStreamed(o ReplicaOptions) (*streamed, error) {
	s := &streamed{shard: o.shard}
	s.d = direct{log: o.Log, checkpoints: o.Checkpoints, key: o.Key, scope: pointScope(o.Partition), replicated: true,
		state: journal.NewState(), durable: journal.NewState()}
	cp, known := o.Checkpoints.peek(o.Key)
	if known && !cp.Replicated {
		// A cluster of one grows: this state goes into the stream as a Baseline.
		d, err := openDirect(o)
		if err != nil {
			return nil, err
		}
		s.d.state, s.d.durable, s.d.cuts, s.baseline = d.state, d.durable, d.cuts, true
		s.d.state.Sequence, s.d.state.Generation, s.d.state.CutAt = 0, 0, 0
		return s, nil
	}
	if !known {
		if !o.newborn {
			o.Logger.Debug("replica opens without a checkpoint", zap.Stringer("key", o.Key), zap.Int64("log_start", o.Log.LogStart()), zap.Int64("log_end", o.Log.End()))
			s.behind = true
			return s, nil
		}
		s.newborn = true
		if o.Log.End() > 0 {
			if _, err := o.Log.RestartAt(0); err != nil {
				return nil, fmt.Errorf("empty a log that nothing is known of: %w", err)
			}
		}
		return s, nil
	}
	s.d.state, s.d.durable, s.d.cuts = cp.State, cp.State, cp.Cuts
	s.behind = cp.Behind || o.late
	if !cp.Behind && o.late {
		s.from, s.held = o.shard.owes(o.Key)
	}
	o.Logger.Debug("replica opens at its checkpoint", zap.Stringer("key", o.Key), zap.Int64("sequence", cp.State.Sequence), zap.Bool("behind", s.behind), zap.Bool("held", s.held))
	if err := s.restore(cp, o.Logger); err != nil {
		return nil, err
	}
	o.Checkpoints.Take(o.Key)
	return s, nil
}

// restore brings the log to where the checkpoint is.
func (s *streamed) restore(cp Checkpoint, zl *zap.Logger) error {
	log, key := s.d.log, s.d.key
	if cp.Pending != 0 {
		s.d.incomplete = s.behind && !s.held
		defer func() { s.d.incomplete = false }()
		if _, err := s.d.cut(journal.Operation{Kind: cp.Pending, Offset: cp.PendingOffset}); err != nil {
			return fmt.Errorf("repeat %s of %s at %d: %w", cp.Pending, key, cp.PendingOffset, err)
		}
		if err := s.d.persist(true); err != nil {
			return err
		}
	}
	if s.behind && !s.held {
		return nil
	}
	if log.End() > cp.State.LogEnd {
		if _, err := log.Truncate(cp.State.LogEnd); err != nil {
			return fmt.Errorf("cut %s back to its checkpoint: %w", key, err)
		}
	}
	if log.End() != cp.State.LogEnd {
		zl.Warn("log ends elsewhere than its checkpoint: it is copied from another replica", zap.Stringer("key", key),
			zap.Int64("log_end", log.End()), zap.Int64("checkpoint_end", cp.State.LogEnd))
		s.behind, s.held = true, false
		return nil
	}
	if log.LogStart() < cp.State.LogStart {
		if err := log.RaiseLogStart(cp.State.LogStart); err != nil {
			return fmt.Errorf("raise log start of %s to %d: %w", key, cp.State.LogStart, err)
		}
	}
	return nil
}

// Propose is [orderer.Propose]. After an error that isn't a refusal nobody knows
// whether op will be applied: the next one is proposed on what is then there.
func (s *streamed) Propose(ctx context.Context, op journal.Operation) (Applied, error) {
	s.mu.Lock()
	baseline, state := s.baseline, s.d.state
	s.mu.Unlock()
	if baseline {
		grown := journal.Operation{
			Kind: journal.OpBaseline, Mode: state.Mode, Epoch: state.Epoch, Node: state.Node, Offset: state.LogStart, End: state.LogEnd,
		}
		done, err := s.propose(ctx, grown)
		if err != nil {
			return done, fmt.Errorf("put a grown partition into the journal: %w", err)
		}
		if op.Kind != journal.OpClaim {
			op.Generation = done.State.Generation
		}
	}
	return s.propose(ctx, op)
}

func (s *streamed) propose(ctx context.Context, op journal.Operation) (Applied, error) {
	if err := ctx.Err(); err != nil {
		return Applied{State: s.State()}, context.Cause(ctx)
	}
	p := &proposal{done: make(chan verdict, 1), free: op.Kind == journal.OpClaim}
	s.mu.Lock()
	if err := s.usableLocked(); err != nil {
		s.mu.Unlock()
		return Applied{}, err
	}
	s.own = p
	s.mu.Unlock()
	done, err := s.shard.propose(ctx, p, journal.Entry{Key: s.d.key, Op: op})
	s.mu.Lock()
	s.own = nil
	s.mu.Unlock()
	return done, err
}

func (s *streamed) usableLocked() error {
	switch {
	case s.ended:
		return fmt.Errorf("%w: %w", ErrClosed, messages.ErrNotLeader)
	case s.behind && s.cause != nil:
		return s.cause
	case s.behind:
		return errBehind
	default:
		return nil
	}
}

// abort ends the wait for an operation on its way, which may still be applied.
func (s *streamed) abort(cause error) {
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	if own != nil {
		own.settle(verdict{err: cause})
	}
}

// end is [orderer.end].
func (s *streamed) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// apply carries out an operation that the stream brought. An error is the
// refusal, errPassed, errBehind or what the disk said.
func (s *streamed) apply(position int64, op journal.Operation, mine bool) (Applied, error) {
	s.mu.Lock()
	done, err := s.applyLocked(position, op)
	var lost *proposal
	if !mine && s.own != nil && !s.own.free && done.State.Generation == position && !s.ended {
		lost = s.own // its generation ended: wherever it lands, it is refused
	}
	s.mu.Unlock()
	if lost != nil {
		lost.settle(verdict{err: fmt.Errorf("the partition's generation ended: %w", messages.ErrNotLeader)})
	}
	if !errors.Is(err, errPassed) && !errors.Is(err, errBehind) {
		s.applied()
	}
	return done, err
}

func (s *streamed) applyLocked(position int64, op journal.Operation) (Applied, error) {
	switch {
	case s.ended:
		return Applied{}, fmt.Errorf("%w: %w", ErrClosed, messages.ErrNotLeader)
	case s.behind: // whatever the state says: a copy may bring an older one
		s.keepLocked(position, op)
		return Applied{}, errBehind
	case position <= s.d.state.Sequence:
		return Applied{State: s.d.state}, errPassed
	}
	done, err := s.carryOutLocked(position, op)
	if err != nil && s.behind {
		s.fallLocked(position - 1)
		s.keepLocked(position, op)
	}
	return done, err
}

// fallLocked: every operation above position can't be carried out now.
func (s *streamed) fallLocked(position int64) {
	s.kept, s.keptLen, s.keptAt, s.whole = nil, 0, position, true
	s.held, s.from, s.waited, s.spare = true, journal.SequenceOf(position+1), 0, false
	s.markLocked()
	s.shard.fellBehind(s)
}

// carryOutLocked decides and applies; if the disk doesn't let it, the replica is
// behind from here on.
func (s *streamed) carryOutLocked(position int64, op journal.Operation) (Applied, error) {
	if s.d.failed != nil {
		if s.d.again() != nil {
			s.behind, s.cause = true, s.d.failed
			return Applied{State: s.d.state}, s.d.failed
		}
		if s.markLocked(); position <= s.d.state.Sequence {
			return Applied{State: s.d.state}, nil // it was this cut
		}
	}
	done, decided, err := s.d.apply(position, op)
	if !decided {
		s.behind, s.cause = true, err
		return done, err
	}
	s.markLocked()
	if op.Kind == journal.OpBaseline && err == nil {
		if s.baseline = false; s.d.log.End() != op.End {
			// Another node's log has grown into the journal: this one has to copy it.
			s.behind, s.whole, s.held, s.kept, s.keptLen, s.keptAt = true, false, false, nil, 0, position
			s.shard.fellBehind(s)
		}
	}
	return done, err
}

func (s *streamed) markLocked() {
	if !s.dirty.Swap(true) {
		s.shard.changed(s)
	}
}

// keepLocked keeps an operation for later, or drops them all and remembers that
// some are missing.
func (s *streamed) keepLocked(position int64, op journal.Operation) {
	if s.keptLen += len(op.Batches) + keptOverhead; s.keptLen > behindBytesMax {
		s.kept, s.keptLen, s.keptAt, s.whole = nil, 0, position, false
		return
	}
	op.Batches = slices.Clone(op.Batches)
	s.kept = append(s.kept, keptOperation{position: position, op: op})
}

// catchUp carries out what was kept. It reports whether the replica follows again;
// an error is the disk's. Without either it has to be copied.
func (s *streamed) catchUp() (bool, error) {
	s.mu.Lock()
	tried := s.behind && s.whole
	if tried {
		s.replayLocked()
	}
	following, cause := !s.behind, s.cause
	s.mu.Unlock()
	switch {
	case following:
		s.applied()
		return true, nil
	case tried:
		return false, cause
	default:
		return false, nil
	}
}

// replayLocked carries out the kept operations above the state. If the shard's record
// may be above all of them, what a cut among them writes must not look whole.
func (s *streamed) replayLocked() {
	kept := s.kept
	s.behind, s.d.incomplete = false, !s.held
	defer func() { s.d.incomplete = false }()
	for i, k := range kept {
		if k.position <= s.d.state.Sequence {
			continue
		}
		if _, err := s.carryOutLocked(k.position, k.op); !s.behind {
			continue
		} else if err == nil { // a baseline of which this replica has nothing
			s.kept, s.keptLen = kept[i+1:], keptBytes(kept[i+1:])
		} else {
			s.kept, s.keptLen, s.keptAt = kept[i:], keptBytes(kept[i:]), k.position-1
		}
		return
	}
	s.kept, s.keptLen, s.keptAt = nil, 0, max(s.keptAt, s.d.state.Sequence)
	s.d.incomplete = false
	err := s.d.log.Flush()
	if err == nil {
		err = s.d.checkpoints.Put(true, s.checkpointLocked())
	}
	// Not before that is durable: others count on a whole replica, also after its crash.
	s.behind, s.cause, s.whole = err != nil, err, err != nil
	if err == nil {
		s.held, s.spare, s.d.durable = false, false, s.d.state
	}
}

func keptBytes(kept []keptOperation) (n int) {
	for _, k := range kept {
		n += len(k.op.Batches) + keptOverhead
	}
	return n
}

// keptOverhead is about what a kept operation takes besides its batches.
const keptOverhead = 128

// watched begins to keep operations: the follower finds the replica from now on.
// One that it looked for before may have been missed.
func (s *streamed) watched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind && !s.whole {
		s.kept, s.keptLen = nil, 0
		s.keptAt = max(s.keptAt, journal.At(s.shard.applied.Load()+2, 0)-1)
		s.markLocked()
	}
}

// missed makes the replica one that has to copy: operations above position were
// missed. The checkpoint that says so has to be durable before the node forgets it.
func (s *streamed) missed(position int64) Checkpoint {
	s.mu.Lock()
	s.behind, s.cause, s.whole, s.held = true, nil, false, false
	s.kept, s.keptLen, s.keptAt = nil, 0, position
	cp := s.checkpointLocked()
	s.mu.Unlock()
	s.applied()
	return cp
}

func (s *streamed) checkpointLocked() Checkpoint {
	cp := s.d.checkpoint(s.d.state)
	if s.d.failed != nil { // a cut that has to be finished first
		cp = s.d.announced
	}
	cp.Behind = s.behind
	return cp
}

// holdsLocked reports whether nothing but the stream and the memory of this process has
// what is missing: the shard's record must not go past it, for this replica may be the
// only one. If it isn't, the record goes on and the replica is copied.
func (s *streamed) holdsLocked() bool { return s.behind && s.held && !s.spare }

// stabilise syncs everything applied so far and writes a checkpoint that says so,
// which isn't durable yet. If a cut has written a newer one in between, or the replica
// has fallen behind, what was collected is old: then it is collected again. hold: the
// stream must keep what comes after the last checkpoint. A log that can't be synced
// makes the replica one that is behind.
func (s *streamed) stabilise() (hold bool, err error) {
	s.mu.Lock()
	s.dirty.Store(false) // what comes from now on is for the next round
	skip := s.ended || s.baseline
	if hold = s.holdsLocked() && !skip; hold {
		s.waited++
		s.markLocked()
	}
	if s.behind && !skip {
		s.held = hold
	}
	cp := s.checkpointLocked()
	flush := s.d.log.RecoveryPoint() < s.d.log.End()
	s.mu.Unlock()
	if skip || hold {
		return hold, nil
	}
	if flush {
		err = s.d.log.Flush()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return err != nil, nil
	}
	if s.holdsLocked() {
		s.markLocked()
		return true, nil
	}
	if err == nil && (s.d.state.CutAt != cp.State.CutAt || s.behind != cp.Behind || s.d.failed != nil) {
		err = s.d.log.Flush()
		cp = s.checkpointLocked()
	}
	if err != nil && !s.behind {
		s.behind, s.cause = true, fmt.Errorf("sync %s: %w", s.d.key, err)
		s.fallLocked(max(s.d.state.Sequence, journal.At(s.shard.applied.Load()+1, 0)-1))
		return true, nil
	}
	// One that is behind is copied anyway: that its bytes aren't synced matters to nobody.
	if err = s.d.checkpoints.Put(false, cp); err == nil && !cp.Behind {
		s.d.durable = cp.State
	}
	return false, err
}

// State is [orderer.State].
func (s *streamed) State() journal.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.state
}

// inOrder is [orderer.inOrder]: the replica isn't behind and its shard's order reaches this node.
func (s *streamed) inOrder() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.behind && !s.ended && !s.shard.alone()
}

func (s *streamed) reaches() bool { return !s.shard.alone() }

// isBehind: operations wait, or a copy has to be made.
func (s *streamed) isBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind
}

func (s *streamed) settle() {}

func (s *streamed) closing() (Checkpoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.holdsLocked() && !s.baseline {
		s.shard.held.Store(true)
		return Checkpoint{}, false
	}
	if s.baseline || !s.dirty.Load() {
		return Checkpoint{}, false
	}
	return s.checkpointLocked(), true
}

func (s *streamed) cutCount() CutCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.cutCount()
}

func (s *streamed) countCutsFrom(stored CutCount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.countCutsFrom(stored)
}

// forgetCuts becomes durable with the next checkpoint round: a checkpoint on its own
// would name bytes that aren't synced.
func (s *streamed) forgetCuts(mirror uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.cuts = CutCount{Mirror: mirror}
	s.markLocked()
	return nil
}
