package journal

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func appendOf(partition int32, size int) Entry {
	return Entry{Key: testKey(partition), Op: Operation{Kind: OpAppend, Batches: bytes.Repeat([]byte{byte(partition)}, size)}}
}

// next is Next, parsed.
func next(t *testing.T, p *Proposer) (Message, bool) {
	t.Helper()
	number, payload, ok := p.Next()
	if !ok {
		return Message{}, false
	}
	m, err := Parse(payload)
	require.NoError(t, err)
	require.Equal(t, number, m.Number)
	require.Equal(t, p.Author(), m.Author)
	return m, true
}

func mustNext(t *testing.T, p *Proposer, number uint64, partitions ...int32) Message {
	t.Helper()
	m, ok := next(t, p)
	require.True(t, ok, "nothing to send")
	require.Equal(t, number, m.Number)
	var got []int32
	for _, e := range m.Entries {
		got = append(got, e.Key.Partition)
	}
	require.Equal(t, partitions, got)
	return m
}

func mustNotSend(t *testing.T, p *Proposer) {
	t.Helper()
	m, ok := next(t, p)
	require.False(t, ok, "sends %+v", m)
}

func TestProposerGathers(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{GatherBytesMax: 1000, InFlightBytesMax: 100_000})
	mustNotSend(t, p)
	var tickets []Ticket
	for i := range int32(3) {
		tickets = append(tickets, p.Add(appendOf(i, 200)))
	}
	tickets = append(tickets, p.Add(appendOf(3, 5000)), p.Add(appendOf(3, 1)), p.Add(appendOf(3, 1)), p.Add(appendOf(4, 1)))
	m := mustNext(t, p, 1, 0, 1, 2)
	mustNext(t, p, 2, 3) // larger than a message may be: alone
	mustNext(t, p, 3, 3) // one of a partition in each
	m4 := mustNext(t, p, 4, 3, 4)
	mustNotSend(t, p)

	got, ok := p.Applied(m)
	require.True(t, ok)
	require.Equal(t, tickets[:3], got)
	_, ok = p.Applied(m)
	require.False(t, ok, "the second coming of a message")
	got, ok = p.Applied(m4)
	require.True(t, ok)
	require.Equal(t, tickets[5:], got)
	messages, _ := p.InFlight()
	require.Equal(t, 2, messages)
}

// TestProposerGathersUnderLoad: with some messages in flight what comes waits for the
// next one, unless that is full; whoever is in flight no more makes room.
func TestProposerGathersUnderLoad(t *testing.T) {
	const small = 3
	p := NewProposer(testAuthor(1), ProposerOptions{GatherBytesMax: 1000, InFlightBytesMax: 100_000, SmallInFlightMax: small})
	var tickets []Ticket
	var sent []Message
	for i := range int32(small) {
		tickets = append(tickets, p.Add(appendOf(i, 10)))
		sent = append(sent, mustNext(t, p, uint64(i)+1, i))
	}
	p.Add(appendOf(10, 10))
	p.Add(appendOf(11, 10))
	mustNotSend(t, p)
	require.Zero(t, p.Starved(), "it is its own messages that it waits for")
	p.Applied(sent[0])
	mustNext(t, p, small+1, 10, 11)
	p.Add(appendOf(12, 10))
	mustNotSend(t, p)
	p.Add(appendOf(13, 1000))
	mustNext(t, p, small+2, 12) // there is enough for a full one
	mustNext(t, p, small+3, 13)

	p.Add(appendOf(14, 10))
	for number := uint64(2); number <= small+1; number++ {
		mustNotSend(t, p)
		require.True(t, p.Lost(number))
		if number <= small {
			p.Abandon(tickets[number-1]) // nobody waits for it: it isn't sent again
			continue
		}
		again, ok := next(t, p)
		require.True(t, ok)
		require.Equal(t, number, again.Number)
		p.Acked(number, number)
	}
	mustNext(t, p, small+4, 14)
}

