package fsm

import (
	"fmt"
	"reflect"

	"kagami/messages"
)

// Env is what a step may know besides its input.
type Env struct {
	Policy RetryPolicy
	Random float64 // in [0, 1)
}

// deferredMax bounds what waits for a write's answer; one of each type waits.
const deferredMax = 16

// Partition is the life of one mirror partition on its leader. One goroutine at
// a time; [Partition.Step] is its only way to change.
//
//	input -> Ask the machine -> effects that may come before -> PersistWrite
//	Written -> the machine moves -> effects -> compare with the wish again
//
// At most one write is in flight. What arrives meanwhile either waits for its
// answer or is about a state that is being left.
type Partition struct {
	mirror  string
	tp      messages.TopicPartition
	created int64

	machine Machine
	desired messages.Desired
	epoch   int32 // leader epoch, NoEpoch = not leading
	loaded  bool  // stored is what the coordinator has
	stored  messages.PartitionState

	logEmpty bool
	number   int64 // of the last write
	ticket   int64 // of the last read
	pending  *pendingWrite
	deferred []Input
	noteDue  bool // notes that no write has carried yet
	counting bool // stored has what the coordinator had when it was read first

	work     uint32
	timer    uint32
	timerSet bool

	cause        Cause
	permanent    bool
	stopFailed   bool  // FAILED was entered from STOPPING in this incarnation
	stopFailures int16 // in a row; a STOPPING record with previous state 0 can't count them

	cutDone    bool // LOG_TRUNCATION: only replicas are awaited
	batchEpoch int32
	stopLME    int32 // STOPPING: what the bump must be above

	stale uint64
	out   []Output
}

type writeKind int8

const (
	writeState  writeKind = iota + 1 // a transition
	writeReset                       // attempt 0, then retry
	writeHealth                      // MIRRORING is healthy
	writeLME                         // step 2 of the stop
	writeNote                        // cut or gap
)

type pendingWrite struct {
	kind       writeKind
	number     int64
	epoch      int32
	transition Transition
	cause      Cause
	lme        int32
}

// NewPartition is a partition that this node doesn't lead yet. created is the
// metadata offset of the topic's creation.
func NewPartition(mirror string, tp messages.TopicPartition, created int64) *Partition {
	return &Partition{
		mirror: mirror, tp: tp, created: created, machine: NewMachine(messages.StateUnknown), desired: messages.DesiredNone,
		epoch: messages.NoEpoch, stored: messages.UnknownPartitionState(), batchEpoch: messages.NoEpoch, stopLME: messages.NoEpoch,
	}
}

// View is what queries are told.
type View struct {
	messages.PartitionState // State is the acknowledged one
	Desired                 messages.Desired
	LeaderEpoch             int32
	Loaded                  bool
	Writing                 bool // a write is in flight
	Permanent               bool // FAILED without a retry
	Cause                   Cause
	Stale                   uint64 // answers dropped because they were too old
}

// View returns a copy.
func (p *Partition) View() View {
	v := View{
		PartitionState: p.stored, Desired: p.desired, LeaderEpoch: p.epoch, Loaded: p.loaded,
		Writing: p.pending != nil, Permanent: p.permanent || p.cause.Held(), Cause: p.cause, Stale: p.stale,
	}
	v.State = p.machine.State()
	return v
}

// State is the acknowledged state, StateUnknown before it is loaded.
func (p *Partition) State() messages.State { return p.machine.State() }

// Step takes one input and returns what to do, in order.
func (p *Partition) Step(in Input, env Env) []Output {
	p.out = nil
	p.step(in, env)
	out := p.out
	p.out = nil
	return out
}

func (p *Partition) emit(o Output) { p.out = append(p.out, o) }

func (p *Partition) step(in Input, env Env) {
	switch in := in.(type) {
	case Lead:
		p.lead(in, env)
	case Resign:
		p.resign()
	case Loaded:
		p.load(in, env)
	case Wish:
		p.wish(in.Desired, env)
	case Written:
		p.written(in, env)
	case WriteRefused:
		p.refused(in)
	case Noted:
		p.noted(in.Cut, in.Gap)
	default:
		switch {
		case !p.loaded:
			p.stale++
		case p.pending != nil:
			p.postpone(in)
		default:
			if w, ok := workOf(in); ok {
				if w != p.work {
					p.lateFacts(in)
					p.stale++
					return
				}
				p.workDone(in, env)
				return
			}
			p.told(in, env)
		}
	}
}

