package fsm

import "kagami/messages"

// workOf is the work number of an answer.
func workOf(in Input) (uint32, bool) {
	switch in := in.(type) {
	case Truncated:
		return in.Work, true
	case Converged:
		return in.Work, true
	case Failed:
		return in.Work, true
	case Healthy:
		return in.Work, true
	case EpochAhead:
		return in.Work, true
	case Raised:
		return in.Work, true
	case FetcherGone:
		return in.Work, true
	case Sealed:
		return in.Work, true
	case StepDone:
		return in.Work, true
	}
	return 0, false
}

func (p *Partition) nextWork() uint32 {
	p.work++
	return p.work
}

// do turns the table's effects into outputs.
func (p *Partition) do(list []Effect, env Env) {
	for _, e := range list {
		switch e {
		case CloseGate:
			p.emit(ClosePartition{})
		case OpenGate:
			p.emit(OpenPartition{Work: p.nextWork()})
		case StartTruncation:
			p.cutDone = false
			p.emit(Align{Work: p.nextWork()})
		case CreateFetcher:
			p.emit(Fetch{Work: p.nextWork()})
		case RemoveFetcher:
			p.emit(Unfetch{Work: p.nextWork()})
		case RequestBump:
			p.emit(RaiseEpoch{Work: p.nextWork(), BatchEpoch: p.batchEpoch})
			p.batchEpoch = messages.NoEpoch
		case RunStopSequence:
			p.stopLME = messages.NoEpoch
			p.emit(RunStep{Work: p.nextWork(), Step: StepDetach, Min: messages.NoEpoch})
		case CancelWork:
			p.nextWork()
			p.emit(Cancel{})
		case ScheduleRetry:
			p.schedule(env)
		case CancelRetry:
			p.timer++
			p.timerSet = false
			p.emit(StopTimer{})
		case RetryNow:
			p.fire(EventRetry, env, decision{})
		case DropState:
			// The coordinator's business: it writes the tombstones.
		}
	}
}

// schedule sets the retry timer, unless the failure is held or permanent.
func (p *Partition) schedule(env Env) {
	if p.cause.Held() {
		return
	}
	attempt := p.attempts()
	if env.Policy.Permanent(attempt) {
		p.permanent = true
		p.emit(Permanent{Attempt: attempt})
		return
	}
	p.timer++
	p.timerSet, p.permanent = true, false
	p.emit(SetTimer{Timer: p.timer, Delay: env.Policy.Delay(attempt, env.Random)})
}

// workDone takes an answer to the current work.
func (p *Partition) workDone(in Input, env Env) {
	switch in := in.(type) {
	case Truncated:
		p.addCut(in.Cut)
		p.cutDone = true
		p.emit(AwaitReplicas{Work: in.Work})
	case Converged:
		if p.cutDone && in.Done() {
			p.fire(EventAligned, env, decision{facts: func(f *Facts) { f.Converged = true }})
		}
	case Failed:
		p.fire(EventError, env, decision{cause: in.Cause, text: in.Text})
	case Healthy:
		if p.State() == messages.StateMirroring && p.stored.RetryAttempt != 0 {
			w := NewWrite(p.mirror, p.tp)
			w.State, w.Cause = messages.StateMirroring, "healthy"
			p.send(pendingWrite{kind: writeHealth}, w)
		}
	case EpochAhead:
		p.batchEpoch = in.BatchEpoch
		p.fire(EventEpochAhead, env, decision{})
	case Raised:
		p.fire(EventEpochRaised, env, decision{facts: func(f *Facts) { f.EpochRaised = in.Epoch > in.Min }})
	case FetcherGone:
		if p.State() == messages.StatePausing {
			p.fire(EventFetcherGone, env, decision{})
		}
	case Sealed:
		p.sealed(in, env)
	case StepDone:
		p.stepDone(in, env)
	}
}

// told takes what others say: operators, the mirror's refresh, timers.
func (p *Partition) told(in Input, env Env) {
	failed := p.State() == messages.StateFailed
	switch in := in.(type) {
	case RetryDue:
		if !failed || !p.timerSet || in.Timer != p.timer {
			p.stale++
			return
		}
		p.timerSet = false
		p.fire(EventRetry, env, decision{})
	case Recover:
		if failed {
			p.fire(EventRecover, env, decision{by: in.By})
		}
	case PolicyChanged:
		if failed && !p.timerSet {
			p.schedule(env)
		}
	case Reconnect:
		if p.State() == messages.StateMirroring {
			p.fire(EventReenter, env, decision{})
		}
	case Refreshed:
		p.refreshed(in.OK, env)
	case SourceChanged:
		p.hold(CauseSourceChanged, in.Text, env)
	case Fault:
		p.hold(CauseHeld, in.Text, env)
	case SourceBack:
		if failed && p.cause == CauseSourceChanged {
			p.fire(EventRecover, env, decision{})
		}
	case FaultOver:
		if failed && p.cause == CauseHeld {
			p.fire(EventRecover, env, decision{})
		}
	}
}

