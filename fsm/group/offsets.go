package group

import (
	"cmp"
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/wire"
)

// commit is OffsetCommit: true, and answered, when it is stored.
func (c *Core) commit(now int64, t Ticket, r groups.Commit) {
	if err := c.mayCommit(now, r); err != nil {
		c.reply(t, &groups.Committed{Err: err})
		return
	}
	out := &groups.Committed{Positions: make([]error, len(r.Positions))}
	var records []groups.Record
	for i, p := range r.Positions {
		if len(p.Metadata) > c.config.MetadataMax {
			out.Positions[i] = fmt.Errorf("%w: %d bytes, at most %d are kept", messages.ErrOffsetMetadataTooLarge, len(p.Metadata), c.config.MetadataMax)
			continue
		}
		o := &groups.Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, CommitMillis: now, ExpireMillis: -1}
		if r.RetentionMillis >= 0 {
			o.ExpireMillis = now + r.RetentionMillis
		}
		records = append(records, groups.Record{Group: r.Group, Kind: groups.KindOffset, Topic: p.Topic, Partition: p.Partition, Offset: o})
	}
	if len(records) == 0 {
		c.reply(t, out)
		return
	}
	c.store(write{records: records, txn: r.Txn, groups: []*group{c.get(r.Group)}, then: func(int64) { c.reply(t, out) }})
}

// mayCommit: members of the generation do, and anybody where there is no member.
func (c *Core) mayCommit(now int64, r groups.Commit) error {
	if err := c.mayCommitTxn(r.Txn); err != nil {
		return err
	}
	g, w := c.groups[r.Group], r.Who
	if g != nil && g.consumer != nil {
		if r.Txn != nil && w.Generation < 0 && w.Member == "" && w.Instance == "" {
			return nil // old producers don't say who consumed
		}
		return c.commitsConsumer(g.consumer, r)
	}
	outside := w.Generation < 0 && w.Member == "" && w.Instance == ""
	switch {
	case g == nil && w.Generation < 0:
		return nil
	case g == nil:
		return fmt.Errorf("%w: %d: %w", messages.ErrIllegalGeneration, w.Generation, groups.ErrNone)
	case g.state == Empty && w.Generation < 0:
		return nil
	case outside && r.Txn != nil: // old producers don't say who consumed
		return nil
	case outside:
		return fmt.Errorf("%w: group %q has members, none of which commits this", messages.ErrUnknownMember, g.id)
	}
	m, err := g.find(w.Member, w.Instance)
	switch {
	case err != nil:
		return err
	case w.Generation != g.generation:
		return fmt.Errorf("%w: %d, the group's is %d", messages.ErrIllegalGeneration, w.Generation, g.generation)
	}
	if r.Txn != nil {
		return nil
	}
	c.alive(now, m)
	if g.state == CompletingRebalance {
		return messages.ErrRebalanceInProgress // nobody has partitions of this generation yet
	}
	return nil
}

// fetch is OffsetFetch: what is stored.
func (c *Core) fetch(r groups.Fetch) *groups.Fetched {
	g := c.groups[r.Group]
	if g != nil && g.consumer != nil {
		if err := g.consumer.fetches(r); err != nil {
			return &groups.Fetched{Err: err}
		}
	}
	return g.fetched(r)
}

// fetched is what a group, which may be nil, has committed.
func (g *group) fetched(r groups.Fetch) *groups.Fetched {
	out := &groups.Fetched{}
	if r.All {
		if g != nil {
			for _, p := range g.places() {
				out.Positions = append(out.Positions, g.position(p, r.RequireStable))
			}
		}
		return out
	}
	for _, t := range r.Topics {
		for _, n := range t.Partitions {
			p := place{t.Topic, n}
			if g == nil {
				out.Positions = append(out.Positions, nowhere(p))
			} else {
				out.Positions = append(out.Positions, g.position(p, r.RequireStable))
			}
		}
	}
	return out
}

func nowhere(p place) groups.Position {
	return groups.Position{Topic: p.topic, Partition: p.partition, Offset: messages.NoOffset, LeaderEpoch: messages.NoEpoch}
}

// position is what is committed; stable refuses what an open transaction may change.
func (g *group) position(p place, stable bool) groups.Position {
	if stable && g.unstable(p) {
		out := nowhere(p)
		out.Err = messages.ErrUnstableOffset
		return out
	}
	o, ok := g.offsets[p]
	if !ok {
		return nowhere(p)
	}
	return groups.Position{Topic: p.topic, Partition: p.partition, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}
}

// unstable reports whether an open transaction commits an offset there.
func (g *group) unstable(p place) bool {
	for _, offsets := range g.txns {
		if _, ok := offsets[p]; ok {
			return true
		}
	}
	return false
}

