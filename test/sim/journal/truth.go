package simjournal

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"kagami/cluster/journal"
	"kagami/messages"
)

// truth is what the journal says of one partition, folded at the moment things land.
type truth struct {
	key       messages.PartitionKey
	state     journal.State
	log       modelLog
	positions []int64 // of its operations, rising
	shots     []shot  // after each of them
	// The rest is kept without the rules, to judge them.
	generation int64
	owners     map[int32]messages.NodeID
	landed     map[uint64]int64 // accepted appends that are in the log: id to position
	maxStart   int64
}

type shot struct {
	state journal.State
	log   modelLog
}

func newTruth(key messages.PartitionKey) *truth {
	return &truth{key: key, state: journal.NewState(), owners: make(map[int32]messages.NodeID), landed: make(map[uint64]int64)}
}

func (w *world) truthOf(key messages.PartitionKey) *truth {
	t := w.truths[key]
	if t == nil {
		t = newTruth(key)
		w.truths[key] = t
		w.keys = append(w.keys, key)
	}
	return t
}

// at is what a replica at that position has to be.
func (t *truth) at(position int64) shot {
	i := sort.Search(len(t.positions), func(i int) bool { return t.positions[i] > position })
	if i == 0 {
		return shot{state: journal.NewState()}
	}
	return t.shots[i-1]
}

// take decides one operation where it has landed.
func (t *truth) take(w *world, position int64, op journal.Operation, author messages.NodeID) {
	before := t.state
	next, verdict := w.decide(t.state, position, op)
	t.state = next
	x := w.wishOf(op)
	if verdict == journal.Accepted {
		w.count.accepted++
		t.judge(w, x, before, op, author)
		t.carryOut(w, x, position, op, next)
	}
	t.positions = append(t.positions, position)
	t.shots = append(t.shots, shot{state: t.state, log: t.log})
}

func (t *truth) carryOut(w *world, x *wish, position int64, op journal.Operation, next journal.State) {
	switch op.Kind {
	case journal.OpAppend:
		id := idOf(op.Batches)
		if err := t.log.append(batch{base: t.log.end, end: next.LogEnd, id: id}); err != nil {
			w.fail("%s: %v", t.key, err)
		}
		t.landed[id] = position
	case journal.OpTruncate:
		for _, b := range t.log.batches {
			if later := w.wishes[(b.id-1)%uint64(len(w.wishes))]; b.end > op.Offset && later.id == b.id && later.id > x.id && later.node == x.node && later.answer == done {
				w.fail("%s: %s of node %d, given up, removed an append that was proposed after it and acknowledged", t.key, op.Kind, x.node.id)
			}
		}
		t.log.truncate(op.Offset)
	case journal.OpRestartAt:
		t.log.restartAt(op.Offset)
	case journal.OpRaiseLogStart:
		t.log.raise(next.LogStart)
		t.maxStart = max(t.maxStart, next.LogStart)
	case journal.OpBaseline:
		t.log = *x.baseline
	case journal.OpClaim, journal.OpMode:
	}
	if op.Kind != journal.OpAppend && op.Kind != journal.OpRaiseLogStart {
		t.generation = position
	}
	x.accepted++
	x.position = position
}

// judge says whether an operation may be accepted at all, by what its author knew.
func (t *truth) judge(w *world, x *wish, before journal.State, op journal.Operation, author messages.NodeID) {
	switch {
	case op.Kind == journal.OpAppend && (x.end != t.log.end || x.last != t.log.last() && x.last != 0 && t.log.last() != 0): // 0: all of it was removed from the front
		w.fail("%s: append of node %d built on a log that ended at %d with %d, and landed at %d behind %d", t.key, author, x.end, x.last, t.log.end, t.log.last())
	case x.sure:
		w.fail("%s: %s of node %d took effect after its author was told that it is refused", t.key, op.Kind, author)
	case op.Kind != journal.OpClaim && x.generation != t.generation && !w.fault.noGeneration:
		w.fail("%s: %s of node %d, proposed in generation %d, took effect in %d", t.key, op.Kind, author, x.generation, t.generation)
	case op.Kind == journal.OpAppend && x.accepted > 0:
		w.fail("%s: an append of node %d is stored twice", t.key, author)
	case op.Kind == journal.OpAppend && before.Mode != x.mode:
		w.fail("%s: %s append of node %d took effect in a partition that is %s", t.key, op.Class, author, before.Mode)
	case op.Kind == journal.OpRaiseLogStart && x.accepted > 0 && before.LogStart < op.Offset:
		w.fail("%s: a repeated raise of the log start removed more", t.key)
	}
	if op.Kind == journal.OpClaim || op.Kind == journal.OpBaseline {
		if owner, owned := t.owners[op.Epoch]; owned && owner != op.Node {
			w.fail("%s: epoch %d belongs to node %d and node %d", t.key, op.Epoch, owner, op.Node)
		}
		if op.Epoch < before.Epoch {
			w.fail("%s: epoch %d after %d", t.key, op.Epoch, before.Epoch)
		}
		t.owners[op.Epoch] = op.Node
	}
	end := before.LogEnd
	if op.Kind == journal.OpTruncate || op.Kind == journal.OpRestartAt || op.Kind == journal.OpBaseline {
		return
	}
	if t.log.end < end {
		w.fail("%s: log end went back from %d to %d", t.key, end, t.log.end)
	}
}

// check compares every replica that changed, and every log with its state.
func (w *world) check() {
	for _, n := range w.nodes {
		for _, r := range n.list {
			if r.changed && !n.shards[shardOf(r.key)].stopped {
				r.changed = false
				w.compare(n, r)
			}
		}
	}
}

func (w *world) compare(n *node, r *replica) {
	if r.behind || r.baseline || w.broken != "" {
		return
	}
	want := w.truthOf(r.key).at(r.state.Sequence)
	got := r.state
	got.Sequence = want.state.Sequence
	sum, start := want.log.sum, want.log.start
	if r.log.start > start && r.log.start <= w.truths[r.key].maxStart && got.LogStart == r.log.start {
		// Raised before a crash, and not yet again after it.
		raised := want.log
		raised.raise(r.log.start)
		sum, start = raised.sum, raised.start
		want.state.LogStart = start
		if r.log.end < r.log.start {
			w.fail("node %d: log of %s ends below its start", n.id, r.key)
		}
	}
	if got != want.state || r.log.sum != sum || r.log.start != start || r.log.end != want.log.end {
		w.fail("node %d: %s at %s\n is     %+v, log %d to %d %s\n not    %+v, log %d to %d %s", n.id, r.key, place(r.state.Sequence),
			got, r.log.start, r.log.end, show(r.log), want.state, start, want.log.end, show(&want.log))
	}
}

func place(position int64) string {
	return fmt.Sprintf("%d/%d", journal.SequenceOf(position), position&(journal.MessageEntriesMax-1))
}

func show(l *modelLog) string {
	var s []string
	for _, b := range l.batches {
		s = append(s, strconv.FormatInt(b.base, 10)+":"+strconv.FormatUint(b.id, 10))
	}
	return "[" + strings.Join(s, " ") + "]"
}
