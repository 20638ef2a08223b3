package sim

import (
	"fmt"
	"strings"

	"kagami/fsm"
	"kagami/messages"
)

// job is the work of one output. What it finds comes back later, so a crash or a
// cancel may fall in between.
type job struct {
	out       fsm.Output
	name      string
	keep      bool // not to be cancelled
	cancelled bool
	asked     bool  // the first half is done
	least     int32 // awaited: a claimed epoch above it
	lme       int32 // what the source answered
}

func (n *node) enqueue(p int, o fsm.Output, keep bool) {
	n.parts[p].jobs = append(n.parts[p].jobs, &job{out: o, keep: keep, name: jobName(o) + ":" + topics[p]})
	n.next(p)
}

func (n *node) next(p int) {
	pt := n.parts[p]
	if pt.running != nil || len(pt.jobs) == 0 {
		return
	}
	pt.running, pt.jobs = pt.jobs[0], pt.jobs[1:]
	n.runLater(p, pt.running)
}

func (n *node) runLater(p int, j *job) {
	n.local(j.name, func(fault bool) { n.runJob(p, j, fault) })
}

func (n *node) runJob(p int, j *job, fault bool) {
	if j.cancelled {
		n.finish(p, nil)
		return
	}
	in, again := n.work(p, j, fault)
	switch {
	case again:
		n.runLater(p, j)
	case in == nil:
		n.finish(p, nil)
	default:
		term := n.parts[p].term
		n.local(j.name+":done", func(bool) {
			if n.parts[p].term != term {
				in = nil // its actor is gone
			}
			n.finish(p, in)
		})
	}
}

func (n *node) finish(p int, in fsm.Input) {
	n.parts[p].running = nil
	if in != nil {
		n.feed(p, in)
	}
	n.next(p)
}

// cancel gives up what runs and what waits, but for jobs that must be done.
func (n *node) cancel(p int) {
	pt := n.parts[p]
	if pt.running != nil && !pt.running.keep {
		pt.running.cancelled = true
	}
	var kept []*job
	for _, j := range pt.jobs {
		if j.keep {
			kept = append(kept, j)
		}
	}
	pt.jobs = kept
}

func jobName(o fsm.Output) string {
	switch o := o.(type) {
	case fsm.RunStep:
		return "stop-" + o.Step.String()
	case fsm.AwaitReplicas:
		return "await"
	case fsm.OpenPartition:
		return "open"
	case fsm.RaiseEpoch:
		return "raise"
	default:
		return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", o), "fsm."))
	}
}

func inputName(in fsm.Input) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", in), "fsm."))
}

// work does a job, or a part of it: again says that there is more.
func (n *node) work(p int, j *job, fault bool) (in fsm.Input, again bool) {
	pt, rep := n.parts[p], n.c.replicas[p]
	switch o := j.out.(type) {
	case fsm.Unfetch:
		n.unfetch(p)
		return fsm.FetcherGone(o), false
	case fsm.OpenPartition:
		if fault || !n.holds(p) {
			return nil, pt.epoch >= 0
		}
		rep.setMode(messages.ModeWritable)
		if pt.opening == o.Work {
			pt.opening = opened
			n.admit(p)
		}
	case fsm.Align:
		return n.align(p, j, o, fault)
	case fsm.AwaitReplicas:
		c := n.c.convergence(p)
		if c.Done() {
			n.c.audits[p].converged = true
		} else {
			n.feed(p, fsm.Converged{Work: o.Work, Convergence: c})
			return nil, true
		}
		return fsm.Converged{Work: o.Work, Convergence: c}, false
	case fsm.Fetch:
		return n.fetch(p, o, fault), false
	case fsm.RaiseEpoch:
		return n.raise(p, j, o, fault)
	case fsm.RunStep:
		return n.step(p, j, o, fault)
	}
	return nil, false
}

func failed(work uint32, cause fsm.Cause, text string) (fsm.Input, bool) {
	return fsm.Failed{Work: work, Cause: cause, Text: text}, false
}

