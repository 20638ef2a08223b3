package simjournal

// Defaults of FollowerOptions.
const (
	followerMessagesMax = 4096
	followerBytesMax    = 16 << 20
)

// FollowerOptions are the limits of what is kept while an older message is missing;
// zero means the default.
type FollowerOptions struct {
	MessagesMax int // default 4096
	BytesMax    int // default 16 MiB
}

// Follower is the model of package cluster's: it puts what comes from a stream in order, without a gap. The feed may skip,
// repeat and jump: whatever is above the next message waits for the hole below it to
// be filled (Hole says what to get), within limits; what doesn't fit is dropped and
// becomes part of a hole.
//
// Messages come in by Deliver, whether they are live or were got to fill a hole, and
// go out by Next. Payloads are kept and not changed. Not safe for use by several
// goroutines.
type Follower struct {
	opts FollowerOptions
	next uint64 // the sequence that goes out next
	// first and last are what is known of the stream: the lowest sequence that it
	// still has, and the highest.
	first, last uint64
	rewound     bool

	// ring has the message with sequence s at s % len(ring), for next <= s < top.
	ring  [][]byte
	top   uint64 // above the highest that is kept; next if none is
	kept  int
	bytes int
}

// NewFollower expects next first.
func NewFollower(next uint64, o FollowerOptions) *Follower {
	if o.MessagesMax <= 0 {
		o.MessagesMax = followerMessagesMax
	}
	if o.BytesMax <= 0 {
		o.BytesMax = followerBytesMax
	}
	f := &Follower{opts: o}
	f.Resume(next)
	return f
}

// Resume goes on at next and forgets what is kept: after a copy, or when the feed is
// another one.
func (f *Follower) Resume(next uint64) {
	next = max(next, 1)
	f.next, f.top, f.kept, f.bytes = next, next, 0, 0
	f.ring, f.rewound = nil, false
	f.last = max(f.last, next-1)
}

// Expected is the sequence that goes out next.
func (f *Follower) Expected() uint64 { return f.next }

// Last is the highest sequence that the stream is known to have.
func (f *Follower) Last() uint64 { return f.last }

// Available says what the stream has: its first sequence (one above the last when
// it is empty) and its last. It may come late or out of order.
func (f *Follower) Available(first, last uint64) {
	f.first, f.last = max(f.first, first), max(f.last, last)
	f.rewound = last+1 < f.next
}

// Rewound reports that the newest word of the stream is that it ends below what has
// gone out already. Either the word is old, or the stream was put back to an older
// copy: then ask again, and stop if it stays so.
func (f *Follower) Rewound() bool { return f.rewound }

// NeedCopy reports that the next message can't be had any more: the stream begins
// above it. What comes after it must not be applied before a copy.
func (f *Follower) NeedCopy() bool {
	return f.first > f.next && f.at(f.next) == nil
}

// at is the kept message, nil if there is none.
func (f *Follower) at(sequence uint64) []byte {
	if sequence < f.next || sequence >= f.top {
		return nil
	}
	return f.ring[sequence%uint64(len(f.ring))]
}

// Deliver takes a message from anywhere. One that went out already, is kept already,
// or has no room is dropped; the next one always has room.
func (f *Follower) Deliver(sequence uint64, payload []byte) {
	f.last = max(f.last, sequence)
	if sequence < f.next || len(payload) == 0 || f.at(sequence) != nil {
		return
	}
	if sequence-f.next >= uint64(f.opts.MessagesMax) {
		return
	}
	for f.bytes+len(payload) > f.opts.BytesMax && f.top > sequence+1 {
		f.dropHighest()
	}
	if f.bytes+len(payload) > f.opts.BytesMax && sequence != f.next {
		return
	}
	if f.ring == nil {
		f.ring = make([][]byte, f.opts.MessagesMax)
	}
	f.ring[sequence%uint64(len(f.ring))] = payload
	f.top = max(f.top, sequence+1)
	f.kept++
	f.bytes += len(payload)
}

// dropHighest makes room: what is higher is needed later.
func (f *Follower) dropHighest() {
	at := &f.ring[(f.top-1)%uint64(len(f.ring))]
	f.bytes -= len(*at)
	f.kept--
	*at = nil
	f.top--
	for f.top > f.next && f.at(f.top-1) == nil {
		f.top--
	}
}

// Next gives out the next message, once. ok is false while it is missing.
func (f *Follower) Next() (sequence uint64, payload []byte, ok bool) {
	payload = f.at(f.next)
	if payload == nil {
		return 0, nil, false
	}
	sequence = f.next
	f.ring[sequence%uint64(len(f.ring))] = nil
	f.kept--
	f.bytes -= len(payload)
	f.next++
	f.top = max(f.top, f.next)
	return sequence, payload, true
}

// Hole is the first range of messages that the stream has and this node doesn't: from
// and to are both missing, and everything between them. At most limit of them. ok is
// false when nothing is known to be missing, or when only a copy helps.
func (f *Follower) Hole(limit int) (from, to uint64, ok bool) {
	if f.first > f.next && f.at(f.next) == nil {
		return 0, 0, false
	}
	from = f.next
	for f.at(from) != nil {
		from++
	}
	end := min(f.last, f.next+uint64(f.opts.MessagesMax)-1, from+uint64(max(limit, 1))-1)
	if from > end || limit <= 0 {
		return 0, 0, false
	}
	for to = from; to < end && f.at(to+1) == nil; {
		to++
	}
	return from, to, true
}

// Kept is the number of messages that wait, and their bytes.
func (f *Follower) Kept() (messages, bytes int) { return f.kept, f.bytes }
