package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/internal/invariant"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// Limits of one append: commands that wait together are written together, each
// as a batch of its own.
const (
	controllerGroupCommands = 64
	controllerGroupRecords  = 20_000
)

// Messages to the controller actor.
type (
	// controllerSubmit asks for a command; reply has room for the one answer.
	controllerSubmit struct {
		cmd   messages.Command
		who   messages.Requester
		gone  <-chan struct{} // closed when nobody waits any more
		reply chan<- messages.Outcome
	}
	// controllerDone is the worker's answer to the job of that number.
	controllerDone struct {
		job     uint64
		offsets []int64
		err     error
	}
	// controllerRetry is a timer: try to claim again, if still needed.
	controllerRetry struct{ job uint64 }
	// controllerTick is a timer, among several nodes: whose turn is it, what is due?
	controllerTick struct{}
)

// controllerJob is one append by the worker. A claim goes to the journal first.
type controllerJob struct {
	number  uint64
	claim   int32 // epoch to claim in the journal; 0 = none
	changes []metadata.Change
}

// controllerActor decides commands one after the other on an image that looks
// ahead of the log by what is being written. Only one append is under way; its
// commands are answered when it is applied. All fields belong to Receive.
type controllerActor struct {
	c    *Controller
	log  *zap.Logger
	base func() context.Context

	self *actor.PID
	jobs chan controllerJob // to the worker; room for the one job
	stop context.CancelFunc
	// stopTick stops the timer of the next controllerTick; nil among one.
	stopTick func() bool
	workers  chan struct{} // closed when the worker has ended

	job     uint64 // number of the newest job
	busy    bool   // that job is under way
	epoch   int32  // our claim, 0 while we aren't controller
	claimed int32  // epoch of the newest claim that was tried
	taken   int32  // epoch that another node has claimed in the journal; its record may never come
	pending []*controllerSubmit
	flight  []answer
}

// answer is an outcome that is sent when the change in front of it is applied.
type answer struct {
	to      *controllerSubmit
	outcome messages.Outcome
	change  int // index of its change in the job, -1 if it changes nothing
}

// resealed: a piece of the secrets was written again, and there may be more.
func (f answer) resealed() bool {
	_, ok := f.to.cmd.(messages.ResealSecrets)
	return ok && f.change >= 0
}

// Receive never blocks: the worker does all that waits.
func (a *controllerActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		a.start(c)
		a.claim()
		a.tickLater()
	case *actor.Stopping, *actor.Restarting:
		a.shut()
	case *controllerSubmit:
		a.pending = append(a.pending, m)
		a.next()
	case controllerDone:
		if m.job == a.job && a.busy {
			a.done(m)
		}
	case controllerTick:
		a.tick()
		a.tickLater()
	case controllerRetry:
		if m.job == a.job && !a.busy && a.epoch == 0 {
			a.claim()
		}
	}
}

func (a *controllerActor) start(c actor.Context) {
	a.self = c.Self()
	ctx, stop := context.WithCancel(a.base())
	a.stop = stop
	a.jobs = make(chan controllerJob, 1)
	a.workers = make(chan struct{})
	w := controllerWorker{
		store: a.c.opts.Store, claim: a.c.opts.Claim, timeout: a.c.opts.AppendTimeout,
		send: func(m controllerDone) { a.c.root.Send(a.self, m) },
	}
	jobs, ended := a.jobs, a.workers
	go func() {
		defer close(ended)
		w.run(ctx, jobs)
	}()
}

// shut ends the worker and answers everybody. An append under way may still
// land: its commands are told that the outcome isn't known.
func (a *controllerActor) shut() {
	if a.stop == nil {
		return
	}
	a.stop()
	if a.stopTick != nil {
		a.stopTick()
	}
	close(a.jobs)
	<-a.workers // returns at once: every wait of the worker ends with its context
	a.stop = nil
	unknown := fmt.Errorf("%w: the controller stopped before the change was known to be stored", messages.ErrTimedOut)
	for _, f := range a.flight {
		f.to.reply <- messages.Outcome{Err: unknown, Offset: messages.NoOffset}
	}
	for _, p := range a.pending {
		p.reply <- messages.Outcome{Err: errControllerClosed, Offset: messages.NoOffset}
	}
	a.flight, a.pending = nil, nil
}

func (a *controllerActor) submit(j controllerJob) {
	a.job = a.c.jobs.Add(1)
	a.busy = true
	j.number = a.job
	a.jobs <- j // has room: only one job is under way
}

// claim makes this node controller with the next epoch, if it is its turn.
func (a *controllerActor) claim() {
	if o := a.c.opts.Others; o != nil && !o.Candidate() {
		a.epoch = 0
		a.refuse()
		return
	}
	img := a.c.opts.Store.Image()
	epoch := max(img.ControllerEpoch(), a.taken) + 1
	a.epoch, a.claimed = 0, epoch
	a.submit(controllerJob{claim: epoch, changes: []metadata.Change{{
		Records: claimRecords(img, a.c.opts.Node, a.c.opts.ClusterID, epoch), Claim: epoch,
		Requester: messages.Requester{Principal: fmt.Sprintf("User:node-%d", a.c.opts.Node)},
	}}})
}

