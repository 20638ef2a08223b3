package simjournal

import (
	"slices"

	"kagami/cluster/journal"
	"kagami/messages"
)

// keptMax is how many operations a replica that is behind keeps. Few, so that they are
// dropped now and then; what was dropped only a whole replica has.
const keptMax = 20

// replica is a node's copy of one partition.
type replica struct {
	n        *node
	key      messages.PartitionKey
	state    journal.State
	log      *modelLog // on the disk
	claimed  bool      // by this process
	baseline bool      // of a cluster of one, not in the journal yet
	dirty    bool
	own      *wish

	behind bool // it can't apply: it keeps operations, until a copy
	kept   []keptOperation
	keptAt int64 // every operation above that position is in kept
	copy   *copying
	// replaying: what was kept is being applied; a crash makes it behind again.
	replaying bool

	changed bool // since it was compared with the truth
}

type keptOperation struct {
	position int64
	op       journal.Operation
}

// openReplica starts from the disk, as after a crash.
func (n *node) openReplica(key messages.PartitionKey) {
	shard := shardOf(key)
	log, cp := n.disk.logs[key], checkpoint{}
	cp, known := n.disk.cps[key]
	before, passed := n.shards[shard].passed[key]
	if log == nil {
		log = &modelLog{}
		n.disk.logs[key] = log
	}
	r := &replica{n: n, key: key, log: log, state: journal.NewState(), changed: true}
	n.replicas[key] = r
	n.list = append(n.list, r)
	r.keptAt = journal.At(n.shards[shard].applied.Sequence+1, 0) - 1
	switch {
	case known && cp.direct:
		r.state, r.baseline = cp.state, true
	case known && passed:
		n.disk.passOver(key, before)
		r.restore(n.disk.cps[key])
	case known:
		r.restore(cp)
	case n.w.fault.blindBirth || n.newborn(key):
		log.restartAt(0)
	default:
		log.restartAt(0)
		r.fallBehind()
		n.disk.passOver(key, before)
	}
	n.w.note("node %d opens %s: %+v, log %d to %d, behind %v, baseline %v", n.id, key, r.state, log.start, log.end, r.behind, r.baseline)
}

func (n *node) newborn(key messages.PartitionKey) bool {
	sh := n.shards[shardOf(key)]
	_, known := n.disk.cps[key]
	_, passed := sh.passed[key]
	return journal.Newborn(key, sh.applied.Covered, known || passed)
}

// restore brings the log to where the checkpoint is.
func (r *replica) restore(cp checkpoint) {
	r.state = cp.state
	if cp.pending != 0 {
		r.cut(cp.pending, cp.pendingOffset)
		r.n.put(r.key, checkpoint{state: cp.state, behind: cp.behind})
	}
	if cp.behind {
		r.fallBehind()
		return
	}
	r.log.truncate(cp.state.LogEnd)
	if r.log.end != cp.state.LogEnd {
		if r.n.w.fault != (faults{}) { // what comes of it is to show by itself
			r.fallBehind()
			return
		}
		r.n.w.fail("node %d: log of %s ends at %d, its checkpoint says %d", r.n.id, r.key, r.log.end, cp.state.LogEnd)
	}
	r.log.raise(cp.state.LogStart)
	r.state.LogStart = r.log.start
}

func (r *replica) cut(kind journal.OpKind, offset int64) {
	if kind == journal.OpRestartAt {
		r.log.restartAt(offset)
	} else {
		r.log.truncate(offset)
	}
}

func (r *replica) checkpoint() checkpoint { return checkpoint{state: r.state, behind: r.behind} }

func (r *replica) leads() bool {
	return r.claimed && !r.behind && r.state.Node == r.n.id && r.own == nil && !r.n.shards[shardOf(r.key)].stopped
}

func (r *replica) fallBehind() {
	r.n.w.count.behind++
	r.behind, r.claimed, r.kept, r.copy = true, false, nil, nil
}

// miss: operations up to position are gone. Durable at once. rewound: what the log has
// is of another history.
func (r *replica) miss(position int64, rewound bool) {
	if r.baseline {
		return // not in the journal yet
	}
	r.fallBehind()
	r.keptAt = position
	if rewound {
		r.state.Sequence = 0
	}
	r.n.disk.cps[r.key] = r.checkpoint()
}

