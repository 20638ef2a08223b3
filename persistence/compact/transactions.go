package compact

import (
	"cmp"
	"slices"

	"kagami/messages"
	"kagami/messages/batch"
)

// Aborted is an entry of the transaction index: a producer's transaction from its
// first offset to the marker that aborted it.
type Aborted struct {
	ProducerID       int64
	FirstOffset      int64
	LastOffset       int64 // of the marker
	LastStableOffset int64
}

// transactions follows the transactions of a log while its batches are read in
// order, as Kafka's CleanedTransactionMetadata: what was aborted goes, and a marker
// as soon as nothing of its transaction is left.
type transactions struct {
	known     map[[2]int64]struct{} // producer and last offset of those in aborted or ongoing, or done
	aborted   []Aborted             // by first offset, not reached yet
	ongoing   map[int64]*ongoing    // by producer
	committed map[int64]struct{}    // producers with a batch of a transaction that wasn't aborted
	keep      func(Aborted)         // the index must go on telling of it
}

type ongoing struct {
	Aborted
	seen bool // a batch of it was met
}

func newTransactions(keep func(Aborted)) *transactions {
	return &transactions{known: map[[2]int64]struct{}{}, ongoing: map[int64]*ongoing{}, committed: map[int64]struct{}{}, keep: keep}
}

// add takes aborted transactions that overlap with what is read next; those that
// are known already are passed over.
func (t *transactions) add(list []Aborted) {
	for _, a := range list {
		k := [2]int64{a.ProducerID, a.LastOffset}
		if _, ok := t.known[k]; !ok {
			t.known[k] = struct{}{}
			t.aborted = append(t.aborted, a)
		}
	}
	slices.SortStableFunc(t.aborted, func(a, b Aborted) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
}

// passed forgets what ends below offset, which won't be added again.
func (t *transactions) passed(offset int64) {
	for k := range t.known {
		if k[1] < offset {
			delete(t.known, k)
		}
	}
}

// reach starts the aborted transactions that begin at or below offset.
func (t *transactions) reach(offset int64) {
	n := 0
	for n < len(t.aborted) && t.aborted[n].FirstOffset <= offset {
		t.ongoing[t.aborted[n].ProducerID] = &ongoing{Aborted: t.aborted[n]}
		n++
	}
	t.aborted = t.aborted[n:]
}

// data reports whether the records of a data batch were aborted.
func (t *transactions) data(h batch.Header) bool {
	t.reach(h.LastOffset())
	if !h.IsTransactional() {
		return false
	}
	if o := t.ongoing[h.ProducerID]; o != nil {
		o.seen = true
		return true
	}
	t.committed[h.ProducerID] = struct{}{}
	return false
}

// control reports whether nothing is left of what a control batch ends. An emptied
// one has done its work. b is the whole batch.
func (t *transactions) control(h batch.Header, b []byte) bool {
	t.reach(h.LastOffset())
	if h.Records == 0 {
		return true
	}
	c, err := batch.ParseControl(b)
	if err != nil {
		return false // not ours to judge
	}
	switch c.Type {
	case batch.ControlAbort:
		return !t.end(h.ProducerID, h.LastOffset())
	case batch.ControlCommit:
		_, seen := t.committed[h.ProducerID]
		delete(t.committed, h.ProducerID)
		return !seen
	case batch.ControlMirrorPIDReset: // ends whatever is open, and stays
		for _, id := range t.openProducers() {
			if t.ongoing[id].LastOffset <= h.LastOffset() {
				t.end(id, h.LastOffset())
			}
		}
		clear(t.committed)
	}
	return false
}

// end closes an aborted transaction and reports whether anything of it was met.
func (t *transactions) end(producer, marker int64) (seen bool) {
	o := t.ongoing[producer]
	delete(t.ongoing, producer)
	if o == nil || !o.seen {
		return false
	}
	if o.LastOffset == marker {
		t.keep(o.Aborted)
	}
	return true
}

func (t *transactions) openProducers() []int64 {
	ids := make([]int64, 0, len(t.ongoing))
	for id := range t.ongoing {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Active is what is remembered of a producer's last write.
type Active struct {
	LastOffset int64 // of its last data batch; messages.NoOffset if none is known
	Epoch      int16
}

// holds reports whether a batch holds the last sequence or epoch of its producer.
func (a Active) holds(h batch.Header) bool {
	if a.LastOffset != messages.NoOffset {
		return h.LastOffset() == a.LastOffset
	}
	return h.IsControl() && h.ProducerEpoch == a.Epoch
}
