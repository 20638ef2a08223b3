package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/fsm"
	"kagami/messages"
	"kagami/persistence"
)

// partitionReadDelay is before the state is read again after a refused write.
const partitionReadDelay = time.Second

// assignment is what the metadata image says about a partition that this node
// leads.
type assignment struct {
	key       messages.PartitionKey
	tp        messages.TopicPartition
	mirror    string
	desired   messages.Desired
	epoch     int32
	replicas  int // assigned
	throttled bool
}

// Messages to a partition. life is the incarnation of the actor that asked: an
// answer for an earlier one is dropped.
type (
	partitionAssigned struct{} // read handle.assigned
	partitionInput    struct {
		life int64
		in   fsm.Input
	}
	partitionTell struct{ in fsm.Input }
	partitionRead struct {
		life, number int64 // number of the question
		state        messages.PartitionState
		ticket       int64
	}
	partitionReadAgain struct {
		life int64
		read fsm.ReadState
	}
	partitionEvent struct {
		life  int64
		work  uint32
		event fetch.Event
	}
	partitionJobDone struct {
		life, number int64
		in           fsm.Input
		opened       uint32          // work number of OpenPartition, when that is what was done
		finished     persistence.Cut // see TakeFinished
	}
	partitionProactive struct{ life int64 } // the background bump has ended
	// partitionRecover is answered on reply, which has room: it is FAILED and goes on.
	partitionRecover struct {
		by    messages.Requester
		reply chan<- bool
	}
	// partitionResign: give up what runs, then end.
	partitionResign struct{}
)

// partition is the actor of one mirror partition that this node leads: a shell
// around fsm.Partition. It performs the core's outputs, one job at a time in a
// worker, and tells it what came of them. An idle one holds no goroutine and no
// timer.
type partition struct {
	shared *Partitions
	handle *PartitionHandle
	worker partitionWorker
	log    *zap.Logger
	core   *fsm.Partition
	life   int64
	gone   *atomic.Bool    // shared with the keeper: nobody waits any more
	ctx    context.Context //nolint:containedctx // bounds the jobs, ended in Stopping
	cancel context.CancelFunc

	jobs      []partitionJob
	number    int64 // of the running job
	running   *partitionJob
	cancelJob context.CancelFunc

	readNumber int64  // of the last question to the coordinator
	fetchWork  uint32 // work number of the fetcher's creation
	openWork   uint32 // work number of OpenPartition, 0 = the gate is to stay closed
	open       bool
	proactive  bool // a background bump runs
	resigning  bool
	stopTimer  func() bool
	nextRetry  time.Time      // zero: no retry is set
	state      messages.State // published last
	since      time.Time
}

// partitionJob is something that waits for disk or network. run mustn't touch
// the actor; a nil answer says nothing.
type partitionJob struct {
	name string
	keep bool // Cancel doesn't end it
	open uint32
	read int64 // number of the question that it answers; 0 = none. A newer one makes the answer stale
	run  func(ctx context.Context) fsm.Input

	output fsm.Output // that it performs; nil if none did ask
}

// Receive handles one message; it never waits.
func (p *partition) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		p.start(c)
	case *actor.Stopping, *actor.Restarting:
		p.close()
	case partitionAssigned:
		a := p.handle.assigned.Load()
		p.worker.throttled = a.throttled
		p.feed(c, p.lead(a))
		p.admit()
	case partitionInput:
		if m.life == p.life {
			if _, due := m.in.(fsm.RetryDue); due {
				p.nextRetry = time.Time{}
			}
			p.feed(c, m.in)
		}
	case partitionTell:
		p.feed(c, m.in)
	case partitionRead:
		if m.life == p.life && m.number == p.readNumber {
			p.loaded(c, m)
		}
	case partitionReadAgain:
		if m.life == p.life && !p.resigning {
			p.read(c, m.read)
		}
	case partitionEvent:
		if m.life == p.life {
			p.event(c, m.work, m.event)
		}
	case partitionJobDone:
		p.jobDone(c, m)
	case partitionProactive:
		if m.life == p.life {
			p.proactive = false
		}
	case partitionRecover:
		m.reply <- p.core.View().Loaded && p.core.State() == messages.StateFailed
		p.feed(c, fsm.Recover{By: m.by})
	case partitionResign:
		p.resigning = true
		p.feed(c, fsm.Resign{})
		p.gone.Store(true)
		p.endIfIdle(c)
	}
}