func TestProposerLimitOfFlight(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{GatherBytesMax: 1, InFlightBytesMax: 2500})
	for i := range int32(4) {
		p.Add(appendOf(i, 1000))
	}
	big := p.Add(appendOf(9, 10_000))
	m1 := mustNext(t, p, 1, 0)
	mustNext(t, p, 2, 1)
	mustNotSend(t, p) // the third would be 3 KB in flight
	require.Empty(t, p.Acked(2, 10))
	m3 := mustNext(t, p, 3, 2)
	p.Applied(m1) // came back before its acknowledgement
	mustNext(t, p, 4, 3)
	require.Empty(t, p.Acked(1, 9))
	mustNotSend(t, p)
	p.Applied(m3)
	p.Acked(4, 12)
	m5 := mustNext(t, p, 5, 9) // above the limit, but nothing else is in flight
	got, ok := p.Applied(m5)
	require.True(t, ok)
	require.Equal(t, []Ticket{big}, got)
	_, bytes := p.InFlight()
	require.Zero(t, bytes)
}

func TestProposerRepeatsLostInOrder(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{GatherBytesMax: 1})
	var sent [][]byte
	for i := range int32(4) {
		p.Add(appendOf(i, 10))
		_, payload, _ := p.Next()
		sent = append(sent, bytes.Clone(payload))
	}
	p.Add(appendOf(5, 10))
	p.Lost(3)
	p.Lost(1)
	p.Lost(1)
	p.Lost(4)
	p.Acked(4, 7) // it was there after all
	p.Lost(4)
	p.Lost(99)
	for _, want := range []uint64{1, 3} {
		number, payload, ok := p.Next()
		require.True(t, ok)
		require.Equal(t, want, number)
		require.Equal(t, sent[want-1], payload)
	}
	mustNext(t, p, 5, 5)
	mustNotSend(t, p)
}

func TestProposerAbandon(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{})
	a, b := p.Add(appendOf(0, 10)), p.Add(appendOf(1, 10))
	p.Abandon(a)
	p.Abandon(a)
	entries, _ := p.Len()
	require.Equal(t, 1, entries)
	m := mustNext(t, p, 1, 1)
	c, d := p.Add(appendOf(2, 10)), p.Add(appendOf(3, 10))
	m2 := mustNext(t, p, 2, 2, 3)
	p.Abandon(d)
	got, ok := p.Applied(m2)
	require.True(t, ok)
	require.Equal(t, []Ticket{c, 0}, got)
	p.Lost(1)
	p.Abandon(b)
	mustNotSend(t, p) // nobody waits for the lost message: it isn't repeated
	_, ok = p.Applied(m)
	require.False(t, ok)
	e := p.Add(appendOf(4, 10))
	m3 := mustNext(t, p, 3, 4)
	p.Abandon(e)
	p.Lost(3)
	mustNotSend(t, p)
	_, ok = p.Applied(m3)
	require.False(t, ok)
	messages, size := p.InFlight()
	require.Zero(t, messages+size)
}

func TestProposerPassed(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{GatherBytesMax: 1})
	var tickets []Ticket
	for i := range int32(4) {
		tickets = append(tickets, p.Add(appendOf(i, 10)))
		mustNext(t, p, uint64(i)+1, i)
	}
	p.Acked(1, 20)
	p.Acked(2, 31)
	require.Equal(t, tickets[:1], p.Passed(30))
	require.Equal(t, tickets[2:3], p.Acked(3, 29), "an acknowledgement of what was passed")
	require.Empty(t, p.Acked(4, 33))
	messages, _ := p.InFlight()
	require.Equal(t, 2, messages)
}

func TestProposerBeat(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{})
	for want := range uint64(2) {
		number, payload := p.Beat()
		require.Equal(t, want+1, number)
		m, err := Parse(payload)
		require.NoError(t, err)
		require.Equal(t, Message{Author: p.Author(), Number: number}, m)
		_, ok := p.Applied(m)
		require.False(t, ok)
	}
	mustNotSend(t, p)
}

func TestProposerForeignMessages(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{})
	p.Add(appendOf(0, 1))
	m := mustNext(t, p, 1, 0)
	other := m
	other.Author.Incarnation[3]++
	_, ok := p.Applied(other)
	require.False(t, ok, "a message of an earlier process")
	other = m
	other.Number = 2
	_, ok = p.Applied(other)
	require.False(t, ok)
	_, ok = p.Applied(m)
	require.True(t, ok)
}

// TestProposerMemory: callers that come and give up while nothing moves leave
// nothing behind.
func TestProposerMemory(t *testing.T) {
	p := NewProposer(testAuthor(1), ProposerOptions{UnappliedMax: 50})
	first := p.Add(appendOf(0, 1)) // waits for ever
	for i := range 10_000 {
		p.Abandon(p.Add(appendOf(int32(i), 1)))
	}
	require.Less(t, len(p.waiting), 200)
	p.Abandon(first)
	for i := range 200 { // all acknowledged, and none comes back
		p.Add(appendOf(int32(i), 1))
		if number, _, ok := p.Next(); ok {
			p.Acked(number, number)
		}
	}
	messages, _ := p.InFlight()
	require.Equal(t, 50, messages)
}

