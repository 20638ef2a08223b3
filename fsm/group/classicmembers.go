package group

import (
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/wire"
)

// Members of the classic protocol in a group of the consumer protocol: their requests
// stay as they are, but the coordinator assigns, and no leader does.

// joinConsumer is JoinGroup: a heartbeat in other words.
func (c *Core) joinConsumer(now int64, t Ticket, fresh string, g *group, r groups.Join) {
	con := g.consumer
	sub, ok := wire.Subscription{}, false
	if r.ProtocolType == consumerType && len(r.Protocols) > 0 {
		sub, ok = wire.DecodeSubscription(r.Protocols[0].Metadata)
	}
	if !ok || !con.takes(r.Protocols) {
		c.refuseJoin(t, r, fmt.Errorf("%w: the members of group %q have no protocol in common with it", messages.ErrInconsistentProtocol, g.id))
		return
	}
	m, id, err := con.joining(r, fresh)
	switch {
	case err != nil:
		c.refuseJoin(t, r, err)
		return
	case id == "":
		c.reply(t, &groups.Joined{Err: messages.ErrMemberIDRequired, Generation: -1, Member: r.ClientID + "-" + fresh})
		return
	case m == nil && len(con.members) >= c.config.ConsumerSizeMax:
		c.refuseJoin(t, r, fmt.Errorf("%w: group %q has %d members", messages.ErrGroupFull, g.id, len(con.members)))
		return
	case m != nil && m.id != id:
		m = c.replaceMember(g, m, id)
	}
	info := classicInfo(r.Instance, r.ClientID, r.ClientHost, r.SessionMillis, r.RebalanceMillis, r.Protocols, sub)
	changed := c.describeMember(g, m, id, info, nil, now)
	m = con.member(id)
	c.advance(now, g, m, changed, partitionsOf(sub.Owned, c.topics), true)
	m.expires = c.by(now + int64(r.SessionMillis))
	m.rejoinBy = c.by(now + int64(r.RebalanceMillis))
	c.answer(g, t, &groups.Joined{Generation: m.epoch, ProtocolType: consumerType, Protocol: r.Protocols[0].Name, Member: id})
}

// takes reports whether a member with these protocols fits: it shares one with all
// others of the classic protocol.
func (con *consumer) takes(protocols []groups.Protocol) bool {
	return slices.ContainsFunc(protocols, func(p groups.Protocol) bool {
		for _, m := range con.members {
			if m.classic() && !slices.ContainsFunc(m.info.Classic.Protocols, func(q groups.Protocol) bool { return q.Name == p.Name }) {
				return false
			}
		}
		return true
	})
}

// joining is the member that joins and its id: no member for a new one, no id for one
// that must be told its id first.
func (con *consumer) joining(r groups.Join, fresh string) (*consumerMember, string, error) {
	if r.Instance == "" {
		switch m := con.members[r.Member]; {
		case r.Member != "":
			return m, r.Member, nil
		case r.NeedsID:
			return nil, "", nil
		default:
			return nil, r.ClientID + "-" + fresh, nil
		}
	}
	m := con.members[con.statics[r.Instance]]
	switch {
	case m == nil && r.Member != "":
		return nil, "", fmt.Errorf("%w: no member with group.instance.id %q", messages.ErrUnknownMember, r.Instance)
	case m == nil:
		return nil, r.Instance + "-" + fresh, nil
	case r.Member == "" && !m.classic() && m.epoch != groups.EpochAway:
		return nil, "", fmt.Errorf("%w: member %s has group.instance.id %q", messages.ErrUnreleasedInstance, m.id, r.Instance)
	case r.Member == "":
		return m, r.Instance + "-" + fresh, nil
	case m.id != r.Member:
		return nil, "", fmt.Errorf("%w: another member has group.instance.id %q by now", messages.ErrFencedInstance, r.Instance)
	}
	return m, m.id, nil
}

