package group

import (
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
)

// join is JoinGroup. Most answers come later, when the generation begins.
func (c *Core) join(now int64, t Ticket, fresh string, r groups.Join) {
	if err := c.checkJoin(r); err != nil {
		c.refuseJoin(t, r, err)
		return
	}
	g := c.groups[r.Group]
	if g != nil && g.consumer != nil {
		if len(g.consumer.members) > 0 {
			c.joinConsumer(now, t, fresh, g, r)
			return
		}
		c.propose(g, g.consumer.tombstones(g.id)...) // an empty group takes either protocol
		c.flush(g)
	}
	if g == nil {
		if r.Member != "" {
			c.refuseJoin(t, r, messages.ErrUnknownMember)
			return
		}
		g = c.get(r.Group)
		g.since = now
	}
	switch {
	case c.full(g, r.Member):
		c.refuseJoin(t, r, fmt.Errorf("%w: group %q has %d members", messages.ErrGroupFull, g.id, len(g.members)))
	case !g.takes(r.ProtocolType, r.Protocols):
		c.refuseJoin(t, r, fmt.Errorf("%w: the members of group %q have no protocol in common with it", messages.ErrInconsistentProtocol, g.id))
	case r.Member == "":
		c.joinNew(now, g, t, fresh, r)
	default:
		c.joinKnown(now, g, t, r)
	}
	c.tidy(g)
}

func (c *Core) checkJoin(r groups.Join) error {
	switch s := int64(r.SessionMillis); {
	case r.Group == "":
		return messages.ErrInvalidGroupID
	case s < c.config.SessionMin || s > c.config.SessionMax:
		return fmt.Errorf("%w: %d ms, allowed are %d to %d", messages.ErrInvalidSessionTimeout, s, c.config.SessionMin, c.config.SessionMax)
	}
	return nil
}

func (c *Core) refuseJoin(t Ticket, r groups.Join, err error) {
	c.reply(t, &groups.Joined{Err: err, Generation: -1, Member: r.Member})
}

// full reports whether a group takes no more: those that wait to join come first.
func (c *Core) full(g *group, id string) bool {
	switch {
	case g.members[id] != nil && (g.state != PreparingRebalance || g.members[id].join != 0):
		return false
	case g.state == Empty:
		return false
	case g.state == PreparingRebalance:
		n := 0
		for _, m := range g.members {
			if m.join != 0 {
				n++
			}
		}
		return n >= c.config.SizeMax
	default:
		return len(g.members) >= c.config.SizeMax
	}
}

func (c *Core) joinNew(now int64, g *group, t Ticket, fresh string, r groups.Join) {
	id := r.ClientID + "-" + fresh
	if r.Instance != "" {
		id = r.Instance + "-" + fresh
		if old, ok := g.statics[r.Instance]; ok {
			c.replaceStatic(now, g, t, old, id, r)
			return
		}
	} else if r.NeedsID {
		g.pending[id] = c.by(now + int64(r.SessionMillis))
		c.reply(t, &groups.Joined{Err: messages.ErrMemberIDRequired, Generation: -1, Member: id})
		return
	}
	c.add(now, g, t, id, r)
}

// add makes a member and has it wait for the next generation.
func (c *Core) add(now int64, g *group, t Ticket, id string, r groups.Join) {
	c.seq++
	m := &member{id: id, instance: r.Instance, seq: c.seq, fresh: true}
	if len(g.members) == 0 {
		g.protocolType = r.ProtocolType
	}
	if g.leader == "" || g.members[g.leader] == nil {
		g.leader = id
	}
	g.members[id] = m
	if m.instance != "" {
		g.statics[m.instance] = id
	}
	delete(g.pending, id)
	if g.state == PreparingRebalance && g.initial {
		g.newcomers = true
	}
	c.wait(now, g, m, t, r)
	c.rebalance(now, g)
}

// wait has a member's request wait for the next generation.
func (c *Core) wait(now int64, g *group, m *member, t Ticket, r groups.Join) {
	c.answerJoin(m, &groups.Joined{Err: messages.ErrRebalanceInProgress, Generation: -1, Member: m.id}) // the client has asked again
	m.clientID, m.host, m.protocols = r.ClientID, r.ClientHost, r.Protocols
	m.session, m.rebalance, m.join = int64(r.SessionMillis), int64(r.RebalanceMillis), t
	c.alive(now, m)
	if g.members[g.leader] == nil {
		g.leader = m.id
	}
}

func (c *Core) joinKnown(now int64, g *group, t Ticket, r groups.Join) {
	if _, ok := g.pending[r.Member]; ok && r.Instance == "" {
		c.add(now, g, t, r.Member, r)
		return
	}
	m, err := g.find(r.Member, r.Instance)
	if err != nil {
		c.refuseJoin(t, r, err)
		return
	}
	same := sameProtocols(m.protocols, r.Protocols)
	switch {
	case g.state == PreparingRebalance:
		c.wait(now, g, m, t, r)
		c.complete(now, g)
	case g.state == CompletingRebalance && same, g.state == Stable && same && m.id != g.leader:
		// It didn't hear the answer: the generation is as it was.
		c.alive(now, m)
		c.reply(t, g.joined(m))
	case g.state == CompletingRebalance, g.state == Stable:
		c.wait(now, g, m, t, r)
		c.rebalance(now, g)
	default:
		c.refuseJoin(t, r, messages.ErrUnknownMember)
	}
}

