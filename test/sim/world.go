package sim

import (
	"fmt"
	"math/rand/v2"

	"kagami/fsm"
	"kagami/messages"
)

const (
	simMirror = "m"
	simNodes  = 2
)

// world is the whole simulation. What is durable: log, replicas, the image.
type world struct {
	rng        *rand.Rand
	partitions int
	image      []topicImage // by partition; the controller's truth
	version    int          // of the image
	replicas   []*modelReplica
	source     modelSource
	nodes      []*node
	coord      coordinator
	log        []fsm.Record // __mirror_state
	actions    []action     // what may happen next, in any order
	calm       bool         // healing: nothing is lost, nothing fails
	trace      []string
	broken     string
}

// topicImage is what the metadata says of one partition (a topic of its own).
type topicImage struct {
	desired messages.Desired
	leader  int
	epoch   int32
}

// modelSource is a source cluster.
type modelSource struct {
	up    bool
	epoch int32
	lme   []int32 // what it answers to a start
}

// action is something that can happen. net: the network may lose or repeat it.
type action struct {
	name string
	net  bool
	run  func()
}

func newWorld(seed uint64, partitions int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 77)), partitions: partitions, source: modelSource{up: true, epoch: 1}}
	for p := range partitions {
		w.image = append(w.image, topicImage{desired: messages.DesiredActive, leader: p % simNodes, epoch: 0})
		w.replicas = append(w.replicas, newModelReplica())
		w.source.lme = append(w.source.lme, messages.NoEpoch)
	}
	for id := range simNodes {
		w.nodes = append(w.nodes, newNode(w, id))
	}
	w.coord.load(w)
	w.publish()
	return w
}

func (w *world) note(format string, args ...any) {
	if len(w.trace) > 4000 {
		w.trace = w.trace[1:]
	}
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// fail records the first broken invariant.
func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// chance is true one time in n, and never while the world heals.
func (w *world) chance(n int) bool { return !w.calm && w.rng.IntN(n) == 0 }

func (w *world) later(name string, net bool, run func()) {
	w.actions = append(w.actions, action{name: name, net: net, run: run})
}

// step lets one thing happen.
func (w *world) step() {
	if !w.calm && w.rng.IntN(6) == 0 || len(w.actions) == 0 {
		w.happen()
	} else {
		i := w.rng.IntN(len(w.actions))
		a := w.actions[i]
		w.actions[i] = w.actions[len(w.actions)-1]
		w.actions = w.actions[:len(w.actions)-1]
		switch {
		case a.net && w.chance(10):
			w.note("lost: %s", a.name)
		case a.net && w.chance(10):
			w.note("twice: %s", a.name)
			w.actions = append(w.actions, a)
			a.run()
		default:
			w.note("%s", a.name)
			a.run()
		}
	}
	w.check()
}

// happen is the outside world: operators, crashes, elections, the source, time.
func (w *world) happen() {
	p := w.rng.IntN(w.partitions)
	n := w.nodes[w.rng.IntN(simNodes)]
	if w.calm {
		w.tick()
		return
	}
	switch w.rng.IntN(20) {
	case 0, 1, 2:
		w.operator(p)
	case 3:
		w.note("node %d crashes", n.id)
		n.restart()
	case 4:
		w.note("coordinator crashes")
		w.coord.crash()
		w.later("coordinator loads", false, func() { w.coord.load(w) })
	case 5:
		w.image[p].leader = (w.image[p].leader + 1) % simNodes
		w.image[p].epoch++
		w.note("partition %d moves to node %d, epoch %d", p, w.image[p].leader, w.image[p].epoch)
		w.publish()
	case 6:
		w.source.epoch += int32(w.rng.IntN(6))
		w.source.lme[p] = w.rng.Int32N(w.source.epoch+3) - 1
	case 7:
		w.source.up = !w.source.up
		w.note("source up: %v", w.source.up)
	case 8:
		n.tell(p, fsm.Recover{})
	case 9:
		n.tell(p, fsm.SourceChanged{Text: "another"})
	case 10:
		n.tell(p, fsm.SourceBack{})
	case 11:
		n.tell(p, fsm.Refreshed{OK: w.source.up})
	case 12:
		w.produce(p)
	default:
		w.tick()
	}
}

// operator does what the public API allows.
func (w *world) operator(p int) {
	t := &w.image[p]
	stored := w.stored(p).State
	next := t.desired
	switch {
	case w.rng.IntN(2) == 0:
		next = messages.DesiredStopped
	case t.desired == messages.DesiredActive:
		next = messages.DesiredPaused
	case t.desired == messages.DesiredPaused:
		next = messages.DesiredActive
	case stored == messages.StateStopped || stored == messages.StateUnknown:
		next = messages.DesiredActive
	}
	if next != t.desired {
		t.desired = next
		w.note("partition %d: desired %s", p, next)
		w.publish()
	}
}

// tick is time: lost requests are repeated, timers fire, fetchers fetch.
func (w *world) tick() {
	for _, n := range w.nodes {
		n.resend()
	}
	for p := range w.partitions {
		n := w.nodes[w.rng.IntN(simNodes)]
		n.fetchOnce(p)
		if w.calm || w.rng.IntN(3) == 0 {
			n.timerDue(p)
		}
	}
	if w.coord.shard == nil && w.calm {
		w.coord.load(w)
	}
}

// publish sends the image to every node; each applies the newest it has seen.
func (w *world) publish() {
	w.version++
	version, image := w.version, append([]topicImage(nil), w.image...)
	for _, n := range w.nodes {
		w.later(fmt.Sprintf("node %d sees image %d", n.id, version), false, func() { n.see(version, image) })
	}
}

// bump is the controller.
func (w *world) bump(p int, least int32) {
	w.image[p].epoch = max(least, w.image[p].epoch) + 1
	w.note("partition %d: leader epoch %d", p, w.image[p].epoch)
	w.publish()
}

// stored is the fold over the log: what any coordinator would know.
func (w *world) stored(p int) messages.PartitionState {
	s := fsm.NewShard(0)
	for _, r := range w.log {
		_ = s.Apply(r)
	}
	return s.Get(simMirror, topicOf(p), messages.NoOffset)
}

func topicOf(p int) messages.TopicPartition {
	return messages.TopicPartition{Topic: fmt.Sprintf("t%d", p)}
}

// produce is a client that tries to write, on each node that might take it.
func (w *world) produce(p int) {
	for _, n := range w.nodes {
		r := w.replicas[p]
		if !n.gates[p].open() || r.mode != messages.ModeWritable || !n.holds(p) {
			continue
		}
		if s := w.stored(p).State; s != messages.StateStopped {
			w.fail("node %d took a client write for partition %d in %s", n.id, p, s)
		}
		r.append(modelBatch{epoch: r.claimed, kind: kindClient})
	}
}

// check is every invariant that can be seen from outside.
func (w *world) check() {
	if w.coord.shard != nil && !w.coord.storing {
		replayed := fsm.NewShard(0)
		for _, r := range w.log {
			if err := replayed.Apply(r); err != nil {
				w.fail("record in the log: %v", err)
			}
		}
		for p := range w.partitions {
			live, again := w.coord.shard.Get(simMirror, topicOf(p), -1), replayed.Get(simMirror, topicOf(p), -1)
			if live != again {
				w.fail("partition %d: live %+v, replayed %+v", p, live, again)
			}
		}
	}
	for p, r := range w.replicas {
		if why := r.check(); why != "" {
			w.fail("partition %d: %s", p, why)
		}
	}
}
