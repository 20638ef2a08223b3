// Package group decides for consumer groups of the classic and of the consumer
// protocol (KIP-848): the pure core of a group coordinator, without clock, network,
// goroutine or logger.
//
// Its two main types are [Core], what the coordinator of one partition of
// __consumer_offsets knows, and [Effects], what it wants done. Requests, the end
// of appends and the passing of time go in; answers and records to store come
// out. What a record says becomes true by [Core.Apply] alone, after it is stored,
// so that live state and replay can't differ; what nobody has stored yet, members
// that join and the assignment of a generation that isn't settled, may be lost with
// the coordinator, as in Kafka: members then join again. Groups of the consumer
// protocol go one step further: their records are true at once, so that many members
// can beat while an append is on its way, and answers wait until it is stored.
//
// The owner (an actor) calls it from one goroutine. Time and chance are
// arguments. When a write fails, or nobody knows whether it did, the owner drops the
// core, refuses what wasn't answered, and replays the log into a new one.
package group

import (
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/txns"
)

// Config is what decides beside the requests; times are ms.
type Config struct {
	SessionMin, SessionMax int64 // of a member
	SizeMax                int   // members of a group
	InitialDelay           int64 // before the first generation of a group
	MetadataMax            int   // bytes of an offset's metadata
	Retention              int64 // of offsets

	// Of groups of the consumer protocol.
	Consumer        ConsumerConfig
	ConsumerOf      map[string]ConsumerConfig // of groups that have settings of their own
	ConsumerSizeMax int
	Assignors       []string // the first one is the default
	Migration       Migration
}

// ConsumerConfig is settings that groups of the consumer protocol may have of their
// own; ms.
type ConsumerConfig struct {
	Session  int64 // how long a member may be silent
	Interval int64 // between two heartbeats of a member
	// Assignment is the shortest time between two target assignments: what changes
	// meanwhile waits for a heartbeat after it (KIP-1263).
	Assignment int64
}

func (c Config) consumerOf(group string) ConsumerConfig {
	if own, ok := c.ConsumerOf[group]; ok {
		return own
	}
	return c.Consumer
}

// newMemberTimeout is how long a member that has never been in a generation may
// wait to join before it is given up (Kafka's NewMemberJoinTimeoutMs).
const newMemberTimeout = 5 * 60_000

// Ticket names a request that waits for its answer; zero is none.
type Ticket int64

// Reply is the answer to a request.
type Reply struct {
	Ticket Ticket
	Answer groups.Answer
}

// Write is records to store together; Stored tells the core that they are. They
// are stored in the order in which they came out.
type Write struct {
	ID      int64
	Records []groups.Record
	// Txn is the producer in whose transaction the records are; nil without.
	Txn *txns.Producer
	// Marker is stored in place of records: it ends a transaction.
	Marker *txns.Marker
}

// Effects are what one call wants done: replies may go at once.
type Effects struct {
	Replies []Reply
	Writes  []Write
}

// Core is the groups of one partition of __consumer_offsets.
type Core struct {
	config Config
	groups map[string]*group
	out    Effects
	writes int64 // ids given
	open   map[int64]*write
	topics Topics
	wake   int64 // earliest deadline that may have come, ms; noWake without one
	seq    int64 // of joins, so that order never depends on a map

	txns   map[int64]map[string]struct{} // groups with pending offsets, by producer
	ending map[int64]int                 // producers whose marker is on its way to the log
}

// write is a Write on its way: what happens when it is stored.
type write struct {
	records []groups.Record
	txn     *txns.Producer // whose transaction they are in
	marker  *txns.Marker   // in place of records
	groups  []*group
	then    func(now int64)
	applied bool    // the records are true already
	settles bool    // has a record of a classic group
	replies []Reply // that wait for it
}

const noWake = int64(1<<63 - 1)

// New is a core that knows no group. Apply replays what is stored, Loaded ends
// the replay.
func New(config Config) *Core {
	return &Core{config: config, groups: map[string]*group{}, open: map[int64]*write{}, topics: noTopics{}, wake: noWake}
}

// SetConfig changes the settings from the next call on.
func (c *Core) SetConfig(config Config) { c.config = config }

