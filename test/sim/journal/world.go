package simjournal

import (
	"fmt"
	"math/rand/v2"

	"kagami/cluster/journal"
	"kagami/messages"
)

// Shard 0 is the metadata log's.
const (
	metaShard = 0
	shards    = 3
	// limitBytes is the size of a stream above which the dead are given up.
	limitBytes = 4000
)

// faults of the model that every run has to be able to find.
type faults struct {
	noGeneration bool // a generation that ended is taken for the current one
	noCutBase    bool // a cut takes effect whatever was appended since
	noBase       bool // appends go to the log end, wherever they were proposed
	noCheckpoint bool // no checkpoint before a cut
	trimTooFar   bool // the message at the lowest shard record is purged
	wrongCopy    bool // a copied state is installed at the copier's own position
	blindBirth   bool // a replica without checkpoint is always new
	staleRound   bool // a round writes over newer checkpoints
	oldMetadata  bool // shards are followed by whatever metadata a crash has left
	keptBelow    bool // a replica that is behind doesn't keep what is below its own state
	replayWhole  bool // a cut among what was kept writes that the replica is whole
	lateBaseline bool // an own baseline is durable only with the next round
	soleGivenUp  bool // the only complete replica may be given up
}

// world is the whole simulation.
type world struct {
	rng     *rand.Rand
	fault   faults
	nodes   []*node
	streams []*stream
	truths  map[messages.PartitionKey]*truth
	keys    []messages.PartitionKey // of truths, in order
	records map[uint64]record       // metadata records by the id of their batch
	wishes  []*wish
	actions []action
	reports [][shards]uint64 // what the trimmer heard of each node's shard records
	calm    bool             // healing: nothing is lost, nothing fails
	grown   bool             // from one node
	tracing bool
	trace   []string
	broken  string
	count   counters
}

// counters show that what should happen does.
type counters struct {
	landed, accepted, acked, crashes, holes, copies, rewinds, givenUp, cuts, claims, behind, unknown int
}

// action is something that can happen. node nil: in the network or the streams. An
// action of a node ends with its process, and waits while that is stopped.
type action struct {
	name string
	node *node
	life int
	run  func()
}

// crashed is what a process that dies in the middle of something panics with.
type crashed struct {
	node  *node
	power bool
}

func newWorld(seed uint64, f faults, tracing bool) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 4242)), fault: f, tracing: tracing,
		truths: make(map[messages.PartitionKey]*truth), records: make(map[uint64]record),
	}
	for range shards {
		w.streams = append(w.streams, &stream{first: 1, up: true, ids: make(map[string]uint64)})
	}
	n := 3 + w.rng.IntN(3)
	w.reports = make([][shards]uint64, n)
	for id := range n {
		w.nodes = append(w.nodes, &node{w: w, id: messages.NodeID(id), disk: newDisk()})
	}
	if w.rng.IntN(2) == 0 {
		w.grow()
	}
	for _, n := range w.nodes {
		n.start()
	}
	return w
}

func (w *world) note(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

// fail records the first broken invariant.
func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.note("BROKEN: %s", w.broken)
	}
}

// chance is true one time in n, and never while the world heals.
func (w *world) chance(n int) bool { return !w.calm && w.rng.IntN(n) == 0 }

func (w *world) later(name string, run func()) {
	w.actions = append(w.actions, action{name: name, run: run})
}

// step lets one thing happen, and checks.
func (w *world) step() {
	if len(w.actions) == 0 || w.rng.IntN(3) == 0 {
		w.guard(w.happen)
	} else {
		i := w.rng.IntN(len(w.actions))
		a := w.actions[i]
		w.actions[i] = w.actions[len(w.actions)-1]
		w.actions = w.actions[:len(w.actions)-1]
		switch {
		case a.node == nil:
			w.note("%s", a.name)
			a.run()
		case a.node.life != a.life || !a.node.up:
		case a.node.paused:
			w.actions = append(w.actions, a)
		default:
			w.note("node %d: %s", a.node.id, a.name)
			w.guard(a.run)
		}
	}
	w.check()
}

// guard runs something in which a node may die.
func (w *world) guard(run func()) {
	defer func() {
		switch c := recover().(type) {
		case nil:
		case crashed:
			c.node.crash(c.power)
		default:
			panic(c)
		}
	}()
	run()
}

// happen is the outside world and time.
func (w *world) happen() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if w.calm {
		n.tick()
		return
	}
	switch p := w.rng.IntN(1000); {
	case p < 380:
		n.tick()
	case p < 680:
		for i := range w.nodes { // whoever has something to lead
			if w.nodes[(int(n.id)+i)%len(w.nodes)].wish() {
				break
			}
		}
	case p < 720:
		n.timeout()
	case p < 724:
		if n.running() {
			n.crash(w.rng.IntN(3) == 0)
		}
	case p < 760:
		if n.up && w.rng.IntN(3) == 0 {
			w.note("node %d stops", n.id)
			n.paused = true
		}
	case p < 800:
		if n.paused {
			w.note("node %d goes on", n.id)
			n.paused = false
		}
	case p < 830:
		if !n.up {
			n.start()
		}
	case p < 840:
		s := w.streams[w.rng.IntN(shards)]
		s.up = false
	case p < 870:
		for _, s := range w.streams {
			s.up = true
		}
	case p < 880:
		n.claimMetadata()
	case p < 930:
		n.control()
	case p < 980:
		w.trim(w.rng.IntN(shards))
	case p < 985:
		n.putBack()
	case p < 990:
		n.keepCopy()
	case p < 993:
		w.rewind(1 + w.rng.IntN(shards-1))
	default:
		w.report(n)
	}
}

func (w *world) report(n *node) {
	n.unreported = false
	for s := range shards {
		w.reports[n.id][s] = n.disk.records[s].Needs()
	}
}

// shardOf is where a partition's operations go.
func shardOf(key messages.PartitionKey) int {
	if key.TopicID[0] == 0xff {
		return metaShard
	}
	return 1 + int(key.TopicID[0])%(shards-1)
}

var metaKey = messages.PartitionKey{TopicID: messages.TopicID{0xff}}

func keyOf(p int, createdAt int64) messages.PartitionKey {
	return messages.PartitionKey{TopicID: messages.TopicID{byte(p)}, CreatedAt: createdAt}
}

// decide is the rules, or what a fault has made of them.
func (w *world) decide(s journal.State, position int64, op journal.Operation) (journal.State, journal.Refusal) {
	if w.fault.noGeneration {
		op.Generation = s.Generation
	}
	if w.fault.noBase && op.Kind == journal.OpAppend {
		op.Base, op.End = s.LogEnd, s.LogEnd+op.End-op.Base
	}
	if w.fault.noCutBase && journal.RemovesBytes(op) {
		op.Base = s.LogEnd
	}
	return journal.Decide(s, position, op)
}
