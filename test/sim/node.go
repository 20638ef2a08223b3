package sim

import (
	"errors"
	"strconv"
	"strings"

	"kagami/fsm"
	"kagami/messages"
)

// gate is a replica's gate for client writes on one node.
type gate struct{ admit, forced bool }

func (g gate) open() bool { return g.admit && !g.forced }

// node leads partitions with real cores; everything in it is lost in a crash.
type node struct {
	c       *cluster
	id      int
	name    string // "b0"
	life    int
	version int
	image   []topicImage
	parts   []*part
	gates   []gate
}

// part is the shell of one core.
type part struct {
	core    *fsm.Partition
	epoch   int32 // claimed by this node, -1 if it doesn't lead a mirror partition
	write   *fsm.Write
	reading *fsm.ReadState
	timer   uint32
	timing  bool
	jobs    []*job // wait for the one that runs
	running *job
	fetcher *fetcher
	opening uint32
	opened  fsm.Cut // what the journal had counted when this leadership began
	term    int     // of the leadership: what an earlier one sends is dropped
}

func newNode(c *cluster, id int) *node {
	n := &node{c: c, id: id, name: c.name + strconv.Itoa(id)}
	n.reset()
	return n
}

func (n *node) reset() {
	n.parts, n.image, n.version = nil, nil, 0
	n.gates = make([]gate, simPartitions)
	for p := range simPartitions {
		n.parts = append(n.parts, &part{core: fsm.NewPartition(simMirror, topicOf(p), messages.NoOffset), epoch: -1})
		n.gates[p].forced = true
	}
}

func (n *node) restart() {
	n.life++
	n.c.w.drop(n)
	for p, pt := range n.parts {
		if pt.epoch >= 0 {
			n.c.audits[p].disturbed = true
		}
	}
	n.reset()
	version, image := n.c.version, append([]topicImage(nil), n.c.image...)
	n.local("image", func(bool) { n.see(version, image) })
}

// local runs something of this incarnation later.
func (n *node) local(name string, run func(fault bool)) {
	n.c.w.later(&action{name: n.name + ":" + name, node: n, run: run})
}

// see applies an image: claim, gates, wishes. An older one is history.
func (n *node) see(version int, image []topicImage) {
	if version <= n.version {
		return
	}
	n.version, n.image = version, image
	for p, t := range image {
		n.lead(p, t)
	}
}

func (n *node) lead(p int, t topicImage) {
	pt, rep, g := n.parts[p], n.c.replicas[p], &n.gates[p]
	g.forced = t.desired != messages.DesiredStopped && t.desired != messages.DesiredNone
	if g.forced {
		g.admit = false
	}
	other := rep.node != n.id
	leads := t.leader == n.id && rep.claim(t.epoch, n.id)
	if pt.epoch >= 0 && (!leads || other) {
		// Another node's claim in between ends a leadership, also when the image that
		// said so was never seen here (seed 9105 of an earlier generator).
		pt.epoch = -1
		pt.term++
		n.c.audits[p].disturbed = true
		n.feed(p, fsm.Resign{})
	}
	if !leads {
		return
	}
	if t.desired == messages.DesiredNone {
		g.admit = true
		return
	}
	pt.epoch = t.epoch
	if pt.core.View().LeaderEpoch == messages.NoEpoch {
		pt.opened = rep.cuts
		pt.term++
	}
	n.feed(p, fsm.Lead{Epoch: t.epoch, Desired: t.desired, NowMillis: int64(n.life)})
	n.admit(p)
}

// holds: the journal would take what this node proposes.
func (n *node) holds(p int) bool {
	rep := n.c.replicas[p]
	return n.parts[p].epoch >= 0 && n.parts[p].epoch == rep.claimed && rep.node == n.id
}

// admit opens the gate of a partition that has been opened.
func (n *node) admit(p int) {
	if pt := n.parts[p]; pt.opening == opened && pt.core.State() == messages.StateStopped && pt.core.View().Desired == messages.DesiredStopped {
		n.gates[p].admit = true
	}
}

// opened stands in part.opening for: the journal is writable.
const opened = ^uint32(0)

func (n *node) tell(p int, in fsm.Input) {
	pt, term := n.parts[p], n.parts[p].term
	n.local("told:"+topics[p]+":"+inputName(in), func(bool) {
		if pt.term == term {
			n.feed(p, in)
		}
	})
}

