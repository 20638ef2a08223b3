package group

import (
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/wire"
)

// Migration says which groups change their protocol while they have members.
type Migration int8

// The policies (group.consumer.migration.policy).
const (
	MigrateNever Migration = iota + 1
	MigrateUp              // classic to consumer
	MigrateDown            // consumer to classic
	MigrateBoth
)

// String is Kafka's name of the policy.
func (m Migration) String() string {
	switch m {
	case MigrateNever:
		return "disabled"
	case MigrateUp:
		return "upgrade"
	case MigrateDown:
		return "downgrade"
	case MigrateBoth:
		return "bidirectional"
	default:
		return "unknown"
	}
}

// ParseMigration reads a policy; an unknown one is MigrateBoth, the default.
func ParseMigration(s string) Migration {
	for _, m := range []Migration{MigrateNever, MigrateUp, MigrateDown} {
		if m.String() == s {
			return m
		}
	}
	return MigrateBoth
}

// makeConsumer is the group that a member of the consumer protocol joins: a new
// one, or one of the classic protocol that becomes one of the consumer protocol.
func (c *Core) makeConsumer(now int64, r groups.Beat) (*group, error) {
	g := c.get(r.Group)
	if len(g.members) > 0 {
		if err := c.mayUpgrade(g); err != nil {
			return nil, err
		}
		c.upgrade(now, g)
		return g, nil
	}
	if g.stored {
		c.propose(g, groups.Record{Group: g.id, Kind: groups.KindGroup, Gone: true})
	}
	g.emptyClassic()
	g.consumer = newConsumer()
	return g, nil
}

// emptyClassic leaves nothing of the classic protocol's group.
func (g *group) emptyClassic() {
	clear(g.members)
	clear(g.statics)
	clear(g.pending)
	g.state, g.since, g.protocolType, g.protocol, g.generation, g.leader = Empty, -1, "", "", 0, ""
	g.joinBy, g.syncBy, g.initial, g.newcomers, g.assigning = 0, 0, false, false, false
}

func (c *Core) mayUpgrade(g *group) error {
	refuse := func(why string) error {
		return fmt.Errorf("%w: classic group %q can't become a consumer group: %s", messages.ErrUnknownGroup, g.id, why)
	}
	switch {
	case c.config.Migration != MigrateUp && c.config.Migration != MigrateBoth:
		return refuse("the migration policy doesn't allow it")
	case g.protocolType != consumerType:
		return refuse("its members are no consumers")
	case len(g.members) >= c.config.ConsumerSizeMax:
		return refuse("it has too many members")
	}
	for _, m := range g.members {
		if _, ok := wire.DecodeSubscription(m.protocols[0].Metadata); !ok {
			return refuse("the subscription of member " + m.id + " can't be read")
		}
	}
	return nil
}

// upgrade makes a group with members one of the consumer protocol. Members stay with
// what they have, and speak the classic protocol until they are replaced.
func (c *Core) upgrade(now int64, g *group) {
	con := newConsumer()
	generation, members := g.generation, g.sorted()
	for _, m := range members {
		c.answerJoin(m, &groups.Joined{Err: messages.ErrRebalanceInProgress, Generation: -1, Member: m.id})
		c.answerSync(m, &groups.Synced{Err: messages.ErrRebalanceInProgress})
	}
	assignments := g.assignedTo(c.topics)
	c.propose(g, groups.Record{Group: g.id, Kind: groups.KindGroup, Gone: true})
	g.emptyClassic()
	g.consumer = con
	for _, m := range members {
		sub, _ := wire.DecodeSubscription(m.protocols[0].Metadata)
		info := classicInfo(m.instance, m.clientID, m.host, int32(m.session), int32(m.rebalance), m.protocols, sub)
		s := standing{epoch: generation, previous: generation, stage: groups.StageStable, assigned: held{}}
		for _, p := range assignments[m.id] {
			s.assigned[p] = generation
		}
		c.propose(g,
			groups.Record{Group: g.id, Member: m.id, Kind: groups.KindConsumerMember, ConsumerMember: &info},
			groups.Record{Group: g.id, Member: m.id, Kind: groups.KindTarget, Target: &groups.Target{Partitions: topicPartitions(s.assigned.sorted())}},
			s.record(g.id, m.id))
		con.members[m.id].expires = c.by(now + m.session)
	}
	c.propose(g,
		groups.Record{Group: g.id, Kind: groups.KindTargetEpoch, TargetEpoch: &groups.TargetEpoch{Epoch: generation, Millis: now}},
		groups.Record{Group: g.id, Kind: groups.KindConsumer, Consumer: &groups.ConsumerGroup{Epoch: generation, Hash: c.look(con)}})
}

