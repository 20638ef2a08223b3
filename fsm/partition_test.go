package fsm

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// rig is a partition core with a coordinator core behind it. Writes and reads
// are answered at once unless held; effects are noted and answered by the test.
type rig struct {
	t      *testing.T
	part   *Partition
	shard  *Shard
	env    Env
	epoch  int32
	wish   messages.Desired
	path   []string // states as the partition moved
	acts   []string // effects since the last clear
	last   Output   // last effect with a work number
	timer  SetTimer
	hold   bool // keep writes unanswered
	held   []PersistWrite
	empty  bool
	millis int64
}

func newRig(t *testing.T, wish messages.Desired) *rig {
	t.Helper()
	r := &rig{t: t, shard: NewShard(1), env: Env{Policy: DefaultRetryPolicy(), Random: 0.5}, epoch: 50, wish: wish}
	r.restart()
	return r
}

// restart: a new core, as after a crash; the shard is what was stored.
func (r *rig) restart() {
	r.part = NewPartition("m", tp(0), messages.NoOffset)
	r.acts, r.held, r.timer = nil, nil, SetTimer{}
	r.millis++
	r.feed(Lead{Epoch: r.epoch, Desired: r.wish, NowMillis: r.millis})
}

func (r *rig) feed(in Input) {
	r.t.Helper()
	for _, o := range r.part.Step(in, r.env) {
		r.take(o)
	}
}

func (r *rig) take(o Output) {
	switch o := o.(type) {
	case ReadState:
		r.feed(Loaded{State: r.shard.Read("m", tp(0), messages.NoOffset, o.Epoch, o.Number), LogEmpty: r.empty, Ticket: r.shard.Ticket()})
	case PersistWrite:
		if r.hold {
			r.held = append(r.held, o)
			return
		}
		r.store(o)
	case Moved:
		r.path = append(r.path, o.To.String())
	case SetTimer:
		r.timer = o
		r.acts = append(r.acts, "timer")
	case StopTimer:
		r.timer = SetTimer{}
	case Align, AwaitReplicas, Fetch, Unfetch, RaiseEpoch, RunStep, OpenPartition:
		r.last = o
		r.acts = append(r.acts, actName(o))
	case ClosePartition, Cancel, RefreshSource, Refused, Permanent, Fenced, Mismatch:
		r.acts = append(r.acts, actName(o))
	}
}

func actName(o Output) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", o), "fsm.")
	if s, ok := o.(RunStep); ok {
		name += " " + s.Step.String()
	}
	return name
}

func (r *rig) store(o PersistWrite) {
	p := r.shard.Plan([]Write{o.Write})
	a := p.Answers[0]
	if a.Err != nil {
		r.feed(WriteRefused{Number: o.Write.Number, Text: a.Err.Error()})
		return
	}
	r.shard.Commit(p)
	r.feed(Written{Number: o.Write.Number, Previous: a.Previous, Attempt: a.Attempt})
}

func (r *rig) work() uint32 { return r.part.work }

func (r *rig) want(desired messages.Desired) { r.wish = desired; r.feed(Wish{Desired: desired}) }

func (r *rig) align() {
	r.feed(Truncated{Work: r.work()})
	r.feed(Converged{Work: r.work(), Convergence: Convergence{Assigned: 1}})
}

func (r *rig) fail(c Cause) { r.feed(Failed{Work: r.work(), Cause: c, Text: "injected"}) }

func (r *rig) due() {
	r.t.Helper()
	require.NotZero(r.t, r.timer.Delay, "a timer is set")
	due := r.timer
	r.timer = SetTimer{}
	r.feed(RetryDue{Timer: due.Timer})
}

// stopFrom finishes a stop whose step 1 has been asked for.
func (r *rig) stop(lastEpoch int32) {
	r.feed(Sealed{Work: r.work(), LastEpoch: lastEpoch, ResetEpoch: messages.NoEpoch})
	r.epoch++
	r.feed(Lead{Epoch: r.epoch, Desired: r.wish, NowMillis: r.millis})
	r.feed(StepDone{Work: r.work(), Step: StepBump, Epoch: r.epoch})
	r.feed(StepDone{Work: r.work(), Step: StepAbort})
	r.feed(StepDone{Work: r.work(), Step: StepReset})
}

