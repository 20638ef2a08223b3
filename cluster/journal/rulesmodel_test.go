package journal

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"kagami/messages"
)

// The model: three nodes propose to one journal, each first in first out, over a
// network that delays and repeats (what wasn't answered is sent again, in
// order). An author builds on its own unanswered appends as long as their
// generation lasts. Each record carries the history that its author had seen, as
// a fingerprint. An append is *stale* if the log in front of it, when it lands,
// isn't the log that its author built on: then two histories became one.
type model struct {
	rnd     *rand.Rand
	decide  func(State, int64, Operation) (State, Refusal)
	state   State
	seq     int64
	log     []modelRecord // one offset each
	authors []modelAuthor
	epoch   int32
	stale   int
	landed  int
}

type modelRecord struct{ print uint64 }

// modelAuthor is what one node believes, as of some earlier sequence.
type modelAuthor struct {
	node  messages.NodeID
	state State
	log   []modelRecord
	sent  []modelOp // on the way to the journal
}

type modelOp struct {
	op     Operation
	before uint64 // fingerprint of the log the author built on
	record modelRecord
}

func fingerprint(log []modelRecord) uint64 {
	h := uint64(14695981039346656037)
	for _, r := range log {
		h = (h ^ r.print) * 1099511628211
	}
	return h
}

func newModel(seed uint64, d func(State, int64, Operation) (State, Refusal)) *model {
	m := &model{rnd: rand.New(rand.NewPCG(seed, 1)), decide: d, state: NewState()}
	for n := range 3 {
		m.authors = append(m.authors, modelAuthor{node: messages.NodeID(n), state: m.state})
	}
	return m
}

func (m *model) step() {
	a := &m.authors[m.rnd.IntN(len(m.authors))]
	switch p := m.rnd.IntN(100); {
	case p < 20: // catches up with the journal; what it sent under an older generation is doomed
		if a.state.Generation != m.state.Generation {
			a.state, a.log = m.state, append([]modelRecord(nil), m.log...)
		}
	case p < 60:
		m.propose(a)
	case len(a.sent) > 0:
		m.deliver(a.sent[0])
		if m.rnd.IntN(8) > 0 { // else its answer is lost, and it is sent again
			a.sent = a.sent[1:]
		}
	}
}

func (m *model) propose(a *modelAuthor) {
	end := int64(len(a.log))
	op := modelOp{before: fingerprint(a.log)}
	switch p := m.rnd.IntN(20); {
	case p < 2:
		m.epoch++
		op.op = Operation{Kind: OpClaim, Epoch: m.epoch, Node: a.node}
	case p < 3:
		op.op = Operation{Kind: OpClaim, Epoch: a.state.Epoch, Node: a.node}
	case p < 5:
		op.op = Operation{Kind: OpTruncate, Generation: a.state.Generation, Base: end, Offset: m.rnd.Int64N(end + 1)}
	case p < 6:
		op.op = Operation{Kind: OpMode, Generation: a.state.Generation, Mode: messages.Mode(1 + m.rnd.IntN(3))}
	default: // pipelined: the author counts on its own appends
		if a.state.Node != a.node {
			return
		}
		op.record = modelRecord{print: m.rnd.Uint64()}
		op.op = Operation{Kind: OpAppend, Generation: a.state.Generation, Class: messages.Class(1 + m.rnd.IntN(3)), Base: end, End: end + 1}
		for m.rnd.IntN(5) > 0 && !a.state.Mode.Takes(op.op.Class) {
			op.op.Class = messages.Class(1 + m.rnd.IntN(3))
		}
		if a.state.Mode.Takes(op.op.Class) {
			a.log = append(a.log, op.record)
		}
	}
	a.sent = append(a.sent, op)
}

func (m *model) deliver(o modelOp) {
	m.seq++
	next, verdict := m.decide(m.state, m.seq, o.op)
	m.state = next
	if verdict != Accepted {
		return
	}
	switch o.op.Kind {
	case OpAppend:
		m.landed++
		if fingerprint(m.log) != o.before {
			m.stale++
		}
		m.log = append(m.log, o.record)
	case OpTruncate:
		m.log = m.log[:min(o.op.Offset, int64(len(m.log)))]
	}
}

func (m *model) check() error {
	if m.state.LogEnd != int64(len(m.log)) || m.state.ModeOffset > m.state.LogEnd || m.state.Generation > m.state.Sequence {
		return fmt.Errorf("state %+v with a log of %d", m.state, len(m.log))
	}
	return nil
}

// TestRulesModel: with the rules no stale append ever lands. The same model
// without the generation check has to find some, or it proves nothing.
func TestRulesModel(t *testing.T) {
	const seeds, steps = 2000, 400
	landed := 0
	for seed := range uint64(seeds) {
		m := newModel(seed, Decide)
		for i := range steps {
			m.step()
			if err := m.check(); err != nil || m.stale > 0 {
				t.Fatalf("seed %d, step %d: %d stale appends landed, %v", seed, i, m.stale, err)
			}
		}
		landed += m.landed
	}
	if landed < seeds {
		t.Fatalf("only %d appends landed in %d seeds: the model is too hostile to show anything", landed, seeds)
	}
	bad := 0
	for seed := range uint64(seeds) {
		m := newModel(seed, func(s State, seq int64, op Operation) (State, Refusal) {
			op.Generation = s.Generation // no generation check
			return Decide(s, seq, op)
		})
		for range steps {
			m.step()
		}
		if m.stale > 0 {
			bad++
		}
	}
	if bad == 0 {
		t.Fatal("no stale append landed without the generation check: the model is blind")
	}
	t.Logf("%d appends landed; without the generation check %d of %d seeds had stale ones", landed, bad, seeds)
}
