package fsm

import (
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
)

// planner overlays the shard with what a plan would make of it.
type planner struct {
	base   *Shard
	plan   Plan
	states map[planKey]entry
	epochs map[string]map[messages.TopicPartition]int32 // private copies
	dirty  map[string]Write                             // mirrors whose LME record is due, and who asked last
	order  []string
}

type planKey struct {
	mirror string
	tp     messages.TopicPartition
}

// Plan turns a group of writes into records and answers. States come first, in
// order; then one LME record per mirror with all its LMEs, so that a stop of
// many partitions costs one. Nothing changes until [Shard.Commit].
func (s *Shard) Plan(writes []Write) Plan {
	p := &planner{
		base: s, states: map[planKey]entry{},
		epochs: map[string]map[messages.TopicPartition]int32{}, dirty: map[string]Write{},
	}
	for _, w := range writes {
		p.plan.Answers = append(p.plan.Answers, p.write(w))
	}
	for _, mirror := range p.order {
		w := p.dirty[mirror]
		p.plan.Records = append(p.plan.Records, Record{
			Kind: RecordEpochs, Mirror: mirror, Epochs: p.epochs[mirror], Created: messages.NoOffset,
			Cause: w.Cause, Principal: w.Principal, RequestID: w.RequestID,
		})
	}
	return p.plan
}

func (p *planner) entry(k planKey, created int64) entry {
	e, ok := p.states[k]
	if !ok {
		if m := p.base.mirrors[k.mirror]; m != nil {
			e, ok = m.states[k.tp]
		}
	}
	if !ok || otherLife(e.created, created) {
		u := messages.UnknownPartitionState()
		return entry{state: u, created: created}
	}
	return e
}

func (p *planner) write(w Write) Answer {
	k := planKey{w.Mirror, w.Partition}
	cur := p.entry(k, w.Created)
	next, changed, drop, err := Next(cur.state, w)
	if err == nil && !repeat(cur.state, w) {
		err = p.base.fenced(k, w)
	}
	if err != nil {
		return Answer{Err: fmt.Errorf("write state of %s: %w", w.Partition, err), Previous: cur.state.Previous, Attempt: cur.state.RetryAttempt}
	}
	if changed {
		created := w.Created
		if created == messages.NoOffset {
			created = cur.created
		}
		next.LME = messages.NoEpoch
		p.states[k] = entry{state: next, created: created}
		p.plan.Records = append(p.plan.Records, Record{
			Kind: RecordState, Mirror: w.Mirror, Partition: w.Partition, State: next, Created: created,
			Cause: w.Cause, Principal: w.Principal, RequestID: w.RequestID,
		})
		if drop {
			p.drop(w.Mirror, w.Partition)
		}
	}
	if w.LME != messages.NoEpoch && !repeat(cur.state, w) {
		p.setLME(w)
	}
	return Answer{Previous: next.Previous, Attempt: next.RetryAttempt}
}

// drop follows the STOPPING record, whose replay drops the entry too.
func (p *planner) drop(mirror string, tp messages.TopicPartition) {
	if epochs, ok := p.epochs[mirror]; ok {
		delete(epochs, tp)
		return
	}
	m := p.base.mirrors[mirror]
	if m == nil {
		return
	}
	if _, ok := m.epochs[tp]; ok {
		p.epochs[mirror] = without(m.epochs, tp)
	}
}

func (p *planner) setLME(w Write) {
	epochs, ok := p.epochs[w.Mirror]
	if !ok {
		epochs = map[messages.TopicPartition]int32{}
		if m := p.base.mirrors[w.Mirror]; m != nil {
			maps.Copy(epochs, m.epochs)
		}
		p.epochs[w.Mirror] = epochs
	}
	if old, had := epochs[w.Partition]; had && old == w.LME {
		return
	}
	epochs[w.Partition] = w.LME
	if _, due := p.dirty[w.Mirror]; !due {
		p.order = append(p.order, w.Mirror)
	}
	p.dirty[w.Mirror] = w
}

// PlanDeleteMirror is the two tombstones of a deleted mirror; empty if nothing
// is stored of it. The caller repeats it until the records are stored.
func (s *Shard) PlanDeleteMirror(mirror, cause string) Plan {
	if s.mirrors[mirror] == nil {
		return Plan{}
	}
	return Plan{Records: []Record{
		{Kind: RecordEpochsTombstone, Mirror: mirror, Created: messages.NoOffset, Cause: cause},
		{Kind: RecordStatesTombstone, Mirror: mirror, Created: messages.NoOffset, Cause: cause},
	}}
}

// Lives tells the life of a topic in the image: the metadata offset of its
// creation; ok is false if there is no such topic any more.
type Lives func(topic string) (created int64, ok bool)

// PlanForget drops what is stored of topics that are gone or were created anew:
// states at once, from memory (a record of another life counts as none, also
// after a replay, so nothing needs to be stored for them), LMEs by one record per
// mirror. Returns the plan to store and commit; states are gone already.
//
// A partition of a topic that lives again keeps nothing of its earlier life.
func (s *Shard) PlanForget(lives Lives, cause string) Plan {
	var plan Plan
	for _, mirror := range s.Mirrors() {
		m := s.mirrors[mirror]
		gone := map[messages.TopicPartition]struct{}{}
		for tp, e := range m.states {
			if created, ok := lives(tp.Topic); !ok || otherLife(e.created, created) {
				gone[tp] = struct{}{}
			}
		}
		for tp := range m.epochs {
			if _, ok := lives(tp.Topic); !ok {
				gone[tp] = struct{}{}
			}
		}
		left := maps.Clone(m.epochs)
		for tp := range gone {
			delete(m.states, tp)
			delete(s.fences, planKey{mirror, tp})
			delete(left, tp)
		}
		if len(left) != len(m.epochs) {
			plan.Records = append(plan.Records, Record{
				Kind: RecordEpochs, Mirror: mirror, Epochs: left, Created: messages.NoOffset, Cause: cause,
			})
		}
		s.forgetEmpty(mirror)
	}
	return plan
}

// Stale lists mirrors of which something is stored and that exists says are
// gone: their tombstones are due (workflows.md, "Delete mirror" step 5).
func (s *Shard) Stale(exists func(mirror string) bool) []string {
	return slices.DeleteFunc(s.Mirrors(), exists)
}