func (r *rig) stored() string { return stored(r.shard, 0) }

func mirroring(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, messages.DesiredActive)
	r.align()
	require.Equal(t, messages.StateMirroring, r.part.State())
	r.path, r.acts = nil, nil
	return r
}

func TestStartToMirroring(t *testing.T) {
	r := newRig(t, messages.DesiredActive)
	require.Equal(t, []string{"ClosePartition", "ClosePartition", "Align"}, r.acts, "closed before anything is read")
	r.feed(Converged{Work: r.work(), Convergence: Convergence{Assigned: 1}})
	require.Equal(t, messages.StateLogTruncation, r.part.State(), "not before the cut")
	r.align()
	require.Equal(t, []string{"LOG_TRUNCATION", "MIRRORING"}, r.path)
	require.Equal(t, []string{"ClosePartition", "ClosePartition", "Align", "AwaitReplicas", "Fetch"}, r.acts)
}

func TestPersistBeforeActing(t *testing.T) {
	r := newRig(t, messages.DesiredActive)
	r.hold = true
	r.align()
	require.NotContains(t, r.acts, "Fetch")
	require.Equal(t, messages.StateLogTruncation, r.part.State())
	r.store(r.held[0])
	require.Contains(t, r.acts, "Fetch")
}

// TestD02RetryDelays: 2 s, 4 s, 8 s ... capped at 300 s; the 10th failure is permanent.
func TestD02RetryDelays(t *testing.T) {
	r := mirroring(t)
	var delays []time.Duration
	for range 9 {
		r.fail(CauseInternal)
		require.Equal(t, messages.StateFailed, r.part.State())
		delays = append(delays, r.timer.Delay)
		r.due()
		require.Equal(t, messages.StateMirroring, r.part.State(), "never through LOG_TRUNCATION")
	}
	s := time.Second
	require.Equal(t, []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s}, delays)
	r.fail(CauseInternal)
	require.Zero(t, r.timer.Delay)
	require.True(t, r.part.View().Permanent)
	require.Equal(t, "FAILED prev=2 attempt=10 lme=-1", r.stored())
	r.restart()
	require.Zero(t, r.timer.Delay, "permanent over restarts")

	t.Run("a raised limit makes it eligible again", func(t *testing.T) {
		r.env.Policy.MaxAttempts = 11
		r.feed(PolicyChanged{})
		require.Equal(t, 300*s, r.timer.Delay)
	})
}

func TestRetryPolicy(t *testing.T) {
	p := DefaultRetryPolicy()
	tests := map[string]struct {
		policy  RetryPolicy
		attempt int16
		random  float64
		want    time.Duration
	}{
		"first, low":        {p, 1, 0, 1600 * time.Millisecond},
		"first, high":       {p, 1, 1, 2400 * time.Millisecond},
		"reset counter":     {p, 0, 0.5, 2 * time.Second},
		"cap, high":         {p, 30, 1, 360 * time.Second},
		"no overflow":       {p, math.MaxInt16, 0.5, 300 * time.Second},
		"zero = defaults":   {RetryPolicy{}, 2, 0.5, 4 * time.Second},
		"max below initial": {RetryPolicy{Initial: time.Second, Max: time.Millisecond}, 1, 0.5, time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.InDelta(t, float64(tt.want), float64(tt.policy.Delay(tt.attempt, tt.random)), 1000)
		})
	}
	require.False(t, p.Permanent(9))
	require.True(t, p.Permanent(10))
	require.False(t, RetryPolicy{MaxAttempts: 0}.Permanent(math.MaxInt16), "0 = unlimited (OP-6)")
}