// start begins with nothing: what was stored is read.
func (p *partition) start(c actor.Context) {
	a := p.handle.assigned.Load()
	p.life = p.shared.lives.Add(1)
	p.gone = &atomic.Bool{}
	p.core = fsm.NewPartition(a.mirror, a.tp, a.key.CreatedAt)
	p.feed(c, p.lead(a))
}

func (p *partition) lead(a *assignment) fsm.Lead {
	return fsm.Lead{Epoch: a.epoch, Desired: a.desired, NowMillis: p.shared.config.Clock.Now().UnixMilli()}
}

func (p *partition) close() {
	p.gone.Store(true)
	p.cancel()
	if p.stopTimer != nil {
		p.stopTimer()
	}
}

// feed steps the core, performs what it says, and publishes the new view.
func (p *partition) feed(c actor.Context, in fsm.Input) {
	env := fsm.Env{Policy: p.shared.config.Policy(), Random: p.shared.config.Random()}
	for _, o := range p.core.Step(in, env) {
		p.perform(c, o)
	}
	v := p.core.View()
	if v.State != p.state || p.since.IsZero() {
		p.state, p.since = v.State, p.shared.config.Clock.Now()
	}
	status := PartitionStatus{View: v, Since: p.since, NextRetry: p.nextRetry}
	p.handle.status.Store(&status)
}

func (p *partition) perform(c actor.Context, o fsm.Output) {
	reachedOutput(o, "before")
	switch o := o.(type) {
	case fsm.ReadState:
		if o.Again {
			p.after(c, partitionReadDelay, partitionReadAgain{life: p.life, read: o})
			return
		}
		p.read(c, o)
	case fsm.PersistWrite:
		w := o.Write
		if w.Principal == "" {
			w.Principal = p.shared.principal
		}
		c.Send(p.shared.keeper, keeperWrite{write: w, life: p.life, to: c.Self(), dead: p.gone})
	case fsm.SetTimer:
		p.setTimer(c, o)
	case fsm.StopTimer:
		if p.stopTimer != nil {
			p.stopTimer()
			p.stopTimer = nil
		}
		p.nextRetry = time.Time{}
	case fsm.ClosePartition:
		p.openWork, p.open = 0, false
		if p.handle.assigned.Load().desired != messages.DesiredNone {
			p.worker.replica.SetAdmit(false)
		}
		reachedOutput(o, "after")
	case fsm.Cancel:
		p.cancelJobs()
	case fsm.RefreshSource:
		p.shared.config.Source.Refresh(p.worker.mirror, "a partition needs its source leader")
	case fsm.Moved, fsm.Refused, fsm.Permanent, fsm.Fenced, fsm.Mismatch:
		p.report(o)
	default:
		j := p.jobFor(c, o)
		j.output = o
		p.enqueue(c, j)
	}
}

// report logs what needs no action.
func (p *partition) report(o fsm.Output) {
	switch o := o.(type) {
	case fsm.Moved:
		v := p.core.View()
		fields := []zap.Field{zap.Stringer("from", o.From), zap.Stringer(messages.FieldState, o.To), zap.String("row", o.Row.Number)}
		if o.To == messages.StateFailed {
			p.log.Warn("partition failed", append(fields, zap.Int16(messages.FieldAttempt, v.RetryAttempt), zap.String("why", v.Error))...)
			return
		}
		p.log.Info("partition moved", fields...)
	case fsm.Refused:
		p.log.Warn("event has no transition here", zap.Error(o.Err))
	case fsm.Permanent:
		p.log.Error("partition failed for good: recover it, or stop and start it", zap.Int16(messages.FieldAttempt, o.Attempt),
			zap.String("why", p.core.View().Error))
	case fsm.Fenced:
		p.log.Warn("the coordinator refused our write", zap.String("why", o.Text))
	case fsm.Mismatch:
		p.log.Error("stored last mirror epoch isn't the log's; the stored one stays", zap.Int32("stored", o.Stored), zap.Int32("log", o.Computed))
	}
}

func (p *partition) read(c actor.Context, r fsm.ReadState) {
	p.readNumber = r.Number
	c.Send(p.shared.keeper, keeperRead{mirror: p.worker.mirror, tp: p.worker.tp, epoch: r.Epoch, number: r.Number, life: p.life, to: c.Self(), dead: p.gone})
}

