package cluster

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
)

// journal orders the operations of one partition. Propose returns when op has
// been decided and, if accepted, applied to this node's log; a refusal is an
// error that wraps the sentinels named at [Refusal]'s reasons. The caller
// serialises Propose; State may be called by the same caller only.
//
// On one node the order is the order of the calls ([direct]); on several it is
// a JetStream stream's, and Propose returns when the operation came back.
type orderer interface {
	Propose(ctx context.Context, op journal.Operation) (Applied, error)
	State() journal.State
	// settle takes over log start and end after the log changed by itself (retention).
	settle()
	// closing returns the checkpoint that a clean close leaves behind; ok is false
	// when the file says the same already or the state must not be written.
	closing() (cp Checkpoint, ok bool)
	// inOrder reports whether what is proposed here can be applied here now.
	inOrder() bool
	// reaches: the journal's order reaches this node now. It takes no lock.
	reaches() bool
	// abort lets go of an operation on its way, which may still be applied.
	abort(cause error)
	// end: nothing is applied from now on.
	end()
	// cutCount is the present count of cuts; countCutsFrom raises it to what is
	// stored elsewhere, or begins anew for another mirror.
	cutCount() CutCount
	countCutsFrom(stored CutCount)
	// forgetCuts makes a count of nothing outlive the process.
	forgetCuts(mirror uint64) error
}

// Applied is what an accepted operation did.
type Applied struct {
	State  journal.State // after it
	Append persistence.AppendInfo
	Cut    persistence.Cut
}

// direct is the journal of a cluster of one: a counter, the rules, and the log.
//
// What is durable when: before a cut begins, a checkpoint says that it was
// decided and to where, and after it a second one that it is done, before any
// append can follow; so a crash in between repeats the cut and nothing else
// does. Claims and modes are durable before they count, unless they repeat what
// is durable already: then nothing but the generation is new, and a generation
// dies with the process that proposed under it. (So a restart of a node with
// many idle partitions writes nothing.)
type direct struct {
	log         persistence.Log
	checkpoints *Checkpoints
	key         messages.PartitionKey
	scope       string // of fault points
	state       journal.State
	durable     journal.State // what the checkpoint file says; the log has that, synced
	failed      error         // a cut that was decided and couldn't be carried out
	again       func() error  // carries it out, set with failed
	announced   Checkpoint    // what the file says of it, set with failed
	// owed are cuts that failed when they were asked for and are finished since.
	owed persistence.Cut
	// replicated: the order is a stream's, which can be applied again after a crash.
	// Then only cuts are made durable at once, and the state is the rules' alone.
	replicated bool
	// incomplete: operations that come before the next ones in the order, or bytes, are
	// still missing, so whatever a checkpoint says must be copied after a crash.
	incomplete bool
	// cuts so far. They are durable together with the cut, so that one that nobody
	// has heard of, because of a crash, is still counted (OP-37).
	cuts CutCount
}

// openDirect starts from the checkpoint and compares it with the log. The log
// wins about what it holds: bytes above the checkpoint's end are appends that
// came after it, a missing tail is what power loss took.
func openDirect(o ReplicaOptions) (*direct, error) {
	log, checkpoints, key, zl := o.Log, o.Checkpoints, o.Key, o.Logger
	d := &direct{log: log, checkpoints: checkpoints, key: key, scope: pointScope(o.Partition), state: journal.NewState(), durable: journal.NewState()}
	cp, ok := checkpoints.Take(key)
	if !ok {
		d.settle()
		return d, nil
	}
	if cp.Replicated {
		return nil, fmt.Errorf("checkpoint of %s: %w", key, ErrOfSeveral)
	}
	if !journal.KnownMode(cp.State.Mode) {
		return nil, fmt.Errorf("checkpoint of %s: %w: mode %d", key, ErrDamaged, cp.State.Mode)
	}
	d.state, d.durable, d.cuts = cp.State, cp.State, cp.Cuts
	if cp.Pending != 0 {
		again := journal.Operation{Kind: cp.Pending, Offset: cp.PendingOffset}
		d.reached(again, "repeated")
		cut, err := d.cut(again)
		if err != nil {
			return nil, fmt.Errorf("repeat %s of %s at %d: %w", cp.Pending, key, cp.PendingOffset, err)
		}
		zl.Info("repeated a cut that a crash interrupted", zap.Stringer("key", key), zap.Stringer("op", cp.Pending),
			zap.Int64(messages.FieldOffset, cp.PendingOffset), zap.Int64("records", cut.Records))
		d.settle()
		return d, d.persist(true)
	}
	if end := log.End(); end < cp.State.LogEnd {
		zl.Warn("log ends below its checkpoint: its unsynced tail is lost", zap.Stringer("key", key),
			zap.Int64("log_end", end), zap.Int64("checkpoint_end", cp.State.LogEnd))
	}
	if start := min(cp.State.LogStart, log.End()); log.LogStart() < start {
		if err := log.RaiseLogStart(start); err != nil {
			return nil, fmt.Errorf("raise log start of %s to %d: %w", key, start, err)
		}
	}
	d.settle()
	return d, nil
}

