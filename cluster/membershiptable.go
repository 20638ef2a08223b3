package cluster

import (
	"slices"
	"time"

	"kagami/messages"
)

// beatTable is what a node knows from heartbeats: a pure core, without clock,
// lock or network.
type beatTable struct {
	self        messages.NodeID
	incarnation messages.TopicID
	deadAfter   time.Duration
	nodes       map[messages.NodeID]*beatNode
}

// beatNode is one node that was heard of. The node itself is in the table too,
// with what it sent.
type beatNode struct {
	beat Beat
	at   time.Time // when the beat came
	live bool
	// former incarnations; one that beats again shows that two processes have
	// this id. Only some are kept: processes that follow one another have left.
	former []messages.TopicID
	// strange counts beats of a second process, strangeAt is when the last came.
	strange   int
	strangeAt time.Time
}

const (
	formerMax = 4
	// strangeMin beats of a second process prove it: one may have been on its way
	// as its process ended.
	strangeMin = 2
)

// beatOutcome says what a beat changed.
type beatOutcome struct {
	changed bool // the list of live nodes
	taken   bool // two processes have the beat's node id
}

func newBeatTable(self messages.NodeID, incarnation messages.TopicID, deadAfter time.Duration) *beatTable {
	return &beatTable{self: self, incarnation: incarnation, deadAfter: deadAfter, nodes: make(map[messages.NodeID]*beatNode)}
}

// receive takes a beat that came at now.
func (t *beatTable) receive(now time.Time, b *Beat) beatOutcome {
	if b.Node == t.self && b.Incarnation == t.incarnation {
		return beatOutcome{} // our own, noted when it was sent
	}
	n := t.nodes[b.Node]
	if n == nil {
		n = &beatNode{}
		t.nodes[b.Node] = n
	}
	switch {
	case b.Node == t.self, slices.Contains(n.former, b.Incarnation):
		return t.strange(now, n, b)
	case b.Incarnation == n.beat.Incarnation:
		if b.Number <= n.beat.Number {
			return beatOutcome{} // overtaken by a later one
		}
	case n.beat.Number > 0:
		n.former = append(n.former, n.beat.Incarnation)
		n.former = n.former[max(0, len(n.former)-formerMax):]
	}
	live := n.live
	n.beat, n.at, n.live = *b, now, !b.bye
	return beatOutcome{changed: n.live != live}
}

func (t *beatTable) strange(now time.Time, n *beatNode, b *Beat) beatOutcome {
	if b.bye {
		return beatOutcome{}
	}
	if now.Sub(n.strangeAt) > t.deadAfter {
		n.strange = 0
	}
	n.strange++
	n.strangeAt = now
	return beatOutcome{taken: n.strange >= strangeMin}
}

// sent notes our own beat.
func (t *beatTable) sent(now time.Time, b *Beat) (changed bool) {
	n := t.nodes[t.self]
	if n == nil {
		n = &beatNode{}
		t.nodes[t.self] = n
	}
	live := n.live
	n.beat, n.at, n.live = *b, now, !b.bye
	return n.live != live
}

// sweep finds out who died.
func (t *beatTable) sweep(now time.Time) (changed bool) {
	for id, n := range t.nodes {
		if id != t.self && n.live && now.Sub(n.at) >= t.deadAfter {
			n.live, changed = false, true
		}
	}
	return changed
}

// back is after this process was away: it heard nobody, which says nothing about
// them. They have the whole time again.
func (t *beatTable) back(now time.Time) {
	for _, n := range t.nodes {
		if n.live {
			n.at = now
		}
	}
}

// live lists who is alive, by id.
func (t *beatTable) live() []messages.NodeID {
	out := make([]messages.NodeID, 0, len(t.nodes))
	for id, n := range t.nodes {
		if n.live {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