// loaded hands what the coordinator has stored to the core, and what it should
// have and hasn't: cuts that an earlier process made just before it died.
func (p *partition) loaded(c actor.Context, m partitionRead) {
	w := p.worker
	in := func(missing persistence.Cut) fsm.Input {
		s := m.state
		loaded := fsm.Loaded{State: s, LogEmpty: w.replica.State().End == 0, Ticket: m.ticket}
		if missing.To > missing.From {
			loaded.Cuts = fsm.Cut{From: missing.From, To: missing.To, Records: s.CutRecords + missing.Records, Bytes: s.CutBytes + missing.Bytes}
		}
		return loaded
	}
	if m.state.State == messages.StateUnknown && w.replica.HasCuts() {
		// Cuts of another mirror. They are forgotten before a state is stored, for
		// with a state they would count as cuts of this one.
		p.enqueue(c, partitionJob{name: "forget cuts", keep: true, read: m.number, run: func(ctx context.Context) fsm.Input {
			if !w.forgetCuts(ctx) {
				return nil
			}
			return in(persistence.Cut{})
		}})
		return
	}
	s := m.state
	missing := w.replica.CountCuts(w.mirror, persistence.Cut{From: s.CutFrom, To: s.CutTo, Records: s.CutRecords, Bytes: s.CutBytes})
	if missing.To > missing.From {
		p.log.Info("a cut before the last restart is counted now", zap.Int64("from", missing.From), zap.Int64("to", missing.To), zap.Int64("records", missing.Records))
	}
	p.feed(c, in(missing))
	if s.State == messages.StateFailed {
		// What held it is kept in memory only: the source is asked again.
		p.shared.config.Source.Suspect(w.mirror, w.tp.Topic, s.Previous == messages.StateLogTruncation)
	}
	if from, to, ok := w.replica.GapAtOpen(w.mirror); ok && (s.GapFrom != from || s.GapTo != to) {
		p.log.Warn("a gap that was met before the last restart is told now", zap.Int64("from", from), zap.Int64("to", to))
		p.feed(c, fsm.Noted{Gap: fsm.Gap{From: from, To: to, AtMillis: p.shared.config.Clock.Now().UnixMilli()}})
	}
}

func (p *partition) after(c actor.Context, d time.Duration, m any) func() bool {
	root, self := c.ActorSystem().Root, c.Self()
	return p.shared.config.Clock.AfterFunc(d, func() { root.Send(self, m) })
}

func (p *partition) setTimer(c actor.Context, o fsm.SetTimer) {
	if p.stopTimer != nil {
		p.stopTimer()
	}
	p.stopTimer = p.after(c, o.Delay, partitionInput{life: p.life, in: fsm.RetryDue{Timer: o.Timer}})
	p.nextRetry = p.shared.config.Clock.Now().Add(o.Delay)
}

// admit opens the gate again after each image: a start that was taken back has
// closed it without any change of state.
func (p *partition) admit() {
	if p.open && p.core.State() == messages.StateStopped && p.core.View().Desired == messages.DesiredStopped {
		p.worker.replica.SetAdmit(true)
	}
}

// enqueue runs jobs one after the other.
func (p *partition) enqueue(c actor.Context, j partitionJob) {
	p.jobs = append(p.jobs, j)
	p.nextJob(c)
}

func (p *partition) nextJob(c actor.Context) {
	if p.running != nil || len(p.jobs) == 0 {
		return
	}
	j := p.jobs[0]
	if p.jobs = p.jobs[1:]; len(p.jobs) == 0 {
		p.jobs = nil
	}
	p.running = &j
	p.number++
	var ctx context.Context
	ctx, p.cancelJob = context.WithCancel(p.ctx)
	root, self, life, number := c.ActorSystem().Root, c.Self(), p.life, p.number
	p.shared.helpers.Go(func() {
		reachedOutput(j.output, "begun")
		done := partitionJobDone{life: life, number: number, in: j.run(ctx)}
		reachedOutput(j.output, "after")
		done.finished = p.worker.replica.TakeFinished()
		if ctx.Err() == nil {
			done.opened = j.open
		}
		root.Send(self, done)
	})
}

