package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/fsm"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// PartitionReplica is the replica that a partition actor works on.
// *cluster.Replica is one, and documents the errors.
type PartitionReplica interface {
	replicaReader
	replicaChanger
	replicaCopier
}

type replicaReader interface {
	Log() persistence.Log
	State() persistence.ReplicaState
	tenured
	// CountCuts, GapAtOpen and HasCuts take no lock.
	CountCuts(mirror string, stored persistence.Cut) (missing persistence.Cut)
	GapAtOpen(mirror string) (from, to int64, ok bool)
	HasCuts() bool
	// TakeFinished returns once what cuts removed that were refused for want of room
	// and have been finished since.
	TakeFinished() persistence.Cut
}

type replicaChanger interface {
	SetMode(ctx context.Context, mode messages.Mode) (int64, error)
	Truncate(ctx context.Context, offset int64, reason string) (persistence.Cut, error)
	AppendInternal(ctx context.Context, batches []byte) (persistence.AppendInfo, error)
	ForgetCuts(ctx context.Context, mirror string) error
	SetAdmit(admit bool)
	// Flush makes everything appended durable.
	Flush(ctx context.Context) error
}

type replicaCopier interface {
	AppendMirrorAt(ctx context.Context, generation, base int64, batches []byte) (persistence.AppendInfo, error)
	// RestartAt returns the generation that begins with it as well.
	RestartAt(ctx context.Context, offset int64, reason string) (persistence.Cut, int64, error)
	RaiseLogStart(ctx context.Context, offset int64) error
}

// PartitionSource answers a partition's questions to its source. Calls of many
// partitions of a mirror are gathered by the implementation. Errors are those of
// package fetch.
type PartitionSource interface {
	// LastMirrorEpoch looks for loops (OP-35, fetch.ErrMirrorLoop) and returns the
	// LME that the source has for the partition, NoEpoch if none. The look-up began
	// after the call.
	LastMirrorEpoch(ctx context.Context, mirror string, tp messages.TopicPartition) (int32, error)
	// SourceEpoch is the source leader epoch by a refresh that began after the call.
	SourceEpoch(ctx context.Context, mirror string, tp messages.TopicPartition) (int32, error)
	// SourceClusterID is the remembered id, "" if it was never learned.
	SourceClusterID(mirror string) string
	// Refresh asks for a refresh soon and doesn't wait.
	Refresh(mirror, reason string)
	// Suspect asks to find out soon whether the topic is at fault, with loop also
	// whether the source mirrors it (OP-35); the mirror's news say what came of it.
	// It doesn't wait.
	Suspect(mirror, topic string, loop bool)
}

// PartitionFetchers puts partitions on fetchers and takes them off.
type PartitionFetchers interface {
	// Fetch puts a partition on the fetcher of its source leader, or replaces it
	// there. leader overrides what is known of the source; nil = doesn't.
	Fetch(ctx context.Context, mirror string, a fetch.Assignment, leader *fetch.Leader) error
	// Unfetch returns when no append for the partition runs or can start. A mirror
	// that isn't there fetches nothing: nil.
	Unfetch(ctx context.Context, mirror string, tp messages.TopicPartition) error
}

// Delays of the jobs.
const (
	jobRetryDelay   = time.Second
	stopAppendLimit = 5 * time.Second // of one append of the stop (workflows.md, "Stop")
	stopAbortTries  = 3
	stopResetDelay  = 5 * time.Second
	bumpWaitLimit   = 15 * time.Second // for the new epoch after the controller's answer
	convergeDelay   = 250 * time.Millisecond
	convergeTold    = 2 * time.Second // beats tell late; who waits longer says so
)

// partitionWorker does the waiting work of one partition. It is copied into jobs
// and holds nothing that changes while they run.
type partitionWorker struct {
	shared    *Partitions
	replica   PartitionReplica
	key       messages.PartitionKey
	tp        messages.TopicPartition
	mirror    string
	replicas  int
	throttled bool
}

