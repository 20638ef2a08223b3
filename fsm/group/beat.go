package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kagami/messages"
	"kagami/messages/groups"
)

// beat is ConsumerGroupHeartbeat (KIP-848): it joins, leaves, subscribes, tells what
// a member has, and is answered by what the member may have.
func (c *Core) beat(now int64, t Ticket, fresh string, r groups.Beat) {
	if r.Member == "" && r.Epoch == groups.EpochJoins {
		r.Member = fresh
	}
	if err := c.checkBeat(r); err != nil {
		c.refuseBeat(t, r, err)
		return
	}
	g := c.groups[r.Group]
	if g != nil && g.settling > 0 {
		g.settled = append(g.settled, func(now int64) { c.beat(now, t, fresh, r) })
		return
	}
	if r.Epoch < 0 {
		c.refuseBeat(t, r, c.leaveConsumer(now, t, g, r))
		return
	}
	if r.Epoch == groups.EpochJoins && (g == nil || g.consumer == nil) {
		var err error
		if g, err = c.makeConsumer(now, r); err != nil {
			c.refuseBeat(t, r, err)
			return
		}
	}
	if g == nil || g.consumer == nil {
		c.refuseBeat(t, r, fmt.Errorf("%w: consumer group %q", messages.ErrUnknownGroup, r.Group))
		return
	}
	m, err := g.consumer.speaker(r)
	if err == nil && m == nil && len(g.consumer.members) >= c.config.ConsumerSizeMax {
		err = fmt.Errorf("%w: group %q has %d members", messages.ErrGroupFull, g.id, len(g.consumer.members))
	}
	if err != nil {
		c.refuseBeat(t, r, err)
		c.flush(g)
		return
	}
	c.beats(now, t, g, m, r)
}

// refuseBeat answers an error; nil isn't one.
func (c *Core) refuseBeat(t Ticket, r groups.Beat, err error) {
	if err != nil {
		c.reply(t, &groups.Beaten{Err: err, Member: r.Member, Epoch: r.Epoch})
	}
}

func (c *Core) checkBeat(r groups.Beat) error {
	refuse := func(text string) error { return fmt.Errorf("%w: %s", messages.ErrInvalidRequest, text) }
	switch {
	case r.Group == "":
		return refuse("GroupId can't be empty")
	case r.Member == "":
		return refuse("MemberId can't be empty")
	case r.Epoch < groups.EpochAway:
		return refuse(fmt.Sprintf("MemberEpoch %d is invalid", r.Epoch))
	case r.Epoch == groups.EpochAway && r.Instance == "":
		return refuse("InstanceId can't be null")
	case r.Epoch < 0:
		return nil
	case r.Assignor != nil && *r.Assignor != "" && !slices.Contains(c.config.Assignors, *r.Assignor):
		return fmt.Errorf("%w: ServerAssignor %s, supported are %s", messages.ErrUnsupportedAssignor, *r.Assignor, strings.Join(c.config.Assignors, ", "))
	case r.Epoch == groups.EpochJoins && r.RebalanceMillis < 0:
		return refuse("RebalanceTimeoutMs must be provided in first request")
	case r.Epoch == groups.EpochJoins && (r.Owned == nil || len(r.Owned) > 0):
		return refuse("TopicPartitions must be empty when (re-)joining")
	case r.Epoch == groups.EpochJoins && r.Topics == nil && (r.Regex == nil || *r.Regex == ""):
		return refuse("SubscribedTopicNames or SubscribedTopicRegex must be set in first request")
	case r.Regex != nil && *r.Regex != "":
		_, err := compileRegex(*r.Regex)
		return err
	}
	return nil
}