// done takes the worker's answer. After any failure it isn't known whether the
// records landed, so nothing may be decided on the image as it is: the next claim
// stands behind whatever landed, and its image shows it.
func (a *controllerActor) done(m controllerDone) {
	a.busy = false
	claiming := a.epoch == 0
	if m.err != nil {
		a.epoch = 0
		a.failFlight(m.err)
		if claiming && errors.Is(m.err, messages.ErrFencedLeaderEpoch) {
			a.taken = a.claimed
		}
		a.log.Warn("metadata log not written, claiming it again", zap.Bool("claim", claiming), zap.Error(m.err))
		job := a.job
		a.c.opts.Clock.AfterFunc(a.c.opts.RetryDelay, func() { a.c.root.Send(a.self, controllerRetry{job: job}) })
		return
	}
	if claiming {
		// Not the image's: by now another node may have claimed above it.
		a.epoch = a.claimed
		a.log.Info("this node is the controller", zap.Int32(messages.FieldEpoch, a.epoch))
		select {
		case <-a.c.claimed:
		default:
			close(a.c.claimed)
		}
	}
	if claiming || slices.ContainsFunc(a.flight, answer.resealed) {
		a.reseal()
	}
	last := a.c.opts.Store.Image().Offset()
	for _, f := range a.flight {
		f.outcome.Offset = last
		if f.change >= 0 {
			f.outcome.Offset = m.offsets[f.change]
		}
		f.to.reply <- f.outcome
		reached("controller", "answer", "after")
	}
	a.flight = nil
	a.next()
}

func (a *controllerActor) failFlight(err error) {
	switch {
	case errors.Is(err, metadata.ErrStale):
		err = fmt.Errorf("%w: another node has claimed the metadata log", messages.ErrNotController)
	case errors.Is(err, messages.ErrTimedOut), errors.Is(err, metadata.ErrMissed):
		err = fmt.Errorf("%w: %s", messages.ErrTimedOut, err.Error()) // it is nothing else: an error of the metadata log's leadership isn't of a topic's
	case errors.Is(err, messages.ErrNotLeader): // and nothing of it was or will be applied
		err = fmt.Errorf("%w: %w", messages.ErrNotController, err)
	default:
		err = fmt.Errorf("%w: %w", messages.ErrStorage, err)
	}
	for _, f := range a.flight {
		f.to.reply <- messages.Outcome{Err: err, Offset: messages.NoOffset}
	}
	a.flight = nil
}

// next decides the waiting commands and hands their records to the worker.
func (a *controllerActor) next() {
	if a.epoch == 0 && !a.busy && a.c.opts.Others != nil {
		a.refuse()
	}
	if a.busy || a.epoch == 0 || len(a.pending) == 0 {
		return
	}
	img := a.c.opts.Store.Image()
	env := controllerEnv{node: a.c.opts.Node, live: a.c.opts.Live(), static: a.c.opts.Static, newID: messages.NewTopicID, secrets: a.c.opts.Secrets}
	var changes []metadata.Change
	records, taken := 0, 0
	for _, s := range a.pending {
		if taken == controllerGroupCommands || records >= controllerGroupRecords {
			break
		}
		taken++
		select {
		case <-s.gone:
			continue // nobody waits: it must not happen late and unseen
		default:
		}
		d := decide(img, s.cmd, env)
		f := answer{to: s, outcome: d.outcome, change: -1}
		if d.records, f.outcome = a.seal(img, d); len(d.records) > 0 {
			delta, err := img.Apply(img.Offset()+1, d.records)
			if err != nil {
				f.outcome = messages.Outcome{Err: invariant.Violated("command %T gives records that don't fit: %v", s.cmd, err)}
			} else {
				img, f.change = delta.New, len(changes)
				records += len(d.records)
				changes = append(changes, metadata.Change{Records: d.records, Requester: s.who, Claim: a.epoch})
			}
		}
		a.flight = append(a.flight, f)
	}
	a.pending = append([]*controllerSubmit(nil), a.pending[taken:]...)
	if len(changes) > 0 {
		a.submit(controllerJob{changes: changes})
		return
	}
	for _, f := range a.flight {
		f.outcome.Offset = img.Offset()
		f.to.reply <- f.outcome
	}
	a.flight = nil
	if len(a.pending) > 0 {
		a.next()
	}
}

// controllerWorker waits for the disk in the actor's place.
type controllerWorker struct {
	store   controllerStore
	claim   func(ctx context.Context, epoch int32) error
	timeout time.Duration
	send    func(controllerDone)
}

// run ends when jobs is closed; each wait in it ends with ctx.
func (w controllerWorker) run(ctx context.Context, jobs <-chan controllerJob) {
	for j := range jobs {
		if ctx.Err() != nil {
			return
		}
		offsets, err := w.append(ctx, j)
		w.send(controllerDone{job: j.number, offsets: offsets, err: err})
	}
}

func (w controllerWorker) append(ctx context.Context, j controllerJob) ([]int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, fmt.Errorf("%w: metadata log not written within %s", messages.ErrTimedOut, w.timeout))
	defer cancel()
	if j.claim > 0 && w.claim != nil {
		reached("controller", "claim", "before")
		if err := w.claim(ctx, j.claim); err != nil {
			return nil, fmt.Errorf("claim the metadata log: %w", err)
		}
		reached("controller", "claim", "after")
	}
	reached("controller", "append", "before")
	defer reached("controller", "append", "after")
	return w.store.AppendAll(ctx, j.changes)
}
