package group

import (
	"fmt"

	"kagami/messages"
	"kagami/messages/groups"
)

// leaveConsumer is a heartbeat that says goodbye. An error isn't answered yet.
func (c *Core) leaveConsumer(now int64, t Ticket, g *group, r groups.Beat) error {
	if g == nil || g.consumer == nil {
		return fmt.Errorf("%w: consumer group %q", messages.ErrUnknownGroup, r.Group)
	}
	con := g.consumer
	m := con.members[r.Member]
	if r.Instance != "" {
		m = con.members[con.statics[r.Instance]]
	}
	switch {
	case m == nil:
		return fmt.Errorf("%w: member %s of group %q", messages.ErrUnknownMember, r.Member, r.Group)
	case m.id != r.Member:
		return fmt.Errorf("%w: member %s has group.instance.id %q by now", messages.ErrFencedInstance, m.id, r.Instance)
	case r.Epoch == groups.EpochAway:
		s := standing{epoch: groups.EpochAway, previous: m.epoch, stage: groups.StageStable, assigned: m.assigned}
		m.revokeBy = 0
		c.propose(g, s.record(g.id, m.id))
	default:
		c.takeOut(now, g, m)
	}
	c.answer(g, t, &groups.Beaten{Member: r.Member, Epoch: r.Epoch})
	return nil
}

// takeOut removes members. The others get what they had when they beat next.
func (c *Core) takeOut(now int64, g *group, gone ...*consumerMember) {
	con := g.consumer
	for _, m := range gone {
		c.propose(g, memberTombstones(g.id, m.id)...)
	}
	if c.downgrade(now, g) {
		return
	}
	c.dropRegexes(g)
	c.propose(g, groups.Record{Group: g.id, Kind: groups.KindConsumer, Consumer: &groups.ConsumerGroup{Epoch: con.epoch + 1, Hash: c.look(con)}})
	if len(con.members) == 0 { // nobody will ask for a target
		c.propose(g, groups.Record{Group: g.id, Kind: groups.KindTargetEpoch, TargetEpoch: &groups.TargetEpoch{Epoch: con.epoch, Millis: now}})
	}
}

func memberTombstones(group, member string) []groups.Record {
	return []groups.Record{
		{Group: group, Member: member, Kind: groups.KindCurrent, Gone: true},
		{Group: group, Member: member, Kind: groups.KindTarget, Gone: true},
		{Group: group, Member: member, Kind: groups.KindConsumerMember, Gone: true},
	}
}

// tombstones is everything of a consumer group but its offsets.
func (con *consumer) tombstones(group string) []groups.Record {
	var out []groups.Record
	for _, m := range con.sorted() {
		out = append(out, memberTombstones(group, m.id)...)
	}
	for _, pattern := range sortedKeys(con.regexes) {
		out = append(out, groups.Record{Group: group, Pattern: pattern, Kind: groups.KindRegex, Gone: true})
	}
	return append(out,
		groups.Record{Group: group, Kind: groups.KindTargetEpoch, Gone: true},
		groups.Record{Group: group, Kind: groups.KindConsumer, Gone: true})
}

// replaceMember is a static member that is back under another id: it has what it
// had, and the group stays as it is (KIP-848, "Static membership").
func (c *Core) replaceMember(g *group, was *consumerMember, id string) *consumerMember {
	con := g.consumer
	info, target := was.info, con.targets[was.id]
	s := standing{stage: groups.StageStable, assigned: was.assigned}
	c.propose(g, memberTombstones(g.id, was.id)...)
	c.propose(g,
		groups.Record{Group: g.id, Member: id, Kind: groups.KindConsumerMember, ConsumerMember: &info},
		groups.Record{Group: g.id, Member: id, Kind: groups.KindTarget, Target: &groups.Target{Partitions: topicPartitions(target)}},
		s.record(g.id, id))
	return con.members[id]
}

// tickConsumer takes out members whose time is over.
func (c *Core) tickConsumer(now int64, g *group) {
	var gone []*consumerMember
	for _, m := range g.consumer.sorted() {
		if m.expires <= now || m.revokeBy != 0 && m.revokeBy <= now || m.rejoinBy != 0 && m.rejoinBy <= now {
			gone = append(gone, m)
		}
	}
	if len(gone) > 0 {
		c.takeOut(now, g, gone...)
		c.flush(g)
	}
}