// settle takes over what only the log knows for certain. With a stream every
// replica must come to the same state, and the rules' own is that.
func (d *direct) settle() {
	if d.replicated {
		return
	}
	d.state.LogStart, d.state.LogEnd = d.log.LogStart(), d.log.End()
	d.state.ModeOffset = min(d.state.ModeOffset, d.state.LogEnd)
}

// State is the state after the last operation.
func (d *direct) State() journal.State { return d.state }

// Propose decides and applies op.
func (d *direct) Propose(ctx context.Context, op journal.Operation) (Applied, error) {
	if d.failed != nil && d.again() != nil {
		return Applied{State: d.state}, d.failed
	}
	if err := ctx.Err(); err != nil {
		return Applied{State: d.state}, context.Cause(ctx)
	}
	done, _, err := d.apply(d.state.Sequence+1, op)
	return done, err
}

// apply decides op at its place in the order and carries it out. decided is false
// if that came to nothing: then the state is what it was.
func (d *direct) apply(sequence int64, op journal.Operation) (_ Applied, decided bool, _ error) {
	next, verdict := journal.Decide(d.state, sequence, op)
	if verdict != journal.Accepted {
		err := journal.RefusalError(verdict, d.state, op)
		d.state = next
		return Applied{State: d.state}, true, err
	}
	var done Applied
	var err error
	d.reached(op, "before")
	switch op.Kind {
	case journal.OpAppend:
		done.Append, err = d.log.Append(op.Batches, persistence.AppendOptions{})
	case journal.OpRaiseLogStart:
		err = d.raise(next, op)
	case journal.OpTruncate, journal.OpRestartAt:
		done.Cut, err = d.applyCut(next, op)
	case journal.OpClaim, journal.OpMode, journal.OpBaseline: // change no bytes
		err = d.enter(next, op)
	}
	if err != nil {
		return Applied{State: d.state}, false, err
	}
	d.reached(op, "after")
	d.state = next
	d.settle()
	done.State = d.state
	return done, true, nil
}

// raise moves the log start and makes that durable: DeleteRecords promises it. The
// checkpoint comes first: a log that is there already, and a checkpoint that isn't,
// would look like a raise that is done.
func (d *direct) raise(next journal.State, op journal.Operation) error {
	if next.LogStart <= d.log.LogStart() {
		return nil
	}
	if !d.replicated {
		if err := d.checkpoints.Put(true, d.checkpoint(next)); err != nil {
			return err
		}
	}
	if err := d.log.RaiseLogStart(next.LogStart); err != nil {
		return err
	}
	d.reached(op, "written")
	return nil
}

func (d *direct) checkpoint(s journal.State) Checkpoint {
	return Checkpoint{Key: d.key, State: s, Cuts: d.cuts, Replicated: d.replicated, Behind: d.incomplete}
}

