package group

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
)

// share is a share group (KIP-932). Nobody joins one here: it is its name, and the
// partitions that it has a state of.
type share struct {
	epoch  int32
	hash   int64
	topics map[messages.TopicID]groups.ShareTopic
}

func (s *share) sorted() []groups.ShareTopic {
	out := make([]groups.ShareTopic, 0, len(s.topics))
	for _, t := range s.topics {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b groups.ShareTopic) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return out
}

func (s *share) partitions() (n int) {
	for _, t := range s.topics {
		n += len(t.Partitions)
	}
	return n
}

// applyShare makes true what a stored record of a share group says.
func (c *Core) applyShare(r groups.Record) {
	g := c.groups[r.Group]
	if r.Gone {
		if g != nil && r.Kind == groups.KindShare {
			g.share = nil
			c.tidy(g)
		} else if g != nil && g.share != nil {
			clear(g.share.topics)
		}
		return
	}
	if g = c.get(r.Group); g.share == nil {
		g.share = &share{topics: map[messages.TopicID]groups.ShareTopic{}}
	}
	if r.Share != nil {
		g.share.epoch, g.share.hash = r.Share.Epoch, r.Share.Hash
		return
	}
	clear(g.share.topics)
	for _, t := range r.SharePartitions.Topics {
		g.share.topics[t.ID] = t
	}
}

// handleShare takes a request for a share group. What is meant for other groups is
// refused with Kafka's errors.
func (c *Core) handleShare(t Ticket, g *group, req groups.Request) {
	other := fmt.Errorf("%w: group %s is a share group", messages.ErrUnknownGroup, g.id)
	switch r := req.(type) {
	case groups.LookShare:
		c.reply(t, &groups.ShareLooked{State: Empty.String(), Epoch: g.share.epoch, Topics: g.share.sorted()})
	case groups.AlterShare:
		c.settled(g.id, func() { c.alterShare(t, r) })
	case groups.Delete:
		c.settled(g.id, func() { c.deleteShare(t, g.id) })
	case groups.Look:
		c.reply(t, &groups.Looked{Type: groups.TypeShare, State: Empty.String()})
	case groups.Fetch:
		c.reply(t, (*group)(nil).fetched(r)) // it has no offsets of that kind
	case groups.Heartbeat:
		c.reply(t, &groups.Done{Err: messages.ErrUnknownMember})
	case groups.Describe:
		c.reply(t, &groups.Described{Err: other, State: Dead.String()})
	case groups.Join:
		c.reply(t, groups.Refusal(req, fmt.Errorf("%w: group %s is a share group", messages.ErrInconsistentProtocol, g.id)))
	default:
		c.reply(t, groups.Refusal(req, other))
	}
}

// noShare is the answer about a group that is none.
func (c *Core) noShare(id string) error {
	if c.groups[id] != nil {
		return fmt.Errorf("%w: group %s is not a share group", messages.ErrUnknownGroup, id)
	}
	return fmt.Errorf("%w: group %s not found", messages.ErrUnknownGroup, id)
}

// alterShare notes partitions that a share group has a state of.
func (c *Core) alterShare(t Ticket, r groups.AlterShare) {
	g := c.groups[r.Group]
	if g != nil && g.share == nil || g == nil && len(r.Add) == 0 {
		c.reply(t, &groups.Done{Err: c.noShare(r.Group)})
		return
	}
	now := share{topics: map[messages.TopicID]groups.ShareTopic{}}
	var records []groups.Record
	if g == nil {
		records = append(records, groups.Record{Group: r.Group, Kind: groups.KindShare, Share: &groups.ShareGroup{Epoch: 1}})
	} else {
		maps.Copy(now.topics, g.share.topics)
	}
	for _, id := range r.Remove {
		delete(now.topics, id)
	}
	for _, add := range r.Add {
		all := slices.Concat(now.topics[add.ID].Partitions, add.Partitions)
		slices.Sort(all)
		add.Partitions = slices.Compact(all)
		now.topics[add.ID] = add
	}
	if g != nil && sameShare(g.share.topics, now.topics) {
		c.reply(t, &groups.Done{})
		return
	}
	records = append(records, groups.Record{Group: r.Group, Kind: groups.KindSharePartitions, SharePartitions: &groups.SharePartitions{Topics: now.sorted()}})
	c.storeShare(t, c.get(r.Group), records)
}

// storeShare makes records true at once, so that nobody joins the group as another kind
// meanwhile; the answer waits until they are stored.
func (c *Core) storeShare(t Ticket, g *group, records []groups.Record) {
	for _, r := range records {
		c.applyShare(r)
	}
	c.store(write{records: records, applied: true, groups: []*group{g}, then: func(int64) { c.reply(t, &groups.Done{}) }})
}

func sameShare(a, b map[messages.TopicID]groups.ShareTopic) bool {
	if len(a) != len(b) {
		return false
	}
	for id, t := range a {
		if u, ok := b[id]; !ok || t.Name != u.Name || !slices.Equal(t.Partitions, u.Partitions) {
			return false
		}
	}
	return true
}

func (c *Core) deleteShare(t Ticket, id string) {
	g := c.groups[id]
	if g == nil || g.share == nil {
		c.reply(t, &groups.Done{Err: c.noShare(id)})
		return
	}
	c.storeShare(t, g, []groups.Record{{Group: id, Kind: groups.KindSharePartitions, Gone: true}, {Group: id, Kind: groups.KindShare, Gone: true}})
}

// shareTopicsGone forgets the states of topics that don't exist any more.
func (c *Core) shareTopicsGone(g *group, exists func(topic string) bool) {
	var gone []messages.TopicID
	for id, t := range g.share.topics {
		if !exists(t.Name) {
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		c.alterShare(0, groups.AlterShare{Group: g.id, Remove: gone})
	}
}
