package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kagami/messages"
)

// RecordKind is the kind of a record of __mirror_state.
type RecordKind int8

// The kinds.
const (
	RecordState           RecordKind = iota + 1 // MirrorPartitionState
	RecordEpochs                                // LastMirrorEpochs, all of the mirror
	RecordStatesTombstone                       // forget all states of the mirror
	RecordEpochsTombstone                       // forget all LMEs of the mirror
)

// String is the kind in words.
func (k RecordKind) String() string {
	switch k {
	case RecordState:
		return "state"
	case RecordEpochs:
		return "epochs"
	case RecordStatesTombstone:
		return "states tombstone"
	case RecordEpochsTombstone:
		return "epochs tombstone"
	default:
		return fmt.Sprintf("RecordKind(%d)", int8(k))
	}
}

// Record is one record of __mirror_state, before encoding and after decoding.
// Key and value are those of records.md; what they have no room for (notes,
// writer, audit) travels in record headers.
type Record struct {
	Kind   RecordKind
	Mirror string

	Partition messages.TopicPartition // RecordState
	State     messages.PartitionState // RecordState; its LME is not part of the record
	Created   int64                   // RecordState: life of the topic, NoOffset if unknown

	Epochs map[messages.TopicPartition]int32 // RecordEpochs; never changed once made

	Cause, Principal, RequestID string
}

// Answer is the coordinator's answer to one [Write].
type Answer struct {
	Err      error
	Previous messages.State // as stored now
	Attempt  int16
}

// Plan is what a group of writes comes to: the records to append, in order, and
// the answers to give once they are stored. Committing it makes it so.
type Plan struct {
	Records []Record
	Answers []Answer // one per write, in order
}

// entry is what is known of one partition.
type entry struct {
	state   messages.PartitionState // LME not set: it lives in mirrorStates.epochs
	created int64
}

type mirrorStates struct {
	states map[messages.TopicPartition]entry
	epochs map[messages.TopicPartition]int32 // never changed in place, only replaced
}

// Shard is what one coordinator shard knows: the fold of [Shard.Apply] over the
// records of its partition of __mirror_state. One goroutine at a time.
//
// Besides, in memory only, it knows which leader has read what. A read by a
// leader is a fence: from then on writes under an older epoch, or with a lower
// number under the same one, are refused, so the late write of an old leader
// can't land behind the back of the new one. A new coordinator doesn't know the
// fences, so it gives new tickets: whoever writes with an old one reads again.
type Shard struct {
	mirrors map[string]*mirrorStates
	ticket  int64
	fences  map[planKey]fence
}

// fence is the last read of a leader: reader is the number it came with, number
// what its writes are above.
type fence struct {
	epoch          int32
	reader, number int64
}

// NewShard knows nothing. ticket is another one for each life of a coordinator,
// never 0; 0 means that tickets aren't used.
func NewShard(ticket int64) *Shard {
	return &Shard{mirrors: map[string]*mirrorStates{}, ticket: ticket, fences: map[planKey]fence{}}
}

// Ticket goes with the answer to a read.
func (s *Shard) Ticket() int64 { return s.ticket }

// fenceJump is how far above known write numbers a reader starts whose own
// number is below them: more than an earlier incarnation may have on its way.
const fenceJump = 1 << 12

// Read is [Shard.Get] for a leader: a fence under its epoch and number, see
// [Shard]. The answer's WriteNumber is where the reader's writes start. A reader
// whose number is below what is known (its clock went back, or another leader's
// is ahead) starts well above it; the same read again gets the same answer. Call
// it when no planned group is on its way to the log: such a group was planned
// before the fence.
func (s *Shard) Read(mirror string, tp messages.TopicPartition, created int64, epoch int32, number int64) messages.PartitionState {
	out := s.Get(mirror, tp, created)
	k := planKey{mirror, tp}
	f, ok := s.fences[k]
	switch {
	case epoch == messages.NoEpoch || ok && epoch < f.epoch || epoch < out.LeaderEpoch:
		return out // a mere reader, or an old leader
	case ok && epoch == f.epoch && number == f.reader:
		// the same read again
	default:
		known := out.WriteNumber // under any epoch: numbers only grow
		if ok {
			known = max(known, f.number)
		}
		f = fence{epoch: epoch, reader: number, number: number}
		if number <= known {
			f.number = known + fenceJump
		}
		s.fences[k] = f
	}
	out.WriteNumber = max(out.WriteNumber, f.number)
	return out
}

