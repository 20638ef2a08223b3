package compact

import (
	"fmt"

	"kagami/messages"
	"kagami/messages/batch"
)

// BatchBytesMax bounds what a compressed batch may grow to when it is opened.
const BatchBytesMax = 256 << 20

// Options of one pass over a log.
type Options struct {
	Rule      Rule
	NowMillis int64
	// DeleteRetentionMillis is delete.retention.ms: how long tombstones and markers
	// stay after the pass that found nothing else left for them to do.
	DeleteRetentionMillis int64
	// Producers are the active ones: what holds their last sequence stays, if without records.
	Producers map[int64]Active
	// MapBytes bounds the offset map.
	MapBytes int
}

// Pass is one cleaning of a log: first its dirty part is read into the map, then
// everything from the log start on goes through a filter. Both read whole batches in
// the order of the log. Not for concurrent use.
type Pass struct {
	o    Options
	keys *Map
	txns *transactions // of the half that is under way

	kept    []Aborted
	within  map[string]struct{} // wider identities of which a record has stayed
	nextDue int64
	purged  int64
	stats   Stats
	records []batch.Record // scratch
}

// Stats of what went through the filter.
type Stats struct {
	Batches, BatchesKept int
	Records, RecordsKept int64
	Bytes, BytesKept     int64
	Keyless              int64 // records without key, which don't stay
}

// Plus is the sum.
func (s Stats) Plus(o Stats) Stats {
	return Stats{
		Batches: s.Batches + o.Batches, BatchesKept: s.BatchesKept + o.BatchesKept,
		Records: s.Records + o.Records, RecordsKept: s.RecordsKept + o.RecordsKept,
		Bytes: s.Bytes + o.Bytes, BytesKept: s.BytesKept + o.BytesKept, Keyless: s.Keyless + o.Keyless,
	}
}

// NewPass begins with the map.
func NewPass(o Options) *Pass {
	return &Pass{o: o, keys: NewMap(o.MapBytes), txns: newTransactions(func(Aborted) {}), within: map[string]struct{}{}, purged: messages.NoOffset}
}

// Aborted says which aborted transactions overlap with the segment that is read next,
// which begins at base.
func (p *Pass) Aborted(base int64, list []Aborted) {
	p.txns.passed(base)
	p.txns.add(list)
}

// Collect reads a batch of the dirty part, whose records at or above from count. It
// reports false if the map was full somewhere inside: the pass goes as far as [Pass.End].
func (p *Pass) Collect(h batch.Header, b []byte, from int64) (bool, error) {
	if h.IsControl() {
		p.txns.control(h, b)
	} else if !p.txns.data(h) {
		for r, err := range batch.DecompressRecords(b, BatchBytesMax) {
			if err != nil {
				return false, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
			}
			if r.Offset < from {
				continue
			}
			if id, _ := p.o.Rule.Identity(r); id != nil && !p.keys.Put(id, r.Offset) {
				return false, nil
			}
			p.keys.newest = r.Offset
		}
	}
	p.keys.newest = h.LastOffset()
	return true, nil
}

// End is the offset up to which the log will be clean after the pass, NoOffset if not
// even the first record fitted.
func (p *Pass) End() int64 {
	if p.keys.newest == messages.NoOffset {
		return messages.NoOffset
	}
	return p.keys.newest + 1
}

// Filtering goes on with the second half of the pass.
func (p *Pass) Filtering() {
	p.txns = newTransactions(func(a Aborted) { p.kept = append(p.kept, a) })
}

// TakeAborted returns the aborted transactions whose markers were met since the last
// call and of which something is left: they belong into the index of that segment.
func (p *Pass) TakeAborted() []Aborted {
	out := p.kept
	p.kept = nil
	return out
}

// Stats counts what Filter has seen.
func (p *Pass) Stats() Stats { return p.stats }

// Purged is the offset below which tombstones or markers went that another copy of
// the log may still need, NoOffset if none did.
func (p *Pass) Purged() int64 { return p.purged }

