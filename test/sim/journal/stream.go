package simjournal

import (
	"fmt"
	"slices"

	"kagami/cluster/journal"
	"kagami/messages"
)

// stream is one shard: all that ever landed in order, of which what is below first is
// purged.
type stream struct {
	history [][]byte
	first   uint64
	size    int64 // bytes from first on
	up      bool
	ids     map[string]uint64 // what a repeat is known by
	// wasPutBack: once is enough; after a second time there may be nobody who can say
	// of an empty partition that it is.
	wasPutBack bool
}

func (s *stream) last() uint64 { return uint64(len(s.history)) }

// get is the payload at sequence, nil if it is purged or not there.
func (s *stream) get(sequence uint64) []byte {
	if sequence < s.first || sequence > s.last() {
		return nil
	}
	return s.history[sequence-1]
}

// purge removes what is below keep.
func (s *stream) purge(keep uint64) {
	for ; s.first < keep && s.first <= s.last(); s.first++ {
		s.size -= int64(len(s.history[s.first-1]))
	}
}

// send is a publish on its way: it may get lost, land, land twice, land late, and its
// acknowledgement may get lost.
func (w *world) send(n *node, shard int, number uint64, payload []byte) {
	id, life := "", n.life
	if number > 0 {
		id = n.author.MessageID(number)
	}
	lost := func() {
		if number > 0 {
			n.laterIn(life, fmt.Sprintf("message %d of shard %d counts as lost", number, shard), func() {
				n.shards[shard].proposer.Lost(number)
				n.pump(shard)
			})
		}
	}
	if w.chance(10) {
		lost()
		return
	}
	times := 1
	if w.chance(15) {
		times = 2
	}
	given := w.chance(12) // up before it lands
	if given {
		lost()
	}
	for range times {
		w.later(fmt.Sprintf("message %d of node %d lands in shard %d", number, n.id, shard), func() {
			sequence, ok := w.land(shard, id, payload)
			switch {
			case given:
			case !ok || w.chance(10):
				lost()
			case number > 0:
				n.laterIn(life, fmt.Sprintf("message %d of shard %d is acknowledged at %d", number, shard, sequence), func() {
					n.answerAll(shard, n.shards[shard].proposer.Acked(number, sequence), unknown)
					n.pump(shard)
				})
			}
		})
	}
}

// land appends to the stream, and to the truth.
func (w *world) land(shard int, id string, payload []byte) (uint64, bool) {
	s := w.streams[shard]
	if !s.up {
		return 0, false
	}
	if w.chance(8) {
		delete(s.ids, id) // outside the window in which repeats are known
	}
	if at, again := s.ids[id]; again && id != "" {
		return at, true
	}
	s.history = append(s.history, payload)
	s.size += int64(len(payload))
	sequence := s.last()
	s.ids[id] = sequence
	w.count.landed++
	m, err := journal.Parse(payload)
	if err != nil {
		w.fail("%v", err)
		return sequence, true
	}
	for i, e := range m.Entries {
		w.truthOf(e.Key).take(w, journal.At(sequence, i), e.Op, m.Author.Node)
	}
	for _, n := range w.nodes {
		if n.up && w.rng.IntN(10) < 7 {
			n.deliver(shard, sequence, payload)
		}
	}
	return sequence, true
}

// deliver brings a message to a node some time later.
func (n *node) deliver(shard int, sequence uint64, payload []byte) {
	n.later("gets a message", func() {
		sh := n.shards[shard]
		if sh.stopped || string(n.w.streams[shard].get(sequence)) != string(payload) && n.w.streams[shard].get(sequence) != nil {
			return // of a stream that was put back since
		}
		sh.follower.Deliver(sequence, payload)
		n.apply(shard)
	})
}

// trim purges what nobody needs, as far as the reports say.
func (w *world) trim(shard int) {
	s := w.streams[shard]
	if !s.up {
		return
	}
	var nodes []journal.Progress
	for _, n := range w.nodes {
		p := journal.Progress{Node: n.id, Needs: w.reports[n.id][shard], Live: n.running(), Sole: n.sole(shard) && !w.fault.soleGivenUp}
		nodes = append(nodes, p)
	}
	keep, givenUp := journal.Trim(s.first, s.size, limitBytes, nodes)
	if w.fault.trimTooFar {
		keep++
	}
	w.count.givenUp += len(givenUp)
	for _, id := range givenUp {
		w.nodes[id].unreported = true
	}
	for _, n := range w.nodes {
		if need := n.disk.records[shard].Needs(); need >= s.first && need < keep {
			n.holed[shard] = n.unreported || w.reports[n.id][shard] < s.first
		}
	}
	if keep > s.first {
		w.note("shard %d is purged below %d (given up: %v)", shard, keep, givenUp)
	}
	s.purge(keep)
}

