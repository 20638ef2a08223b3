package journal

import (
	"container/heap"
	"sort"

	"kagami/messages"
)

// Defaults of ProposerOptions.
const (
	GatherBytesMax   = 256 << 10
	InFlightBytesMax = 2 << 20
	SmallInFlightMax = 4
	unappliedMax     = 1 << 14
)

// ProposerOptions are limits; zero means the default.
type ProposerOptions struct {
	GatherBytesMax   int // of a message of more than one entry; default 256 KiB
	InFlightBytesMax int // sent and neither acknowledged nor applied; default 2 MiB
	// SmallInFlightMax is how many messages may be in flight before the next one has to
	// be full, or wait: under load entries gather then, and a message costs the servers
	// about the same whatever is in it. Default 4.
	SmallInFlightMax int
	UnappliedMax     int // messages from the oldest that didn't come back to the newest; default 16384
	// Window of all proposers of the node; default one of its own.
	Window *Window
}

func (o ProposerOptions) withDefaults() ProposerOptions {
	if o.GatherBytesMax <= 0 {
		o.GatherBytesMax = GatherBytesMax
	}
	if o.InFlightBytesMax <= 0 {
		o.InFlightBytesMax = InFlightBytesMax
	}
	if o.SmallInFlightMax <= 0 {
		o.SmallInFlightMax = SmallInFlightMax
	}
	if o.UnappliedMax <= 0 {
		o.UnappliedMax = unappliedMax
	}
	if o.Window == nil {
		o.Window = NewWindow(int64(o.InFlightBytesMax))
	}
	return o
}

// Ticket stands for one entry whose author waits for the verdict. 0 is none.
type Ticket uint64

// Proposer is what one node proposes to one shard, first in first out.
//
// Entries wait until Next gathers them into a message. A message is in flight until
// its acknowledgement (Acked) or until it comes back (Applied), whichever is first;
// one that got lost, or may have (Lost), is given out again with the same bytes
// before anything newer. An entry ends in exactly one of these ways: its ticket
// comes back from Applied, once; it comes back from Passed or Acked, which means
// that nobody will ever know here what became of it; or its author has given it up
// (Abandon). An abandoned entry that was sent already may still land. Two messages
// may land in the other order when the first was lost.
//
// It isn't safe for use by several goroutines. Everything is O(1) amortised but
// lost messages, which cost the logarithm of their number.
type Proposer struct {
	author Author
	opts   ProposerOptions

	tickets Ticket // given so far
	beats   uint64

	// waiting are entries not yet in a message, oldest first, from waitingHead on.
	// Abandoned ones are dropped when they are the half.
	waiting     []waitingEntry
	waitingHead int
	live        int // of waiting, not abandoned
	liveBytes   int

	// sent are messages not yet applied, by number: number - firstSent is the place
	// behind sentHead. Those that are done in the middle wait for the older ones.
	sent      []sentMessage
	sentHead  int
	firstSent uint64 // number of the first one in sent
	unacked   int    // bytes of those in flight or lost
	flying    int    // their number
	starved   int    // bytes of the message for which Next found no room in the window
	unapplied int    // messages that have not come back
	lost      numberHeap
	where     map[Ticket]uint64 // of sent tickets that nobody abandoned: the message's number
	passed    uint64            // sequence that this node went past without applying

	taken   map[messages.PartitionKey]struct{} // of the message that is gathered
	scratch Message
}

type waitingEntry struct {
	entry  Entry
	ticket Ticket // rising; kept when abandoned, so that the list stays sorted
	live   bool
}

type sentMessage struct {
	payload  []byte // nil once it is acknowledged
	size     int
	tickets  []Ticket // 0 = abandoned
	live     int      // of the tickets
	sequence uint64   // acknowledged at
	state    sentState
}

type sentState uint8

const (
	sentInFlight sentState = iota + 1
	sentLost
	sentAcked
	sentDone // applied, passed or given up
)

// NewProposer starts with message number 1.
func NewProposer(author Author, o ProposerOptions) *Proposer {
	return &Proposer{
		author: author, opts: o.withDefaults(), firstSent: 1,
		where: make(map[Ticket]uint64), taken: make(map[messages.PartitionKey]struct{}),
	}
}

// Author is who proposes.
func (p *Proposer) Author() Author { return p.author }

// Add queues an entry. Its batches are read when Next gathers it, so they must not
// change until its ticket has ended.
func (p *Proposer) Add(e Entry) Ticket {
	p.tickets++
	p.waiting = append(p.waiting, waitingEntry{entry: e, ticket: p.tickets, live: true})
	p.live++
	p.liveBytes += e.size()
	return p.tickets
}

