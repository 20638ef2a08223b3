package group

import (
	"fmt"
	"maps"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/txns"
)

// Offsets that a transaction commits are stored at once and pending until its marker
// comes: group.txns has them by producer. A position that is committed meanwhile
// without it wins, as in Kafka: it stands later in the log.

// ApplyTxn makes true what a stored record of a producer's transaction says.
func (c *Core) ApplyTxn(producer int64, r groups.Record) {
	if r.Kind != groups.KindOffset || r.Gone {
		c.Apply(r)
		return
	}
	g := c.get(r.Group)
	if g.txns == nil {
		g.txns = map[int64]map[place]groups.Offset{}
	}
	if g.txns[producer] == nil {
		g.txns[producer] = map[place]groups.Offset{}
	}
	g.txns[producer][place{r.Topic, r.Partition}] = *r.Offset
	if c.txns == nil {
		c.txns = map[int64]map[string]struct{}{}
	}
	if c.txns[producer] == nil {
		c.txns[producer] = map[string]struct{}{}
	}
	c.txns[producer][r.Group] = struct{}{}
}

// ApplyMarker ends a producer's transaction: its offsets count, or are forgotten.
func (c *Core) ApplyMarker(producer int64, commit bool) {
	for _, id := range sortedKeys(c.txns[producer]) {
		g := c.groups[id]
		if g == nil {
			continue
		}
		if commit {
			maps.Copy(g.offsets, g.txns[producer])
		}
		delete(g.txns, producer)
		c.tidy(g)
	}
	delete(c.txns, producer)
}

// supersede forgets what transactions wanted to commit in a place, because a later
// record speaks of it.
func (g *group) supersede(p place) {
	for producer, offsets := range g.txns {
		if delete(offsets, p); len(offsets) == 0 {
			delete(g.txns, producer)
		}
	}
}

// pendingPlaces is where the group has offsets, or a transaction wants to commit some.
func (g *group) pendingPlaces() []place {
	out := g.places()
	for _, offsets := range g.txns {
		for p := range offsets {
			if _, ok := g.offsets[p]; !ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// endTxn stores a marker of a coordinator.
func (c *Core) endTxn(t Ticket, r groups.EndTxn) {
	producer := r.Marker.Producer
	if c.ending[producer.ID] > 0 {
		c.reply(t, &groups.Done{Err: fmt.Errorf("%w: another marker of producer %d is being stored", messages.ErrCoordinatorLoading, producer.ID)})
		return
	}
	if c.ending == nil {
		c.ending = map[int64]int{}
	}
	c.ending[producer.ID]++
	marker := r.Marker
	c.store(write{marker: &marker, then: func(int64) {
		delete(c.ending, producer.ID)
		c.reply(t, &groups.Done{})
	}})
}

// mayCommitTxn: what is being ended takes no more offsets.
func (c *Core) mayCommitTxn(p *txns.Producer) error {
	if p != nil && c.ending[p.ID] > 0 {
		return fmt.Errorf("%w: the transaction of producer %d is being ended", messages.ErrCoordinatorLoading, p.ID)
	}
	return nil
}