// TestProposerRandom: whatever happens, each entry ends once, what is sent again
// has the same bytes, and everything ends empty.
func TestProposerRandom(t *testing.T) {
	for seed := range uint64(300) {
		proposerRandom(t, rand.New(rand.NewPCG(seed, 5)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func proposerRandom(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	const limit = 3000
	p := NewProposer(testAuthor(1), ProposerOptions{GatherBytesMax: 700, InFlightBytesMax: limit, UnappliedMax: 40})
	bytesOf := map[uint64][]byte{}
	open := map[Ticket]bool{} // not ended
	partition := map[Ticket]int32{}
	var flying, stream []uint64
	ended := func(ts []Ticket) {
		for _, ticket := range ts {
			if ticket == 0 {
				continue
			}
			if !open[ticket] {
				t.Errorf("ticket %d ended twice", ticket)
			}
			delete(open, ticket)
		}
	}
	apply := func(number uint64) {
		m, err := Parse(bytesOf[number])
		require.NoError(t, err)
		ts, ok := p.Applied(m)
		for i, ticket := range ts {
			if ticket != 0 && partition[ticket] != m.Entries[i].Key.Partition {
				t.Errorf("ticket %d is of partition %d, not %d", ticket, partition[ticket], m.Entries[i].Key.Partition)
			}
		}
		if ok {
			ended(ts)
		}
	}
	for range 400 {
		switch rnd.IntN(8) {
		case 0, 1, 2:
			part := rnd.Int32N(6)
			ticket := p.Add(appendOf(part, rnd.IntN(300)))
			open[ticket], partition[ticket] = true, part
		case 3:
			for ticket := range open { // any
				p.Abandon(ticket)
				delete(open, ticket)
				break
			}
		case 4, 5:
			number, payload, ok := p.Next()
			if !ok {
				continue
			}
			if old, again := bytesOf[number]; again && !bytes.Equal(old, payload) {
				t.Errorf("message %d was repeated with other bytes", number)
			}
			bytesOf[number] = bytes.Clone(payload)
			flying = append(flying, number)
			if _, size := p.InFlight(); size > limit {
				t.Errorf("%d bytes in flight", size)
			}
		case 6:
			if len(flying) == 0 {
				continue
			}
			number := flying[0]
			flying = flying[1:]
			switch landed := rnd.IntN(3) > 0; {
			case landed && rnd.IntN(2) == 0:
				stream = append(stream, number)
				ended(p.Acked(number, uint64(len(stream))))
			case landed:
				stream = append(stream, number)
				p.Lost(number)
			default:
				p.Lost(number)
			}
		case 7:
			if len(stream) > 0 {
				apply(stream[rnd.IntN(len(stream))]) // any order, and again
			}
		}
	}
	for len(open) > 0 || len(flying) > 0 { // heal: everything lands
		for number, payload, ok := p.Next(); ok; number, payload, ok = p.Next() {
			bytesOf[number] = bytes.Clone(payload)
			flying = append(flying, number)
		}
		if len(flying)+len(stream) == 0 {
			t.Errorf("%d tickets are stuck", len(open))
			return
		}
		for _, number := range append(stream, flying...) {
			apply(number)
		}
		flying, stream = nil, nil
	}
	entries, waiting := p.Len()
	messages, flight := p.InFlight()
	if len(open) > 0 || entries+waiting+messages+flight+len(p.where) > 0 {
		t.Errorf("%d tickets open, %d entries (%d bytes), %d messages (%d bytes) left", len(open), entries, waiting, messages, flight)
	}
}

func BenchmarkProposer(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		p := NewProposer(testAuthor(1), ProposerOptions{})
		e := make([]Entry, 64)
		for i := range e {
			e[i] = appendOf(int32(i), 1024)
		}
		b.SetBytes(64 << 10)
		b.StartTimer()
		for i := range e {
			p.Add(e[i])
		}
		_, payload, _ := p.Next()
		m, err := Parse(payload)
		if err != nil {
			b.Fatal(err)
		}
		p.Applied(m)
	}
}