// speaks is the member of the classic protocol that sends a request.
func (con *consumer) speaks(w groups.Who) (*consumerMember, error) {
	m := con.members[w.Member]
	if w.Instance != "" {
		switch known, ok := con.statics[w.Instance]; {
		case !ok:
			return nil, fmt.Errorf("%w: no member with group.instance.id %q", messages.ErrUnknownMember, w.Instance)
		case known != w.Member:
			return nil, fmt.Errorf("%w: another member has group.instance.id %q by now", messages.ErrFencedInstance, w.Instance)
		}
	}
	switch {
	case m == nil || !m.classic():
		return nil, messages.ErrUnknownMember
	case w.Generation != m.epoch:
		return nil, fmt.Errorf("%w: %d, the member's is %d", messages.ErrIllegalGeneration, w.Generation, m.epoch)
	}
	return m, nil
}

// syncConsumer is SyncGroup: what the member has.
func (c *Core) syncConsumer(now int64, t Ticket, g *group, r groups.Sync) {
	con := g.consumer
	m, err := con.speaks(r.Who)
	switch {
	case err != nil:
	case r.ProtocolType != nil && *r.ProtocolType != consumerType, r.Protocol != nil && *r.Protocol != m.info.Classic.Protocols[0].Name:
		err = fmt.Errorf("%w: the member's is %s", messages.ErrInconsistentProtocol, m.info.Classic.Protocols[0].Name)
	case con.epoch > m.epoch && m.stage != groups.StageUnrevoked:
		c.mustRejoin(now, m)
		err = messages.ErrRebalanceInProgress
	}
	if err != nil {
		c.reply(t, &groups.Synced{Err: err})
		return
	}
	m.rejoinBy = 0
	m.expires = c.by(now + int64(m.info.Classic.SessionMillis))
	c.answer(g, t, &groups.Synced{ProtocolType: consumerType, Protocol: m.info.Classic.Protocols[0].Name, Assignment: c.encoded(m)})
}

// mustRejoin gives a member its rebalance timeout to join again, from when it was told
// first.
func (c *Core) mustRejoin(now int64, m *consumerMember) {
	if m.rejoinBy == 0 {
		m.rejoinBy = c.by(now + int64(m.info.RebalanceMillis))
	}
}

// heartbeatConsumer is Heartbeat: a member must join again when there is something
// to give up or to get.
func (c *Core) heartbeatConsumer(now int64, g *group, r groups.Heartbeat) error {
	con := g.consumer
	m, err := con.speaks(r.Who)
	if err != nil {
		return err
	}
	m.expires = c.by(now + int64(m.info.Classic.SessionMillis))
	if m.epoch < con.epoch || c.outdated(con) ||
		m.stage == groups.StageUnrevoked || m.stage == groups.StageUnreleased && !con.waits(m) {
		c.mustRejoin(now, m)
		return messages.ErrRebalanceInProgress
	}
	return nil
}

// outdated reports whether the group's topics look otherwise than when its epoch grew
// last; whoever joins makes it grow.
func (c *Core) outdated(con *consumer) bool {
	if con.seen == c.topics.Version() {
		return false
	}
	if c.look(con) != con.hash {
		return true
	}
	if len(con.regexes) == 0 { // else what they match may be other topics by now
		con.seen = c.topics.Version()
	}
	return false
}

// waits reports whether others have something that a member is to get.
func (con *consumer) waits(m *consumerMember) bool {
	return slices.ContainsFunc(con.targets[m.id], func(p partition) bool { return !con.free(p, m.id) })
}

// leaveClassic is LeaveGroup; administrators remove members of either protocol by it.
func (c *Core) leaveClassic(now int64, t Ticket, g *group, r groups.Leave) {
	con := g.consumer
	out := &groups.Left{Members: make([]error, len(r.Members))}
	var gone []*consumerMember
	for i, l := range r.Members {
		m := con.members[l.Member]
		if l.Member == "" && l.Instance != "" {
			m = con.members[con.statics[l.Instance]] // by an administrator
		}
		switch {
		case m == nil || slices.Contains(gone, m):
			out.Members[i] = messages.ErrUnknownMember
		case l.Member != "" && l.Instance != "" && con.statics[l.Instance] != m.id:
			out.Members[i] = fmt.Errorf("%w: another member has group.instance.id %q by now", messages.ErrFencedInstance, l.Instance)
		default:
			gone = append(gone, m)
		}
	}
	if len(gone) > 0 {
		c.takeOut(now, g, gone...)
	}
	c.answer(g, t, out)
}