// TestD03NewLeaderCountsOn: the series goes on with the stored attempt.
func TestD03NewLeaderCountsOn(t *testing.T) {
	r := mirroring(t)
	for range 3 {
		r.fail(CauseInternal)
		r.due()
	}
	r.fail(CauseInternal)
	r.epoch++
	r.restart()
	require.Equal(t, 16*time.Second, r.timer.Delay, "the delay of attempt 4, from now")
	r.due()
	r.fail(CauseInternal)
	require.Equal(t, "FAILED prev=2 attempt=5 lme=-1", r.stored())
}

// TestD04HealthClears: the first good fetch stores 16 and 0.
func TestD04HealthClears(t *testing.T) {
	r := mirroring(t)
	r.feed(Healthy{Work: r.work()})
	require.Equal(t, "MIRRORING prev=16 attempt=0 lme=-1", r.stored(), "nothing to clear, nothing written")
	r.fail(CauseInternal)
	r.due()
	require.Equal(t, "MIRRORING prev=2 attempt=1 lme=-1", r.stored())
	r.feed(Healthy{Work: r.work()})
	require.Equal(t, "MIRRORING prev=16 attempt=0 lme=-1", r.stored())
	require.Equal(t, []string{"FAILED", "MIRRORING"}, r.path, "the health write is no transition")
}

// TestD05PermanentStopStart.
func TestD05PermanentStopStart(t *testing.T) {
	r := mirroring(t)
	r.env.Policy.MaxAttempts = 1
	r.fail(CauseInternal)
	require.True(t, r.part.View().Permanent)
	r.path = nil
	r.want(messages.DesiredStopped)
	r.stop(3)
	r.want(messages.DesiredActive)
	r.align()
	require.Equal(t, []string{"STOPPING", "STOPPED", "LOG_TRUNCATION", "MIRRORING"}, r.path)
	require.Equal(t, "MIRRORING prev=16 attempt=0 lme=3", r.stored())
}

// TestD06FailedThenStop.
func TestD06FailedThenStop(t *testing.T) {
	r := mirroring(t)
	r.fail(CauseInternal)
	r.want(messages.DesiredStopped)
	require.Zero(t, r.timer.Delay, "the retry timer is cancelled")
	r.stop(7)
	require.Equal(t, []string{"FAILED", "STOPPING", "STOPPED"}, r.path)
	require.Equal(t, "STOPPED prev=16 attempt=0 lme=7", r.stored())
	require.Equal(t, "OpenPartition", r.acts[len(r.acts)-1])
}

func TestD07D08PauseAndResume(t *testing.T) {
	r := mirroring(t)
	r.want(messages.DesiredPaused)
	require.Equal(t, messages.StatePausing, r.part.State())
	r.feed(FetcherGone{Work: r.work()})
	require.Equal(t, messages.StatePaused, r.part.State())
	r.acts = nil
	r.want(messages.DesiredActive)
	require.Equal(t, []string{"Fetch"}, r.acts, "no truncation")
}

