package simjournal

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"

	"kagami/cluster/journal"
	"kagami/messages"
)

// disk is what outlives a process. cps and records are one file, each write of which
// is durable.
type disk struct {
	logs    map[messages.PartitionKey]*modelLog
	cps     map[messages.PartitionKey]checkpoint
	records [shards]journal.ShardRecord
	// highest is the newest message that any checkpoint knows of: a cut's is written
	// before the shard's record is there.
	highest [shards]journal.ShardRecord
}

type checkpoint struct {
	state         journal.State
	behind        bool // operations were passed that aren't in
	direct        bool // of a cluster of one
	pending       journal.OpKind
	pendingOffset int64
}

// nothing is the checkpoint of a partition that isn't here, and has had operations.
var nothing = checkpoint{state: journal.NewState(), behind: true}

func newDisk() *disk {
	return &disk{logs: make(map[messages.PartitionKey]*modelLog), cps: make(map[messages.PartitionKey]checkpoint)}
}

// passOver says that operations of a partition were passed without a replica. What a
// checkpoint from earlier says isn't enough any more. Without one it is a checkpoint
// of a new partition, as of before the first of them.
func (d *disk) passOver(key messages.PartitionKey, before int64) {
	cp, known := d.cps[key]
	if !known {
		cp = nothing
		cp.state.Sequence = before
	}
	cp.behind, cp.pending = true, 0
	d.cps[key] = cp
}

func (d *disk) clone() *disk {
	c := &disk{logs: make(map[messages.PartitionKey]*modelLog), cps: maps.Clone(d.cps), records: d.records, highest: d.highest}
	for key, l := range d.logs {
		c.logs[key] = l.clone()
	}
	return c
}

// node is one server; everything but the disk is lost in a crash.
type node struct {
	w          *world
	id         messages.NodeID
	life       int
	up, paused bool
	disk, kept *disk        // kept: an older copy of the disk
	unreported bool         // given up, or its last report isn't true any more: until the next
	holed      [shards]bool // a purge took what it needed, and was right to
	author     journal.Author

	shards   []*nodeShard
	replicas map[messages.PartitionKey]*replica
	list     []*replica // in order
	image    image
	current  bool   // the image is as new as it was when this process started
	beat     uint64 // the last one sent through the metadata's shard
}

// nodeShard is a node's side of one shard.
type nodeShard struct {
	proposer *journal.Proposer
	follower *Follower
	waiting  map[journal.Ticket]*wish
	applied  journal.ShardRecord // what is applied, as a record
	stopped  bool                // put back or unknown: not followed until it is compared
	round    bool
	// passed has the place before the first operation that was passed without a
	// replica, 0 if there may have been earlier ones. Not yet durable.
	passed   map[messages.PartitionKey]int64
	skipBeat uint64 // Covered is infinite until that beat is back
}

func (n *node) running() bool { return n.up && !n.paused }

// later has something happen in this process.
func (n *node) later(name string, run func()) { n.laterIn(n.life, name, run) }

// laterIn is for what another process of the node isn't to see.
func (n *node) laterIn(life int, name string, run func()) {
	n.w.actions = append(n.w.actions, action{name: name, node: n, life: life, run: run})
}

// maybeCrash is a point between two effects.
func (n *node) maybeCrash() {
	if n.w.chance(200) {
		panic(crashed{node: n, power: n.w.rng.IntN(2) == 0})
	}
}

func (n *node) crash(power bool) {
	n.w.note("node %d crashes (power: %v)", n.id, power)
	n.w.count.crashes++
	n.up, n.paused = false, false
	n.life++
	for _, r := range n.list {
		if x := r.own; x != nil {
			x.answer = unknown // its author hears nothing any more
		}
		if power && r.log.synced < r.log.end {
			i := 0
			for i < len(r.log.batches) && r.log.batches[i].base < r.log.synced {
				i++
			}
			r.log.truncate(max(r.log.start, r.log.boundary(i+n.w.rng.IntN(len(r.log.batches)-i+1))))
		}
	}
	n.list, n.replicas, n.shards = nil, nil, nil
}