// speaker is the member that beats, nil for one that is new. A static member that
// comes back under another id is returned as it was.
func (con *consumer) speaker(r groups.Beat) (*consumerMember, error) {
	joins := r.Epoch == groups.EpochJoins
	if r.Instance != "" {
		m := con.members[con.statics[r.Instance]]
		switch {
		case m == nil && joins:
			return con.members[r.Member], nil
		case m == nil:
			return nil, fmt.Errorf("%w: no member with group.instance.id %q", messages.ErrUnknownMember, r.Instance)
		case joins && m.id != r.Member && m.epoch != groups.EpochAway && !m.classic():
			return nil, fmt.Errorf("%w: member %s has group.instance.id %q", messages.ErrUnreleasedInstance, m.id, r.Instance)
		case joins:
			return m, nil
		case m.id != r.Member:
			return nil, fmt.Errorf("%w: member %s has group.instance.id %q by now", messages.ErrFencedInstance, m.id, r.Instance)
		}
		return m, m.checkEpoch(r)
	}
	m := con.members[r.Member]
	switch {
	case joins:
		return m, nil
	case m == nil:
		return nil, fmt.Errorf("%w: member %s of group %q", messages.ErrUnknownMember, r.Member, r.Group)
	}
	return m, m.checkEpoch(r)
}

// checkEpoch: a member speaks with its epoch, or with the one before while it hasn't
// heard of it and has nothing else than what it may have.
func (m *consumerMember) checkEpoch(r groups.Beat) error {
	switch {
	case r.Epoch == m.epoch:
		return nil
	case r.Epoch < m.epoch && r.Epoch == m.previous && r.Owned != nil && heldOf(r.Owned, 0).subset(m.assigned):
		return nil
	default:
		return fmt.Errorf("%w: %d, the member's is %d: it must give everything up and join again", messages.ErrFencedMemberEpoch, r.Epoch, m.epoch)
	}
}

// beats carries out what a member says.
func (c *Core) beats(now int64, t Ticket, g *group, m *consumerMember, r groups.Beat) {
	con := g.consumer
	if m != nil && m.id != r.Member {
		m = c.replaceMember(g, m, r.Member)
	}
	subscribed := c.describeMember(g, m, r.Member, merged(m, r), r.Visible, now)
	if m == nil {
		m = con.member(r.Member)
	}
	before := m.standing
	c.advance(now, g, m, subscribed, heldOf(r.Owned, 0), r.Owned != nil)
	m.rejoinBy = 0
	m.expires = c.by(now + c.config.consumerOf(g.id).Session)
	answer := &groups.Beaten{Member: m.id, Epoch: m.epoch, IntervalMillis: int32(c.config.consumerOf(g.id).Interval)}
	full := r.Epoch == groups.EpochJoins || r.RebalanceMillis >= 0 && r.Owned != nil && (r.Topics != nil || r.Regex != nil)
	if full || !before.assigned.sameKeys(m.assigned) {
		answer.Assigned = topicPartitions(m.assigned.sorted())
	}
	c.answer(g, t, answer)
}

// merged is a member's metadata after a request, which leaves out what is as it was.
func merged(m *consumerMember, r groups.Beat) groups.ConsumerMember {
	info := groups.ConsumerMember{RebalanceMillis: -1}
	if m != nil {
		info = m.info
	}
	info.Classic = nil
	info.ClientID, info.ClientHost = r.ClientID, r.ClientHost
	info.Instance, info.Rack = cmp.Or(r.Instance, info.Instance), cmp.Or(r.Rack, info.Rack)
	if r.RebalanceMillis >= 0 {
		info.RebalanceMillis = r.RebalanceMillis
	}
	if r.Topics != nil {
		info.Topics = slices.Compact(slices.Sorted(slices.Values(r.Topics)))
	}
	if r.Regex != nil {
		info.Regex = *r.Regex
	}
	if r.Assignor != nil {
		info.Assignor = *r.Assignor
	}
	return info
}

// describeMember stores what a member says of itself, if that is new, and reports
// whether the target assignment may depend on it.
func (c *Core) describeMember(g *group, m *consumerMember, id string, info groups.ConsumerMember, visible func(string) bool, now int64) bool {
	con := g.consumer
	if m != nil && sameInfo(m.info, info) { // of a member that only beats nothing depends on the others' number
		if con.seen != c.topics.Version() {
			c.match(now, g, visible)
		}
		return false
	}
	subscribed, assignor := true, con.assignor(c.config.Assignors)
	if m != nil {
		subscribed = m.info.Regex != info.Regex || !slices.Equal(m.info.Topics, info.Topics)
	}
	c.propose(g, groups.Record{Group: g.id, Member: id, Kind: groups.KindConsumerMember, ConsumerMember: &info})
	c.match(now, g, visible)
	return subscribed || con.assignor(c.config.Assignors) != assignor
}