// applyCut makes a cut that a crash can't leave half done.
func (d *direct) applyCut(next journal.State, op journal.Operation) (persistence.Cut, error) {
	if op.Kind == journal.OpTruncate && op.Offset >= d.log.End() || op.Kind == journal.OpRestartAt && d.log.LogStart() == op.Offset && d.log.End() == op.Offset {
		return persistence.Cut{From: d.log.End(), To: d.log.End()}, nil // nothing to remove, nothing to remember
	}
	before := d.cuts
	pending := d.checkpoint(next)
	pending.Pending, pending.PendingOffset, pending.Cuts = op.Kind, op.Offset, before.plus(d.planCut(op))
	if d.replicated {
		// After a crash the stream goes on behind this operation: what stays must be there.
		if err := d.log.Flush(); err != nil {
			return persistence.Cut{}, fmt.Errorf("flush before the cut: %w", err)
		}
	}
	if err := d.checkpoints.Put(true, pending); err != nil {
		return persistence.Cut{}, err
	}
	d.reached(op, "checkpointed")
	made, err := d.finishCut(next, op, before, nil)
	if err == nil {
		return *made, nil
	}
	// The cut is decided for good: it is repeated before the next operation (a full
	// disk may have room by then) or when the replica is opened again, and until then
	// nothing may be appended behind it.
	d.failed, d.announced = fmt.Errorf("%s to %d is not finished: %w", op.Kind, op.Offset, err), pending
	d.again = func() error {
		if made, err = d.finishCut(next, op, before, made); err != nil {
			return err
		}
		d.state, d.failed, d.again = next, nil, nil
		d.owed = CutCount{Cut: d.owed}.plus(*made).Cut
		d.settle()
		return nil
	}
	return persistence.Cut{}, d.failed
}

// finishCut makes the cut that a checkpoint has announced, unless made says that it
// is made, and writes down that it is.
func (d *direct) finishCut(next journal.State, op journal.Operation, before CutCount, made *persistence.Cut) (*persistence.Cut, error) {
	if made == nil {
		cut, err := d.cut(op)
		if err != nil {
			return nil, err
		}
		made = &cut
		d.reached(op, "cut")
		d.cuts = before.plus(cut)
	}
	after := next
	if !d.replicated {
		after.LogEnd, after.LogStart = d.log.End(), d.log.LogStart()
	}
	if err := d.checkpoints.Put(true, d.checkpoint(after)); err != nil {
		return made, err
	}
	d.durable = after
	return made, nil
}

func (d *direct) cut(op journal.Operation) (persistence.Cut, error) {
	if op.Kind == journal.OpRestartAt {
		return d.log.RestartAt(op.Offset)
	}
	cut, err := d.log.Truncate(op.Offset)
	if err != nil || !d.replicated || d.log.End() >= op.Offset {
		return cut, err
	}
	cut.From = op.Offset
	return cut, fill(d.log, op.Offset)
}

// enter makes a claim, mode or baseline durable if it says anything new. Bytes
// below a seal are synced first: what was sealed is what a stop promises.
func (d *direct) enter(next journal.State, op journal.Operation) error {
	if d.replicated {
		return d.begin(next, op)
	}
	same := next.Epoch == d.durable.Epoch && next.Node == d.durable.Node &&
		next.Mode == d.durable.Mode && next.ModeOffset == d.durable.ModeOffset
	if same {
		return nil
	}
	if next.Mode == messages.ModeSealed && next.Mode != d.state.Mode && d.log.RecoveryPoint() < d.log.End() {
		if err := d.log.Flush(); err != nil {
			return fmt.Errorf("flush before the seal: %w", err)
		}
		d.reached(op, "flushed")
	}
	if err := d.checkpoints.Put(true, d.checkpoint(next)); err != nil {
		return err
	}
	d.reached(op, "checkpointed")
	d.durable = next
	return nil
}

// begin makes the log's own baseline durable: were the file still that of a cluster of
// one after the next append, a crash would take the longer log for the baseline.
func (d *direct) begin(next journal.State, op journal.Operation) error {
	if op.Kind != journal.OpBaseline || d.log.End() != op.End {
		return nil
	}
	if err := d.log.Flush(); err != nil {
		return fmt.Errorf("flush a baseline: %w", err)
	}
	err := d.checkpoints.Put(true, d.checkpoint(next))
	if err == nil {
		d.durable = next
	}
	return err
}

// persist writes the current state.
func (d *direct) persist(durable bool) error {
	if err := d.checkpoints.Put(durable, d.checkpoint(d.state)); err != nil {
		return err
	}
	d.durable = d.state
	return nil
}

func (d *direct) closing() (cp Checkpoint, ok bool) {
	if d.failed != nil || d.state == d.durable {
		return Checkpoint{}, false
	}
	return d.checkpoint(d.state), true
}

func (d *direct) inOrder() bool { return true }

func (d *direct) reaches() bool { return true }

func (d *direct) abort(error) {}

func (d *direct) end() {}
