package simjournal

import (
	"slices"

	"kagami/cluster/journal"
	"kagami/messages"
)

// record is one metadata record: what a partition is from then on.
type record struct {
	part     int
	created  bool // a new life; its creation is the record's offset
	leader   messages.NodeID
	epoch    int32
	replicas []messages.NodeID
}

// image is the metadata as one node has it.
type image struct {
	end   int64 // offset behind the last record
	parts []imagePart
}

type imagePart struct {
	key      messages.PartitionKey
	leader   messages.NodeID
	epoch    int32
	replicas []messages.NodeID
}

func (w *world) imageOf(l *modelLog) image {
	img := image{end: l.end}
	for _, b := range l.batches {
		rec, ok := w.records[b.id]
		if !ok {
			continue // what a claim of the controller wrote
		}
		part := imagePart{leader: rec.leader, epoch: rec.epoch, replicas: rec.replicas}
		if rec.part > len(img.parts) || rec.part == len(img.parts) && !rec.created {
			continue // the author saw another log: only without the rules
		}
		if rec.created {
			part.key = keyOf(rec.part, b.base)
			if rec.part == len(img.parts) {
				img.parts = append(img.parts, part)
			}
		} else {
			part.key = img.parts[rec.part].key
		}
		img.parts[rec.part] = part
	}
	return img
}

// gone: the partition has had its life by then.
func (i image) gone(key messages.PartitionKey) bool {
	if key == metaKey || key.CreatedAt >= i.end {
		return false
	}
	part := int(key.TopicID[0])
	return part >= len(i.parts) || i.parts[part].key != key
}

func (w *world) gone(key messages.PartitionKey) bool {
	return w.imageOf(&w.truthOf(metaKey).log).gone(key)
}

// seeImage takes over the metadata as of now.
func (n *node) seeImage() {
	meta := n.replicas[metaKey]
	if meta.behind || meta.log.end <= n.image.end {
		return
	}
	n.image = n.w.imageOf(meta.log)
	for _, p := range n.image.parts {
		if n.replicas[p.key] == nil && slices.Contains(p.replicas, n.id) {
			n.openReplica(p.key)
		}
	}
	if !n.current {
		return // a state that is long over must not remove what was given back since
	}
	for _, r := range slices.Clone(n.list) {
		if r.key == metaKey {
			continue
		}
		if n.image.gone(r.key) || !slices.Contains(n.image.parts[r.key.TopicID[0]].replicas, n.id) {
			n.removeReplica(r)
		}
	}
}

func (n *node) removeReplica(r *replica) {
	n.w.note("node %d removes its replica of %s", n.id, r.key)
	if r.own != nil {
		n.settle(r.own, unknown)
	}
	// Before the log goes, and for a partition that is gone too: after a crash this
	// node's metadata may be older, and know it again.
	n.disk.cps[r.key] = nothing
	n.maybeCrash()
	delete(n.disk.logs, r.key)
	delete(n.replicas, r.key)
	n.list = slices.DeleteFunc(n.list, func(o *replica) bool { return o == r })
}

// reconcile makes the node do what its image says: replicas, claims, baselines.
func (n *node) reconcile() {
	n.seeImage()
	all := true // every partition is in the journal
	for _, p := range n.image.parts {
		r := n.replicas[p.key]
		if r == nil {
			continue
		}
		if r.baseline {
			all = false
			n.proposeBaseline(r)
			continue
		}
		if p.leader != n.id {
			r.claimed = false
			continue
		}
		if !r.behind && r.own == nil && !n.shards[shardOf(p.key)].stopped && (!r.claimed || r.state.Epoch != p.epoch) && r.state.Epoch <= p.epoch {
			n.propose(r, journal.Operation{Kind: journal.OpClaim, Epoch: p.epoch, Node: n.id}, nil)
		}
	}
	if meta := n.replicas[metaKey]; meta.baseline && all {
		n.proposeBaseline(meta)
	}
}

// proposeBaseline puts a partition of a cluster of one into the journal.
func (n *node) proposeBaseline(r *replica) {
	if r.own != nil || n.shards[shardOf(r.key)].stopped {
		return
	}
	s := r.state
	n.propose(r, journal.Operation{Kind: journal.OpBaseline, Mode: s.Mode, Epoch: s.Epoch, Node: s.Node, Offset: s.LogStart, End: s.LogEnd}, nil)
}

// claimMetadata: the node believes that the controller is dead. An empty node never
// does, but for the one that forms the cluster.
func (n *node) claimMetadata() {
	if !n.running() {
		return
	}
	meta := n.replicas[metaKey]
	founds := n.id == 0 && !n.w.grown
	if meta.behind || meta.baseline || meta.own != nil || n.shards[metaShard].stopped || meta.log.end == 0 && !founds {
		return
	}
	n.propose(meta, journal.Operation{Kind: journal.OpClaim, Epoch: meta.state.Epoch + 1, Node: n.id}, nil)
}