// TestD16StopKilledAfterEachStep: the sequence completes, and the LME is the
// number from before the kill, whatever the log shows after the bump.
func TestD16StopKilledAfterEachStep(t *testing.T) {
	for killAfter := range 6 {
		t.Run(fmt.Sprintf("after step %d", killAfter), func(t *testing.T) {
			r := mirroring(t)
			r.want(messages.DesiredStopped)
			log := Sealed{LastEpoch: 7, ResetEpoch: messages.NoEpoch}
			steps := []func(){
				func() {},
				func() { r.hold = true; log.Work = r.work(); r.feed(log); r.hold = false }, // sealed, LME not stored
				func() {
					if len(r.held) > 0 {
						r.store(r.held[0])
						r.held = nil
					}
				},
				func() {
					r.epoch++
					r.feed(Lead{Epoch: r.epoch, Desired: r.wish, NowMillis: r.millis})
					r.feed(StepDone{Work: r.work(), Step: StepBump, Epoch: r.epoch})
				},
				func() { r.feed(StepDone{Work: r.work(), Step: StepAbort}) },
				func() {
					r.hold = true
					r.feed(StepDone{Work: r.work(), Step: StepReset})
					r.hold = false
					log.ResetEpoch = r.epoch
				},
			}
			for i := 0; i <= killAfter; i++ {
				steps[i]()
			}
			r.restart()
			require.Equal(t, []string{"ClosePartition", "ClosePartition", "RunStep detach"}, r.acts, "resumed from step 1")
			log.Work = r.work()
			if killAfter >= 2 {
				log.LastEpoch = 99 // must not be looked at any more
				if killAfter == 5 {
					log.LastEpoch = 7
				}
			}
			before := r.epoch
			r.feed(log)
			if log.ResetEpoch == messages.NoEpoch {
				r.epoch++
				r.feed(Lead{Epoch: r.epoch, Desired: r.wish, NowMillis: r.millis})
				r.feed(StepDone{Work: r.work(), Step: StepBump, Epoch: r.epoch})
				r.feed(StepDone{Work: r.work(), Step: StepAbort})
				r.feed(StepDone{Work: r.work(), Step: StepReset})
			} else {
				require.Equal(t, before, r.epoch, "no second bump")
			}
			require.Equal(t, "STOPPED prev=16 attempt=0 lme=7", r.stored())
		})
	}
}

// TestD18D19Fencing: a batch above DLE is refused and the epoch raised.
func TestD18D19Fencing(t *testing.T) {
	r := mirroring(t)
	r.feed(EpochAhead{Work: r.work(), BatchEpoch: 9})
	require.Equal(t, messages.StateEpochFencing, r.part.State())
	require.Equal(t, []string{"Unfetch", "RaiseEpoch"}, r.acts)
	require.Equal(t, int32(9), r.last.(RaiseEpoch).BatchEpoch)
	r.feed(Raised{Work: r.work(), Epoch: 19, Min: 19})
	require.Equal(t, messages.StateEpochFencing, r.part.State(), "must be above the minimum")
	r.feed(Raised{Work: r.work(), Epoch: 20, Min: 19})
	require.Equal(t, messages.StateMirroring, r.part.State())
	require.Equal(t, "Fetch", r.acts[len(r.acts)-1])
	target, err := BumpTarget(9)
	require.NoError(t, err)
	require.Equal(t, int32(19), target)
	_, err = BumpTarget(math.MaxInt32 - 5)
	require.Error(t, err)

	t.Run("a failed bump comes back to EPOCH_FENCING (OP-7)", func(t *testing.T) {
		r.feed(EpochAhead{Work: r.work(), BatchEpoch: 30})
		r.fail(CauseInternal)
		r.due()
		require.Equal(t, messages.StateEpochFencing, r.part.State())
	})
}

// TestD20D21Convergence: MIRRORING only after the right replicas are cut.
func TestD20D21Convergence(t *testing.T) {
	tests := map[string]struct {
		c    Convergence
		want bool
	}{
		"one replica":                  {Convergence{Assigned: 1, InSync: 1, MinInSync: 2}, true},
		"follower not cut (D20)":       {Convergence{Assigned: 3, InSync: 3, InSyncCut: 2, AssignedCut: 2, MinInSync: 2}, false},
		"all of the ISR cut":           {Convergence{Assigned: 3, InSync: 2, InSyncCut: 2, AssignedCut: 2, MinInSync: 2}, true},
		"ISR below minimum (D21)":      {Convergence{Assigned: 3, InSync: 1, InSyncCut: 1, AssignedCut: 1, MinInSync: 2}, false},
		"unclean, one replica missing": {Convergence{Assigned: 3, InSync: 2, InSyncCut: 2, AssignedCut: 2, MinInSync: 2, Unclean: true}, false},
		"unclean, all":                 {Convergence{Assigned: 3, InSync: 3, InSyncCut: 3, AssignedCut: 3, MinInSync: 2, Unclean: true}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, tt.c.Done()) })
	}
}