// places is where the group has offsets, in order.
func (g *group) places() []place {
	out := make([]place, 0, len(g.offsets))
	for p := range g.offsets {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return out
}

func (g *group) tombstone(p place) groups.Record {
	return groups.Record{Group: g.id, Kind: groups.KindOffset, Topic: p.topic, Partition: p.partition, Gone: true}
}

// deleteOffsets is OffsetDelete: not what members read.
func (c *Core) deleteOffsets(t Ticket, r groups.DeleteOffsets) {
	g := c.groups[r.Group]
	switch {
	case g == nil:
		c.reply(t, &groups.Committed{Err: fmt.Errorf("%w: %q", messages.ErrUnknownGroup, r.Group)})
		return
	case !g.empty() && !g.consumes():
		c.reply(t, &groups.Committed{Err: fmt.Errorf("%w: %q", messages.ErrNonEmptyGroup, r.Group)})
		return
	}
	out := &groups.Committed{}
	var records []groups.Record
	for _, topic := range r.Topics {
		reads, known := g.subscribed(topic.Topic, wire.SubscribedTopics)
		for _, n := range topic.Partitions {
			var err error
			p := place{topic.Topic, n}
			if _, ok := g.offsets[p]; !g.empty() && (reads || !known) {
				err = fmt.Errorf("%w: %q", messages.ErrGroupSubscribed, topic.Topic)
			} else if ok {
				records = append(records, g.tombstone(p))
			}
			out.Positions = append(out.Positions, err)
		}
	}
	if len(records) == 0 {
		c.reply(t, out)
		return
	}
	c.store(write{records: records, groups: []*group{g}, then: func(int64) { c.reply(t, out) }})
}

// consumerType is the protocol type of consumers, whose subscriptions can be read.
const consumerType = "consumer"

// deleteGroup is DeleteGroups.
func (c *Core) deleteGroup(t Ticket, r groups.Delete) {
	g := c.groups[r.Group]
	switch {
	case g == nil:
		c.reply(t, &groups.Done{Err: fmt.Errorf("%w: %q", messages.ErrUnknownGroup, r.Group)})
		return
	case !g.empty():
		c.reply(t, &groups.Done{Err: fmt.Errorf("%w: %q", messages.ErrNonEmptyGroup, r.Group)})
		return
	}
	clear(g.pending)
	c.erase(g, g.pendingPlaces(), func(int64) { c.reply(t, &groups.Done{}) })
}

// erase stores tombstones of offsets, and of the group where nothing else is left.
func (c *Core) erase(g *group, gone []place, then func(now int64)) {
	var records []groups.Record
	for _, p := range gone {
		records = append(records, g.tombstone(p))
	}
	if g.empty() && len(gone) >= len(g.offsets) {
		if g.stored {
			records = append(records, groups.Record{Group: g.id, Kind: groups.KindGroup, Gone: true})
		}
		if g.consumer != nil {
			c.propose(g, g.consumer.tombstones(g.id)...) // gone at once: a member that joins meanwhile comes after them
			c.flush(g)
		}
	}
	for len(records) > eraseMax {
		c.store(write{records: records[:eraseMax], groups: []*group{g}})
		records = records[eraseMax:]
	}
	if len(records) > 0 {
		c.store(write{records: records, groups: []*group{g}, then: then})
		return
	}
	switch w := c.open[g.tail]; {
	case then == nil:
	case w != nil:
		w.then = then
	default:
		then(0)
	}
	c.tidy(g)
}

// eraseMax is how many records are erased by one batch.
const eraseMax = 1000

// Expire erases offsets that nobody has needed for the retention time, and empty
// groups without offsets.
func (c *Core) Expire(now int64) Effects {
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		if g.storing > 0 || len(g.txns) > 0 {
			continue
		}
		var gone []place
		for _, p := range g.places() {
			if c.expired(now, g, p) {
				gone = append(gone, p)
			}
		}
		if len(gone) > 0 || g.empty() && (g.stored || g.consumer != nil) && len(g.offsets) == 0 && len(g.pending) == 0 {
			c.erase(g, gone, nil)
		}
	}
	return c.take()
}

// expired is Kafka's rule (KIP-211): the time counts from when the group became
// empty; for a group without members from the commit, and so it does for topics that
// the members of a consumer group don't read any more.
func (c *Core) expired(now int64, g *group, p place) bool {
	o := g.offsets[p]
	if o.ExpireMillis != -1 {
		return (g.empty() || g.consumes()) && now >= o.ExpireMillis && !g.reads(p.topic)
	}
	from := o.CommitMillis
	switch {
	case g.consumer != nil && !g.reads(p.topic):
	case g.consumer != nil:
		return false
	case g.state == Empty && g.protocolType != "" && g.since >= 0:
		from = max(from, g.since)
	case g.state == Empty:
	case g.state == Stable && g.protocolType == consumerType && !g.reads(p.topic):
	default:
		return false
	}
	return now-from >= c.config.Retention
}

// reads reports whether members read a topic, or may.
func (g *group) reads(topic string) bool {
	if g.empty() {
		return false
	}
	yes, known := g.subscribed(topic, wire.SubscribedTopics)
	return yes || !known
}

// TopicsGone erases the offsets of topics that don't exist any more.
func (c *Core) TopicsGone(exists func(topic string) bool) Effects {
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		c.settled(id, func() {
			if g.share != nil {
				c.shareTopicsGone(g, exists)
			}
			var gone []place
			for _, p := range g.places() {
				if !exists(p.topic) {
					gone = append(gone, p)
				}
			}
			if len(gone) > 0 {
				c.erase(g, gone, nil)
			}
		})
	}
	return c.take()
}

// describe is DescribeGroups.
func (c *Core) describe(r groups.Describe) *groups.Described {
	g := c.groups[r.Group]
	if g == nil {
		return &groups.Described{Err: fmt.Errorf("%w: group %s", messages.ErrUnknownGroup, r.Group), State: Dead.String()}
	}
	if g.consumer != nil {
		return &groups.Described{Err: fmt.Errorf("%w: group %s is not a classic group", messages.ErrUnknownGroup, r.Group), State: Dead.String()}
	}
	out := &groups.Described{State: g.state.String(), ProtocolType: g.protocolType}
	if g.state == Stable {
		out.Protocol = g.protocol
	}
	for _, m := range g.sorted() {
		d := groups.DescribedMember{Member: m.id, Instance: m.instance, ClientID: m.clientID, ClientHost: m.host}
		if g.state == Stable {
			d.Metadata, d.Assignment = m.metadata(g.protocol), m.assignment
		}
		out.Members = append(out.Members, d)
	}
	return out
}