func (n *node) feed(p int, in fsm.Input) {
	env := fsm.Env{Policy: fsm.DefaultRetryPolicy(), Random: 0.5}
	for _, o := range n.parts[p].core.Step(in, env) {
		n.perform(p, o)
	}
}

func (n *node) perform(p int, o fsm.Output) {
	pt := n.parts[p]
	switch o := o.(type) {
	case fsm.ReadState:
		pt.reading, pt.write = &o, nil
		n.sendRead(p, o)
	case fsm.PersistWrite:
		w := o.Write
		pt.write = &w
		n.sendWrite(p, w)
	case fsm.ClosePartition:
		n.gates[p].admit, pt.opening = false, 0
	case fsm.Cancel:
		n.cancel(p)
	case fsm.SetTimer:
		pt.timer, pt.timing = o.Timer, true
	case fsm.StopTimer:
		pt.timing = false
	case fsm.OpenPartition:
		pt.opening = o.Work
		n.enqueue(p, o, false)
	case fsm.Unfetch, fsm.Fetch:
		n.enqueue(p, o, true)
	case fsm.Align, fsm.AwaitReplicas, fsm.RaiseEpoch, fsm.RunStep:
		n.enqueue(p, o, false)
	case fsm.Mismatch:
		n.c.w.fail(invLME, "%s %s: LME %d is stored, the log says %d", n.name, topics[p], o.Stored, o.Computed)
	case fsm.Refused:
		if !errors.Is(o.Err, fsm.ErrRefused) {
			n.c.w.fail(invTable, "%s %s: %v", n.name, topics[p], o.Err)
		}
	}
}

func (n *node) timerDue(p int) bool {
	pt := n.parts[p]
	if !pt.timing {
		return false
	}
	pt.timing = false
	n.feed(p, fsm.RetryDue{Timer: pt.timer})
	return true
}

// resend repeats what has no answer yet, as the keeper does.
func (n *node) resend() {
	for p, pt := range n.parts {
		switch {
		case pt.epoch < 0:
		case pt.write != nil:
			n.sendWrite(p, *pt.write)
		case pt.reading != nil:
			n.sendRead(p, *pt.reading)
		}
	}
}

func (n *node) sendWrite(p int, w fsm.Write) {
	life, c := n.life, n.c
	name := n.name + ":write:" + topics[p] + ":" + strings.ToLower(w.State.String())
	c.w.later(&action{name: name, net: true, run: func(bool) {
		c.coord.write(c, waitingWrite{write: w, answer: func(a fsm.Answer) {
			c.w.later(&action{name: name + ":answer", net: true, run: func(bool) {
				if n.life == life {
					n.answered(p, w, a)
				}
			}})
		}})
	}})
}

func (n *node) answered(p int, w fsm.Write, a fsm.Answer) {
	if pt := n.parts[p]; pt.write != nil && pt.write.Number == w.Number {
		pt.write = nil
	}
	if a.Err != nil {
		n.feed(p, fsm.WriteRefused{Number: w.Number, Fenced: errors.Is(a.Err, messages.ErrFencedLeaderEpoch), Text: a.Err.Error()})
		return
	}
	n.feed(p, fsm.Written{Number: w.Number, Previous: a.Previous, Attempt: a.Attempt})
}

func (n *node) sendRead(p int, r fsm.ReadState) {
	life, c, name := n.life, n.c, n.name+":read:"+topics[p]
	c.w.later(&action{name: name, net: true, run: func(bool) {
		shard := c.coord.shard
		if shard == nil {
			return
		}
		state, ticket := shard.Read(simMirror, topicOf(p), messages.NoOffset, r.Epoch, r.Number), shard.Ticket()
		c.w.later(&action{name: name + ":answer", net: true, run: func(bool) {
			pt := n.parts[p]
			if n.life == life && pt.reading != nil && *pt.reading == r {
				pt.reading = nil
				n.loaded(p, state, ticket)
			}
		}})
	}})
}

// loaded hands over what is stored, and cuts that an earlier process made and
// nobody has stored.
func (n *node) loaded(p int, state messages.PartitionState, ticket int64) {
	pt, rep := n.parts[p], n.c.replicas[p]
	in := fsm.Loaded{State: state, LogEmpty: rep.end() == 0, Ticket: ticket}
	if pt.opened.Records > state.CutRecords {
		in.Cuts = pt.opened
	}
	n.feed(p, in)
}