// keepCopy remembers the disk, putBack goes back to it.
func (n *node) keepCopy() {
	if n.up {
		return // a copy of a running node's disk isn't one moment's
	}
	for _, cp := range n.disk.cps {
		if cp.direct {
			return // of before it was one of several: nobody could say what it is worth
		}
	}
	n.kept = n.disk.clone()
}

func (n *node) putBack() {
	if n.up || n.kept == nil {
		return
	}
	for shard := range shards {
		if n.sole(shard) {
			return
		}
	}
	n.w.note("disk of node %d is put back", n.id)
	n.disk, n.kept, n.unreported = n.kept, nil, true
	for shard, s := range n.w.streams {
		n.holed[shard] = n.disk.records[shard].Needs() < s.first
	}
}

// start is a new process.
func (n *node) start() {
	n.w.note("node %d starts", n.id)
	n.up, n.life, n.beat, n.current = true, n.life+1, 0, false
	n.author = journal.Author{Node: n.id}
	binary.BigEndian.PutUint64(n.author.Incarnation[:], uint64(n.id)<<32|uint64(n.life))
	n.replicas, n.list, n.image = make(map[messages.PartitionKey]*replica), nil, image{}
	n.shards = nil
	for shard := range shards {
		record := n.disk.records[shard]
		n.shards = append(n.shards, &nodeShard{
			proposer: journal.NewProposer(n.author, journal.ProposerOptions{GatherBytesMax: 400, InFlightBytesMax: 1200}),
			follower: NewFollower(record.Sequence+1, FollowerOptions{MessagesMax: 16, BytesMax: 4000}),
			waiting:  make(map[journal.Ticket]*wish), passed: make(map[messages.PartitionKey]int64),
			applied: record, stopped: true,
		})
		if record.Covered == math.MaxInt64 {
			n.shards[shard].skipBeat = 1
		}
	}
	n.openReplica(metaKey)
	n.seeImage()
	for shard := range shards {
		n.later("compares its record", func() { n.compare(shard) })
	}
}

// compare decides how the node goes on with a shard.
func (n *node) compare(shard int) {
	s, sh := n.w.streams[shard], n.shards[shard]
	if !sh.stopped {
		return
	}
	if !s.up {
		n.later("compares its record", func() { n.compare(shard) })
		return
	}
	how := sh.applied.Compare(s.first, s.last(), s.get(sh.applied.Sequence))
	if high := n.disk.highest[shard]; high.Sequence > sh.applied.Sequence && high.Compare(s.first, s.last(), s.get(high.Sequence)) == journal.StartRewound {
		how = journal.StartRewound
	}
	n.w.note("node %d: shard %d: %s at %d (stream %d to %d)", n.id, shard, how, sh.applied.Sequence, s.first, s.last())
	switch how {
	case journal.StartCopy:
		n.skip(shard, max(s.first, 1)-1, false)
	case journal.StartRewound:
		n.skip(shard, max(s.first, 1)-1, true)
	case journal.StartFollow:
	}
	sh.stopped = false
}

// skip goes on behind sequence, with a hole: every replica of the shard has to copy.
func (n *node) skip(shard int, sequence uint64, rewound bool) {
	sh := n.shards[shard]
	n.w.count.holes++
	if !rewound && !n.holed[shard] {
		n.w.fail("node %d finds a hole in shard %d above %d, and was not given up", n.id, shard, n.disk.records[shard].Sequence)
	}
	n.holed[shard] = false
	n.w.note("node %d skips shard %d to %d", n.id, shard, sequence)
	for _, r := range n.list {
		if shardOf(r.key) == shard {
			r.miss(journal.At(sequence+1, 0)-1, rewound)
		}
	}
	for key, cp := range n.disk.cps { // of replicas that aren't open yet
		if shardOf(key) == shard && n.replicas[key] == nil {
			cp.behind, cp.pending = true, 0
			if rewound {
				cp.state.Sequence = 0
			}
			n.disk.cps[key] = cp
		}
	}
	record := journal.AfterHole(sequence)
	n.unreported = true
	n.later("reports", func() { n.w.report(n) })
	n.disk.records[shard], sh.applied = record, record
	if rewound {
		n.disk.highest[shard] = journal.ShardRecord{}
	}
	sh.skipBeat = n.beat + 1
	sh.follower.Resume(sequence + 1)
	n.answerAll(shard, sh.proposer.Passed(sequence), unknown)
	for _, r := range n.list { // nobody can tell any more what became of them
		if shardOf(r.key) == shard && r.own != nil {
			n.settle(r.own, unknown)
		}
	}
}