// sole: n has, or is to have, a replica that no other live node has whole, or one whose
// place is being changed.
func (n *node) sole(shard int) bool {
	for key, cp := range n.disk.cps {
		if shardOf(key) == shard && cp.direct {
			return true
		}
	}
	if shard == metaShard && !n.w.held(metaKey, n) {
		return true
	}
	for _, p := range n.w.imageOf(&n.w.truthOf(metaKey).log).parts {
		if shardOf(p.key) == shard && slices.Contains(p.replicas, n.id) && !n.w.held(p.key, n) {
			return true
		}
	}
	return n.w.changing()
}

// held: a live node other than but has the partition whole.
func (w *world) held(key messages.PartitionKey, but *node) bool {
	for _, n := range w.nodes {
		safe := n.running() && w.reports[n.id][shardOf(key)] >= w.streams[shardOf(key)].first
		if n != but && safe && n.whole(key) && w.assigned(key, n.id) {
			return true
		}
	}
	return false
}

// changing: a metadata record is on its way.
func (w *world) changing() bool {
	for i := len(w.wishes) - 1; i >= 0 && i > len(w.wishes)-200; i-- {
		if x := w.wishes[i]; x.key == metaKey && x.op.Kind == journal.OpAppend && !x.settled() {
			return true
		}
	}
	return false
}

// assigned: the metadata says that the node has a replica.
func (w *world) assigned(key messages.PartitionKey, id messages.NodeID) bool {
	if key == metaKey {
		return true
	}
	for _, p := range w.imageOf(&w.truthOf(metaKey).log).parts {
		if p.key == key {
			return slices.Contains(p.replicas, id)
		}
	}
	return false
}

// always: no metadata that a node may still have to see takes its replica away.
func (w *world) always(key messages.PartitionKey, id messages.NodeID) bool {
	in := false
	for _, b := range w.truthOf(metaKey).log.batches {
		rec := w.records[b.id]
		if len(rec.replicas) == 0 || keyOf(rec.part, key.CreatedAt) != key || b.base < key.CreatedAt {
			continue
		}
		if in = slices.Contains(rec.replicas, id); !in {
			return false
		}
	}
	return in
}

// fits: what the node's disk has is of this stream, and of nothing above that sequence.
func (n *node) fits(shard int, to uint64) bool {
	s := n.w.streams[shard]
	for _, r := range []journal.ShardRecord{n.disk.records[shard], n.disk.highest[shard]} {
		if r.Sequence > to || r.Compare(s.first, s.last(), s.get(r.Sequence)) == journal.StartRewound {
			return false
		}
	}
	return n.disk.records[shard].Needs() >= s.first
}

// rewind puts a stream back to an older copy, and everybody dies with it. Only when
// some node with each partition whole was not so far: otherwise data is lost for
// good and an operator has to choose.
func (w *world) rewind(shard int) {
	s := w.streams[shard]
	if s.last() <= s.first || s.wasPutBack {
		return
	}
	for _, n := range w.nodes {
		if max(n.disk.records[shard].Sequence, n.disk.highest[shard].Sequence) < s.first {
			return // a hole as well: nothing could show this node that its logs are of another history
		}
	}
	to := s.first + w.rng.Uint64N(s.last()-s.first)
	if !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.fits(shard, to) }) {
		return
	}
	for _, key := range w.keys {
		if shardOf(key) != shard || w.gone(key) {
			continue
		}
		ok := false
		for _, n := range w.nodes {
			cp, has := n.disk.cps[key]
			ok = ok || has && w.always(key, n.id) && !cp.behind && !cp.direct && n.fits(shard, to)
		}
		if !ok {
			return
		}
	}
	w.note("shard %d is put back to %d, from %d", shard, to, s.last())
	w.count.rewinds++
	s.wasPutBack = true
	for _, n := range w.nodes {
		if n.up {
			n.crash(false)
		}
		n.kept = nil // of another history
	}
	w.actions = nil // nothing of before is on its way any more
	for _, dropped := range s.history[to:] {
		s.size -= int64(len(dropped))
	}
	s.history = slices.Clip(s.history[:to])
	s.ids = make(map[string]uint64)
	for _, x := range w.wishes {
		x.forget(shard, to)
	}
	for _, key := range w.keys {
		if shardOf(key) == shard {
			old := w.truths[key]
			w.truths[key] = newTruth(key)
			w.truths[key].maxStart = old.maxStart // what was removed stays removed
		}
	}
	for i, payload := range s.history {
		m, err := journal.Parse(payload)
		if err != nil {
			w.fail("%v", err)
		}
		for k, e := range m.Entries {
			w.truthOf(e.Key).take(w, journal.At(uint64(i+1), k), e.Op, m.Author.Node)
		}
	}
}