// control is a controller that changes something, going by its own image.
func (n *node) control() {
	if !n.running() {
		return
	}
	meta := n.replicas[metaKey]
	if !meta.leads() {
		return
	}
	w, img := n.w, n.w.imageOf(meta.log)
	rec := record{part: w.rng.IntN(5)}
	switch {
	case rec.part >= len(img.parts):
		rec.part = len(img.parts)
		rec.created = true
		rec.replicas = n.someNodes(rec.part)
		rec.leader = rec.replicas[0]
	case w.chance(15):
		rec.created, rec.replicas = true, n.someNodes(rec.part) // deleted and made again
		rec.leader = rec.replicas[0]
	default:
		p := img.parts[rec.part]
		rec.epoch = p.epoch + 1
		rec.replicas = n.otherReplicas(p)
		rec.leader = rec.replicas[w.rng.IntN(len(rec.replicas))]
	}
	id := uint64(len(w.wishes) + 1)
	w.records[id] = rec
	w.note("controller %d: record %d: %+v", n.id, id, rec)
	n.propose(meta, journal.Operation{
		Kind: journal.OpAppend, Generation: meta.state.Generation, Class: messages.ClassInternal, Base: meta.state.LogEnd, End: meta.state.LogEnd + 1,
	}, nil)
}

// someNodes are for a new partition, those first that are in sync: one that is far
// behind may find a hole below its first operation, and be alone with it.
func (n *node) someNodes(part int) []messages.NodeID {
	shard := shardOf(keyOf(part, 0))
	var ids, late []messages.NodeID
	for _, i := range n.w.rng.Perm(len(n.w.nodes)) {
		if n.w.nodes[i].inSync(shard) {
			ids = append(ids, messages.NodeID(i))
		} else {
			late = append(late, messages.NodeID(i))
		}
	}
	most := 1 + n.w.rng.IntN(min(3, len(n.w.nodes)))
	if len(ids) == 0 {
		return []messages.NodeID{n.id}
	}
	ids = append(ids, late...)
	return ids[:most]
}

// inSync: the node has applied what the stream has, and its record is one that it
// could go on from, as it reported: one that was given up isn't, until it says so.
func (n *node) inSync(shard int) bool {
	return n.w.reports[n.id][shard] >= n.w.streams[shard].first && n.running() && !n.shards[shard].stopped && n.shards[shard].applied.Sequence == n.w.streams[shard].last()
}

// otherReplicas adds one, or removes one as long as a live node that stays has the
// partition whole and in sync (as it reported). Whole isn't enough: what is still to
// come may be a baseline, which has no bytes.
func (n *node) otherReplicas(p imagePart) []messages.NodeID {
	w := n.w
	id := messages.NodeID(w.rng.IntN(len(w.nodes)))
	i := slices.Index(p.replicas, id)
	switch {
	case w.rng.IntN(2) == 0:
		return p.replicas
	case i < 0:
		return append(slices.Clone(p.replicas), id)
	}
	left := slices.Delete(slices.Clone(p.replicas), i, i+1)
	for _, id := range left {
		shard := shardOf(p.key)
		if o := w.nodes[id]; o.whole(p.key) && o.inSync(shard) {
			return left
		}
	}
	return p.replicas
}

// whole: the node has everything of the partition, in memory or, when it is down, on
// its disk, and is beyond a baseline.
func (n *node) whole(key messages.PartitionKey) bool {
	began := len(n.w.truthOf(key).positions) > 0
	if r := n.replicas[key]; n.up && r != nil {
		return !n.shards[shardOf(key)].stopped && !r.behind && !r.baseline && (r.state.Generation > 0 || !began)
	}
	if n.current && n.up {
		return false // not opened: it isn't to be there
	}
	cp, ok := n.disk.cps[key]
	return ok && !cp.behind && !cp.direct && cp.state.Generation > 0
}

// any replica of the node.
func (n *node) any() *replica {
	if len(n.list) == 0 {
		return nil
	}
	return n.list[n.w.rng.IntN(len(n.list))]
}

// grow makes node 0 a cluster of one that has some data, whose journal was its own.
func (w *world) grow() {
	w.grown = true
	d := w.nodes[0].disk
	var id uint64 = 1 << 40
	put := func(key messages.PartitionKey, l *modelLog, s journal.State) {
		s.Epoch, s.Node, s.LogStart, s.LogEnd = 0, 0, l.start, l.end
		s.ModeOffset = min(s.ModeOffset, l.end)
		l.synced = l.end
		d.logs[key], d.cps[key] = l, checkpoint{state: s, direct: true}
	}
	meta := &modelLog{}
	for part := range 1 + w.rng.IntN(3) {
		id++
		w.records[id] = record{part: part, created: true, replicas: []messages.NodeID{0}}
		created := meta.end
		_ = meta.append(batch{base: created, end: created + 1, id: id})
		l := &modelLog{}
		l.restartAt(w.rng.Int64N(3))
		for range w.rng.IntN(6) {
			id++
			_ = l.append(batch{base: l.end, end: l.end + 1 + w.rng.Int64N(3), id: id})
		}
		s := journal.NewState()
		s.Mode = messages.Mode(1 + w.rng.IntN(3))
		put(keyOf(part, created), l, s)
	}
	put(metaKey, meta, journal.NewState())
}
