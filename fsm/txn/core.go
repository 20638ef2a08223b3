// Package txn decides for transactional producers: the pure core of a transaction
// coordinator, without clock, network, goroutine or logger.
//
// Its two main types are [Core], what the coordinator of one partition of
// __transaction_state knows, and [Effects], what it wants done. Requests, the end
// of appends, markers that are written and the passing of time go in; answers,
// records to store and markers to write come out. What a record says becomes true
// by [Core.Apply] alone, after it is stored, so that live state and replay can't
// differ. The rules are Kafka's (KIP-98, KIP-360, KIP-890).
//
// The owner (an actor) calls it from one goroutine. Time and producer ids are
// arguments. When a write fails, or nobody knows whether it did, the owner drops the
// core, refuses what wasn't answered, and replays the log into a new one: an outcome
// that was decided is carried out then.
package txn

import (
	"maps"
	"math"
	"slices"

	"kagami/messages"
	"kagami/messages/txns"
)

// Config is what decides beside the requests; times are ms.
type Config struct {
	TimeoutMax int32 // of a transaction
	Expiration int64 // of ids that nobody uses
}

// Ticket names a request that waits for its answer; zero is none.
type Ticket int64

// Reply is the answer to a request.
type Reply struct {
	Ticket Ticket
	Answer txns.Answer
}

// Write is a record to store; Stored tells the core that it is. They are stored in
// the order in which they came out.
type Write struct {
	ID     int64
	Record txns.Record
}

// Marking is a marker to write into the partitions it names. Marked tells the core
// of each that has it, by id and number. The owner tries until all have.
type Marking struct {
	Txn    string
	Number int64
	Marker txns.Marker
}

// Effects are what one call wants done: replies may go at once. NeedID asks for
// Supply, or NoIDs.
type Effects struct {
	Replies []Reply
	Writes  []Write
	Markers []Marking
	NeedID  bool
	// TimedOut is how many transactions were ended because they lasted too long.
	TimedOut int
}

// Core is the transactional ids of one partition of __transaction_state.
type Core struct {
	config Config
	epoch  int32 // of the coordinator: its partition's leader epoch
	ids    map[string]*txn
	out    Effects
	writes int64 // ids given
	marks  int64 // numbers given to markings
	open   map[int64]write
	spare  []int64 // producer ids to give out
	wants  []want  // requests that wait for one
	wake   int64   // earliest deadline that may have come, ms; noWake without one
}

// txn is one transactional id. State is what the log says.
type txn struct {
	id     string
	stored bool
	txns.State
	lastEpoch int16                                // that a retry may name (KIP-360); it isn't stored
	pending   bool                                 // a record is on its way to the log
	left      map[messages.TopicPartition]struct{} // without their marker
	marking   int64                                // number of the marking that is being carried out
}

// busy: a change is on its way to the log, or the markers of an outcome are to their
// partitions. Nothing else may begin.
func (t *txn) busy() bool { return t.pending || t.Status.Preparing() }

type write struct {
	record txns.Record
	then   func(now int64)
}

// want is a call that waits for a producer id.
type want struct {
	ticket Ticket
	req    txns.Request // nil: the time-out of txn
	txn    string
}

const noWake = int64(math.MaxInt64)

// New is a core that knows no id; epoch is that of the coordinator. Apply replays
// what is stored, Loaded ends the replay.
func New(config Config, epoch int32) *Core {
	return &Core{config: config, epoch: epoch, ids: map[string]*txn{}, open: map[int64]write{}, wake: noWake}
}

// SetConfig changes the settings from the next call on.
func (c *Core) SetConfig(config Config) { c.config = config }

// Size is the number of ids.
func (c *Core) Size() int { return len(c.ids) }

// Wake is when Tick is due, ok is false if never.
func (c *Core) Wake() (millis int64, ok bool) { return c.wake, c.wake != noWake }