// Abandon says that the author of the entry waits no longer. Not yet sent, it never
// is; and a lost message without any other entry isn't repeated. Otherwise it may
// still land.
func (p *Proposer) Abandon(t Ticket) {
	if number, ok := p.where[t]; ok {
		p.abandonSent(t, number)
		return
	}
	queue := p.waiting[p.waitingHead:]
	i := sort.Search(len(queue), func(i int) bool { return queue[i].ticket >= t })
	if i == len(queue) || queue[i].ticket != t || !queue[i].live {
		return
	}
	p.live--
	p.liveBytes -= queue[i].entry.size()
	queue[i] = waitingEntry{ticket: t}
	p.tidy()
}

func (p *Proposer) abandonSent(t Ticket, number uint64) {
	delete(p.where, t)
	m := p.find(number)
	for i := range m.tickets {
		if m.tickets[i] == t {
			m.tickets[i] = 0
			m.live--
		}
	}
	if m.live == 0 && m.state == sentLost {
		p.done(m)
		p.shrink()
	}
}

// tidy drops abandoned entries from the front, and all of them, and the used-up
// part, when they are more than half of the list.
func (p *Proposer) tidy() {
	for p.waitingHead < len(p.waiting) && !p.waiting[p.waitingHead].live {
		p.popWaiting()
	}
	if len(p.waiting) < 64 || p.live*2 > len(p.waiting) {
		return
	}
	kept := p.waiting[:0]
	for _, w := range p.waiting[p.waitingHead:] {
		if w.live {
			kept = append(kept, w)
		}
	}
	clear(p.waiting[len(kept):])
	p.waiting, p.waitingHead = kept, 0
}

func (p *Proposer) popWaiting() {
	p.waiting[p.waitingHead] = waitingEntry{}
	p.waitingHead++
}

// Next returns the message to send now: the oldest lost one, with its old number and
// bytes, or a new one of what waits. ok is false when there is nothing to send, too much
// is in flight, or enough for a message that isn't full. The payload must not be changed.
func (p *Proposer) Next() (number uint64, payload []byte, ok bool) {
	for len(p.lost) > 0 {
		number := heap.Pop(&p.lost).(uint64)
		if m := p.find(number); m != nil && m.state == sentLost {
			m.state = sentInFlight
			return number, m.payload, true
		}
	}
	p.tidy()
	p.starved = 0
	if p.live == 0 || len(p.sent)-p.sentHead >= p.opts.UnappliedMax {
		return 0, nil, false
	}
	if p.flying >= p.opts.SmallInFlightMax && p.liveBytes < p.opts.GatherBytesMax && p.live < MessageEntriesMax {
		return 0, nil, false
	}
	first := p.waiting[p.waitingHead].entry.size() + messageHeaderSize
	if p.unacked > 0 && p.unacked+first > p.opts.InFlightBytesMax {
		return 0, nil, false
	}
	if p.unacked > 0 && !p.opts.Window.Room(first) {
		p.starved = first
		return 0, nil, false
	}
	return p.gather()
}

// Starved is the size of the message that the last Next didn't give out because of what
// other proposers have in flight, 0 for none: it is to be called again when they have less.
func (p *Proposer) Starved() int { return p.starved }

// count adds a message to what is in flight, or with a negative number takes it out.
func (p *Proposer) count(bytes int) {
	if p.unacked += bytes; bytes > 0 {
		p.flying++
	} else {
		p.flying--
	}
	p.opts.Window.add(bytes)
}

// gather makes a message of the oldest entries: as many as fit, at most one of a
// partition. (A replica waits for its operation, so a second one of a partition
// means that the first was given up and may be on its way.)
func (p *Proposer) gather() (number uint64, payload []byte, ok bool) {
	clear(p.taken)
	m := &p.scratch
	m.Author, m.Number, m.Entries = p.author, p.firstSent+uint64(len(p.sent)-p.sentHead), m.Entries[:0]
	size := messageHeaderSize
	tickets := make([]Ticket, 0, min(p.live, MessageEntriesMax))
	for ; p.waitingHead < len(p.waiting); p.popWaiting() {
		w := &p.waiting[p.waitingHead]
		if !w.live {
			continue
		}
		n := w.entry.size()
		if len(tickets) > 0 && (size+n > p.opts.GatherBytesMax || p.unacked+size+n > p.opts.InFlightBytesMax || len(tickets) == MessageEntriesMax) {
			break
		}
		if _, twice := p.taken[w.entry.Key]; twice {
			break
		}
		p.taken[w.entry.Key] = struct{}{}
		m.Entries = append(m.Entries, w.entry)
		tickets = append(tickets, w.ticket)
		p.where[w.ticket] = m.Number
		p.live--
		p.liveBytes -= n
		size += n
	}
	payload = m.AppendTo(make([]byte, 0, size))
	clear(m.Entries)
	p.sent = append(p.sent, sentMessage{payload: payload, size: len(payload), tickets: tickets, live: len(tickets), state: sentInFlight})
	p.count(len(payload))
	p.unapplied++
	return m.Number, payload, true
}