// apply carries out an operation that the stream brought, and says what to answer its
// author if he waits here.
func (r *replica) apply(position int64, op journal.Operation, x *wish) result {
	w := r.n.w
	switch {
	case r.behind && w.fault.keptBelow && position <= r.state.Sequence:
		return unknown
	case r.behind: // whatever its state says: that of the copy may be older
		if len(r.kept) >= keptMax {
			r.kept, r.keptAt = nil, position
		} else {
			r.kept = append(r.kept, keptOperation{position, op})
		}
		return unknown
	case position <= r.state.Sequence && !r.baseline:
		return unknown // in a copy that was installed
	}
	before := r.state.Generation
	a := r.carryOut(position, op)
	if x == nil && r.own != nil && r.state.Generation != before && r.own.op.Kind != journal.OpClaim && !r.behind {
		r.n.settle(r.own, refused) // its generation ended: wherever it lands, it is refused
	}
	if x != nil && a == done && op.Kind == journal.OpClaim {
		r.claimed = true
		w.count.claims++
	}
	return a
}

// carryOut decides and applies.
func (r *replica) carryOut(position int64, op journal.Operation) result {
	w := r.n.w
	state := r.state
	if r.baseline {
		state = journal.NewState() // what the journal knows
	}
	next, verdict := w.decide(state, position, op)
	r.dirty, r.changed = true, true
	if verdict != journal.Accepted {
		if r.baseline {
			w.fail("node %d: %s of %s before its baseline: %s", r.n.id, op.Kind, r.key, verdict)
		}
		r.state = next
		r.settleStart()
		return refused
	}
	switch op.Kind {
	case journal.OpAppend:
		if err := r.log.append(batch{base: r.state.LogEnd, end: next.LogEnd, id: idOf(op.Batches)}); err != nil {
			w.fail("node %d: %s: %v", r.n.id, r.key, err)
		}
	case journal.OpTruncate, journal.OpRestartAt:
		r.applyCut(next, op)
	case journal.OpRaiseLogStart:
		r.log.raise(next.LogStart)
		r.n.maybeCrash()
	case journal.OpBaseline:
		if !r.baseline {
			r.state = next
			r.fallBehind()
			r.keptAt = position
			return done
		}
		// Durable at once: a crash after the next append would leave a log that is longer
		// than the baseline, which comes again, and nothing that says so.
		r.baseline, r.log.synced = false, r.log.end
		if !w.fault.lateBaseline {
			r.n.put(r.key, checkpoint{state: next})
		}
		r.n.maybeCrash()
	case journal.OpClaim, journal.OpMode:
	}
	r.state = next
	r.settleStart()
	return done
}

// settleStart takes over a log start that was raised before a crash.
func (r *replica) settleStart() {
	if r.log.start > r.state.LogStart {
		r.state.LogStart = r.log.start
	}
}

// applyCut makes a cut that a crash can't leave half done, and behind which an older
// checkpoint doesn't count.
func (r *replica) applyCut(next journal.State, op journal.Operation) {
	w, n := r.n.w, r.n
	behind := r.replaying && !w.fault.replayWhole
	nothing := op.Kind == journal.OpTruncate && op.Offset >= r.log.end || op.Kind == journal.OpRestartAt && r.log.start == op.Offset && r.log.end == op.Offset
	if nothing {
		return
	}
	w.count.cuts++
	if w.fault.noCheckpoint {
		r.cut(op.Kind, op.Offset)
		return
	}
	r.log.synced = r.log.end
	n.maybeCrash()
	n.put(r.key, checkpoint{state: next, behind: behind, pending: op.Kind, pendingOffset: op.Offset})
	n.maybeCrash()
	r.cut(op.Kind, op.Offset)
	n.maybeCrash()
	n.put(r.key, checkpoint{state: next, behind: behind})
	n.maybeCrash()
	if r.replaying && w.chance(4) { // rare enough to come here
		panic(crashed{node: n})
	}
}

// copying is a copy from another node.
type copying struct {
	from  *node
	life  int
	cutAt int64
	begun bool
}

// piece is an answer of the node that is copied from.
type piece struct {
	state    journal.State
	position int64
	batches  []batch
}