// refreshed re-arms a permanent failure that an outage caused (OP-21). After a
// restart the cause isn't known: then it was an outage if the first refresh
// finds the source unreachable.
func (p *Partition) refreshed(ok bool, env Env) {
	if p.State() != messages.StateFailed {
		return
	}
	switch {
	case p.cause == CauseUnknown && ok:
		p.cause = CauseInternal
	case p.cause == CauseUnknown:
		p.cause = CauseConnection
	case p.cause == CauseConnection && ok && p.permanent:
		p.fire(EventRecover, env, decision{})
	}
}

// hold fails the partition without a timer. One that is FAILED already loses its
// timer, unless its stop failed: a stop needs no source.
func (p *Partition) hold(cause Cause, text string, env Env) {
	switch p.State() {
	case messages.StateFailed:
		if p.facts(env).fromStop() || p.cause == cause {
			return
		}
		p.cause, p.permanent = cause, false
		p.do([]Effect{CancelRetry}, env)
	case messages.StateLogTruncation, messages.StateEpochFencing, messages.StateMirroring, messages.StatePausing, messages.StatePaused:
		p.fire(EventSourceChanged, env, decision{cause: cause, what: cause.String(), text: text})
	case messages.StateUnknown, messages.StateStopping, messages.StateStopped:
	}
}

// noted adds a cut or a gap to what is stored of the partition.
func (p *Partition) noted(cut Cut, gap Gap) {
	p.addCut(cut)
	if gap.To > gap.From {
		p.stored.GapFrom, p.stored.GapTo, p.stored.GapAtMillis = gap.From, gap.To, gap.AtMillis
		p.noteDue = true
	}
	if p.noteDue && p.loaded && p.pending == nil && p.State() != messages.StateFailed {
		p.sendNote()
	}
}

func (p *Partition) addCut(c Cut) {
	if c.To <= c.From {
		return
	}
	p.stored.CutRecords += c.Records
	p.stored.CutBytes += c.Bytes
	p.stored.CutFrom, p.stored.CutTo = c.From, c.To
	p.noteDue = true
}

// withNotes is what is read, and what it lacks: cuts that the journal has counted
// and nobody has stored, and our own since the last write that was acknowledged.
// A write that carried them may have been refused, and that is why we read again.
// Totals only grow, so the larger one has everything; only cuts that were met
// before the first read are on top of what is stored.
func (p *Partition) withNotes(in Loaded) messages.PartitionState {
	s, mine := in.State, p.stored
	if in.Cuts.Records > s.CutRecords || in.Cuts.Bytes > s.CutBytes {
		s.CutRecords, s.CutBytes = max(s.CutRecords, in.Cuts.Records), max(s.CutBytes, in.Cuts.Bytes)
		s.CutFrom, s.CutTo = in.Cuts.From, in.Cuts.To
		p.noteDue = true
	}
	if !p.counting {
		mine.CutRecords += s.CutRecords
		mine.CutBytes += s.CutBytes
	}
	if mine.CutRecords > s.CutRecords || mine.CutBytes > s.CutBytes {
		s.CutRecords, s.CutBytes = max(s.CutRecords, mine.CutRecords), max(s.CutBytes, mine.CutBytes)
		s.CutFrom, s.CutTo = mine.CutFrom, mine.CutTo
		p.noteDue = true
	}
	if mine.GapTo > mine.GapFrom && mine.GapAtMillis > s.GapAtMillis {
		s.GapFrom, s.GapTo, s.GapAtMillis = mine.GapFrom, mine.GapTo, mine.GapAtMillis
		p.noteDue = true
	}
	return s
}

// sendNote stores notes under the present state. Not over FAILED, where it would
// be a reset write, nor over STOPPING, whose record says that the LME is to come:
// the next write carries them.
func (p *Partition) sendNote() {
	if s := p.State(); s == messages.StateFailed || s == messages.StateStopping {
		return
	}
	w := NewWrite(p.mirror, p.tp)
	w.Cause = "cut or gap"
	p.send(pendingWrite{kind: writeNote}, w)
}
