package simjournal

import (
	"strconv"

	"kagami/cluster/journal"
	"kagami/messages"
)

// result is the answer to a wish.
type result int8

const (
	done    result = iota + 1
	refused        // by the rules, or certain to be: it never takes effect
	unknown        // may have taken effect, or may yet
)

// wish is one operation that somebody waits for on one node, with what its author
// knew when it was proposed.
type wish struct {
	id         uint64
	node       *node
	key        messages.PartitionKey
	op         journal.Operation
	ticket     journal.Ticket
	generation int64
	end        int64
	last       uint64
	mode       messages.Mode
	baseline   *modelLog
	then       func(result)

	answer   result
	sure     bool // told that it never takes effect
	accepted int
	position int64 // where it was accepted
}

func (x *wish) settled() bool { return x.answer != 0 }

// forget: the stream was put back; what landed above sequence is lost.
func (x *wish) forget(shard int, to uint64) {
	if shardOf(x.key) == shard {
		x.accepted = 0
		if journal.SequenceOf(x.position) > to {
			x.position = 0
		}
	}
}

// wishOf finds whose operation it is: the reason carries its number.
func (w *world) wishOf(op journal.Operation) *wish {
	i, err := strconv.Atoi(op.Reason)
	if err != nil || i <= 0 || i > len(w.wishes) {
		w.fail("an operation of nobody: %+v", op)
		return &wish{}
	}
	return w.wishes[i-1]
}

// propose sends an operation of a replica on its way, one at a time.
func (n *node) propose(r *replica, op journal.Operation, then func(result)) *wish {
	w := n.w
	x := &wish{id: uint64(len(w.wishes) + 1), node: n, key: r.key, generation: op.Generation, end: r.state.LogEnd, last: r.log.last(), mode: r.state.Mode, then: then}
	op.Reason = strconv.FormatUint(x.id, 10)
	if op.Kind == journal.OpAppend {
		op.Batches = bytesOf(x.id)
	}
	if op.Kind == journal.OpBaseline {
		x.baseline = r.log.clone()
	}
	x.op = op
	w.wishes = append(w.wishes, x)
	shard := shardOf(r.key)
	sh := n.shards[shard]
	x.ticket = sh.proposer.Add(journal.Entry{Key: r.key, Op: op})
	sh.waiting[x.ticket] = x
	r.own = x
	w.note("node %d: wish %d: %s of %s, generation %s, base %d, offset %d", n.id, x.id, op.Kind, r.key, place(op.Generation), op.Base, op.Offset)
	if w.rng.IntN(3) > 0 {
		n.pump(shard)
	}
	return x
}

// settle answers a wish, once.
func (n *node) settle(x *wish, a result) {
	if x.settled() {
		n.w.fail("wish %d is answered twice", x.id)
		return
	}
	sh := n.shards[shardOf(x.key)]
	if sh.waiting[x.ticket] == x {
		delete(sh.waiting, x.ticket)
		sh.proposer.Abandon(x.ticket)
	}
	x.answer = a
	n.w.note("node %d: wish %d is answered %d", n.id, x.id, a)
	if r := n.replicas[x.key]; r != nil && r.own == x {
		r.own = nil
	}
	switch a {
	case done:
		n.w.count.acked++
		if x.accepted == 0 {
			n.w.fail("node %d acknowledged %s of %s, which the journal refused", n.id, x.op.Kind, x.key)
		}
		if _, there := n.w.truths[x.key].landed[x.id]; x.op.Kind == journal.OpAppend && !there {
			n.w.fail("node %d acknowledged an append of %s that isn't in its log", n.id, x.key)
		}
	case refused:
		x.sure = true
		if x.accepted > 0 {
			n.w.fail("node %d refused %s of %s, which the journal accepted", n.id, x.op.Kind, x.key)
		}
	case unknown:
		n.w.count.unknown++
	}
	if x.then != nil {
		x.then(a)
	}
}

// answerAll ends tickets that came without a verdict.
func (n *node) answerAll(shard int, tickets []journal.Ticket, a result) {
	for _, t := range tickets {
		if x := n.shards[shard].waiting[t]; x != nil {
			n.settle(x, a)
		}
	}
}

