package sim

import (
	"errors"
	"fmt"

	"kagami/fsm"
	"kagami/messages"
)

// gate is a replica's gate for client writes on one node.
type gate struct{ admit, forced bool }

func (g gate) open() bool { return g.admit && !g.forced }

// node leads partitions with real cores; everything in it is lost in a crash.
type node struct {
	w       *world
	id      int
	life    int
	version int
	image   []topicImage
	parts   []*part
	gates   []gate
}

// part is the shell of one core.
type part struct {
	core    *fsm.Partition
	epoch   int32 // claimed by this node, -1 if it doesn't lead
	write   *fsm.Write
	reading *fsm.ReadState
	timer   uint32
	timing  bool
	fetch   uint32 // work number of the fetcher, 0 = none
	first   bool   // the fetcher has had no success yet
	jobs    int    // sequence of jobs: an older one that was cancelled does nothing
	opening uint32
}

func newNode(w *world, id int) *node {
	n := &node{w: w, id: id}
	n.reset()
	return n
}

func (n *node) reset() {
	n.parts, n.image, n.version = nil, nil, 0
	n.gates = make([]gate, n.w.partitions)
	for p := range n.w.partitions {
		n.parts = append(n.parts, &part{core: fsm.NewPartition(simMirror, topicOf(p), messages.NoOffset), epoch: -1})
		n.gates[p].forced = true
	}
}

func (n *node) restart() {
	n.life++
	n.reset()
	version, image := n.w.version, append([]topicImage(nil), n.w.image...)
	n.local("starts", func() { n.see(version, image) })
}

// local runs something of this incarnation later.
func (n *node) local(name string, run func()) {
	life := n.life
	n.w.later(fmt.Sprintf("node %d: %s", n.id, name), false, func() {
		if n.life == life {
			run()
		}
	})
}

// see applies an image: claim, gates, wishes. An older one is history.
func (n *node) see(version int, image []topicImage) {
	if version <= n.version {
		return
	}
	n.version, n.image = version, image
	for p, t := range image {
		pt, rep := n.parts[p], n.w.replicas[p]
		n.gates[p].forced = t.desired != messages.DesiredStopped
		if n.gates[p].forced {
			n.gates[p].admit = false
		}
		if t.leader != n.id || t.epoch < rep.claimed {
			if pt.epoch >= 0 {
				pt.epoch = -1
				n.feed(p, fsm.Resign{})
			}
			continue
		}
		rep.claimed = t.epoch
		pt.epoch = t.epoch
		n.feed(p, fsm.Lead{Epoch: t.epoch, Desired: t.desired, NowMillis: int64(n.life)})
	}
}

// holds: the journal would take what this node proposes.
func (n *node) holds(p int) bool {
	return n.parts[p].epoch >= 0 && n.parts[p].epoch == n.w.replicas[p].claimed
}

func (n *node) tell(p int, in fsm.Input) {
	n.local(fmt.Sprintf("is told %T of %d", in, p), func() { n.feed(p, in) })
}

func (n *node) feed(p int, in fsm.Input) {
	env := fsm.Env{Policy: fsm.DefaultRetryPolicy(), Random: n.w.rng.Float64()}
	for _, o := range n.parts[p].core.Step(in, env) {
		n.perform(p, o)
	}
}

func (n *node) perform(p int, o fsm.Output) {
	pt := n.parts[p]
	switch o := o.(type) {
	case fsm.ReadState:
		pt.reading, pt.write = &o, nil
		n.sendRead(p, o)
	case fsm.PersistWrite:
		w := o.Write
		pt.write = &w
		n.sendWrite(p, w)
	case fsm.ClosePartition:
		n.gates[p].admit, pt.opening = false, 0
	case fsm.Cancel:
		pt.jobs++
	case fsm.SetTimer:
		pt.timer, pt.timing = o.Timer, true
	case fsm.StopTimer:
		pt.timing = false
	case fsm.Unfetch:
		n.job(p, o, true)
	case fsm.OpenPartition:
		pt.opening = o.Work
		n.job(p, o, false)
	case fsm.Align, fsm.AwaitReplicas, fsm.Fetch, fsm.RaiseEpoch, fsm.RunStep:
		n.job(p, o, false)
	case fsm.Mismatch:
		n.w.fail("partition %d: LME %d stored, %d computed", p, o.Stored, o.Computed)
	case fsm.Refused:
		if !errors.Is(o.Err, fsm.ErrRefused) {
			n.w.fail("partition %d: %v", p, o.Err)
		}
	}
}