// jobFor is the job of an output with a work number.
func (p *partition) jobFor(c actor.Context, o fsm.Output) partitionJob {
	w := p.worker
	switch o := o.(type) {
	case fsm.Align:
		return partitionJob{name: "align", run: func(ctx context.Context) fsm.Input { return w.align(ctx, o.Work) }}
	case fsm.AwaitReplicas:
		return partitionJob{name: "await replicas", run: func(ctx context.Context) fsm.Input { return w.await(ctx, o.Work) }}
	case fsm.Fetch:
		p.fetchWork = o.Work
		return p.fetchJob(c, o.Work, nil)
	case fsm.Unfetch:
		return partitionJob{name: "unfetch", keep: true, run: func(ctx context.Context) fsm.Input {
			if w.unfetch(ctx) != nil {
				return nil
			}
			return fsm.FetcherGone(o)
		}}
	case fsm.RaiseEpoch:
		return partitionJob{name: "raise epoch", run: func(ctx context.Context) fsm.Input { return w.raise(ctx, o) }}
	case fsm.RunStep:
		return partitionJob{name: "stop: " + o.Step.String(), run: func(ctx context.Context) fsm.Input { return w.step(ctx, o) }}
	case fsm.OpenPartition:
		p.openWork = o.Work
		return partitionJob{name: "open", open: o.Work, run: func(ctx context.Context) fsm.Input { w.open(ctx); return nil }}
	default:
		return partitionJob{name: "nothing", run: func(context.Context) fsm.Input { return nil }}
	}
}

func (p *partition) fetchJob(c actor.Context, work uint32, leader *fetch.Leader) partitionJob {
	w, life, root, self := p.worker, p.life, c.ActorSystem().Root, c.Self()
	lag := p.handle.lag.Load()
	if lag == nil {
		lag = fetch.NewLag()
		p.handle.lag.Store(lag)
	}
	a := fetch.Assignment{
		TopicPartition: w.tp, TopicID: w.key.TopicID, LeaderEpoch: messages.NoEpoch, Sink: &replicaSink{replica: w.replica},
		Lag: lag, Throttled: w.throttled,
		Notify: func(e fetch.Event) { root.Send(self, partitionEvent{life: life, work: work, event: e}) },
	}
	// Not to be cancelled: an Add that was given up could overtake its Remove.
	return partitionJob{name: "fetch", keep: true, run: func(ctx context.Context) fsm.Input {
		err := w.disk(ctx, func() error { _, err := w.replica.SetMode(ctx, messages.ModeMirroring); return err })
		if err == nil {
			err = w.shared.config.Fetchers.Fetch(ctx, w.mirror, a, leader)
		}
		return failed(work, "start fetching", err)
	}}
}

// failed is nil without an error.
func failed(work uint32, what string, err error) fsm.Input {
	if err == nil {
		return nil
	}
	return fsm.Failed{Work: work, Cause: causeOf(err), Text: fmt.Sprintf("%s: %v", what, err)}
}

// causeOf says how a failure is retried: a loop or another topic waits for people, a lost source
// is re-armed when it is back (OP-21).
func causeOf(err error) fsm.Cause {
	var conn *fetch.ConnectionError
	switch {
	case errors.Is(err, fetch.ErrMirrorLoop), errors.Is(err, fetch.ErrTopicRecreated):
		return fsm.CauseHeld
	case errors.As(err, &conn), errors.Is(err, errLeaderUnknown), errors.Is(err, errNoSource):
		return fsm.CauseConnection
	default:
		return fsm.CauseInternal
	}
}

// errNoSource: the source didn't answer a question in time.
var errNoSource = errors.New("the source doesn't answer")

func describeEvent(e fetch.Event) string {
	switch e := e.(type) {
	case fetch.BatchEpochAboveSLE:
		return fmt.Sprintf("batch epoch %d is above the source leader epoch %d that was known", e.BatchEpoch, e.SourceEpoch)
	case fetch.LeaderUnknown:
		return fmt.Sprintf("source leader unknown: %v", e.Err)
	case fetch.Failed:
		return e.Err.Error()
	default:
		return fmt.Sprintf("%T", e)
	}
}

// disk does short work on the disk; a node does only so much of it at a time.
func (w partitionWorker) disk(ctx context.Context, f func() error) error {
	select {
	case w.shared.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.shared.slots }()
	return f()
}