// fenced refuses writes that a reader has ruled out.
func (s *Shard) fenced(k planKey, w Write) error {
	if w.Ticket != 0 && s.ticket != 0 && w.Ticket != s.ticket {
		return fmt.Errorf("%w: written after a read from an earlier coordinator, read again", messages.ErrInvalidMirrorStates)
	}
	f, ok := s.fences[k]
	switch {
	case !ok || w.LeaderEpoch == messages.NoEpoch || w.LeaderEpoch > f.epoch:
		return nil
	case w.LeaderEpoch < f.epoch:
		return fmt.Errorf("%w: write under epoch %d, but the leader of epoch %d has read", messages.ErrFencedLeaderEpoch, w.LeaderEpoch, f.epoch)
	case w.Number <= f.number:
		return fmt.Errorf("%w: write %d comes after a read with number %d, read again", messages.ErrInvalidMirrorStates, w.Number, f.number)
	}
	return nil
}

func (s *Shard) mirror(name string) *mirrorStates {
	m := s.mirrors[name]
	if m == nil {
		m = &mirrorStates{states: map[messages.TopicPartition]entry{}}
		s.mirrors[name] = m
	}
	return m
}

// Apply folds one record in: replay, and commit of a plan. An error means that
// the record is corrupt; what it names counts as unknown then, the rest stands.
func (s *Shard) Apply(r Record) error {
	switch r.Kind {
	case RecordState:
		return s.applyState(r)
	case RecordEpochs:
		s.mirror(r.Mirror).epochs = r.Epochs
		s.forgetEmpty(r.Mirror)
	case RecordStatesTombstone:
		if m := s.mirrors[r.Mirror]; m != nil {
			m.states = map[messages.TopicPartition]entry{}
			s.forgetEmpty(r.Mirror)
		}
	case RecordEpochsTombstone:
		if m := s.mirrors[r.Mirror]; m != nil {
			m.epochs = nil
			s.forgetEmpty(r.Mirror)
		}
	default:
		return fmt.Errorf("%w: record of kind %s", messages.ErrInvalidRequest, r.Kind)
	}
	return nil
}

func (s *Shard) forgetEmpty(mirror string) {
	if m := s.mirrors[mirror]; m != nil && len(m.states) == 0 && len(m.epochs) == 0 {
		delete(s.mirrors, mirror)
	}
}

func (s *Shard) applyState(r Record) error {
	m := s.mirror(r.Mirror)
	st := r.State
	if !st.State.Storable() || st.Previous != messages.StateUnknown && !st.Previous.Storable() {
		delete(m.states, r.Partition)
		s.forgetEmpty(r.Mirror)
		return fmt.Errorf("state record of %s in mirror %s: unknown codes state %d, previous %d", r.Partition, r.Mirror, int8(st.State), int8(st.Previous))
	}
	st.RetryAttempt = max(st.RetryAttempt, 0)
	st.LME = messages.NoEpoch
	if st.State == messages.StateStopping && st.Previous == messages.StateUnknown {
		m.epochs = without(m.epochs, r.Partition)
	}
	m.states[r.Partition] = entry{state: st, created: r.Created}
	return nil
}

func without(epochs map[messages.TopicPartition]int32, tp messages.TopicPartition) map[messages.TopicPartition]int32 {
	if _, ok := epochs[tp]; !ok {
		return epochs
	}
	out := maps.Clone(epochs)
	delete(out, tp)
	return out
}

// Get is the answer to a read: what is stored of a partition. created is the
// life of the topic by the reader's image, NoOffset if it doesn't know it; a
// state of another life counts as none.
func (s *Shard) Get(mirror string, tp messages.TopicPartition, created int64) messages.PartitionState {
	out := messages.UnknownPartitionState()
	m := s.mirrors[mirror]
	if m == nil {
		return out
	}
	e, ok := m.states[tp]
	if ok && otherLife(e.created, created) {
		return out
	}
	if ok {
		out = e.state
	}
	out.LME = messages.NoEpoch
	if lme, ok := m.epochs[tp]; ok {
		out.LME = lme
	}
	return out
}

func otherLife(a, b int64) bool {
	return a != messages.NoOffset && b != messages.NoOffset && a != b
}

// Mirrors lists the mirrors of which anything is stored, by name.
func (s *Shard) Mirrors() []string { return slices.Sorted(maps.Keys(s.mirrors)) }

// Partitions lists the partitions of which a state or an LME is stored.
func (s *Shard) Partitions(mirror string) []messages.TopicPartition {
	m := s.mirrors[mirror]
	if m == nil {
		return nil
	}
	seen := map[messages.TopicPartition]struct{}{}
	for tp := range m.states {
		seen[tp] = struct{}{}
	}
	for tp := range m.epochs {
		seen[tp] = struct{}{}
	}
	return slices.SortedFunc(maps.Keys(seen), compareTP)
}

func compareTP(a, b messages.TopicPartition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

// Commit makes a stored plan the live state. The plan must be the last one made,
// and its records must be stored.
func (s *Shard) Commit(p Plan) {
	for _, r := range p.Records {
		// A planned record has codes that the table knows, so this can't fail.
		_ = s.Apply(r)
	}
}
