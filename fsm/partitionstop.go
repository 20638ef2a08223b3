package fsm

import "kagami/messages"

// The stop sequence (workflows.md "Stop", states.md "Re-entry into STOPPING"):
//
//	1 detach   remove the fetcher, seal               always repeated
//	2 LME      epoch of the last batch below the seal   skipped: entry there, stop out of
//	                                                  LOG_TRUNCATION or of no state,
//	                                                  nothing mirrored
//	3 bump     DLE above LME and above itself         skipped: MIRROR_PID_RESET is there
//	4 abort    one marker per open transaction        nothing to do: none open
//	5 reset    MIRROR_PID_RESET                       skipped: it ends the log
//	6 STOPPED  the write of row 12
//
// The source is needed for none of them.

// sealed is the answer to step 1: it shows how far an earlier run came.
func (p *Partition) sealed(in Sealed, env Env) {
	if p.State() != messages.StateStopping {
		return
	}
	lme := p.stored.LME
	if in.ResetEpoch != messages.NoEpoch && in.ResetEpoch > lme {
		p.stopDone(env)
		return
	}
	switch {
	case p.stored.Previous == messages.StateLogTruncation:
		// The log was not aligned in this cycle: an older LME stays.
		p.stopBump(lme)
	case lme != messages.NoEpoch:
		if in.LastEpoch != messages.NoEpoch && in.LastEpoch != lme {
			p.emit(Mismatch{Stored: lme, Computed: in.LastEpoch})
		}
		p.stopBump(lme)
	case in.LastEpoch == messages.NoEpoch:
		p.stopBump(messages.NoEpoch)
	default:
		w := NewWrite(p.mirror, p.tp)
		w.LME, w.Cause = in.LastEpoch, "stop step 2: last mirror epoch"
		p.send(pendingWrite{kind: writeLME, lme: in.LastEpoch}, w)
	}
}

func (p *Partition) stopBump(lme int32) {
	p.stopLME = lme
	p.emit(RunStep{Work: p.nextWork(), Step: StepBump, Min: lme})
}

func (p *Partition) stepDone(in StepDone, env Env) {
	if p.State() != messages.StateStopping {
		return
	}
	switch in.Step {
	case StepBump:
		if in.Epoch <= p.stopLME {
			p.stopBump(p.stopLME) // not what was asked for
			return
		}
		p.emit(RunStep{Work: p.nextWork(), Step: StepAbort, Min: messages.NoEpoch})
	case StepAbort:
		p.emit(RunStep{Work: p.nextWork(), Step: StepReset, Min: messages.NoEpoch})
	case StepReset:
		p.stopDone(env)
	case StepDetach:
		// answered by Sealed
	}
}

func (p *Partition) stopDone(env Env) {
	p.fire(EventStopDone, env, decision{facts: func(f *Facts) { f.ResetAcked = true }})
}