// TestD22Gate: the gate opens in STOPPED only, and closes before a start is stored.
func TestD22Gate(t *testing.T) {
	r := mirroring(t)
	r.want(messages.DesiredStopped)
	require.NotContains(t, r.acts, "OpenPartition")
	r.stop(3)
	require.Equal(t, "OpenPartition", r.acts[len(r.acts)-1])
	r.acts, r.hold = nil, true
	r.want(messages.DesiredActive)
	require.Equal(t, []string{"ClosePartition", "Cancel"}, r.acts)
	require.Equal(t, messages.StateStopped, r.part.State())
}

// TestD42PauseOvertakesStart: never PAUSED without alignment.
func TestD42PauseOvertakesStart(t *testing.T) {
	r := newRig(t, messages.DesiredPaused)
	r.align()
	r.feed(FetcherGone{Work: r.work()})
	require.Equal(t, []string{"LOG_TRUNCATION", "MIRRORING", "PAUSING", "PAUSED"}, r.path)
}

// TestD44StopRaisesEpochAlways: DLE above the LME is not enough.
func TestD44StopRaisesEpochAlways(t *testing.T) {
	r := mirroring(t)
	r.want(messages.DesiredStopped)
	r.feed(Sealed{Work: r.work(), LastEpoch: 2, ResetEpoch: messages.NoEpoch})
	step := r.last.(RunStep)
	require.Equal(t, StepBump, step.Step)
	require.Equal(t, int32(2), step.Min)
	r.feed(StepDone{Work: r.work(), Step: StepBump, Epoch: 2})
	require.Equal(t, StepBump, r.last.(RunStep).Step, "not above the LME: again")
}

// TestD46FailedAlignThenPause.
func TestD46FailedAlignThenPause(t *testing.T) {
	r := newRig(t, messages.DesiredActive)
	r.fail(CauseConnection)
	r.path = nil
	r.want(messages.DesiredPaused)
	require.Equal(t, messages.StateFailed, r.part.State(), "the timer leads on")
	r.due()
	r.align()
	r.feed(FetcherGone{Work: r.work()})
	require.Equal(t, []string{"LOG_TRUNCATION", "MIRRORING", "PAUSING", "PAUSED"}, r.path)
}

// TestD47Recover: a permanent failure goes back with a fresh counter; the second
// call finds nothing to do.
func TestD47Recover(t *testing.T) {
	r := mirroring(t)
	r.env.Policy.MaxAttempts = 1
	r.fail(CauseInternal)
	r.acts = nil
	r.feed(Recover{By: messages.Requester{Principal: "User:op"}})
	require.Equal(t, messages.StateMirroring, r.part.State())
	require.Equal(t, []string{"Fetch"}, r.acts)
	require.Equal(t, "MIRRORING prev=2 attempt=0 lme=-1", r.stored())
	r.acts = nil
	r.feed(Recover{})
	require.Empty(t, r.acts)
}

// TestD49SourceChanged: nothing is fetched from another cluster; partitions come
// back without an operator.
func TestD49SourceChanged(t *testing.T) {
	r := mirroring(t)
	r.hold = true
	r.feed(SourceChanged{Text: "want A, got B"})
	require.Equal(t, []string{"Cancel", "Unfetch"}, r.acts, "before the record is stored")
	r.hold = false
	r.store(r.held[0])
	require.Equal(t, messages.StateFailed, r.part.State())
	require.Zero(t, r.timer.Delay)
	require.Equal(t, "want A, got B", r.shard.Get("m", tp(0), messages.NoOffset).Error)
	r.feed(SourceChanged{Text: "want A, got B"})
	r.feed(Refreshed{OK: true})
	require.Equal(t, messages.StateFailed, r.part.State())
	r.feed(SourceBack{})
	require.Equal(t, messages.StateMirroring, r.part.State())

	t.Run("paused", func(t *testing.T) {
		r.want(messages.DesiredPaused)
		r.feed(FetcherGone{Work: r.work()})
		r.feed(SourceChanged{Text: "x"})
		r.feed(SourceBack{})
		r.feed(FetcherGone{Work: r.work()})
		require.Equal(t, messages.StatePaused, r.part.State())
	})
	t.Run("a failed one loses its timer", func(t *testing.T) {
		r.want(messages.DesiredActive)
		r.fail(CauseInternal)
		require.NotZero(t, r.timer.Delay)
		r.feed(SourceChanged{Text: "x"})
		require.Zero(t, r.timer.Delay)
	})
}