// align is LOG_TRUNCATION up to the cut: seal, ask, cut (workflows.md,
// "LOG_TRUNCATION in detail").
func (w partitionWorker) align(ctx context.Context, work uint32) fsm.Input {
	if err := w.disk(ctx, func() error { return w.sealAnew(ctx) }); err != nil {
		return failed(work, "seal", err)
	}
	lme, err := w.shared.config.Source.LastMirrorEpoch(ctx, w.mirror, w.tp)
	if err != nil {
		return failed(work, "ask the source for the last mirror epoch", err)
	}
	offset := truncationOffset(w.replica.Log(), lme)
	if w.replica.State().End <= offset {
		return fsm.Truncated{Work: work}
	}
	reason := fmt.Sprintf("start: last mirror epoch %d", lme)
	if lme == messages.NoEpoch {
		reason = "start: the source knows no last mirror epoch, everything is copied again"
	}
	var cut persistence.Cut
	err = w.disk(ctx, func() error {
		cut, err = w.replica.Truncate(ctx, offset, reason)
		return err
	})
	if err != nil {
		return failed(work, "truncate", err)
	}
	return fsm.Truncated{Work: work, Cut: fsm.Cut{From: cut.From, To: cut.To, Records: cut.Records, Bytes: cut.Bytes}}
}

// sealAnew moves the seal to the log end. A repeated seal keeps its offset, and
// a start that follows a stop before the partition was opened finds the stop's:
// the next stop would take that one's MIRROR_PID_RESET for its own (found by
// test/sim, seed 10).
func (w partitionWorker) sealAnew(ctx context.Context) error {
	if w.replica.State().Mode == messages.ModeSealed {
		if _, err := w.replica.SetMode(ctx, messages.ModeMirroring); err != nil {
			return err
		}
	}
	_, err := w.replica.SetMode(ctx, messages.ModeSealed)
	return err
}

// truncationOffset is the end of the largest local epoch <= lme, 0 if there is
// none or no lme.
func truncationOffset(log persistence.Log, lme int32) int64 {
	if lme == messages.NoEpoch {
		return 0
	}
	if _, end, found := log.EpochEndOffset(lme); found {
		return end
	}
	return 0
}

// await returns when the replicas have converged.
func (w partitionWorker) await(ctx context.Context, work uint32) fsm.Input {
	began, told := w.shared.config.Clock.Now(), fsm.Convergence{}
	for {
		state, waited := fsm.Convergence{Assigned: w.replicas}, w.shared.config.Clock.Now().Sub(began)
		if w.shared.config.Convergence != nil {
			state = w.shared.config.Convergence(w.tp, waited)
		}
		if state.Done() {
			return fsm.Converged{Work: work, Convergence: state}
		}
		if state != told && waited >= convergeTold {
			w.shared.config.Log.Info("replicas haven't all applied the cut", zap.String(messages.FieldTopic, w.tp.Topic), zap.Int32(messages.FieldPartition, w.tp.Partition),
				zap.Int("assigned", state.Assigned), zap.Int("inSync", state.InSync), zap.Int("cut", state.AssignedCut), zap.Int("minInSync", state.MinInSync), zap.Bool("all", state.Unclean))
			told = state
		}
		if w.shared.config.Clock.Sleep(ctx, convergeDelay) != nil {
			return nil
		}
	}
}

func (w partitionWorker) unfetch(ctx context.Context) error {
	for {
		err := w.shared.config.Fetchers.Unfetch(ctx, w.mirror, w.tp)
		if err == nil {
			return nil
		}
		if w.shared.config.Clock.Sleep(ctx, jobRetryDelay) != nil {
			return err
		}
	}
}

// raise is EPOCH_FENCING.
func (w partitionWorker) raise(ctx context.Context, o fsm.RaiseEpoch) fsm.Input {
	source, err := w.shared.config.Source.SourceEpoch(ctx, w.mirror, w.tp)
	if err != nil {
		return failed(o.Work, "ask the source for its leader epoch", err)
	}
	dle := w.replica.State().LeaderEpoch
	if o.BatchEpoch == messages.NoEpoch && source <= dle-fsm.BumpThreshold {
		return fsm.Raised{Work: o.Work, Epoch: dle, Min: dle - 1} // a re-run: high enough already
	}
	least, err := fsm.BumpTarget(max(source, o.BatchEpoch))
	if err == nil {
		err = w.bump(ctx, least)
	}
	if err == nil {
		err = w.awaitEpoch(ctx, least)
	}
	if err != nil {
		return failed(o.Work, "raise leader epoch", err)
	}
	return fsm.Raised{Work: o.Work, Epoch: w.replica.State().LeaderEpoch, Min: least}
}

