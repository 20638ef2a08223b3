package persistence

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"kagami/messages"
	"kagami/messages/batch"
)

const (
	noProducerID       = -1
	noSequence         = -1
	producerBatchesMax = 5 // Kafka remembers as many, the most that a client may have in flight
)

// producerState is what the batches of a log say about its producers. It
// follows Kafka's ProducerStateManager. The caller holds the log's lock.
type producerState struct {
	entries map[int64]*producer
	open    []OpenTransaction // by first offset
}

type producer struct {
	epoch         int16
	coordEpoch    int32
	lastTimestamp int64
	txnFirst      int64 // NoOffset if no transaction is open
	batches       []ProducerBatch
}

// apply takes the batch with header h into account; body is the whole batch,
// needed for control batches only. It returns the transactions that the batch
// aborts, to be written to the transaction index.
func (s *producerState) apply(h batch.Header, body []byte) []AbortedTxn {
	if !h.IsControl() {
		if h.ProducerID >= 0 {
			s.data(h)
		}
		return nil
	}
	c, err := batch.ParseControl(body)
	if err != nil {
		return nil // an emptied control batch: all of its transaction was compacted away
	}
	switch c.Type {
	case batch.ControlAbort, batch.ControlCommit:
		if h.ProducerID < 0 {
			return nil
		}
		return s.endTxn(h, c)
	case batch.ControlMirrorPIDReset:
		return s.reset(h)
	default:
		return nil
	}
}

func (s *producerState) get(id int64) *producer {
	if s.entries == nil {
		s.entries = make(map[int64]*producer)
	}
	p := s.entries[id]
	if p == nil {
		p = &producer{epoch: -1, coordEpoch: -1, lastTimestamp: -1, txnFirst: messages.NoOffset}
		s.entries[id] = p
	}
	return p
}

func (s *producerState) data(h batch.Header) {
	p := s.get(h.ProducerID)
	p.setEpoch(h.ProducerEpoch)
	if len(p.batches) == producerBatchesMax {
		copy(p.batches, p.batches[1:])
		p.batches = p.batches[:producerBatchesMax-1]
	}
	p.batches = append(p.batches, ProducerBatch{
		FirstSequence: h.BaseSequence, LastSequence: h.LastSequence(),
		FirstOffset: h.BaseOffset, LastOffset: h.LastOffset(), Timestamp: h.MaxTimestamp,
	})
	p.lastTimestamp = h.MaxTimestamp
	if h.IsTransactional() && p.txnFirst < 0 {
		p.txnFirst = h.BaseOffset
		s.open = append(s.open, OpenTransaction{ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, FirstOffset: h.BaseOffset})
	}
}

func (p *producer) setEpoch(epoch int16) {
	if p.epoch != epoch {
		p.epoch, p.batches = epoch, nil
	}
}

func (s *producerState) endTxn(h batch.Header, c batch.Control) []AbortedTxn {
	p := s.get(h.ProducerID)
	p.setEpoch(h.ProducerEpoch)
	p.coordEpoch, p.lastTimestamp = c.CoordinatorEpoch, h.MaxTimestamp
	if p.txnFirst < 0 {
		return nil
	}
	first := p.txnFirst
	p.txnFirst = messages.NoOffset
	s.open = slices.DeleteFunc(s.open, func(t OpenTransaction) bool { return t.ProducerID == h.ProducerID })
	if c.Type == batch.ControlCommit {
		return nil
	}
	return []AbortedTxn{{
		ProducerID: h.ProducerID, FirstOffset: first, LastOffset: h.LastOffset(),
		LastStableOffset: s.stableAfter(h.LastOffset()),
	}}
}

func (s *producerState) stableAfter(last int64) int64 {
	if len(s.open) > 0 {
		return s.open[0].FirstOffset
	}
	return last + 1
}

