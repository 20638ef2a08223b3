package fsm

import (
	"testing"

	"kagami/messages"
)

// FuzzTable feeds a partition any inputs in any order, stale and impossible ones
// too. Invariants: no panic; one write in flight at most; a state is left only by
// a row; what changes the log or the network comes after the answer to a write,
// or out of a state that was read; the coordinator never refuses a write of a
// leader that is alone.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	f.Add([]byte{0, 2, 3, 22, 8, 9, 21, 8, 4, 20, 8})
	f.Add([]byte{0, 2, 3, 24, 10, 12, 8, 13, 8, 14, 15, 8})
	f.Fuzz(func(t *testing.T, script []byte) {
		p, s := NewPartition("m", tp(0), messages.NoOffset), NewShard(1)
		env := Env{Policy: RetryPolicy{MaxAttempts: 3}, Random: 0.5}
		var inFlight []Write
		var timer uint32
		epoch := int32(5) // never goes down
		state := p.State()
		take := func(outs []Output, answered bool) {
			for _, o := range outs {
				switch o := o.(type) {
				case PersistWrite:
					inFlight = append(inFlight, o.Write)
				case Moved:
					if o.From != state || !Leads(o.From, o.To) || !answered {
						t.Fatalf("moved %s -> %s in %s", o.From, o.To, state)
					}
					state = o.To
				case SetTimer:
					timer = o.Timer
				case Align, Fetch, RaiseEpoch, OpenPartition:
					if len(inFlight) > 0 {
						t.Fatalf("%T before the write is stored", o)
					}
				}
			}
			if len(inFlight) > 1 {
				t.Fatal("two writes in flight")
			}
			state = p.State()
		}
		for _, b := range script {
			in := fuzzInput(b, p, timer, &epoch)
			switch {
			case b%32 == 8 && len(inFlight) > 0:
				plan := s.Plan(inFlight)
				if err := plan.Answers[0].Err; err != nil {
					t.Fatalf("refused: %v", err)
				}
				s.Commit(plan)
				w := inFlight[0]
				inFlight = nil
				take(p.Step(Written{Number: w.Number, Previous: plan.Answers[0].Previous, Attempt: plan.Answers[0].Attempt}, env), true)
				continue
			case b%32 == 0 || b%32 == 1:
				take(p.Step(in, env), false)
				state, inFlight = p.State(), nil
				take(p.Step(Loaded{State: s.Read("m", tp(0), messages.NoOffset, p.epoch, p.number), Ticket: 1}, env), false)
				continue
			}
			take(p.Step(in, env), false)
		}
	})
}

// fuzzInput makes an input of one byte; the work number is right but for bytes
// above 128.
func fuzzInput(b byte, p *Partition, timer uint32, epoch *int32) Input {
	work := p.work
	if b > 128 {
		work--
	}
	switch b % 32 {
	case 0:
		p.Step(Resign{}, Env{})
		return Lead{Epoch: *epoch, Desired: messages.DesiredActive}
	case 1:
		p.Step(Resign{}, Env{})
		return Lead{Epoch: *epoch, Desired: messages.DesiredStopped}
	case 2:
		return Truncated{Work: work, Cut: Cut{From: 1, To: 3, Records: 2}}
	case 3:
		return Converged{Work: work, Convergence: Convergence{Assigned: 1}}
	case 4:
		return Failed{Work: work, Cause: CauseConnection, Text: "x"}
	case 5:
		return Healthy{Work: work}
	case 6:
		return EpochAhead{Work: work, BatchEpoch: 9}
	case 7:
		return Raised{Work: work, Epoch: 20, Min: 19}
	case 9:
		return FetcherGone{Work: work}
	case 10:
		return Sealed{Work: work, LastEpoch: 3, ResetEpoch: messages.NoEpoch}
	case 11:
		return Sealed{Work: work, LastEpoch: 3, ResetEpoch: 9}
	case 12:
		return StepDone{Work: work, Step: StepBump, Epoch: 6}
	case 13:
		return StepDone{Work: work, Step: StepAbort}
	case 14:
		return StepDone{Work: work, Step: StepReset}
	case 15:
		return RetryDue{Timer: timer}
	case 16:
		return Recover{}
	case 17:
		return SourceChanged{Text: "x"}
	case 18:
		return SourceBack{}
	case 19:
		return Refreshed{OK: b > 128}
	case 20:
		return Wish{Desired: messages.DesiredActive}
	case 21:
		return Wish{Desired: messages.DesiredPaused}
	case 22:
		return Wish{Desired: messages.DesiredStopped}
	case 23:
		return Noted{Cut: Cut{From: 1, To: 2, Records: 1}, Gap: Gap{From: 2, To: 3}}
	case 24:
		return Reconnect{}
	case 25:
		return PolicyChanged{}
	case 26:
		return Fault{Text: "x"}
	case 27:
		return FaultOver{}
	case 28:
		return Failed{Work: work, Cause: CauseInternal, Text: "x"}
	default:
		*epoch++
		return Lead{Epoch: *epoch, Desired: p.desired}
	}
}