// TestD45RearmAfterOutage (OP-21).
func TestD45RearmAfterOutage(t *testing.T) {
	permanent := func(t *testing.T, c Cause) *rig {
		t.Helper()
		r := mirroring(t)
		r.env.Policy.MaxAttempts = 2
		r.fail(c)
		r.due()
		r.fail(c)
		require.True(t, r.part.View().Permanent)
		r.path = nil
		return r
	}
	t.Run("connection", func(t *testing.T) {
		r := permanent(t, CauseConnection)
		require.Contains(t, r.acts, "RefreshSource")
		r.feed(Refreshed{OK: false})
		require.Equal(t, messages.StateFailed, r.part.State())
		r.feed(Refreshed{OK: true})
		require.Equal(t, "MIRRORING prev=2 attempt=0 lme=-1", r.stored())
	})
	t.Run("other causes stay", func(t *testing.T) {
		r := permanent(t, CauseInternal)
		r.feed(Refreshed{OK: false})
		r.feed(Refreshed{OK: true})
		require.Equal(t, messages.StateFailed, r.part.State())
	})
	t.Run("restarted in the outage", func(t *testing.T) {
		r := permanent(t, CauseInternal)
		r.restart()
		r.feed(Refreshed{OK: false})
		r.feed(Refreshed{OK: true})
		require.Equal(t, messages.StateMirroring, r.part.State())
	})
	t.Run("restarted without an outage", func(t *testing.T) {
		r := permanent(t, CauseInternal)
		r.restart()
		r.feed(Refreshed{OK: true})
		r.feed(Refreshed{OK: false})
		r.feed(Refreshed{OK: true})
		require.Equal(t, messages.StateFailed, r.part.State())
	})
}

// TestD56StopOutOfTruncation: no LME is computed, an older one is unchanged.
func TestD56StopOutOfTruncation(t *testing.T) {
	r := mirroring(t)
	r.want(messages.DesiredStopped)
	r.stop(4)
	r.want(messages.DesiredActive)
	r.want(messages.DesiredStopped)
	require.Equal(t, messages.StateStopping, r.part.State())
	r.restart()
	r.stop(9)
	require.Equal(t, "STOPPED prev=16 attempt=0 lme=4", r.stored())
}

// TestD57StopFailsForGood: retried after the delay, permanent after the limit,
// recover resumes; also for a stop out of LOG_TRUNCATION, whose record keeps 0.
func TestD57StopFailsForGood(t *testing.T) {
	for _, from := range []string{"MIRRORING", "LOG_TRUNCATION"} {
		t.Run(from, func(t *testing.T) {
			r := newRig(t, messages.DesiredActive)
			if from == "MIRRORING" {
				r.align()
			}
			r.want(messages.DesiredStopped)
			r.env.Policy.MaxAttempts = 3
			for n := range 3 {
				require.Equal(t, messages.StateStopping, r.part.State())
				r.fail(CauseInternal)
				require.Equal(t, messages.StateFailed, r.part.State(), "not at once")
				if n < 2 {
					require.Equal(t, time.Duration(2<<n)*time.Second, r.timer.Delay)
					r.due()
				}
			}
			require.True(t, r.part.View().Permanent)
			r.feed(Recover{})
			require.Equal(t, messages.StateStopping, r.part.State())
			r.stop(6)
			require.Equal(t, messages.StateStopped, r.part.State())
		})
	}
}