// reset is MIRROR_PID_RESET: every entry goes. A stop aborts open transactions
// before it; should one be open all the same, it counts as aborted here, since
// no marker that ends it can be told from a new producer's.
func (s *producerState) reset(h batch.Header) []AbortedTxn {
	var aborted []AbortedTxn
	for i, t := range s.open {
		stable := h.LastOffset() + 1
		if i+1 < len(s.open) { // as if they ended one after the other: readers stop at a last stable offset
			stable = s.open[i+1].FirstOffset
		}
		aborted = append(aborted, AbortedTxn{
			ProducerID: t.ProducerID, FirstOffset: t.FirstOffset, LastOffset: h.LastOffset(), LastStableOffset: stable,
		})
	}
	s.entries, s.open = nil, nil
	return aborted
}

// check has Kafka's rules for a client's batch (ProducerAppendInfo).
func (s *producerState) check(h batch.Header) error {
	if h.ProducerID < 0 || h.IsControl() {
		return nil
	}
	p := s.entries[h.ProducerID]
	if p == nil {
		return nil // Kafka takes any sequence from a producer that it doesn't know
	}
	first, last := h.BaseSequence, h.LastSequence()
	if h.ProducerEpoch == p.epoch {
		for _, b := range p.batches {
			if b.FirstSequence == first && b.LastSequence == last {
				return &DuplicateError{FirstOffset: b.FirstOffset, LastOffset: b.LastOffset, Timestamp: b.Timestamp}
			}
		}
	}
	switch {
	case h.ProducerEpoch < p.epoch:
		return fmt.Errorf("%w: producer %d has epoch %d, current is %d", ErrInvalidProducerEpoch, h.ProducerID, h.ProducerEpoch, p.epoch)
	case h.ProducerEpoch > p.epoch:
		if first != 0 && p.epoch >= 0 {
			return fmt.Errorf("%w: producer %d starts epoch %d at sequence %d", ErrOutOfOrderSequence, h.ProducerID, h.ProducerEpoch, first)
		}
	case !inSequence(p.lastSequence(), first):
		return fmt.Errorf("%w: producer %d sends sequence %d after %d", ErrOutOfOrderSequence, h.ProducerID, first, p.lastSequence())
	}
	if p.txnFirst >= 0 && !h.IsTransactional() {
		return fmt.Errorf("%w: producer %d has a transaction open since offset %d", ErrInvalidTxnState, h.ProducerID, p.txnFirst)
	}
	return nil
}

func inSequence(last, next int32) bool {
	return int64(next) == int64(last)+1 || (next == 0 && last == math.MaxInt32)
}

func (p *producer) lastSequence() int32 {
	if len(p.batches) == 0 {
		return noSequence
	}
	return p.batches[len(p.batches)-1].LastSequence
}

// expire drops producers without an open transaction whose last batch is older.
func (s *producerState) expire(before int64) {
	for id, p := range s.entries {
		if p.txnFirst < 0 && p.lastTimestamp < before {
			delete(s.entries, id)
		}
	}
}

func (s *producerState) entry(id int64) (ProducerEntry, bool) {
	p := s.entries[id]
	if p == nil {
		return ProducerEntry{}, false
	}
	return ProducerEntry{
		ProducerID: id, ProducerEpoch: p.epoch, CoordinatorEpoch: p.coordEpoch, LastTimestamp: p.lastTimestamp,
		TxnFirstOffset: p.txnFirst, Batches: slices.Clone(p.batches),
	}, true
}

func (s *producerState) list() []ProducerEntry {
	out := make([]ProducerEntry, 0, len(s.entries))
	for id := range s.entries {
		e, _ := s.entry(id)
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b ProducerEntry) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return out
}

// firstUnstable is the start of the oldest open transaction, at least logStart.
func (s *producerState) firstUnstable(logStart int64) (int64, bool) {
	if len(s.open) == 0 {
		return messages.NoOffset, false
	}
	return max(s.open[0].FirstOffset, logStart), true
}

func sortOpen(open []OpenTransaction) {
	slices.SortFunc(open, func(a, b OpenTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
}

// openList is a copy with the producers' current epochs.
func (s *producerState) openList() []OpenTransaction {
	out := slices.Clone(s.open)
	for i := range out {
		if p := s.entries[out[i].ProducerID]; p != nil {
			out[i].ProducerEpoch = p.epoch
		}
	}
	return out
}

func sortAborted(list []AbortedTxn) []AbortedTxn {
	slices.SortStableFunc(list, func(a, b AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return list
}