// assignedTo is what the members have by their leader's assignment; what two have is
// the first one's.
func (g *group) assignedTo(topics Topics) map[string][]partition {
	out, taken := map[string][]partition{}, map[partition]struct{}{}
	for _, m := range g.sorted() {
		assigned, ok := wire.DecodeAssignment(m.assignment)
		if !ok {
			continue
		}
		for p := range partitionsOf(assigned, topics) {
			if _, ok := taken[p]; !ok {
				taken[p] = struct{}{}
				out[m.id] = append(out[m.id], p)
			}
		}
	}
	return out
}

// partitionsOf is partitions by id, of topics that exist.
func partitionsOf(named []groups.Partitions, topics Topics) held {
	out := held{}
	for _, t := range named {
		id, count, ok := topics.Topic(t.Topic)
		for _, n := range t.Partitions {
			if ok && n >= 0 && n < count {
				out[partition{id, n}] = 0
			}
		}
	}
	return out
}

func classicInfo(instance, clientID, host string, session, rebalance int32, protocols []groups.Protocol, sub wire.Subscription) groups.ConsumerMember {
	return groups.ConsumerMember{
		Instance: instance, Rack: sub.Rack, ClientID: clientID, ClientHost: host, RebalanceMillis: rebalance,
		Topics:  slices.Compact(slices.Sorted(slices.Values(sub.Topics))),
		Classic: &groups.ClassicMember{SessionMillis: session, Protocols: protocols},
	}
}

// encoded is what a member of the classic protocol is told that it has.
func (c *Core) encoded(m *consumerMember) []byte {
	sub, _ := wire.DecodeSubscription(m.info.Classic.Protocols[0].Metadata)
	var out []groups.Partitions
	for _, t := range topicPartitions(m.assigned.sorted()) {
		if name, ok := c.topics.Name(t.Topic); ok {
			out = append(out, groups.Partitions{Topic: name, Partitions: t.Partitions})
		}
	}
	return wire.EncodeAssignment(sub.Version, out)
}

// downgrade makes a group whose last member of the consumer protocol is gone one of
// the classic protocol, if it can, and has it rebalance.
func (c *Core) downgrade(now int64, g *group) bool {
	con := g.consumer
	if c.config.Migration != MigrateDown && c.config.Migration != MigrateBoth || len(con.members) == 0 || len(con.members) > c.config.SizeMax {
		return false
	}
	next := newGroup(g.id)
	for _, m := range con.sorted() {
		if !m.classic() {
			return false
		}
		c.seq++
		next.members[m.id] = &member{
			id: m.id, instance: m.info.Instance, clientID: m.info.ClientID, host: m.info.ClientHost,
			session: int64(m.info.Classic.SessionMillis), rebalance: int64(m.info.RebalanceMillis),
			protocols: m.info.Classic.Protocols, assignment: c.encoded(m), seq: c.seq, synced: true,
		}
	}
	protocol := next.elect()
	if protocol == "" {
		return false
	}
	epoch := con.epoch
	c.propose(g, con.tombstones(g.id)...)
	g.members, g.protocolType, g.protocol, g.generation = next.members, consumerType, protocol, epoch
	for _, m := range g.sorted() {
		if m.instance != "" {
			g.statics[m.instance] = m.id
		}
		if g.leader == "" {
			g.leader = m.id
		}
		c.alive(now, m)
	}
	g.become(Stable, now)
	c.propose(g, g.record(nil))
	c.flush(g)
	c.rebalance(now, g)
	return true
}