// repair has a replica that is behind ask another node for a piece.
func (n *node) repair() {
	var behind []*replica
	for _, r := range n.list {
		if r.behind && !n.shards[shardOf(r.key)].stopped {
			behind = append(behind, r)
		}
	}
	if len(behind) == 0 {
		return
	}
	r := behind[n.w.rng.IntN(len(behind))]
	if c := r.copy; c == nil || !c.from.running() || c.from.life != c.life || n.w.chance(10) {
		from := n.w.nodes[n.w.rng.IntN(len(n.w.nodes))]
		if from == n || !from.running() {
			return
		}
		r.copy = &copying{from: from, life: from.life}
	}
	c, offset, least := r.copy, r.log.end, r.keptAt
	c.from.later("is asked for a piece", func() {
		p, ok := c.from.offer(r.key, offset, least)
		if !ok || n.w.chance(10) {
			if r.copy == c {
				r.copy = nil
			}
			return
		}
		if !n.up {
			return
		}
		n.later("gets a piece", func() {
			if n.replicas[r.key] == r && r.behind && r.copy == c && offset == r.log.end {
				r.take(p)
			}
		})
	})
}

// unborn is up to where this node, which has no replica of it, knows that the
// partition had no operation.
func (n *node) unborn(key messages.PartitionKey) (position int64, ok bool) {
	sh := n.shards[shardOf(key)]
	if n.newborn(key) {
		return journal.At(sh.applied.Sequence+1, 0) - 1, true
	}
	position = sh.passed[key]
	if cp, known := n.disk.cps[key]; known && cp.behind && cp.state.Generation == 0 {
		position = cp.state.Sequence
	}
	return position, position > 0
}

// offer is the other side: a piece of a whole log, and what it belongs to. A node
// without a replica can say up to where there was no operation: or nobody might, after
// each replica's node had a hole.
func (n *node) offer(key messages.PartitionKey, offset, least int64) (piece, bool) {
	r, sh := n.replicas[key], n.shards[shardOf(key)]
	if r == nil && n.current && key.CreatedAt < n.image.end && !n.image.gone(key) && !sh.stopped {
		if position, ok := n.unborn(key); ok && position >= least {
			return piece{state: journal.NewState(), position: position}, true
		}
	}
	if r == nil || r.behind || r.baseline || sh.stopped {
		return piece{}, false
	}
	p := piece{state: r.state, position: max(r.state.Sequence, journal.At(sh.applied.Sequence+1, 0)-1)}
	if p.position < least {
		return piece{}, false
	}
	if offset >= r.log.start && offset < r.log.end {
		p.batches = slices.Clone(r.log.from(offset, 3))
	}
	return p, true
}

// take appends a piece, and at the end of their log goes on with their state.
func (r *replica) take(p piece) {
	c, w := r.copy, r.n.w
	if !c.begun || p.state.CutAt != c.cutAt || r.log.end < p.state.LogStart {
		theirs := p.state
		theirs.Sequence = max(theirs.Sequence, p.position)
		if !journal.Extends(r.state, r.log.end, theirs) {
			r.log.restartAt(p.state.LogStart)
			r.state.Sequence, p.batches = p.state.CutAt, nil
		} else {
			r.log.raise(p.state.LogStart)
		}
		c.begun, c.cutAt = true, p.state.CutAt
		r.n.put(r.key, r.checkpoint())
		r.n.maybeCrash()
	}
	for _, b := range p.batches {
		if b.base < r.log.end || b.end > p.state.LogEnd {
			continue
		}
		if err := r.log.append(b); err != nil {
			w.fail("node %d copies %s: %v", r.n.id, r.key, err)
		}
	}
	r.n.maybeCrash()
	if r.log.end < p.state.LogEnd {
		return
	}
	if r.log.end > p.state.LogEnd {
		r.copy = nil // it answered from an older state than before
		return
	}
	state, ok := journal.Install(p.state, p.position, r.keptAt)
	if !ok {
		r.copy = nil // another time, from a node that is further
		return
	}
	if w.fault.wrongCopy {
		state.Sequence = journal.At(r.n.shards[shardOf(r.key)].applied.Sequence+1, 0) - 1
	}
	r.log.raise(state.LogStart)
	r.log.synced = r.log.end
	r.n.maybeCrash()
	w.count.copies++
	w.note("node %d has copied %s from node %d: %+v", r.n.id, r.key, c.from.id, state)
	kept := r.kept
	r.state, r.behind, r.kept, r.copy, r.dirty, r.changed = state, false, nil, nil, true, true
	r.settleStart() // an earlier piece may have come from a node with a higher one
	// The shard's record may be above the copy: until what was kept is in too, and
	// flushed, the replica is behind for whoever reads its checkpoint.
	r.replaying = true
	for _, k := range kept {
		r.apply(k.position, k.op, nil)
	}
	r.replaying = false
	r.log.synced = r.log.end
	r.n.maybeCrash()
	r.n.put(r.key, r.checkpoint())
	r.n.maybeCrash()
}