// Groups is the number of groups.
func (c *Core) Groups() int { return len(c.groups) }

// Wake is when Tick is due, ok is false if never.
func (c *Core) Wake() (millis int64, ok bool) { return c.wake, c.wake != noWake }

// Apply makes true what a stored record says.
func (c *Core) Apply(r groups.Record) {
	g := c.groups[r.Group]
	switch {
	case r.Kind == groups.KindShare || r.Kind == groups.KindSharePartitions:
		c.applyShare(r)
	case r.Kind > groups.KindGroup:
		c.applyConsumer(r)
	case r.Kind == groups.KindOffset && r.Gone:
		if g != nil {
			delete(g.offsets, place{r.Topic, r.Partition})
			g.supersede(place{r.Topic, r.Partition})
			c.tidy(g)
		}
	case r.Kind == groups.KindOffset:
		g = c.get(r.Group)
		g.offsets[place{r.Topic, r.Partition}] = *r.Offset
		g.supersede(place{r.Topic, r.Partition})
	case r.Gone:
		if g != nil {
			if g.stored = false; g.state == Empty {
				g.generation, g.protocolType = 0, ""
			}
			c.tidy(g)
		}
	default:
		c.get(r.Group).stored = true
	}
}

func (c *Core) applyConsumer(r groups.Record) {
	g := c.groups[r.Group]
	switch {
	case r.Gone && (g == nil || g.consumer == nil):
	case r.Gone && r.Kind == groups.KindConsumer:
		g.consumer = nil
		c.tidy(g)
	default:
		if g = c.get(r.Group); g.consumer == nil {
			g.consumer = newConsumer()
		}
		g.consumer.apply(r)
	}
}

// ApplyLoaded is Apply for a replay: the state of a group is that of its record.
func (c *Core) ApplyLoaded(r groups.Record) {
	c.Apply(r)
	if r.Kind != groups.KindGroup {
		return
	}
	if r.Gone {
		if g := c.groups[r.Group]; g != nil {
			g.load(&groups.State{SinceMillis: -1})
		}
		return
	}
	c.groups[r.Group].load(r.State)
}

// Loaded begins the sessions of the members that were found.
func (c *Core) Loaded(now int64) {
	for _, g := range c.groups {
		for _, m := range g.members {
			c.alive(now, m)
		}
		if g.consumer != nil {
			c.loadedConsumer(now, g)
		}
	}
}

// get finds a group or makes it.
func (c *Core) get(id string) *group {
	g := c.groups[id]
	if g == nil {
		g = newGroup(id)
		c.groups[id] = g
	}
	return g
}

// tidy forgets a group of which nothing is left.
func (c *Core) tidy(g *group) {
	if g.consumer == nil && g.share == nil && g.state == Empty && !g.stored && len(g.proposed) == 0 && g.storing == 0 && len(g.offsets) == 0 && len(g.members) == 0 && len(g.pending) == 0 && len(g.txns) == 0 && c.groups[g.id] == g {
		delete(c.groups, g.id)
	}
}

// Handle takes a request. fresh is a random text that no one else has, for the id
// of a new member.
func (c *Core) Handle(now int64, ticket Ticket, fresh string, req groups.Request) Effects {
	if g := c.groups[req.GroupID()]; g != nil && g.share != nil {
		c.handleShare(ticket, g, req)
		return c.take()
	}
	switch r := req.(type) {
	case groups.Join:
		c.join(now, ticket, fresh, r)
	case groups.Sync:
		c.sync(now, ticket, r)
	case groups.Heartbeat:
		c.reply(ticket, &groups.Done{Err: c.heartbeat(now, r)})
	case groups.Leave:
		c.leaves(now, ticket, r)
	case groups.Commit:
		c.commit(now, ticket, r)
	case groups.Fetch:
		c.reply(ticket, c.fetch(r))
	case groups.DeleteOffsets:
		c.settled(r.Group, func() { c.deleteOffsets(ticket, r) })
	case groups.Describe:
		c.reply(ticket, c.describe(r))
	case groups.Beat:
		c.beat(now, ticket, fresh, r)
	case groups.DescribeConsumer:
		c.describeConsumer(ticket, r)
	case groups.EndTxn:
		c.endTxn(ticket, r)
	case groups.LookShare:
		c.reply(ticket, &groups.ShareLooked{Err: c.noShare(r.Group)})
	case groups.AlterShare:
		c.settled(r.Group, func() { c.alterShare(ticket, r) })
	case groups.Look:
		c.reply(ticket, c.committed(r))
	case groups.Follow:
		c.settled(r.Group, func() { c.follow(now, ticket, r) })
	case groups.Delete:
		c.settled(r.Group, func() { c.deleteGroup(ticket, r) })
	default:
		c.reply(ticket, groups.Refusal(req, messages.ErrInvalidRequest))
	}
	return c.take()
}

