package txn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/txns"
)

// world is a coordinator whose log is a slice and whose markers go to model
// partitions over a network that loses and repeats. It crashes between any two writes.
type world struct {
	t      *testing.T
	r      *rand.Rand
	now    int64
	epoch  int32
	core   *Core
	log    []txns.Record
	writes []Write
	marks  []Marking // to be written: the owner sends them again and again
	late   []Marking // messages that were sent before and may still arrive
	wait   map[Ticket]func(txns.Answer)
	ticket Ticket
	nextID int64
	noIDs  bool
	parts  []*part
	log2   []string // what happened
}

// part is a partition: what was written in transactions, and the rules of its leader.
type part struct {
	tp     messages.TopicPartition
	data   []*datum
	known  map[int64]*known
	guards map[int64]int16
}

type datum struct {
	txn   int
	p     txns.Producer
	state byte // 'o'pen, 'c'ommitted, 'a'borted
}

type known struct {
	epoch, coordinator int32
	open               bool
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), now: 1_000_000, wait: map[Ticket]func(txns.Answer){}}
	for i := range 4 {
		w.parts = append(w.parts, &part{tp: messages.TopicPartition{Topic: "t", Partition: int32(i)}, known: map[int64]*known{}, guards: map[int64]int16{}})
	}
	w.load()
	return w
}

var simConfig = Config{TimeoutMax: 100_000, Expiration: 1_000_000}

func (w *world) replay() *Core {
	c := New(simConfig, w.epoch)
	for _, r := range w.log {
		c.Apply(r)
	}
	return c
}

// load is a new coordinator.
func (w *world) load() {
	w.epoch++
	w.core, w.writes, w.marks = w.replay(), nil, nil
	w.perform(w.core.Loaded(w.now))
}

// crash loses what isn't stored and who waits; a write may be in the log although
// nobody was told.
func (w *world) crash() {
	w.say("crash")
	if len(w.writes) > 0 {
		for _, wr := range w.writes[:w.r.IntN(len(w.writes)+1)] {
			w.log = append(w.log, wr.Record)
		}
	}
	w.late = append(w.late, w.marks...)
	clear(w.wait)
	w.load()
}

func (w *world) say(format string, args ...any) {
	w.log2 = append(w.log2, fmt.Sprintf(format, args...))
}

func (w *world) perform(e Effects) {
	for _, r := range e.Replies {
		if f := w.wait[r.Ticket]; f != nil {
			delete(w.wait, r.Ticket)
			f(r.Answer)
		}
	}
	w.writes = append(w.writes, e.Writes...)
	w.marks = append(w.marks, e.Markers...)
	if e.NeedID {
		if w.noIDs {
			w.perform(w.core.NoIDs(w.now, messages.ErrCoordinatorNotAvailable))
			return
		}
		w.nextID++
		w.perform(w.core.Supply(w.now, w.nextID))
	}
}

func (w *world) ask(req txns.Request, f func(txns.Answer)) {
	w.ticket++
	if f != nil {
		w.wait[w.ticket] = f
	}
	w.perform(w.core.Handle(w.now, w.ticket, req))
}

// store makes the first write durable.
func (w *world) store() {
	if len(w.writes) == 0 {
		return
	}
	wr := w.writes[0]
	w.writes = w.writes[1:]
	w.log = append(w.log, wr.Record)
	w.perform(w.core.Stored(w.now, wr.ID))
}

// deliver has one marker written into one of its partitions; the answer may be lost.
func (w *world) deliver() {
	if len(w.marks) == 0 {
		return
	}
	i := w.r.IntN(len(w.marks))
	m := w.marks[i]
	tp := m.Marker.Partitions[w.r.IntN(len(m.Marker.Partitions))]
	ok := w.parts[tp.Partition].mark(m.Marker)
	w.say("marker of %s %v to %d: commit %v, %v", m.Txn, m.Marker.Producer, tp.Partition, m.Marker.Commit, ok)
	if ok && w.r.IntN(4) > 0 {
		w.perform(w.core.Marked(w.now, m.Txn, m.Number, tp))
	}
	if w.r.IntN(3) == 0 {
		w.late = append(w.late, m)
	}
	if t := w.core.ids[m.Txn]; t == nil || t.marking != m.Number || len(t.left) == 0 {
		w.marks = slices.DeleteFunc(w.marks, func(o Marking) bool { return o.Number == m.Number && o.Txn == m.Txn })
	}
}

// arrive is a marker that was sent long ago, perhaps by an older coordinator. Only
// with an epoch of its own a transaction is safe from those; else the sender waits.
func (w *world) arrive() {
	if len(w.late) == 0 {
		return
	}
	m := w.late[w.r.IntN(len(w.late))]
	if !m.Marker.Version.Bumps() {
		return
	}
	for _, tp := range m.Marker.Partitions {
		w.say("late marker of %s %v to %d: commit %v", m.Txn, m.Marker.Producer, tp.Partition, m.Marker.Commit)
		ok := w.parts[tp.Partition].mark(m.Marker)
		if ok && m.Marker.CoordinatorEpoch == w.epoch { // and a late answer, if it is still the one that asked
			w.perform(w.core.Marked(w.now, m.Txn, m.Number, tp))
		}
	}
}

func (p *part) get(id int64) *known {
	if p.known[id] == nil {
		p.known[id] = &known{epoch: -1, coordinator: -1}
	}
	return p.known[id]
}

// mark has the rules of a partition's leader; false is a refusal.
func (p *part) mark(m txns.Marker) bool {
	k := p.get(m.ID)
	switch {
	case m.CoordinatorEpoch < k.coordinator:
		return false
	case int32(m.Epoch) < k.epoch, m.Version.Bumps() && int32(m.Epoch) == k.epoch && k.open:
		return true // there is nothing of it any more
	}
	if g, ok := p.guards[m.ID]; ok && (g < m.Epoch || g == m.Epoch && !m.Version.Bumps()) {
		delete(p.guards, m.ID)
	}
	for _, d := range p.data {
		if d.p.ID == m.ID && d.state == 'o' {
			d.state = 'a'
			if m.Commit {
				d.state = 'c'
			}
		}
	}
	*k = known{epoch: int32(m.Epoch), coordinator: m.CoordinatorEpoch}
	return true
}

// write is a producer's batch, after its coordinator was asked.
func (p *part) write(txn int, producer txns.Producer) bool {
	k := p.get(producer.ID)
	if int32(producer.Epoch) < k.epoch {
		return false
	}
	if g, ok := p.guards[producer.ID]; !(k.open && k.epoch == int32(producer.Epoch)) && (!ok || g != producer.Epoch) {
		return false
	}
	p.data = append(p.data, &datum{txn: txn, p: producer, state: 'o'})
	k.epoch, k.open = int32(producer.Epoch), true
	return true
}

// settle lets everything end that has begun.
func (w *world) settle() {
	w.noIDs = false
	for range 10_000 {
		if len(w.writes) == 0 && len(w.marks) == 0 {
			return
		}
		w.store()
		w.deliver()
	}
	w.fatal("it doesn't end: %d writes, %d markers", len(w.writes), len(w.marks))
}

// same: what is true is what a replay makes true.
func (w *world) same() {
	if len(w.writes) > 0 {
		return
	}
	again := w.replay()
	for id, t := range w.core.ids {
		o := again.ids[id]
		if !t.stored || o == nil {
			w.fatal("%s is known (%+v) and not in the log", id, t.State)
		}
		require.Equal(w.t, o.State, t.State)
	}
	require.Len(w.t, w.core.ids, len(again.ids))
}

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log2 {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}