// Beat returns a message without entries, and its number among the beats. It stands
// outside the queue and is never repeated.
func (p *Proposer) Beat() (number uint64, payload []byte) {
	p.beats++
	m := Message{Author: p.author, Number: p.beats}
	return p.beats, m.AppendTo(make([]byte, 0, messageHeaderSize))
}

// find returns the sent message, nil if it is done.
func (p *Proposer) find(number uint64) *sentMessage {
	i := number - p.firstSent
	if number < p.firstSent || i >= uint64(len(p.sent)-p.sentHead) {
		return nil
	}
	if m := &p.sent[p.sentHead+int(i)]; m.state != sentDone {
		return m
	}
	return nil
}

// Acked says that the stream has the message, at sequence. What it returns is empty
// unless this node has gone past that sequence (Passed): then the tickets of the
// message have ended without a verdict.
func (p *Proposer) Acked(number, sequence uint64) (unknown []Ticket) {
	m := p.find(number)
	if m == nil || m.state == sentAcked {
		return nil
	}
	p.count(-m.size)
	m.payload, m.sequence, m.state = nil, sequence, sentAcked
	if sequence <= p.passed {
		unknown = p.end(m)
		p.shrink()
	}
	return unknown
}

// Lost says that a message in flight got lost, or that nobody knows: Next gives it
// out again. It reports whether the message was in flight.
func (p *Proposer) Lost(number uint64) bool {
	m := p.find(number)
	if m == nil || m.state != sentInFlight {
		return false
	}
	m.state = sentLost
	if m.live == 0 {
		p.done(m)
		p.shrink()
		return true
	}
	heap.Push(&p.lost, number)
	return true
}

// Unanswered are the numbers of the messages that were given out and neither came back
// nor were acknowledged or lost, oldest first.
func (p *Proposer) Unanswered() []uint64 {
	var out []uint64
	for i := p.sentHead; i < len(p.sent) && p.unacked > 0; i++ {
		if p.sent[i].state == sentInFlight {
			out = append(out, p.firstSent+uint64(i-p.sentHead))
		}
	}
	return out
}

// Applied takes a message out of the stream. ok says that it is one of ours that
// comes back for the first time; tickets are those of its entries in their order, 0
// for an abandoned one.
func (p *Proposer) Applied(m Message) (tickets []Ticket, ok bool) {
	if m.Author != p.author || len(m.Entries) == 0 {
		return nil, false
	}
	s := p.find(m.Number)
	if s == nil || len(s.tickets) != len(m.Entries) {
		return nil, false
	}
	for _, t := range s.tickets {
		delete(p.where, t)
	}
	tickets = s.tickets
	p.done(s)
	p.shrink()
	return tickets, true
}

// Passed says that this node goes on behind sequence without having applied all
// messages up to it (it copied). It returns the tickets of those that landed there:
// their authors will not learn the verdict. One that may have landed there is
// repeated if it counts as lost, and its second coming, if any, gives the verdict.
func (p *Proposer) Passed(sequence uint64) (unknown []Ticket) {
	p.passed = max(p.passed, sequence)
	for i := p.sentHead; i < len(p.sent); i++ {
		if m := &p.sent[i]; m.state == sentAcked && m.sequence <= p.passed {
			unknown = append(unknown, p.end(m)...)
		}
	}
	p.shrink()
	return unknown
}

// end gives up a message and returns the tickets that still wait.
func (p *Proposer) end(m *sentMessage) (unknown []Ticket) {
	for _, t := range m.tickets {
		if t != 0 {
			unknown = append(unknown, t)
			delete(p.where, t)
		}
	}
	p.done(m)
	return unknown
}

func (p *Proposer) done(m *sentMessage) {
	if m.state != sentAcked {
		p.count(-m.size)
	}
	*m = sentMessage{state: sentDone}
	p.unapplied--
}

// shrink drops what is done from the front.
func (p *Proposer) shrink() {
	for p.sentHead < len(p.sent) && p.sent[p.sentHead].state == sentDone {
		p.sentHead++
		p.firstSent++
	}
	if p.sentHead > 32 && p.sentHead*2 > len(p.sent) {
		n := copy(p.sent, p.sent[p.sentHead:])
		clear(p.sent[n:])
		p.sent, p.sentHead = p.sent[:n], 0
	}
}

// Len is the number of entries that wait to be sent, and their bytes.
func (p *Proposer) Len() (entries, bytes int) { return p.live, p.liveBytes }

// InFlight is the number of messages that haven't come back, and the bytes of those
// that aren't acknowledged either.
func (p *Proposer) InFlight() (messages, bytes int) { return p.unapplied, p.unacked }

// numberHeap has the lowest number first.
type numberHeap []uint64

func (h numberHeap) Len() int           { return len(h) }
func (h numberHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h numberHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *numberHeap) Push(x any) { *h = append(*h, x.(uint64)) }

// Pop is for container/heap.
func (h *numberHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