// align is LOG_TRUNCATION up to the cut: seal and ask, then cut.
func (n *node) align(p int, j *job, o fsm.Align, fault bool) (fsm.Input, bool) {
	rep, src := n.c.replicas[p], n.c.source
	if !n.holds(p) {
		return failed(o.Work, fsm.CauseInternal, "not leader")
	}
	if n.parts[p].fetcher != nil {
		n.c.w.fail(invCut, "%s %s: is aligned while it is fetched", n.name, topics[p])
	}
	if !j.asked {
		if rep.mode == messages.ModeSealed {
			rep.setMode(messages.ModeMirroring) // a repeated seal would keep the offset of the last stop
		}
		rep.setMode(messages.ModeSealed)
		if fault || n.c.link != linkUp || n.c.silent {
			return failed(o.Work, fsm.CauseConnection, "no answer")
		}
		d := src.describe(p)
		switch {
		case d.listed && !d.known:
			return failed(o.Work, fsm.CauseConnection, "nobody leads it there")
		case d.loops():
			return failed(o.Work, fsm.CauseHeld, "a loop")
		}
		j.asked, j.lme = true, d.lme
		if n.c.blind {
			j.lme = messages.NoEpoch
		}
		return nil, true
	}
	offset := int64(0)
	if j.lme != messages.NoEpoch {
		_, offset, _ = rep.epochEnd(j.lme)
	}
	if theirs := src.replicas[p]; theirs.mode == messages.ModeMirroring && int(offset) < rep.end() {
		n.c.w.fail(invLoop, "%s %s: to %d, while %s is %s", n.name, topics[p], offset, src.name, src.stored(p).State)
	}
	cut := n.c.cut(p, int(offset))
	return fsm.Truncated{Work: o.Work, Cut: cut}, false
}

// raise is EPOCH_FENCING.
func (n *node) raise(p int, j *job, o fsm.RaiseEpoch, fault bool) (fsm.Input, bool) {
	pt := n.parts[p]
	if !j.asked {
		if fault || n.c.link != linkUp {
			return failed(o.Work, fsm.CauseConnection, "no answer")
		}
		sle := n.c.source.image[p].epoch
		if o.BatchEpoch == messages.NoEpoch && sle <= pt.epoch-fsm.BumpThreshold {
			return fsm.Raised{Work: o.Work, Epoch: pt.epoch, Min: pt.epoch - 1}, false
		}
		least, err := fsm.BumpTarget(max(sle, o.BatchEpoch))
		if err != nil {
			return failed(o.Work, fsm.CauseInternal, err.Error())
		}
		n.c.bump(p, least)
		j.asked, j.least = true, least
		return nil, true
	}
	switch {
	case fault:
		return failed(o.Work, fsm.CauseInternal, "timed out")
	case pt.epoch <= j.least || !n.holds(p):
		return nil, true
	}
	return fsm.Raised{Work: o.Work, Epoch: pt.epoch, Min: j.least}, false
}

// step is one step of the stop. None needs the source.
func (n *node) step(p int, j *job, o fsm.RunStep, fault bool) (fsm.Input, bool) {
	pt, rep := n.parts[p], n.c.replicas[p]
	if !n.holds(p) && !(o.Step == fsm.StepBump && j.asked) {
		return failed(o.Work, fsm.CauseInternal, "not leader")
	}
	switch o.Step {
	case fsm.StepDetach:
		n.unfetch(p)
		seal := rep.setMode(messages.ModeSealed)
		if fault {
			return failed(o.Work, fsm.CauseInternal, "injected")
		}
		return fsm.Sealed{Work: o.Work, LastEpoch: rep.lastBelow(seal), ResetEpoch: rep.resetEpoch(seal)}, false
	case fsm.StepBump:
		if !j.asked {
			j.asked, j.least = true, max(o.Min, pt.epoch)
			n.c.bump(p, o.Min)
			return nil, true
		}
		switch {
		case fault:
			return failed(o.Work, fsm.CauseInternal, "injected")
		case pt.epoch <= j.least || !n.holds(p):
			return nil, true
		}
		return fsm.StepDone{Work: o.Work, Step: o.Step, Epoch: pt.epoch}, false
	case fsm.StepAbort:
		for _, txn := range rep.openTransactions() {
			rep.append(record{epoch: rep.claimed, kind: kindAbort, id: n.c.w.id(), txn: txn})
			if fault {
				return failed(o.Work, fsm.CauseInternal, "half of the markers")
			}
		}
	case fsm.StepReset:
		if fault && len(rep.log)%2 == 0 {
			return failed(o.Work, fsm.CauseInternal, "injected") // before the append
		}
		n.c.reset(p, record{epoch: rep.claimed, kind: kindReset, id: n.c.w.id()})
		if fault {
			return failed(o.Work, fsm.CauseInternal, "no acknowledgement")
		}
	}
	return fsm.StepDone{Work: o.Work, Step: o.Step}, false
}