// againConsumer finds the next deadline.
func (c *Core) againConsumer(con *consumer) {
	for _, m := range con.members {
		c.by(m.expires)
		if m.revokeBy != 0 {
			c.by(m.revokeBy)
		}
		if m.rejoinBy != 0 {
			c.by(m.rejoinBy)
		}
	}
}

// session is how long a member may be silent, ms.
func (c *Core) sessionOf(g *group, m *consumerMember) int64 {
	if m.classic() {
		return int64(m.info.Classic.SessionMillis)
	}
	return c.config.consumerOf(g.id).Session
}

// loadedConsumer begins the sessions of members that were found.
func (c *Core) loadedConsumer(now int64, g *group) {
	for _, m := range g.consumer.members {
		m.expires = c.by(now + c.sessionOf(g, m))
		if m.stage == groups.StageUnrevoked {
			m.revokeBy = c.by(now + int64(m.info.RebalanceMillis))
		}
	}
}

// describeConsumer is ConsumerGroupDescribe.
func (c *Core) describeConsumer(t Ticket, r groups.DescribeConsumer) {
	g := c.groups[r.Group]
	if g == nil || g.consumer == nil {
		text := fmt.Errorf("%w: group %s", messages.ErrUnknownGroup, r.Group)
		if g != nil {
			text = fmt.Errorf("%w: group %s is not a consumer group", messages.ErrUnknownGroup, r.Group)
		}
		c.reply(t, &groups.ConsumerDescribed{Err: text, State: Dead.String()})
		return
	}
	con := g.consumer
	out := &groups.ConsumerDescribed{State: con.state(), Epoch: con.epoch, TargetEpoch: con.targetEpoch, Assignor: con.assignor(c.config.Assignors)}
	for _, m := range con.sorted() {
		out.Members = append(out.Members, groups.ConsumerDescribedMember{
			ConsumerMember: m.info, Member: m.id, Epoch: m.epoch,
			Assigned: topicPartitions(m.owned().sorted()), Target: topicPartitions(con.targets[m.id]),
		})
	}
	c.answer(g, t, out)
}

// commitsConsumer reports whether a member may commit: with its epoch, or with an
// older one that is at least as new as the assignment of each partition (KIP-1251).
func (c *Core) commitsConsumer(con *consumer, r groups.Commit) error {
	w := r.Who
	if w.Generation < 0 && w.Member == "" && len(con.members) == 0 {
		return nil
	}
	m := con.members[w.Member]
	switch {
	case m == nil:
		return fmt.Errorf("%w: group %q has no member %q that could commit this", messages.ErrUnknownMember, w.Group, w.Member)
	case w.Instance != "" && m.info.Instance != "" && con.statics[w.Instance] != m.id:
		return fmt.Errorf("%w: another member has group.instance.id %q by now", messages.ErrFencedInstance, w.Instance)
	case r.Old && !m.classic():
		return fmt.Errorf("%w: members of the consumer protocol commit with version 9 or newer", messages.ErrUnsupportedVersion)
	case w.Generation == m.epoch:
		return nil
	case m.classic():
		return fmt.Errorf("%w: %d, the member's is %d", messages.ErrIllegalGeneration, w.Generation, m.epoch)
	case w.Generation > m.epoch:
		return fmt.Errorf("%w: %d, the member's is %d", messages.ErrStaleMemberEpoch, w.Generation, m.epoch)
	}
	for _, p := range r.Positions {
		id, _, _ := c.topics.Topic(p.Topic)
		at := partition{id, p.Partition}
		since, has := m.assigned[at]
		if !has {
			since, has = m.revoking[at]
		}
		if !has || w.Generation < since {
			return fmt.Errorf("%w: %d, the member's is %d, and it was given %s-%d later or not at all", messages.ErrStaleMemberEpoch, w.Generation, m.epoch, p.Topic, p.Partition)
		}
	}
	return nil
}

// fetchesConsumer reports whether a member may ask for offsets.
func (con *consumer) fetches(r groups.Fetch) error {
	if r.Member == "" && r.Epoch < 0 {
		return nil
	}
	m := con.members[r.Member]
	switch {
	case m == nil:
		return fmt.Errorf("%w: %q", messages.ErrUnknownMember, r.Member)
	case m.epoch != r.Epoch:
		return fmt.Errorf("%w: %d, the member's is %d", messages.ErrStaleMemberEpoch, r.Epoch, m.epoch)
	}
	return nil
}