func (p *Partition) lead(in Lead, env Env) {
	if p.epoch == messages.NoEpoch {
		p.epoch, p.desired = in.Epoch, in.Desired
		// Above every number of an earlier incarnation under the same leader epoch,
		// whose last write may still be on its way.
		p.number = max(p.number+1, in.NowMillis<<16)
		// A gate that was open for a topic without a mirror: the image in between, with
		// the start, may never have been seen here.
		p.emit(ClosePartition{})
		p.emit(ReadState{Epoch: p.epoch, Number: p.number})
		return
	}
	p.epoch = max(p.epoch, in.Epoch) // a bump: what runs goes on
	p.wish(in.Desired, env)
}

func (p *Partition) wish(d messages.Desired, env Env) {
	if d == p.desired {
		return
	}
	p.desired = d
	p.evaluate(ReasonDesired, env)
}

// resign forgets everything: a later leadership starts by reading.
func (p *Partition) resign() {
	led := p.epoch != messages.NoEpoch
	work, timer, stale, number := p.work+1, p.timer+1, p.stale, p.number
	desired, out := p.desired, p.out
	*p = *NewPartition(p.mirror, p.tp, p.created)
	p.work, p.timer, p.stale, p.number, p.desired, p.out = work, timer, stale, number, desired, out
	if led {
		p.emit(Cancel{})
		p.emit(StopTimer{})
		p.emit(ClosePartition{})
		p.emit(Unfetch{Work: p.work})
	}
}

func (p *Partition) load(in Loaded, env Env) {
	if p.epoch == messages.NoEpoch || p.loaded {
		p.stale++
		return
	}
	p.loaded, p.stored, p.logEmpty = true, p.withNotes(in), in.LogEmpty
	p.counting = true
	p.machine.Set(in.State.State)
	p.ticket = in.Ticket
	p.number = max(p.number, in.State.WriteNumber)
	p.cause = 0
	if in.State.State == messages.StateFailed {
		p.cause = CauseUnknown
	}
	p.evaluate(ReasonRead, env)
	if p.noteDue && p.pending == nil {
		p.sendNote()
	}
}

// reload starts over by reading: what we believed isn't what is stored.
func (p *Partition) reload() {
	p.pending, p.deferred, p.loaded = nil, nil, false
	p.machine.Set(messages.StateUnknown)
	p.timerSet, p.permanent, p.stopFailed = false, false, false
	p.work++
	p.timer++
	p.emit(Cancel{})
	p.emit(StopTimer{})
	p.emit(ClosePartition{})
	p.emit(Unfetch{Work: p.work})
	p.number++
	p.emit(ReadState{Again: true, Epoch: p.epoch, Number: p.number})
}

func (p *Partition) refused(in WriteRefused) {
	if p.pending == nil || in.Number != p.pending.number {
		p.stale++
		return
	}
	p.emit(Fenced{Text: in.Text})
	if in.Fenced && p.pending.epoch >= p.epoch {
		// Somebody newer leads. The metadata image will say so; until then nothing
		// is done here.
		p.resign()
		return
	}
	// Or we lead again by now, and somebody else did in between.
	p.reload()
}

// evaluate compares the wish with the state and feeds what follows.
func (p *Partition) evaluate(why Reason, env Env) {
	if !p.loaded || p.pending != nil {
		return
	}
	if on, ok := Evaluate(p.desired, p.State(), p.facts(env).fromStop(), why); ok {
		p.fire(on, env, decision{})
	}
}

func (p *Partition) facts(env Env) Facts {
	return Facts{
		Desired: p.desired, Previous: p.stored.Previous, Attempts: p.attempts(), Limit: env.Policy.MaxAttempts,
		LogEmpty: p.logEmpty, StopFailed: p.stopFailed,
	}
}

func (p *Partition) attempts() int16 { return max(p.stored.RetryAttempt, p.stopFailures) }

// decision is what comes with an event.
type decision struct {
	facts func(*Facts)
	cause Cause
	what  string // for the audit; the event's name if empty
	text  string
	by    messages.Requester
}

// fire asks the machine and, if it has a row, does what may be done before the
// record and sends the record, or acts at once where none is due.
func (p *Partition) fire(on Event, env Env, d decision) {
	f := p.facts(env)
	if d.facts != nil {
		d.facts(&f)
	}
	tr, err := p.machine.Ask(on, f)
	if err != nil {
		p.emit(Refused{Err: err})
		return
	}
	p.do(tr.Row.Before, env)
	if tr.Row.Persist == PersistNothing {
		if tr.Row.Number == "18" {
			p.permanent = true
			p.emit(Permanent{Attempt: f.Attempts})
		}
		p.do(tr.Row.Then, env)
		return
	}
	pw := pendingWrite{kind: writeState, transition: tr, cause: d.cause}
	w := NewWrite(p.mirror, p.tp)
	w.State = tr.To
	if tr.Row.Persist == PersistReset {
		pw.kind, w.State = writeReset, messages.StateUnknown
	}
	what := d.what
	if what == "" {
		what = on.String()
	}
	w.Cause = fmt.Sprintf("%s (row %s)", what, tr.Row.Number)
	w.Principal, w.RequestID = d.by.Principal, d.by.RequestID
	w.Notes.Error = d.text
	p.send(pw, w)
}