func TestOP44LostState(t *testing.T) {
	t.Run("empty log", func(t *testing.T) {
		r := &rig{t: t, shard: NewShard(1), env: Env{Policy: DefaultRetryPolicy()}, epoch: 50, wish: messages.DesiredStopped, empty: true}
		r.restart()
		require.Equal(t, []string{"STOPPED"}, r.path)
	})
	t.Run("data in the log", func(t *testing.T) {
		r := newRig(t, messages.DesiredStopped)
		r.stop(3)
		require.Equal(t, []string{"STOPPING", "STOPPED"}, r.path)
		// The log may be ours alone: its last epoch is nothing that both sides agree on.
		require.Equal(t, messages.NoEpoch, r.shard.Get("m", tp(0), messages.NoOffset).LME)
	})
	t.Run("an LME that is stored stays", func(t *testing.T) {
		r := newRig(t, messages.DesiredActive)
		require.NoError(t, r.shard.Apply(Record{Kind: RecordEpochs, Mirror: "m", Epochs: map[messages.TopicPartition]int32{tp(0): 2}}))
		r.shard.mirrors["m"].states = map[messages.TopicPartition]entry{} // lost
		r.wish = messages.DesiredStopped
		r.restart()
		r.stop(3)
		require.Equal(t, "STOPPED", r.path[len(r.path)-1])
		require.Equal(t, int32(2), r.shard.Get("m", tp(0), messages.NoOffset).LME)
	})
}

// TestCutsOutliveARefusedWrite: the write that carries a cut is refused, because
// the coordinator is another one, and the partition reads again. What is read
// lacks the cut (found by test/sim).
func TestCutsOutliveARefusedWrite(t *testing.T) {
	r := mirroring(t)
	r.hold = true
	r.feed(Noted{Cut: Cut{From: 5, To: 9, Records: 4, Bytes: 40}})
	r.feed(Noted{Gap: Gap{From: 9, To: 12, AtMillis: 1}})
	require.Len(t, r.held, 1)
	r.hold = false
	lost := r.held[0].Write.Number
	r.feed(WriteRefused{Number: lost, Text: "another coordinator"})
	s := r.shard.Get("m", tp(0), messages.NoOffset)
	require.Equal(t, [3]int64{4, 5, 9}, [3]int64{s.CutRecords, s.CutFrom, s.CutTo})
	require.Equal(t, [2]int64{9, 12}, [2]int64{s.GapFrom, s.GapTo})

	// What the journal has counted and nobody has stored is a total, not one more.
	r.part = NewPartition("m", tp(0), messages.NoOffset)
	r.millis++
	r.part.Step(Lead{Epoch: r.epoch, Desired: r.wish, NowMillis: r.millis}, r.env)
	r.feed(Noted{Cut: Cut{From: 2, To: 3, Records: 1}}) // before anything is read: on top
	r.feed(Loaded{State: s, Ticket: r.shard.Ticket(), Cuts: Cut{From: 4, To: 5, Records: 6}})
	s = r.shard.Get("m", tp(0), messages.NoOffset)
	require.Equal(t, int64(7), s.CutRecords)
}

// TestNotesKeepTheLME: a cut that is told after the LME of the stop was stored
// (found by test/sim): another STOPPING record would say that it is to come.
func TestNotesKeepTheLME(t *testing.T) {
	r := mirroring(t)
	r.want(messages.DesiredStopped)
	r.feed(Sealed{Work: r.work(), LastEpoch: 7, ResetEpoch: messages.NoEpoch})
	r.feed(Noted{Cut: Cut{From: 5, To: 9, Records: 4, Bytes: 40}})
	require.Equal(t, int32(7), r.shard.Get("m", tp(0), messages.NoOffset).LME)

	w := NewWrite("m", tp(0)) // of a leader that doesn't know better
	w.Notes.CutRecords, w.Notes.CutFrom, w.Notes.CutTo = 9, 0, 9
	for _, state := range []messages.State{messages.StateUnknown, messages.StateStopping} {
		w.State = state
		r.shard.Commit(r.shard.Plan([]Write{w}))
		require.Equal(t, int32(7), r.shard.Get("m", tp(0), messages.NoOffset).LME)
	}

	r.epoch++
	r.feed(Lead{Epoch: r.epoch, Desired: r.wish, NowMillis: r.millis})
	r.feed(StepDone{Work: r.work(), Step: StepBump, Epoch: r.epoch})
	r.feed(StepDone{Work: r.work(), Step: StepAbort})
	r.feed(StepDone{Work: r.work(), Step: StepReset})
	s := r.shard.Get("m", tp(0), messages.NoOffset)
	require.Equal(t, messages.StateStopped, s.State)
	require.Equal(t, int64(4), s.CutRecords)
	require.Equal(t, int32(7), s.LME)
}

