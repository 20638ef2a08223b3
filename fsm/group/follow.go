package group

import (
	"fmt"

	"kagami/messages"
	"kagami/messages/groups"
)

// committed tells what a group has committed on topics.
func (c *Core) committed(r groups.Look) *groups.Looked {
	out := &groups.Looked{}
	g := c.groups[r.Group]
	if g == nil {
		return out
	}
	out.Type, out.State, out.Live = groups.TypeClassic, g.state.String(), !g.empty()
	if g.consumer != nil {
		out.Type, out.State = groups.TypeConsumer, g.consumer.state()
	}
	for _, p := range g.places() {
		if _, ok := r.Topics[p.topic]; ok {
			out.Positions = append(out.Positions, g.position(p, false))
		}
	}
	return out
}

// followAge is the part of the retention time after which a position that is as it
// was is stored again, so that it isn't taken for one that nobody needs.
const followAge = 4

// follow commits what the group has committed on a mirror's source. Nothing of the
// group is on its way to the log: what members or others committed is seen, and stays.
func (c *Core) follow(now int64, t Ticket, r groups.Follow) {
	g := c.groups[r.Group]
	if g != nil && !g.empty() {
		c.reply(t, &groups.Committed{Err: fmt.Errorf("%w: %q has members here", messages.ErrNonEmptyGroup, r.Group)})
		return
	}
	out := &groups.Committed{Positions: make([]error, len(r.Positions))}
	var records []groups.Record
	for i, p := range r.Positions {
		at := place{p.Topic, p.Partition}
		var is *groups.Offset
		if g != nil {
			if o, ok := g.offsets[at]; ok {
				is = &o
			}
		}
		if err := c.mayFollow(g, at, is, p, r.Follows); err != nil {
			out.Positions[i] = err
			continue
		}
		if len(p.Metadata) > c.config.MetadataMax {
			p.Metadata = "" // the offset is what counts
		}
		if is != nil && is.Offset == p.Offset && is.LeaderEpoch == p.LeaderEpoch && is.Metadata == p.Metadata && now-is.CommitMillis < c.config.Retention/followAge {
			continue
		}
		o := &groups.Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, CommitMillis: now, ExpireMillis: -1}
		records = append(records, groups.Record{Group: r.Group, Kind: groups.KindOffset, Topic: p.Topic, Partition: p.Partition, Offset: o})
	}
	if len(records) == 0 {
		c.reply(t, out)
		return
	}
	c.store(write{records: records, groups: []*group{c.get(r.Group)}, then: func(int64) { c.reply(t, out) }})
}

func (c *Core) mayFollow(g *group, at place, is *groups.Offset, p groups.FollowPosition, follows func(topic string) bool) error {
	was := messages.NoOffset
	if is != nil {
		was = is.Offset
	}
	switch {
	case !follows(p.Topic):
		return fmt.Errorf("%w: topic %s isn't active in the mirror any more", messages.ErrSettingsChanged, p.Topic)
	case g != nil && g.unstable(at):
		return messages.ErrUnstableOffset
	case was != p.Was:
		return fmt.Errorf("%w: %d is committed here, not %d", messages.ErrSettingsChanged, was, p.Was)
	}
	return nil
}