// Stored says that a write is durable.
func (c *Core) Stored(now, id int64) Effects {
	w, ok := c.open[id]
	if !ok {
		return Effects{}
	}
	delete(c.open, id)
	for _, g := range w.groups {
		if g.storing--; w.settles {
			g.settling--
		}
	}
	if !w.applied {
		c.applyStored(w)
	}
	c.out.Replies = append(c.out.Replies, w.replies...)
	if w.then != nil {
		w.then(now)
	}
	for _, g := range w.groups {
		for g.storing == 0 && len(g.after) > 0 {
			f := g.after[0]
			g.after = g.after[1:]
			f()
		}
		for g.settling == 0 && len(g.settled) > 0 {
			f := g.settled[0]
			g.settled = g.settled[1:]
			f(now)
		}
		c.tidy(g)
	}
	return c.take()
}

// applyStored makes true what a write says.
func (c *Core) applyStored(w *write) {
	if w.marker != nil {
		c.ApplyMarker(w.marker.ID, w.marker.Commit)
	}
	for _, r := range w.records {
		if w.txn != nil {
			c.ApplyTxn(w.txn.ID, r)
		} else {
			c.Apply(r)
		}
	}
}

// settled runs f when nothing of the group is on its way to the log: what deletes
// must see what is being committed.
func (c *Core) settled(id string, f func()) {
	if g := c.groups[id]; g != nil && g.storing > 0 {
		g.after = append(g.after, f)
		return
	}
	f()
}

func (c *Core) take() Effects {
	out := c.out
	c.out = Effects{}
	return out
}

func (c *Core) reply(t Ticket, a groups.Answer) {
	if t != 0 {
		c.out.Replies = append(c.out.Replies, Reply{Ticket: t, Answer: a})
	}
}

// store has records written; then runs when they are, before later calls.
func (c *Core) store(w write) {
	c.writes++
	w.settles = slices.ContainsFunc(w.records, func(r groups.Record) bool { return r.Kind == groups.KindGroup })
	for _, g := range w.groups {
		if g.storing++; w.settles {
			g.settling++
		}
	}
	c.open[c.writes] = &w
	c.out.Writes = append(c.out.Writes, Write{ID: c.writes, Records: w.records, Txn: w.txn, Marker: w.marker})
}

// by has Tick called at a moment at the latest.
func (c *Core) by(millis int64) int64 {
	c.wake = min(c.wake, millis)
	return millis
}

// List is the groups in order of their names.
func (c *Core) List() []groups.Listed {
	out := make([]groups.Listed, 0, len(c.groups))
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		l := groups.Listed{Group: id, ProtocolType: g.protocolType, State: g.state.String(), Type: groups.TypeClassic, Members: len(g.members), Offsets: len(g.offsets), Epoch: g.generation}
		if g.consumer != nil {
			l.Members, l.Epoch = len(g.consumer.members), g.consumer.epoch
			l.ProtocolType, l.State, l.Type = consumerType, g.consumer.state(), groups.TypeConsumer
		}
		if g.share != nil {
			l.Offsets, l.Epoch = g.share.partitions(), g.share.epoch
			l.ProtocolType, l.State, l.Type = groups.TypeShare, Empty.String(), groups.TypeShare
		}
		out = append(out, l)
	}
	return out
}

func sortedKeys[K int64 | string, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