func TestStaleAnswersAreDropped(t *testing.T) {
	r := mirroring(t)
	old := r.work()
	r.want(messages.DesiredPaused)
	r.feed(FetcherGone{Work: r.work()})
	r.want(messages.DesiredActive)
	r.path, r.acts = nil, nil
	r.feed(Failed{Work: old, Cause: CauseInternal})
	r.feed(EpochAhead{Work: old, BatchEpoch: 99})
	r.feed(FetcherGone{Work: old})
	r.feed(RetryDue{Timer: 1})
	r.feed(Written{Number: 1})
	require.Empty(t, r.path)
	require.Empty(t, r.acts)
	require.Equal(t, uint64(5), r.part.View().Stale)
}

func TestNotesAndInputsDuringWrites(t *testing.T) {
	r := mirroring(t)
	r.fail(CauseInternal)
	r.due()
	r.path = nil
	r.hold = true
	r.feed(Healthy{Work: r.work()})
	r.feed(Noted{Cut: Cut{From: 8, To: 10, Records: 2}, Gap: Gap{From: 50, To: 100, AtMillis: 1}})
	r.fail(CauseInternal)
	r.want(messages.DesiredStopped)
	require.Len(t, r.held, 1, "one write at a time")
	r.hold = false
	r.store(r.held[0])
	// The wish came first; the error was about the state that was left.
	require.Equal(t, []string{"STOPPING"}, r.path)
	st := r.shard.Get("m", tp(0), messages.NoOffset)
	require.Equal(t, int64(2), st.CutRecords)
	require.Equal(t, int64(50), st.GapFrom)
}

func TestFencedLeaderStops(t *testing.T) {
	r := mirroring(t)
	w := write(0, sFailed)
	w.LeaderEpoch, w.Number = 90, 1
	do(t, r.shard, w)
	r.hold = true
	r.fail(CauseInternal)
	r.feed(WriteRefused{Number: r.held[0].Write.Number, Fenced: true})
	require.Equal(t, []string{"Cancel", "Fenced", "Cancel", "ClosePartition", "Unfetch"}, r.acts)
	require.Equal(t, messages.StateUnknown, r.part.State())
}

func TestRefusedWriteReads(t *testing.T) {
	r := mirroring(t)
	// Somebody put the partition into PAUSED behind our back.
	do(t, r.shard, write(0, sPausing), write(0, sPaused))
	r.path = nil
	r.feed(EpochAhead{Work: r.work(), BatchEpoch: 9})
	require.Equal(t, []string{"MIRRORING"}, r.path, "read again, and resumed from what is stored")
}

func TestResignAndReconnect(t *testing.T) {
	r := mirroring(t)
	r.feed(Reconnect{})
	require.Equal(t, []string{"ClosePartition", "Fetch"}, r.acts)
	r.acts = nil
	r.feed(Resign{})
	require.Equal(t, []string{"Cancel", "ClosePartition", "Unfetch"}, r.acts)
	r.acts = nil
	r.feed(Failed{Work: r.work()})
	r.feed(Recover{})
	r.feed(Resign{})
	require.Empty(t, r.acts)
}
