package group

import (
	"fmt"

	"kagami/messages"
	"kagami/messages/groups"
)

// alive begins a member's session anew.
func (c *Core) alive(now int64, m *member) {
	m.since = now
	wait := m.session
	if m.fresh && m.join != 0 {
		wait = newMemberTimeout
	}
	m.expires = c.by(now + wait)
}

// leaves is LeaveGroup in both kinds of groups.
func (c *Core) leaves(now int64, t Ticket, r groups.Leave) {
	if g := c.groups[r.Group]; g != nil && g.consumer != nil {
		c.leaveClassic(now, t, g, r)
		return
	}
	c.reply(t, c.leave(now, r))
}

// member finds the member that speaks and checks its generation.
func (c *Core) member(w groups.Who) (*group, *member, error) {
	if w.Group == "" {
		return nil, nil, messages.ErrInvalidGroupID
	}
	g := c.groups[w.Group]
	if g == nil {
		return nil, nil, messages.ErrUnknownMember
	}
	m, err := g.find(w.Member, w.Instance)
	if err == nil && w.Generation != g.generation {
		err = fmt.Errorf("%w: %d, the group's is %d", messages.ErrIllegalGeneration, w.Generation, g.generation)
	}
	return g, m, err
}

// sync is SyncGroup: the leader's makes the generation settle when it is stored.
func (c *Core) sync(now int64, t Ticket, r groups.Sync) {
	if g := c.groups[r.Group]; g != nil && g.consumer != nil {
		c.syncConsumer(now, t, g, r)
		return
	}
	g, m, err := c.member(r.Who)
	switch {
	case err != nil:
	case r.ProtocolType != nil && *r.ProtocolType != g.protocolType, r.Protocol != nil && *r.Protocol != g.protocol:
		err = fmt.Errorf("%w: the group's is %s of type %s", messages.ErrInconsistentProtocol, g.protocol, g.protocolType)
	case g.state == PreparingRebalance:
		err = messages.ErrRebalanceInProgress
	case g.state == Stable:
		m.synced = true
		c.alive(now, m)
		c.reply(t, g.syncedAnswer(m))
		return
	case g.state == CompletingRebalance:
		c.answerSync(m, &groups.Synced{Err: messages.ErrRebalanceInProgress}) // the client has asked again
		m.sync, m.synced = t, true
		c.alive(now, m)
		if m.id == g.leader && !g.assigning {
			c.assign(g, r.Assignments)
		}
		return
	default:
		err = messages.ErrUnknownMember
	}
	c.reply(t, &groups.Synced{Err: err})
}

func (g *group) syncedAnswer(m *member) *groups.Synced {
	return &groups.Synced{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

// assign stores the leader's assignment; the members learn it after that.
func (c *Core) assign(g *group, assignments map[string][]byte) {
	given := map[string][]byte{}
	for id := range g.members {
		given[id] = assignments[id]
	}
	g.assigning = true
	generation, since := g.generation, g.since
	c.store(write{records: []groups.Record{g.record(given)}, groups: []*group{g}, then: func(now int64) {
		if g.state != CompletingRebalance || g.generation != generation || g.since != since || !g.assigning {
			return // the next generation is being prepared already
		}
		g.assigning = false
		g.become(Stable, now)
		for _, m := range g.sorted() {
			m.assignment = given[m.id]
			if m.sync != 0 {
				c.answerSync(m, g.syncedAnswer(m))
				c.alive(now, m)
			}
		}
	}})
}

// heartbeat is Heartbeat.
func (c *Core) heartbeat(now int64, r groups.Heartbeat) error {
	if g := c.groups[r.Group]; g != nil && g.consumer != nil {
		return c.heartbeatConsumer(now, g, r)
	}
	g, m, err := c.member(r.Who)
	if err != nil {
		return err
	}
	switch g.state {
	case PreparingRebalance:
		c.alive(now, m)
		return messages.ErrRebalanceInProgress
	case CompletingRebalance, Stable:
		c.alive(now, m)
		return nil
	case Empty, Dead:
	}
	return messages.ErrUnknownMember
}

// leave is LeaveGroup.
func (c *Core) leave(now int64, r groups.Leave) *groups.Left {
	if r.Group == "" {
		return &groups.Left{Err: messages.ErrInvalidGroupID}
	}
	out := &groups.Left{Members: make([]error, len(r.Members))}
	g := c.groups[r.Group]
	gone := false
	for i, l := range r.Members {
		if g == nil {
			out.Members[i] = messages.ErrUnknownMember
			continue
		}
		id := l.Member
		if id == "" && l.Instance != "" {
			id = g.statics[l.Instance]
		}
		if _, ok := g.pending[id]; ok && l.Instance == "" {
			delete(g.pending, id)
			gone = true
			continue
		}
		m, err := g.find(id, l.Instance)
		if err != nil {
			out.Members[i] = err
			continue
		}
		c.remove(g, m)
		gone = true
	}
	if gone {
		c.afterLeave(now, g)
	}
	return out
}

// remove takes a member out; what waits of it is refused.
func (c *Core) remove(g *group, m *member) {
	c.answerJoin(m, &groups.Joined{Err: messages.ErrUnknownMember, Generation: -1, Member: m.id})
	c.answerSync(m, &groups.Synced{Err: messages.ErrUnknownMember})
	delete(g.members, m.id)
	if m.instance != "" && g.statics[m.instance] == m.id {
		delete(g.statics, m.instance)
	}
	if g.leader == m.id {
		g.leader = ""
		if left := g.sorted(); len(left) > 0 {
			g.leader = left[0].id
		}
	}
	m.expires = noWake
}

// afterLeave begins what the loss of members asks for.
func (c *Core) afterLeave(now int64, g *group) {
	switch g.state {
	case Stable, CompletingRebalance:
		c.rebalance(now, g)
	case PreparingRebalance:
		c.complete(now, g)
	case Empty, Dead:
		c.tidy(g)
	}
}