// send numbers a write and puts it in flight. Every write carries all notes.
func (p *Partition) send(pw pendingWrite, w Write) {
	p.number++
	pw.number, pw.epoch = p.number, p.epoch
	w.LeaderEpoch, w.Number, w.Ticket, w.Created = p.epoch, p.number, p.ticket, p.created
	text := w.Notes.Error
	w.Notes = Notes{
		Error: text, CutRecords: p.stored.CutRecords, CutBytes: p.stored.CutBytes, CutFrom: p.stored.CutFrom, CutTo: p.stored.CutTo,
		GapFrom: p.stored.GapFrom, GapTo: p.stored.GapTo, GapAtMillis: p.stored.GapAtMillis,
	}
	if text != "" {
		p.stored.Error = text
	}
	p.noteDue = false
	p.pending = &pw
	p.emit(PersistWrite{Write: w})
}

// written moves, acts, and looks at the wish again.
func (p *Partition) written(in Written, env Env) {
	if p.pending == nil || in.Number != p.pending.number {
		p.stale++
		return
	}
	pw := *p.pending
	p.pending = nil
	p.stored.Previous, p.stored.RetryAttempt = in.Previous, in.Attempt
	p.stored.LeaderEpoch, p.stored.WriteNumber = p.epoch, in.Number
	switch pw.kind {
	case writeState:
		p.moved(pw, env)
	case writeReset:
		p.stopFailures, p.permanent = 0, false
		p.do(pw.transition.Row.Then, env)
	case writeHealth:
		p.stored.Error = ""
	case writeLME:
		p.stored.LME = pw.lme
		p.stopBump(pw.lme)
	case writeNote:
	}
	p.evaluate(ReasonDone, env)
	p.catchUp(env)
}

func (p *Partition) moved(pw pendingWrite, env Env) {
	tr := pw.transition
	p.machine.Set(tr.To)
	p.stored.State = tr.To
	p.emit(Moved{Transition: tr})
	if tr.From == messages.StateFailed && tr.To != messages.StateFailed {
		p.cause, p.permanent, p.timerSet = 0, false, false
		p.stopFailed = false
	}
	switch tr.To {
	case messages.StateFailed:
		p.cause, p.permanent = pw.cause, false
		if tr.From == messages.StateStopping {
			p.stopFailed = true
			p.stopFailures++
		}
		if pw.cause == CauseConnection {
			p.emit(RefreshSource{})
		}
	case messages.StateStopping:
		if p.stored.Previous == messages.StateUnknown {
			p.stored.LME = messages.NoEpoch // an older stop's entry went with this record
		}
		if tr.From != messages.StateFailed || tr.Row.Number == "11 FAILED" {
			p.stopFailures = 0
		}
	case messages.StateStopped, messages.StatePaused:
		p.stopFailures, p.stored.Error = 0, ""
	case messages.StateUnknown, messages.StateLogTruncation, messages.StateEpochFencing, messages.StateMirroring, messages.StatePausing:
	}
	p.do(tr.Row.Then, env)
}

// catchUp feeds what waited for the write.
func (p *Partition) catchUp(env Env) {
	waiting := p.deferred
	p.deferred = nil
	for _, in := range waiting {
		p.step(in, env)
	}
	if p.noteDue && p.pending == nil && p.loaded {
		p.sendNote()
	}
}

// postpone keeps an input for after the write, unless it is about a state that
// is being left: entering the next one starts everything anew.
func (p *Partition) postpone(in Input) {
	if _, ok := workOf(in); ok && (p.pending.kind == writeState || p.pending.kind == writeReset) {
		p.lateFacts(in)
		p.stale++
		return
	}
	if _, ok := in.(RetryDue); ok {
		p.stale++
		return
	}
	kind := reflect.TypeOf(in)
	for i, other := range p.deferred {
		if reflect.TypeOf(other) == kind {
			p.deferred[i] = in
			return
		}
	}
	if len(p.deferred) < deferredMax {
		p.deferred = append(p.deferred, in)
	}
}

// lateFacts saves what a stale answer knows that must not be lost: a cut.
func (p *Partition) lateFacts(in Input) {
	if t, ok := in.(Truncated); ok {
		p.noted(t.Cut, Gap{})
	}
}