// pump publishes what there is to send.
func (n *node) pump(shard int) {
	for {
		number, payload, ok := n.shards[shard].proposer.Next()
		if !ok {
			return
		}
		n.w.send(n, shard, number, payload)
	}
}

// tick is a little of everything that a process does by itself.
func (n *node) tick() {
	if !n.running() {
		return
	}
	w, shard := n.w, n.w.rng.IntN(shards)
	sh, s := n.shards[shard], n.w.streams[shard]
	n.pump(shard)
	if s.up && !sh.stopped && w.rng.IntN(2) == 0 {
		n.look(shard)
	}
	n.apply(shard)
	switch w.rng.IntN(6) {
	case 0:
		n.beginRound(shard)
	case 1:
		n.reconcile()
	case 2:
		if n.needsBeat() {
			n.sendBeat()
		}
	case 3, 4:
		n.repair()
	}
}

// look asks the stream what it has, and gets what is missing.
func (n *node) look(shard int) {
	sh, s := n.shards[shard], n.w.streams[shard]
	sh.follower.Available(s.first, s.last())
	if sh.follower.NeedCopy() {
		n.skip(shard, s.first-1, false)
		return
	}
	if from, to, ok := sh.follower.Hole(5); ok {
		n.later("gets what it misses", func() {
			for sequence := from; sequence <= to && !sh.stopped; sequence++ {
				if payload := s.get(sequence); payload != nil && s.up {
					sh.follower.Deliver(sequence, payload)
				}
			}
			n.apply(shard)
		})
	}
}

// apply carries out what has come, in order, as far as it can.
func (n *node) apply(shard int) {
	sh := n.shards[shard]
	for !sh.stopped {
		if n.blocked(shard) {
			return
		}
		sequence, payload, ok := sh.follower.Next()
		if !ok {
			return
		}
		if sequence != sh.applied.Sequence+1 {
			n.w.fail("node %d applies %d of shard %d after %d", n.id, sequence, shard, sh.applied.Sequence)
		}
		if string(payload) != string(n.w.streams[shard].history[sequence-1]) {
			n.w.fail("node %d applies something else as %d of shard %d", n.id, sequence, shard)
		}
		n.carryOut(shard, sequence, payload)
		sh.applied.Sequence, sh.applied.Print = sequence, journal.Fingerprint(payload)
		n.maybeCrash()
		if n.w.chance(4) {
			return
		}
	}
}

// blocked: the next message is about a partition that the node's metadata doesn't
// know yet, or the metadata may be older than it was before a crash: it would pass
// over operations of replicas that it doesn't know it has.
func (n *node) blocked(shard int) bool {
	sh := n.shards[shard]
	next := sh.follower.Expected()
	if shard == metaShard || next > n.w.streams[shard].last() {
		return false
	}
	if !n.current && !n.w.fault.oldMetadata {
		return true
	}
	m, err := journal.Parse(n.w.streams[shard].history[next-1])
	if err != nil {
		n.w.fail("%v", err)
	}
	for _, e := range m.Entries {
		if e.Key.CreatedAt >= n.image.end {
			return true
		}
	}
	return false
}