// job runs an output's work later; what it finds comes back later still, so a
// crash or a cancel may fall in between.
func (n *node) job(p int, o fsm.Output, keep bool) {
	jobs := n.parts[p].jobs
	n.local(fmt.Sprintf("job %T of %d", o, p), func() {
		if !keep && n.parts[p].jobs != jobs {
			return
		}
		if in := n.work(p, o); in != nil {
			n.local(fmt.Sprintf("job done %T of %d", in, p), func() { n.feed(p, in) })
		}
	})
}

// again: not yet, look later.
func (n *node) again(p int, o fsm.Output) fsm.Input {
	n.job(p, o, false)
	return nil
}

func (n *node) work(p int, o fsm.Output) fsm.Input {
	pt, rep, src := n.parts[p], n.w.replicas[p], &n.w.source
	switch o := o.(type) {
	case fsm.Unfetch:
		pt.fetch = 0
		return fsm.FetcherGone(o)
	case fsm.OpenPartition:
		if n.holds(p) {
			rep.setMode(messages.ModeWritable)
			if pt.opening == o.Work && pt.core.State() == messages.StateStopped {
				n.gates[p].admit = !n.gates[p].forced
			}
		}
		return nil
	case fsm.Align:
		return n.align(p, o)
	case fsm.AwaitReplicas:
		return fsm.Converged{Work: o.Work, Convergence: fsm.Convergence{Assigned: 1}}
	case fsm.Fetch:
		switch {
		case !n.holds(p):
			return fsm.Failed{Work: o.Work, Cause: fsm.CauseInternal, Text: "not leader"}
		case !src.up:
			return fsm.Failed{Work: o.Work, Cause: fsm.CauseConnection, Text: "leader unknown"}
		}
		rep.setMode(messages.ModeMirroring)
		pt.fetch, pt.first = o.Work, true
		return nil
	case fsm.RaiseEpoch:
		if !src.up || n.w.chance(10) {
			return fsm.Failed{Work: o.Work, Cause: fsm.CauseConnection, Text: "no answer"}
		}
		least, err := fsm.BumpTarget(max(src.epoch, o.BatchEpoch))
		if err != nil {
			return fsm.Failed{Work: o.Work, Cause: fsm.CauseInternal, Text: err.Error()}
		}
		n.w.bump(p, least)
		n.job(p, awaitEpoch{work: o.Work, least: least, raise: true}, false)
		return nil
	case awaitEpoch:
		if pt.epoch <= o.least || !n.holds(p) {
			return n.again(p, o)
		}
		if o.raise {
			return fsm.Raised{Work: o.work, Epoch: pt.epoch, Min: o.least}
		}
		return fsm.StepDone{Work: o.work, Step: fsm.StepBump, Epoch: pt.epoch}
	case fsm.RunStep:
		return n.step(p, o)
	}
	return nil
}

// awaitEpoch is the second half of a bump: the image must come here.
type awaitEpoch struct {
	fsm.Output
	work  uint32
	least int32
	raise bool
}

func (n *node) align(p int, o fsm.Align) fsm.Input {
	rep := n.w.replicas[p]
	switch {
	case !n.holds(p):
		return fsm.Failed{Work: o.Work, Cause: fsm.CauseInternal, Text: "not leader"}
	case !n.w.source.up || n.w.chance(10):
		return fsm.Failed{Work: o.Work, Cause: fsm.CauseConnection, Text: "no answer"}
	}
	if n.parts[p].fetch != 0 {
		n.w.fail("partition %d is cut while it is fetched", p)
	}
	if rep.mode == messages.ModeSealed {
		rep.setMode(messages.ModeMirroring) // a repeated seal would keep the offset of the last stop
	}
	rep.setMode(messages.ModeSealed)
	offset := 0
	if lme := n.w.source.lme[p]; lme != messages.NoEpoch {
		offset = rep.epochEnd(lme)
	}
	end := len(rep.batches)
	rep.truncate(offset)
	if end <= offset {
		return fsm.Truncated{Work: o.Work}
	}
	return fsm.Truncated{Work: o.Work, Cut: fsm.Cut{From: int64(offset), To: int64(end), Records: int64(end - offset)}}
}