func (p *partition) jobDone(c actor.Context, m partitionJobDone) {
	if m.life != p.life || m.number != p.number || p.running == nil {
		return
	}
	stale := p.running.read != 0 && p.running.read != p.readNumber
	p.cancelJob()
	p.running, p.cancelJob = nil, nil
	if m.opened != 0 && m.opened == p.openWork {
		p.open = true
		p.admit()
		reached("partition", "admit", "after")
	}
	if m.finished != (persistence.Cut{}) {
		p.feed(c, fsm.Noted{Cut: fsm.Cut(m.finished)})
	}
	if m.in != nil && !stale {
		p.feed(c, m.in)
	}
	p.nextJob(c)
	p.endIfIdle(c)
}

// cancelJobs gives up what runs and what waits, but for jobs that must be done.
func (p *partition) cancelJobs() {
	if p.running != nil && !p.running.keep {
		p.cancelJob()
	}
	var kept []partitionJob
	for _, j := range p.jobs {
		if j.keep {
			kept = append(kept, j)
		}
	}
	p.jobs = kept
}

func (p *partition) endIfIdle(c actor.Context) {
	if p.resigning && p.running == nil && len(p.jobs) == 0 {
		c.Stop(c.Self())
	}
}

// event turns what the fetcher tells into inputs.
func (p *partition) event(c actor.Context, work uint32, e fetch.Event) {
	switch e := e.(type) {
	case fetch.FirstSuccess:
		p.feed(c, fsm.Healthy{Work: work})
	case fetch.BatchEpochAboveDLE:
		p.feed(c, fsm.EpochAhead{Work: work, BatchEpoch: e.BatchEpoch})
	case fetch.BatchEpochAboveSLE:
		p.shared.config.Source.Refresh(p.worker.mirror, "a batch is newer than the source's metadata")
		p.feed(c, fsm.Failed{Work: work, Cause: fsm.CauseInternal, Text: describeEvent(e)})
	case fetch.LeaderUnknown:
		p.feed(c, fsm.Failed{Work: work, Cause: fsm.CauseConnection, Text: describeEvent(e)})
	case fetch.Failed:
		p.feed(c, fsm.Failed{Work: work, Cause: causeOf(e.Err), Text: describeEvent(e)})
	case fetch.NearEpoch:
		p.bumpAhead(c, e.SourceEpoch)
	case fetch.SourceLeaderMoved:
		if work == p.fetchWork && p.core.State() == messages.StateMirroring {
			p.enqueue(c, p.fetchJob(c, work, &e.Leader))
			if e.Leader.Epoch > p.worker.replica.State().LeaderEpoch-fsm.BumpThreshold {
				p.bumpAhead(c, e.Leader.Epoch)
			}
		}
	case fetch.RefreshWanted:
		p.shared.config.Source.Refresh(p.worker.mirror, "a fetch error says that metadata is old")
	case fetch.GapSkipped:
		noted := fsm.Noted{Cut: cutOf(e.Cut)}
		if !e.Fresh {
			noted.Gap = fsm.Gap{From: e.From, To: e.To, AtMillis: p.shared.config.Clock.Now().UnixMilli()}
		}
		p.feed(c, noted)
	case fetch.Truncated:
		p.feed(c, fsm.Noted{Cut: cutOf(e.Cut)})
	}
}

// bumpAhead is the proactive bump: in the background, its failure is a warning. The
// source is asked for its epoch unless it has just named one. Elections without
// records come to light by that alone before the next refresh, and a few of them in
// a row are all that DLE is ahead.
func (p *partition) bumpAhead(c actor.Context, source int32) {
	if p.proactive {
		return
	}
	p.proactive = true
	root, self, life, ctx, w, log := c.ActorSystem().Root, c.Self(), p.life, p.ctx, p.worker, p.log
	p.shared.helpers.Go(func() {
		bump := w.bumpAhead
		if source != messages.NoEpoch {
			bump = func(ctx context.Context) error { return w.bumpAbove(ctx, source) }
		}
		if err := bump(ctx); err != nil && ctx.Err() == nil {
			log.Warn("raise leader epoch ahead of time", zap.Error(err))
		}
		root.Send(self, partitionProactive{life: life})
	})
}

func (w partitionWorker) bumpAbove(ctx context.Context, source int32) error {
	least, err := fsm.BumpTarget(source)
	if err != nil {
		return err
	}
	return w.bump(ctx, least)
}