// timeout gives up one wish of the node.
func (n *node) timeout() {
	if !n.running() {
		return
	}
	if r := n.any(); r != nil && r.own != nil {
		n.settle(r.own, unknown)
	}
}

// wish has a client, a mirror, an operator or the node itself want something, if
// the node leads anything.
func (n *node) wish() bool {
	r := n.led()
	if !n.running() || r == nil {
		return false
	}
	rng, s := n.w.rng, r.state
	op := journal.Operation{Generation: s.Generation}
	switch p := rng.IntN(100); {
	case p < 55 && s.Mode != messages.ModeSealed || p < 15:
		n.appendTo(r, nil)
		return true
	case p < 60 && s.LogEnd > 0:
		op.Kind, op.Offset = journal.OpRaiseLogStart, r.log.boundary(rng.IntN(len(r.log.batches)+1))
	case p < 80 && s.Mode != messages.ModeMirroring:
		n.startMirroring(r)
		return true
	case p < 85 && s.Mode != messages.ModeWritable:
		op.Kind, op.Base, op.Offset = journal.OpRestartAt, s.LogEnd, s.LogEnd+rng.Int64N(50)
	case p < 95 && s.Mode != messages.ModeWritable:
		n.stopMirroring(r)
		return true
	case s.Mode != messages.ModeWritable:
		op.Kind, op.Base, op.Offset = journal.OpTruncate, s.LogEnd, r.log.boundary(rng.IntN(len(r.log.batches)+1))
	default:
		op.Kind, op.Epoch, op.Node = journal.OpClaim, s.Epoch, n.id // the same epoch again
	}
	x := n.propose(r, op, nil)
	if op.Kind == journal.OpTruncate && n.w.chance(3) { // its author gives up and goes on
		n.settle(x, unknown)
		n.appendTo(r, nil)
	}
	return true
}

// led is a replica that this node may propose for, nil if there is none.
func (n *node) led() *replica {
	if len(n.list) == 0 {
		return nil
	}
	first := n.w.rng.IntN(len(n.list))
	for i := range n.list {
		if r := n.list[(first+i)%len(n.list)]; r.key != metaKey && r.leads() {
			return r
		}
	}
	return nil
}

// appendTo appends what the mode takes, now and then what it doesn't.
func (n *node) appendTo(r *replica, then func(result)) {
	rng, s := n.w.rng, r.state
	class := map[messages.Mode]messages.Class{
		messages.ModeWritable: messages.ClassClient, messages.ModeSealed: messages.ClassInternal, messages.ModeMirroring: messages.ClassMirror,
	}[s.Mode]
	if s.Mode != messages.ModeSealed && n.w.chance(10) {
		class = messages.ClassInternal
	}
	n.propose(r, journal.Operation{
		Kind: journal.OpAppend, Generation: s.Generation, Class: class, Base: s.LogEnd, End: s.LogEnd + 1 + rng.Int64N(3),
	}, then)
}

// after goes on with a sequence when its last step is done and the node still leads.
func (n *node) after(r *replica, next func()) func(result) {
	return func(a result) {
		if a != done || !r.leads() || r.own != nil {
			return
		}
		n.later("goes on with a sequence", func() {
			if r.leads() && r.own == nil && n.replicas[r.key] == r {
				next()
			}
		})
	}
}

func (n *node) mode(r *replica, m messages.Mode, then func(result)) {
	n.propose(r, journal.Operation{Kind: journal.OpMode, Generation: r.state.Generation, Mode: m}, then)
}

// startMirroring: sealed, cut, mirroring.
func (n *node) startMirroring(r *replica) {
	n.mode(r, messages.ModeSealed, n.after(r, func() {
		cut := r.log.boundary(n.w.rng.IntN(len(r.log.batches) + 1))
		n.propose(r, journal.Operation{Kind: journal.OpTruncate, Generation: r.state.Generation, Base: r.state.LogEnd, Offset: cut}, n.after(r, func() {
			n.mode(r, messages.ModeMirroring, nil)
		}))
	}))
}

// stopMirroring: sealed, markers, writable.
func (n *node) stopMirroring(r *replica) {
	n.mode(r, messages.ModeSealed, n.after(r, func() {
		if r.state.Mode != messages.ModeSealed {
			return
		}
		n.appendTo(r, n.after(r, func() { n.mode(r, messages.ModeWritable, nil) }))
	}))
}