func (n *node) carryOut(shard int, sequence uint64, payload []byte) {
	sh := n.shards[shard]
	m, err := journal.Parse(payload)
	if err != nil {
		n.w.fail("%v", err)
		return
	}
	if len(m.Entries) == 0 {
		if m.Author == n.author {
			n.beatReturned(m.Number)
		}
		return
	}
	tickets, ok := sh.proposer.Applied(m)
	for i, e := range m.Entries {
		var x *wish
		if ok && tickets[i] != 0 {
			x = sh.waiting[tickets[i]]
			delete(sh.waiting, tickets[i])
		}
		r, a := n.replicas[e.Key], unknown
		if r != nil {
			a = r.apply(journal.At(sequence, i), e.Op, x)
		} else if !n.image.gone(e.Key) {
			if !n.current && n.whole(e.Key) && n.w.assigned(e.Key, n.id) {
				n.w.fail("node %d passes over an operation of %s, of which it has a whole replica", n.id, e.Key)
			}
			if _, again := sh.passed[e.Key]; !again {
				before := int64(0)
				if n.newborn(e.Key) {
					before = journal.At(sequence, i) - 1
				}
				sh.passed[e.Key] = before
			}
		}
		if x != nil {
			n.settle(x, a)
		}
	}
}

func (n *node) needsBeat() bool {
	for _, sh := range n.shards {
		if sh.applied.Covered == math.MaxInt64 {
			return true
		}
	}
	return !n.current
}

func (n *node) sendBeat() {
	number, payload := n.shards[metaShard].proposer.Beat()
	n.beat = number
	n.w.send(n, metaShard, 0, payload)
}

// beatReturned: the metadata is as new as it was when the beat was sent.
func (n *node) beatReturned(number uint64) {
	meta := n.replicas[metaKey]
	if meta.behind {
		return
	}
	if !n.current {
		n.current, n.image.end = true, 0 // looked at again, now to remove too
	}
	n.seeImage()
	for shard, sh := range n.shards {
		if sh.applied.Covered == math.MaxInt64 && number >= sh.skipBeat {
			// Durable before a replica begins as new by it: after a crash it would be higher.
			sh.applied.Covered = meta.state.LogEnd
			n.disk.records[shard].Covered = meta.state.LogEnd
		}
	}
}

// beginRound makes a checkpoint round, in steps, while the node goes on.
func (n *node) beginRound(shard int) {
	sh := n.shards[shard]
	if sh.round || sh.stopped || sh.applied == n.disk.records[shard] {
		return
	}
	sh.round = true
	record, passed := sh.applied, maps.Clone(sh.passed)
	var taken []*replica
	var cps []checkpoint
	n.later(fmt.Sprintf("flushes for a round of shard %d at %d", shard, record.Sequence), func() {
		for _, r := range n.list {
			if shardOf(r.key) == shard && r.dirty && !r.baseline {
				r.log.synced = r.log.end
				r.dirty = false
				taken, cps = append(taken, r), append(cps, r.checkpoint())
				n.maybeCrash()
			}
		}
		n.later(fmt.Sprintf("writes a round of shard %d at %d", shard, record.Sequence), func() {
			sh.round = false
			for i, r := range taken {
				if n.replicas[r.key] != r {
					continue
				}
				if r.behind {
					cps[i] = r.checkpoint() // or it would follow again after a crash
				}
				if n.w.fault.staleRound || journal.Newer(cps[i].state, n.disk.cps[r.key].state) {
					n.put(r.key, cps[i])
				}
				n.maybeCrash()
			}
			for key, before := range passed {
				if n.replicas[key] == nil { // or it has said so itself
					n.disk.passOver(key, before)
				}
			}
			if n.disk.records[shard].Sequence < record.Sequence {
				record.Covered = sh.applied.Covered
				n.disk.records[shard] = record
			}
			if n.w.rng.IntN(2) == 0 {
				n.w.report(n)
			}
		})
	})
}

// put makes a checkpoint durable.
func (n *node) put(key messages.PartitionKey, cp checkpoint) {
	shard := shardOf(key)
	n.disk.cps[key] = cp
	if at := journal.SequenceOf(cp.state.Sequence); at > n.disk.highest[shard].Sequence && at <= n.w.streams[shard].last() {
		n.disk.highest[shard] = journal.ShardRecord{Sequence: at, Print: journal.Fingerprint(n.w.streams[shard].history[at-1])}
	}
}
