package cluster

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

// beatsOutMax is how many beats of a shard are remembered; who hasn't heard the
// oldest of them is isolated for long.
const beatsOutMax = 64

// beatOut is a beat that hasn't come back.
type beatOut struct {
	number uint64
	at     int64 // when it was sent, ns
	// before are the messages that were in flight then. They went the same way in
	// front of it: if it comes back first, they got lost, as those do that were on
	// their way to a leader of the stream that died.
	before []uint64
}

// alone reports whether the shard's order hasn't reached this node for
// IsolatedAfter. It looks at the clock: a process that was stopped for a while must
// know before anything else that it knows nothing, and not at its next beat.
func (s *shard) alone() bool {
	if s.isolated.Load() {
		return true
	}
	at := s.beatAt.Load() // 0: it isn't followed yet
	if at == 0 || s.j.clock.Now().UnixNano()-at <= int64(s.j.opts.IsolatedAfter) {
		return false
	}
	s.lapsed.Store(true)
	return true
}

// unheardPace is for how many intervals the next beat is put off while nothing at all
// comes back. The leader of a stream that hears no other server takes down every beat of
// its node, and has to undo them one by one, two seconds each, before its copy of the
// stream is whole again. Until then no other server may be lost.
const unheardPace = 4

// beatDue reports whether it is time for a beat.
func (s *shard) beatDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := len(s.beats)
	return out == 0 || s.moves || now.UnixNano()-s.beats[out-1].at >= unheardPace*int64(s.j.opts.BeatInterval)
}

// beat sends one beat. It isn't queued behind data that waits to be sent.
func (s *shard) beat(now time.Time) {
	s.mu.Lock()
	s.moves = false
	number, payload := s.proposer.Beat()
	if len(s.beats) == beatsOutMax {
		s.beats = append(s.beats[:0], s.beats[1:]...)
	}
	before := slices.DeleteFunc(s.proposer.Unanswered(), func(message uint64) bool { return message == s.sending })
	s.beats = append(s.beats, beatOut{number: number, at: now.UnixNano(), before: before})
	s.mu.Unlock()
	s.stream.Publish("", payload, func(uint64, error) {})
}

// beatBack takes a beat of ours out of the stream. It counts from when it was sent:
// after a long pause of this process the old ones come first, and say nothing about
// now. What it overtook is sent again, with its old bytes: harmless if it was only
// late.
func (s *shard) beatBack(number uint64) {
	s.mu.Lock()
	i := 0
	for i < len(s.beats) && s.beats[i].number < number {
		i++
	}
	if i == len(s.beats) || s.beats[i].number != number {
		s.mu.Unlock()
		return // too old
	}
	b := s.beats[i]
	s.beats = append(s.beats[:0], s.beats[i+1:]...)
	s.backoff = 0 // the stream takes messages
	lost := slices.DeleteFunc(b.before, func(message uint64) bool { return !s.proposer.Lost(message) })
	s.mu.Unlock()
	s.beatAt.Store(max(s.beatAt.Load(), b.at))
	if s.isolated.Load() {
		select {
		case s.j.beatReturned <- struct{}{}:
		default:
		}
	}
	if len(lost) > 0 {
		s.log.Debug("journal messages got lost", zap.Uint64s("numbers", lost))
		s.pumpNow()
	}
}