func (n *node) step(p int, o fsm.RunStep) fsm.Input {
	rep := n.w.replicas[p]
	if !n.holds(p) || n.w.chance(25) {
		return fsm.Failed{Work: o.Work, Cause: fsm.CauseInternal, Text: "injected"}
	}
	switch o.Step {
	case fsm.StepDetach:
		n.parts[p].fetch = 0
		seal := rep.setMode(messages.ModeSealed)
		return fsm.Sealed{Work: o.Work, LastEpoch: rep.lastBelow(seal), ResetEpoch: rep.resetEpoch(seal)}
	case fsm.StepBump:
		least := max(o.Min, n.parts[p].epoch)
		n.w.bump(p, o.Min)
		n.job(p, awaitEpoch{work: o.Work, least: least}, false)
		return nil
	case fsm.StepAbort:
		for rep.openTransactions() > 0 {
			rep.append(modelBatch{epoch: rep.claimed, kind: kindAbort})
			if n.w.chance(10) {
				return fsm.Failed{Work: o.Work, Cause: fsm.CauseInternal, Text: "half the markers"}
			}
		}
		return fsm.StepDone{Work: o.Work, Step: o.Step}
	case fsm.StepReset:
		rep.append(modelBatch{epoch: rep.claimed, kind: kindReset})
		return fsm.StepDone{Work: o.Work, Step: o.Step}
	}
	return nil
}

// fetchOnce is one answer of the source.
func (n *node) fetchOnce(p int) {
	pt, rep, src := n.parts[p], n.w.replicas[p], n.w.source
	if pt.fetch == 0 || !src.up {
		return
	}
	work := pt.fetch
	switch {
	case n.w.chance(15):
		pt.fetch = 0
		n.tell(p, fsm.Failed{Work: work, Cause: fsm.CauseInternal, Text: "injected"})
	case !n.holds(p) || rep.mode != messages.ModeMirroring:
		// The journal refuses: fetched again after a pause.
	case src.epoch > pt.epoch:
		pt.fetch = 0
		n.tell(p, fsm.EpochAhead{Work: work, BatchEpoch: src.epoch})
	case len(rep.batches) > 0 && rep.batches[len(rep.batches)-1].epoch > src.epoch:
		// The copy is ahead of this source: divergence, which the model leaves out.
		rep.truncate(rep.epochEnd(src.epoch))
	default:
		if s := n.w.stored(p).State; s == messages.StateStopped || s == messages.StateLogTruncation {
			n.w.fail("node %d: a fetched batch landed in partition %d in %s", n.id, p, s)
		}
		kind := kindMirror
		if n.w.rng.IntN(4) == 0 {
			kind = kindOpen
		}
		rep.append(modelBatch{epoch: src.epoch, kind: kind})
		if pt.first {
			pt.first = false
			n.tell(p, fsm.Healthy{Work: work})
		}
	}
}

func (n *node) timerDue(p int) {
	if pt := n.parts[p]; pt.timing {
		pt.timing = false
		n.feed(p, fsm.RetryDue{Timer: pt.timer})
	}
}

// resend repeats what has no answer yet, as the keeper does.
func (n *node) resend() {
	for p, pt := range n.parts {
		switch {
		case pt.epoch < 0:
		case pt.write != nil:
			n.sendWrite(p, *pt.write)
		case pt.reading != nil:
			n.sendRead(p, *pt.reading)
		}
	}
}

func (n *node) sendWrite(p int, w fsm.Write) {
	life := n.life
	n.w.later(fmt.Sprintf("write %d of %d by node %d: %s", w.Number, p, n.id, w.State), true, func() {
		n.w.coord.write(n.w, waitingWrite{write: w, answer: func(a fsm.Answer) {
			n.w.later(fmt.Sprintf("answer to write %d of %d", w.Number, p), true, func() {
				if n.life == life {
					n.answered(p, w, a)
				}
			})
		}})
	})
}

func (n *node) answered(p int, w fsm.Write, a fsm.Answer) {
	if pt := n.parts[p]; pt.write != nil && pt.write.Number == w.Number {
		pt.write = nil
	}
	if a.Err != nil {
		n.feed(p, fsm.WriteRefused{Number: w.Number, Fenced: errors.Is(a.Err, messages.ErrFencedLeaderEpoch), Text: a.Err.Error()})
		return
	}
	n.feed(p, fsm.Written{Number: w.Number, Previous: a.Previous, Attempt: a.Attempt})
}

func (n *node) sendRead(p int, r fsm.ReadState) {
	life := n.life
	n.w.later(fmt.Sprintf("read %d of %d by node %d", r.Number, p, n.id), true, func() {
		shard := n.w.coord.shard
		if shard == nil {
			return
		}
		state, ticket := shard.Read(simMirror, topicOf(p), messages.NoOffset, r.Epoch, r.Number), shard.Ticket()
		n.w.later(fmt.Sprintf("answer to read %d of %d", r.Number, p), true, func() {
			pt := n.parts[p]
			if n.life != life || pt.reading == nil || *pt.reading != r {
				return // an answer to an older question
			}
			pt.reading = nil
			n.feed(p, fsm.Loaded{State: state, LogEmpty: len(n.w.replicas[p].batches) == 0, Ticket: ticket})
		})
	})
}