func sameInfo(a, b groups.ConsumerMember) bool {
	return a.Instance == b.Instance && a.Rack == b.Rack && a.ClientID == b.ClientID && a.ClientHost == b.ClientHost &&
		a.Regex == b.Regex && a.RebalanceMillis == b.RebalanceMillis && a.Assignor == b.Assignor && slices.Equal(a.Topics, b.Topics) && sameClassic(a.Classic, b.Classic)
}

func sameClassic(a, b *groups.ClassicMember) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.SessionMillis == b.SessionMillis && sameProtocols(a.Protocols, b.Protocols)
}

// advance brings the group up to date and a member one step on.
func (c *Core) advance(now int64, g *group, m *consumerMember, changed bool, owned held, known bool) {
	con := g.consumer
	if changed || con.seen != c.topics.Version() {
		hash := c.look(con)
		con.seen = c.topics.Version()
		if changed || hash != con.hash {
			c.propose(g, groups.Record{Group: g.id, Kind: groups.KindConsumer, Consumer: &groups.ConsumerGroup{Epoch: con.epoch + 1, Hash: hash}})
		}
	}
	first := len(con.members) == 1 && m.epoch == groups.EpochJoins // into an empty group
	if con.epoch > con.targetEpoch && (first || now >= con.targetAt+c.config.consumerOf(g.id).Assignment) {
		c.retarget(now, g)
	}
	next := m.towards(goal{epoch: con.targetEpoch, target: con.targets[m.id], free: func(p partition) bool { return con.free(p, m.id) }}, owned, known)
	if !next.equal(m.standing) {
		c.propose(g, next.record(g.id, m.id))
	}
	switch {
	case m.stage != groups.StageUnrevoked:
		m.revokeBy = 0
	case m.revokeBy == 0:
		m.revokeBy = c.by(now + int64(m.info.RebalanceMillis))
	}
}

// retarget computes and stores the target assignment.
func (c *Core) retarget(now int64, g *group) {
	con := g.consumer
	members := con.sorted()
	s := spec{topics: map[messages.TopicID]int32{}}
	for _, m := range members {
		sm := specMember{id: m.id, instance: m.info.Instance, current: con.targets[m.id]}
		for _, name := range con.subscription(m) {
			if id, partitions, ok := c.topics.Topic(name); ok {
				s.topics[id] = partitions
				sm.topics = append(sm.topics, id)
			}
		}
		slices.SortFunc(sm.topics, func(a, b messages.TopicID) int { return slices.Compare(a[:], b[:]) })
		s.members = append(s.members, sm)
	}
	for i, target := range s.assign(con.assignor(c.config.Assignors)) {
		id := members[i].id
		if was, ok := con.targets[id]; !ok || !slices.Equal(was, target) {
			c.propose(g, groups.Record{Group: g.id, Member: id, Kind: groups.KindTarget, Target: &groups.Target{Partitions: topicPartitions(target)}})
		}
	}
	c.propose(g, groups.Record{Group: g.id, Kind: groups.KindTargetEpoch, TargetEpoch: &groups.TargetEpoch{Epoch: con.epoch, Millis: now}})
}

// propose makes a record of a consumer group true, and has it stored with what else
// the request changes. Nobody is told of it before it is stored (see answer); if it
// never is, the core is dropped.
func (c *Core) propose(g *group, records ...groups.Record) {
	g.proposed = append(g.proposed, records...)
	for _, r := range records {
		c.Apply(r)
	}
}

// answer replies when everything that is true of the group is stored.
func (c *Core) answer(g *group, t Ticket, a groups.Answer) {
	c.flush(g)
	if w := c.open[g.tail]; w != nil {
		w.replies = append(w.replies, Reply{Ticket: t, Answer: a})
		return
	}
	c.reply(t, a)
}

// flush stores what was proposed.
func (c *Core) flush(g *group) {
	if len(g.proposed) == 0 {
		return
	}
	c.store(write{records: g.proposed, groups: []*group{g}, applied: true})
	g.proposed, g.tail = nil, c.writes
}
