// Package sharestate decides for the states of share groups (KIP-932): the pure core of
// the coordinator of one partition of __share_group_state, without clock, network,
// goroutine or logger.
//
// Its two main types are [Core], what the coordinator knows, and [Effects], what it
// wants done. What a record says becomes true by [Core.Apply] alone, after it is stored,
// so that live state and replay can't differ. The owner (an actor) calls it from one
// goroutine; when a write fails it drops the core and replays the log. The package never
// looks at logs: whoever sets a state has chosen an offset in them.
package sharestate

import (
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/groups"
)

// Ticket names a request that waits for its answer.
type Ticket int64

// Reply is the answer to a request.
type Reply struct {
	Ticket Ticket
	Answer *groups.ShareStated
}

// Write is records to store together; Stored tells the core that they are.
type Write struct {
	ID      int64
	Records []groups.ShareRecord
}

// Effects are what one call wants done: replies may go at once.
type Effects struct {
	Replies []Reply
	Writes  []Write
}

type open struct {
	records []groups.ShareRecord
	ticket  Ticket
	get     []groups.ShareKey
}

// Core is the states of one partition of __share_group_state.
type Core struct {
	epoch  int32 // leader epoch of the coordinator
	states map[groups.ShareKey]groups.ShareState
	writes int64
	open   map[int64]open
}

// New is a core that knows no state; epoch is written into states.
func New(epoch int32) *Core {
	return &Core{epoch: epoch, states: map[groups.ShareKey]groups.ShareState{}, open: map[int64]open{}}
}

// Len is the number of states.
func (c *Core) Len() int { return len(c.states) }

// Apply makes true what a stored record says.
func (c *Core) Apply(r groups.ShareRecord) {
	if r.State == nil {
		delete(c.states, r.Key)
		return
	}
	c.states[r.Key] = *r.State
}

// Handle takes a request; what it reads is read after what it sets is stored.
func (c *Core) Handle(now int64, t Ticket, r groups.ShareStates) Effects {
	var records []groups.ShareRecord
	for _, s := range r.Set {
		was, ok := c.states[s.Key]
		if ok && was.Start == s.Start {
			continue
		}
		state := groups.ShareState{LeaderEpoch: c.epoch, Start: s.Start, Complete: 0, CreatedMillis: now, WrittenMillis: now}
		if ok {
			state.SnapshotEpoch, state.StateEpoch, state.CreatedMillis = was.SnapshotEpoch+1, was.StateEpoch+1, was.CreatedMillis
		}
		records = append(records, groups.ShareRecord{Key: s.Key, State: &state})
	}
	for _, k := range r.Forget {
		if _, ok := c.states[k]; ok {
			records = append(records, groups.ShareRecord{Key: k})
		}
	}
	if len(records) == 0 {
		return Effects{Replies: []Reply{{Ticket: t, Answer: c.read(r.Get)}}}
	}
	return c.store(open{records: records, ticket: t, get: r.Get})
}

func (c *Core) store(o open) Effects {
	c.writes++
	c.open[c.writes] = o
	return Effects{Writes: []Write{{ID: c.writes, Records: o.records}}}
}

// Stored says that a write is durable.
func (c *Core) Stored(id int64) Effects {
	o, ok := c.open[id]
	if !ok {
		return Effects{}
	}
	delete(c.open, id)
	for _, r := range o.records {
		c.Apply(r)
	}
	if o.ticket == 0 {
		return Effects{}
	}
	return Effects{Replies: []Reply{{Ticket: o.ticket, Answer: c.read(o.get)}}}
}

func (c *Core) read(keys []groups.ShareKey) *groups.ShareStated {
	out := &groups.ShareStated{States: make([]groups.ShareState, len(keys))}
	for i, k := range keys {
		s, ok := c.states[k]
		if !ok {
			s = groups.ShareState{Start: messages.NoOffset, LeaderEpoch: messages.NoEpoch, Complete: -1}
		}
		out.States[i] = s
	}
	return out
}

// TopicsGone forgets the states of topics that don't exist any more.
func (c *Core) TopicsGone(exists func(messages.TopicID) bool) Effects {
	var records []groups.ShareRecord
	for k := range c.states {
		if !exists(k.Topic) {
			records = append(records, groups.ShareRecord{Key: k})
		}
	}
	if len(records) == 0 {
		return Effects{}
	}
	slices.SortFunc(records, func(a, b groups.ShareRecord) int { return compareKeys(a.Key, b.Key) })
	return c.store(open{records: records})
}

func compareKeys(a, b groups.ShareKey) int {
	switch x, y := a.String(), b.String(); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// States is all states, as they are stored.
func (c *Core) States() map[groups.ShareKey]groups.ShareState { return maps.Clone(c.states) }