// NextDue is the earliest time, ms, at which a pass could remove something that was
// only too young for this one; 0 if nothing was.
func (p *Pass) NextDue() int64 { return p.nextDue }

// Filter returns what stays of a batch: b itself, a batch with fewer records, or nil.
// With last, at least the batch's header stays: the log must not end earlier than it did.
func (p *Pass) Filter(h batch.Header, b []byte, last bool) ([]byte, error) {
	p.stats.Batches++
	p.stats.Bytes += int64(len(b))
	p.stats.Records += int64(h.Records)
	out, err := p.filter(h, b, last)
	if err != nil {
		return nil, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	}
	if out != nil {
		p.stats.BatchesKept++
		p.stats.BytesKept += int64(len(out))
	}
	return out, nil
}

func (p *Pass) filter(h batch.Header, b []byte, last bool) ([]byte, error) {
	horizon, marked := h.DeleteHorizon()
	past := marked && p.o.NowMillis >= horizon
	done, discard := false, false // the transaction has nothing left; so the records go
	if h.IsControl() {
		done = p.txns.control(h, b)
		if discard = done && (past || h.Records == 0); discard && h.Records > 0 {
			p.purge(h.LastOffset())
		}
	} else {
		discard = p.txns.data(h)
	}
	retain := last
	if a, ok := p.o.Producers[h.ProducerID]; ok && h.ProducerID >= 0 {
		retain = retain || a.holds(h)
	}
	mark := done && h.IsControl() && h.Records > 0
	p.records = p.records[:0]
	if !discard {
		for r, err := range batch.DecompressRecords(b, BatchBytesMax) {
			if err != nil {
				return nil, err
			}
			if !h.IsControl() && !p.stays(r, past) {
				continue
			}
			mark = mark || !h.IsControl() && r.Value == nil && r.Offset <= p.keys.newest
			p.records = append(p.records, r)
		}
	}
	p.stats.RecordsKept += int64(len(p.records))
	switch mark = mark && !marked; {
	case len(p.records) == 0 && !retain:
		return nil, nil
	case len(p.records) == 0 && h.Records == 0:
		return b, nil
	case len(p.records) == 0:
		return batch.Emptied(h), nil
	case len(p.records) == int(h.Records) && !mark:
		return b, nil
	case mark:
		horizon = p.o.NowMillis + p.o.DeleteRetentionMillis
	}
	return batch.Rebuild(h, p.records, horizon)
}

func (p *Pass) purge(offset int64) { p.purged = max(p.purged, offset+1) }

// stays decides over one record of a batch; past: the batch's delete horizon is over.
func (p *Pass) stays(r batch.Record, past bool) bool {
	if r.Offset > p.keys.newest {
		return true
	}
	id, within := p.o.Rule.Identity(r)
	if id == nil {
		if !p.o.Rule.KeepNameless {
			p.stats.Keyless++
		}
		return p.o.Rule.KeepNameless
	}
	at, ok := p.keys.Latest(id)
	superseded := ok && r.Offset < at
	if within != nil && !superseded {
		at, ok = p.keys.Latest(within)
		superseded = ok && r.Offset < at
	}
	keep := true
	switch _, needed := p.within[string(id)]; {
	case superseded:
		keep = p.young(r)
	case r.Value == nil && past && !needed:
		if keep = p.young(r); !keep {
			p.purge(r.Offset)
		}
	}
	if keep && within != nil {
		p.within[string(within)] = struct{}{}
	}
	return keep
}

// young: the rule keeps a record for its age.
func (p *Pass) young(r batch.Record) bool {
	age := p.o.Rule.SupersededMillis
	if age <= 0 {
		return age < 0
	}
	due := r.Timestamp + age
	if p.o.NowMillis >= due {
		return false
	}
	if p.nextDue == 0 || due < p.nextDue {
		p.nextDue = due
	}
	return true
}
