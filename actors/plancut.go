package actors

import (
	"errors"
	"fmt"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// cutPlan follows the cuts that a start would make in one log, without making
// one: first down to the last mirror epoch, then where the source's log diverges.
type cutPlan struct {
	row     int
	tp      messages.TopicPartition
	log     persistence.Log
	hasIDs  bool // the source has topic ids
	source  fetch.Range
	reasons []string

	end     int64 // log end after the cuts so far
	all     bool  // the log begins again at end
	settled bool
	err     error // why it isn't known how the start ends
}

func newCutPlan(row int, tp messages.TopicPartition, log persistence.Log, lme int32, hasIDs, mirrorsKnown bool) *cutPlan {
	c := &cutPlan{row: row, tp: tp, log: log, hasIDs: hasIDs}
	end := log.End()
	c.end = landing(log, min(truncationOffset(log, lme), end))
	switch {
	case end == 0:
		c.reasons = append(c.reasons, "the log is empty")
	case lme >= 0:
		c.reasons = append(c.reasons, fmt.Sprintf("last mirror epoch %d", lme))
	case mirrorsKnown:
		c.reasons = append(c.reasons, "no last mirror epoch on the source: all is copied again")
	default:
		c.reasons = append(c.reasons, "the source knows no mirrors, so no last mirror epoch: all is copied again")
	}
	return c
}

// within takes the extent of the source's log.
func (c *cutPlan) within(r fetch.Range, known, diverges bool) {
	switch {
	case c.end <= c.log.LogStart():
		c.settled = true // nothing is left to differ
	case r.Err != nil:
		c.fault(r.Err)
	case !known:
		c.fault(fmt.Errorf("%s: %w", c.tp, errNoSource))
	case r.Start > c.end:
		c.reasons = append(c.reasons, fmt.Sprintf("the source's log starts at %d: what is below goes", r.Start))
		c.end, c.settled, c.all = r.Start, true, true
	}
	c.source = r
	if !diverges && !c.settled {
		c.outOfRange()
	}
}

// outOfRange: the source finds no divergence by epochs, only an end below ours.
func (c *cutPlan) outOfRange() {
	c.settled = true
	switch {
	case c.source.End >= c.end:
	case !c.hasIDs:
		c.fault(fmt.Errorf("%w: the log ends at %d there and would at %d here, and without topic ids the partition would fail", fetch.ErrSourceBehind, c.source.End, c.end))
	default:
		c.reasons = append(c.reasons, fmt.Sprintf("the source's log ends at %d", c.source.End))
		c.end = landing(c.log, c.source.End)
	}
}

func (c *cutPlan) fault(err error) { c.err, c.settled = err, true }

// next is the epoch that the next fetch would name.
func (c *cutPlan) next() (epoch int32, ok bool) {
	if c.settled {
		return messages.NoEpoch, false
	}
	epoch = c.log.EpochForOffset(c.end - 1)
	if epoch == messages.NoEpoch {
		c.outOfRange()
		return epoch, false
	}
	return epoch, true
}

// answer takes what the source says of that epoch, as a Fetch answer would
// (fetch.Decide).
func (c *cutPlan) answer(asked int32, a fetch.EpochEnd) {
	switch {
	case a.Err != nil:
		c.fault(a.Err)
		return
	case a.Epoch < 0 || a.End < 0:
		if c.source.End >= c.end {
			c.fault(fmt.Errorf("%w: the source has no epoch up to %d, the partition would fail", fetch.ErrSourceRange, asked))
			return
		}
		c.outOfRange()
		return
	case a.Epoch == asked && a.End >= c.end:
		c.settled = true
		return
	}
	to := c.log.LogStart()
	if _, end, found := c.log.EpochEndOffset(a.Epoch); found {
		to = min(end, a.End, c.end)
	}
	if !c.hasIDs && to <= c.log.LogStart() {
		c.fault(fmt.Errorf("%w: all would have to go, and without topic ids the partition would fail", fetch.ErrSourceBehind))
		return
	}
	before := c.end
	c.end = landing(c.log, max(0, to))
	if a.Epoch == asked {
		c.reasons = append(c.reasons, fmt.Sprintf("diverging inside epoch %d, which ends at %d on the source", asked, a.End))
	} else {
		c.reasons = append(c.reasons, fmt.Sprintf("diverging from epoch %d on, which ends at %d on the source", a.Epoch, a.End))
	}
	c.settled = c.end >= before || c.end <= c.log.LogStart()
}

// finish writes the plan into its row.
func (c *cutPlan) finish(row *messages.PlannedStart) {
	if c.err == nil {
		from := c.end
		if c.all {
			from = c.log.LogStart()
		}
		row.Records, row.Bytes, c.err = countFrom(c.log, from)
	}
	if c.err != nil {
		row.Unknown, row.Records, row.Bytes = true, -1, -1
		row.Reason = c.err.Error()
		return
	}
	row.LogEnd = c.log.End()
	row.CutTo, row.Reason = c.end, joinReasons(c.reasons)
	if row.Records == 0 && row.Bytes == 0 {
		row.Reason = "nothing to cut: " + row.Reason
	}
}

// planChunkBytes is how much of a log is looked at in one piece; only headers
// are read of a file.
const planChunkBytes = 64 << 20

// landing is the log end after a truncation to offset (persistence.Log.Truncate):
// where the last batch ends that stays whole.
func landing(log persistence.Log, offset int64) int64 {
	start, end := log.LogStart(), log.End()
	switch {
	case offset >= end:
		return end
	case offset <= start:
		return offset
	}
	first, _, err := headersFrom(log, offset, 1, nil)
	if err != nil {
		return offset
	}
	base := max(start, min(first, offset))
	for back := int64(1); ; back *= 2 { // on a compacted log a gap may be before it
		from := max(start, base-back)
		last, err := lastEnd(log, from, base)
		switch {
		case err != nil:
			return base
		case last > from || from == start:
			return max(start, last)
		}
	}
}

// lastEnd is where the last batch at or above from ends that lies below base, 0
// if there is none.
func lastEnd(log persistence.Log, from, base int64) (last int64, err error) {
	for from < base { // a chunk ends where its segment does
		_, next, err := headersFrom(log, from, planChunkBytes, func(h batch.Header) bool {
			if h.LastOffset() < base {
				last = h.LastOffset() + 1
			}
			return h.LastOffset() < base
		})
		if err != nil || next <= from {
			return last, err
		}
		from = next
	}
	return last, nil
}

// countFrom counts the batches from offset on: records and bytes.
func countFrom(log persistence.Log, offset int64) (records, bytes int64, err error) {
	end := log.End()
	for at := max(offset, log.LogStart()); at < end; {
		_, next, err := headersFrom(log, at, planChunkBytes, func(h batch.Header) bool {
			records += int64(h.Records)
			bytes += int64(h.Size())
			return true
		})
		if err != nil {
			return 0, 0, fmt.Errorf("count what would go: %w", err)
		}
		if next <= at {
			break
		}
		at = next
	}
	return records, bytes, nil
}

// headersFrom visits the headers of a chunk of the log, until visit says no.
func headersFrom(log persistence.Log, offset int64, bytesMax int, visit func(batch.Header) bool) (first, next int64, err error) {
	chunk, err := log.Read(offset, bytesMax, log.End(), true)
	if err != nil {
		return offset, offset, err
	}
	defer chunk.Release()
	if chunk.Len == 0 && len(chunk.Bytes) == 0 {
		return offset, offset, nil
	}
	if visit == nil {
		return chunk.FirstOffset, chunk.NextOffset, nil
	}
	head := make([]byte, batch.HeaderSize)
	for pos := int64(0); pos < int64(chunk.Len); {
		switch {
		case chunk.File != nil:
			_, err = chunk.File.ReadAt(head, chunk.Pos+pos)
		case int(pos)+batch.HeaderSize > len(chunk.Bytes):
			err = errors.New("batch is cut off")
		default:
			copy(head, chunk.Bytes[pos:])
		}
		if err != nil {
			return chunk.FirstOffset, chunk.NextOffset, fmt.Errorf("read batch header: %w", err)
		}
		h, err := batch.ParseHeader(head)
		if err != nil {
			return chunk.FirstOffset, chunk.NextOffset, err
		}
		if !visit(h) {
			break
		}
		pos += int64(h.Size())
	}
	return chunk.FirstOffset, chunk.NextOffset, nil
}