// find is the member that speaks.
func (g *group) find(id, instance string) (*member, error) {
	if instance != "" {
		switch known, ok := g.statics[instance]; {
		case !ok:
			return nil, fmt.Errorf("%w: no member with group.instance.id %q", messages.ErrUnknownMember, instance)
		case known != id:
			return nil, fmt.Errorf("%w: another member has group.instance.id %q by now", messages.ErrFencedInstance, instance)
		}
	}
	if m := g.members[id]; m != nil {
		return m, nil
	}
	return nil, messages.ErrUnknownMember
}

// joined is what a member is told of the generation.
func (g *group) joined(m *member) *groups.Joined {
	out := &groups.Joined{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, Member: m.id}
	if m.id == g.leader {
		for _, other := range g.sorted() {
			out.Members = append(out.Members, groups.JoinedMember{Member: other.id, Instance: other.instance, Metadata: other.metadata(g.protocol)})
		}
	}
	return out
}

func (c *Core) answerJoin(m *member, a *groups.Joined) {
	c.reply(m.join, a)
	m.join = 0
}

func (c *Core) answerSync(m *member, a *groups.Synced) {
	c.reply(m.sync, a)
	m.sync = 0
}

// replaceStatic is a static member that came back: it takes the place of its former
// self, which is fenced. A stable group isn't disturbed where the protocol stays
// (KIP-345).
func (c *Core) replaceStatic(now int64, g *group, t Ticket, old, id string, r groups.Join) {
	leader, was := g.leader, g.members[old]
	fenced := fmt.Errorf("%w: another member has group.instance.id %q by now", messages.ErrFencedInstance, r.Instance)
	c.answerJoin(was, &groups.Joined{Err: fenced, Generation: -1, Member: old})
	c.answerSync(was, &groups.Synced{Err: fenced})
	m := *was
	m.id = id
	delete(g.members, old)
	g.members[id], g.statics[r.Instance] = &m, id
	if leader == old {
		g.leader = id
	}
	c.wait(now, g, &m, t, r)
	switch {
	case g.state == PreparingRebalance:
		c.complete(now, g)
	case g.state == Stable && g.elect() == g.protocol:
		generation := g.generation
		c.store(write{records: []groups.Record{g.record(nil)}, groups: []*group{g}, then: func(now int64) {
			if g.state != Stable || g.generation != generation || m.join != t {
				return // it waits for the next generation, or is gone
			}
			c.answerJoin(&m, g.rejoined(&m, leader, r.MaySkip))
			c.alive(now, &m)
		}})
	default:
		c.rebalance(now, g)
	}
}

// rejoined is the answer to a static member that came back into a stable group: it
// is told so that it doesn't assign. Older clients do by the old leader's id.
func (g *group) rejoined(m *member, leaderBefore string, maySkip bool) *groups.Joined {
	out := g.joined(m)
	if maySkip {
		out.SkipAssignment = m.id == g.leader
		return out
	}
	out.Leader, out.Members = leaderBefore, nil
	return out
}

// rebalance begins a new generation, where none is being prepared.
func (c *Core) rebalance(now int64, g *group) {
	switch g.state {
	case PreparingRebalance:
		c.complete(now, g)
		return
	case CompletingRebalance:
		for _, m := range g.sorted() {
			m.assignment = nil
			c.answerSync(m, &groups.Synced{Err: messages.ErrRebalanceInProgress})
		}
	case Empty, Stable, Dead:
	}
	g.syncBy, g.assigning, g.initial, g.newcomers = 0, false, false, false
	wait := g.rebalanceTimeout()
	if g.state == Empty {
		g.initial, g.delayLeft = true, max(0, wait-c.config.InitialDelay)
		wait = c.config.InitialDelay
	}
	g.joinBy = c.by(now + wait)
	g.become(PreparingRebalance, now)
	c.complete(now, g)
}

// complete begins the generation when all are there; the first one waits for its
// whole time.
func (c *Core) complete(now int64, g *group) {
	if g.state != PreparingRebalance || g.initial || len(g.pending) > 0 && len(g.members) > 0 {
		return
	}
	for _, m := range g.members {
		if m.join == 0 {
			return
		}
	}
	c.begin(now, g)
}

// joinTimeout is the end of the time to join.
func (c *Core) joinTimeout(now int64, g *group) {
	if g.initial && g.newcomers && g.delayLeft > 0 {
		wait := min(c.config.InitialDelay, g.delayLeft)
		g.newcomers, g.delayLeft = false, g.delayLeft-wait
		g.joinBy = c.by(now + wait)
		return
	}
	for _, m := range g.sorted() {
		if m.join == 0 && m.instance == "" {
			c.remove(g, m)
		}
	}
	if !slices.ContainsFunc(g.sorted(), func(m *member) bool { return m.join != 0 }) && len(g.members) > 0 {
		g.joinBy = c.by(now + max(1, g.rebalanceTimeout())) // static members, all away: until they come or their sessions end
		return
	}
	c.begin(now, g)
}

// begin ends the wait: a new generation, of those who joined and of static members
// that are away.
func (c *Core) begin(now int64, g *group) {
	g.generation++
	g.initial = false
	if len(g.members) == 0 {
		g.protocol, g.leader = "", ""
		g.become(Empty, now)
		c.store(write{records: []groups.Record{g.record(nil)}, groups: []*group{g}})
		return
	}
	if m := g.members[g.leader]; m == nil || m.join == 0 {
		for _, m := range g.sorted() {
			if m.join != 0 {
				g.leader = m.id
				break
			}
		}
	}
	g.protocol = g.elect()
	g.become(CompletingRebalance, now)
	g.assigning = false
	for _, m := range g.sorted() {
		c.answerJoin(m, g.joined(m))
		m.fresh, m.synced = false, false
		c.alive(now, m)
	}
	g.syncBy = c.by(now + g.rebalanceTimeout())
}