// Apply makes true what a stored record says.
func (c *Core) Apply(r txns.Record) {
	if r.State == nil {
		delete(c.ids, r.ID)
		return
	}
	t := c.ids[r.ID]
	if t == nil {
		t = &txn{id: r.ID, lastEpoch: txns.NoEpoch}
		c.ids[r.ID] = t
	}
	t.stored, t.State, t.left = true, *r.State, nil
	if t.Status.Preparing() {
		t.left = make(map[messages.TopicPartition]struct{}, len(t.Partitions))
		for _, p := range t.Partitions {
			t.left[p] = struct{}{}
		}
	}
}

// Loaded begins to carry out what was decided, and to watch over what is open.
func (c *Core) Loaded(now int64) Effects {
	for _, id := range slices.Sorted(maps.Keys(c.ids)) {
		t := c.ids[id]
		switch {
		case t.Status.Preparing():
			c.mark(now, t)
		case t.Status == txns.Ongoing:
			c.by(t.deadline())
		}
	}
	return c.take()
}

// Handle takes a request.
func (c *Core) Handle(now int64, ticket Ticket, req txns.Request) Effects {
	c.handle(now, ticket, req)
	return c.take()
}

func (c *Core) handle(now int64, ticket Ticket, req txns.Request) {
	switch r := req.(type) {
	case txns.Init:
		c.init(now, ticket, r)
	case txns.Add:
		c.add(now, ticket, r)
	case txns.End:
		c.end(now, ticket, r)
	case txns.Describe:
		c.reply(ticket, c.describe(r))
	default:
		c.reply(ticket, txns.Refusal(req, messages.ErrInvalidRequest))
	}
}

// Stored says that a write is durable.
func (c *Core) Stored(now, id int64) Effects {
	w, ok := c.open[id]
	if !ok {
		return Effects{}
	}
	delete(c.open, id)
	c.Apply(w.record)
	if t := c.ids[w.record.ID]; t != nil {
		t.pending = false
	}
	if w.then != nil {
		w.then(now)
	}
	return c.take()
}

// store has a record written; then runs when it is.
func (c *Core) store(t *txn, s *txns.State, then func(now int64)) {
	t.pending = true
	c.writes++
	w := write{record: txns.Record{ID: t.id, State: s}, then: then}
	c.open[c.writes] = w
	c.out.Writes = append(c.out.Writes, Write{ID: c.writes, Record: w.record})
}

// producerID gives out an id; without one the request waits and runs again.
func (c *Core) producerID(w want) (int64, bool) {
	if len(c.spare) == 0 {
		c.wants = append(c.wants, w)
		c.out.NeedID = true
		return 0, false
	}
	id := c.spare[0]
	c.spare = c.spare[1:]
	return id, true
}

// Supply brings producer ids that nobody else has; what waits for one goes on.
func (c *Core) Supply(now int64, ids ...int64) Effects {
	c.spare = append(c.spare, ids...)
	wants := c.wants
	c.wants = nil
	for _, w := range wants {
		if w.req != nil {
			c.handle(now, w.ticket, w.req)
		} else if t := c.ids[w.txn]; t != nil {
			c.timeout(now, t)
		}
	}
	return c.take()
}

// NoIDs refuses what waits for a producer id.
func (c *Core) NoIDs(now int64, err error) Effects {
	wants := c.wants
	c.wants = nil
	for _, w := range wants {
		if w.req != nil {
			c.reply(w.ticket, txns.Refusal(w.req, err))
		} else {
			c.by(now + timeoutRetry)
		}
	}
	return c.take()
}

func (c *Core) take() Effects {
	out := c.out
	c.out = Effects{}
	return out
}

func (c *Core) reply(t Ticket, a txns.Answer) {
	if t != 0 {
		c.out.Replies = append(c.out.Replies, Reply{Ticket: t, Answer: a})
	}
}

// by has Tick called at a moment at the latest.
func (c *Core) by(millis int64) { c.wake = min(c.wake, millis) }