// bumpAhead raises DLE before a batch has to be refused.
func (w partitionWorker) bumpAhead(ctx context.Context) error {
	source, err := w.shared.config.Source.SourceEpoch(ctx, w.mirror, w.tp)
	if err != nil || source <= w.replica.State().LeaderEpoch-fsm.BumpThreshold {
		return err
	}
	least, err := fsm.BumpTarget(source)
	if err != nil {
		return err
	}
	return w.bump(ctx, least)
}

// bump asks the controller, together with whoever asks at the same time.
func (w partitionWorker) bump(ctx context.Context, least int32) error {
	reply := make(chan error, 1)
	w.shared.config.System.Root.Send(w.shared.keeper, keeperBump{
		bump:  messages.EpochBump{TopicID: w.key.TopicID, Partition: w.tp.Partition, MinLeaderEpoch: least},
		reply: reply,
	})
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitEpoch waits until this node has claimed an epoch above least.
func (w partitionWorker) awaitEpoch(ctx context.Context, least int32) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The clock is the node's, so the limit is a timer of it, not a context's.
	cancelTimer := w.shared.config.Clock.AfterFunc(bumpWaitLimit, func() {
		stop(fmt.Errorf("leader epoch above %d: %w", least, messages.ErrTimedOut))
	})
	defer cancelTimer()
	changed := make(chan struct{}, 1)
	unwatch := w.replica.Watch(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer unwatch()
	for w.replica.State().LeaderEpoch <= least {
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// open takes client appends at the journal, again and again until it works.
func (w partitionWorker) open(ctx context.Context) {
	for {
		err := w.disk(ctx, func() error { _, err := w.replica.SetMode(ctx, messages.ModeWritable); return err })
		if err == nil || w.shared.config.Clock.Sleep(ctx, jobRetryDelay) != nil {
			return
		}
	}
}

// forgetCuts is repeated until it works; false if it was given up.
func (w partitionWorker) forgetCuts(ctx context.Context) bool {
	for {
		err := w.disk(ctx, func() error { return w.replica.ForgetCuts(ctx, w.mirror) })
		if err == nil {
			return true
		}
		w.shared.warn(w.tp, "forget cuts of another mirror", err)
		if w.shared.config.Clock.Sleep(ctx, jobRetryDelay) != nil {
			return false
		}
	}
}

// step is one step of the stop. None needs the source.
func (w partitionWorker) step(ctx context.Context, o fsm.RunStep) fsm.Input {
	switch o.Step {
	case fsm.StepDetach:
		return w.detach(ctx, o.Work)
	case fsm.StepBump:
		return w.stopBump(ctx, o)
	case fsm.StepAbort:
		if err := w.abort(ctx); err != nil {
			return failed(o.Work, "abort open transactions", err)
		}
		return fsm.StepDone{Work: o.Work, Step: o.Step}
	case fsm.StepReset:
		if !w.reset(ctx) {
			return nil
		}
		return fsm.StepDone{Work: o.Work, Step: o.Step}
	default:
		return nil
	}
}

func (w partitionWorker) detach(ctx context.Context, work uint32) fsm.Input {
	if err := w.unfetch(ctx); err != nil {
		return nil
	}
	var sealed int64
	err := w.disk(ctx, func() (err error) { sealed, err = w.replica.SetMode(ctx, messages.ModeSealed); return err })
	if err != nil {
		return failed(work, "seal", err)
	}
	in := fsm.Sealed{Work: work, LastEpoch: messages.NoEpoch, ResetEpoch: messages.NoEpoch}
	if sealed > 0 {
		in.LastEpoch = w.replica.Log().EpochForOffset(sealed - 1)
	}
	if in.ResetEpoch, err = resetEpoch(w.replica.Log(), sealed); err != nil {
		return failed(work, "read the end of the log", err)
	}
	return in
}

// resetEpoch is the epoch of a MIRROR_PID_RESET at or above sealed that is the
// log's last batch, else NoEpoch. One below is the source's own.
func resetEpoch(log persistence.Log, sealed int64) (int32, error) {
	end := log.End()
	if end <= sealed || end <= log.LogStart() {
		return messages.NoEpoch, nil
	}
	chunk, err := log.Read(end-1, 1, end, true)
	if err != nil {
		return messages.NoEpoch, err
	}
	defer chunk.Release()
	b, err := chunk.ReadAll()
	if err != nil || len(b) == 0 {
		return messages.NoEpoch, err
	}
	h, err := batch.ParseHeader(b)
	if err != nil || !h.IsControl() || h.BaseOffset < sealed {
		return messages.NoEpoch, err
	}
	control, err := batch.ParseControl(b)
	if err != nil || control.Type != batch.ControlMirrorPIDReset {
		return messages.NoEpoch, err
	}
	return h.LeaderEpoch, nil
}

// stopBump raises DLE above the LME and above itself. It sends again when no
// answer or no new epoch comes; any other error fails the step.
func (w partitionWorker) stopBump(ctx context.Context, o fsm.RunStep) fsm.Input {
	least := max(o.Min, w.replica.State().LeaderEpoch)
	for {
		err := w.bump(ctx, o.Min)
		if err == nil {
			if err = w.awaitEpoch(ctx, least); err == nil {
				return fsm.StepDone{Work: o.Work, Step: o.Step, Epoch: w.replica.State().LeaderEpoch}
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if refusedForGood(err) {
			return failed(o.Work, "raise leader epoch", err)
		}
		if w.shared.config.Clock.Sleep(ctx, jobRetryDelay) != nil {
			return nil
		}
	}
}

func refusedForGood(err error) bool {
	return errors.Is(err, messages.ErrUnknownTopicID) || errors.Is(err, messages.ErrUnknownTopicOrPartition) ||
		errors.Is(err, messages.ErrInvalidRequest) || errors.Is(err, messages.ErrUnsupportedVersion)
}

// append stores one internal batch within its limit.
func (w partitionWorker) append(ctx context.Context, b []byte) error {
	return w.disk(ctx, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, stopAppendLimit, messages.ErrTimedOut)
		defer cancel()
		_, err := w.replica.AppendInternal(ctx, b)
		return err
	})
}

// abort closes open transactions, each with a batch of its own: their markers
// will never come from the source.
func (w partitionWorker) abort(ctx context.Context) error {
	for tries := 1; ; tries++ {
		err := w.abortOnce(ctx)
		if err == nil || tries == stopAbortTries {
			return err
		}
		if w.shared.config.Clock.Sleep(ctx, jobRetryDelay) != nil {
			return err
		}
	}
}

func (w partitionWorker) abortOnce(ctx context.Context) error {
	log := w.replica.Log()
	for _, txn := range log.OpenTransactions() {
		coordinatorEpoch := int32(0)
		if e, ok := log.Producer(txn.ProducerID); ok {
			coordinatorEpoch = max(0, e.CoordinatorEpoch)
		}
		b := batch.AbortMarker(txn.ProducerID, txn.ProducerEpoch, coordinatorEpoch, w.shared.config.Clock.Now().UnixMilli())
		if err := w.append(ctx, b); err != nil {
			return fmt.Errorf("producer %d: %w", txn.ProducerID, err)
		}
	}
	return nil
}

// reset appends MIRROR_PID_RESET, every five seconds until it works; false if it
// was given up.
func (w partitionWorker) reset(ctx context.Context) bool {
	for {
		b := batch.MirrorPIDReset(w.replica.State().LeaderEpoch, w.shared.config.Clock.Now().UnixMilli(), w.shared.config.Source.SourceClusterID(w.mirror))
		err := w.append(ctx, b)
		if err == nil {
			// STOPPED is durable when it is stored, so what it rests on must be too: a
			// power cut may not leave STOPPED without the reset below it.
			err = w.replica.Flush(ctx)
		}
		if err == nil {
			return true
		}
		w.shared.warn(w.tp, "append MIRROR_PID_RESET", err)
		if w.shared.config.Clock.Sleep(ctx, stopResetDelay) != nil {
			return false
		}
	}
}
