package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kagami/messages"
	"kagami/messages/batch"
)

// recordBytesMin is the smallest record: one byte each for length, attributes,
// timestamp delta, offset delta, key length, value length and header count.
const recordBytesMin = 7

// Scanned is what a walk over the batches of a response found.
type Scanned struct {
	Good      []byte // whole, valid batches from the start; shares the memory it was given
	Batches   int
	Next      int64 // offset after the last good batch; the offset asked for when there is none
	MaxEpoch  int32 // highest partition leader epoch in Good, NoEpoch if none
	LastEpoch int32 // epoch of the last good batch, NoEpoch if none
	MinEpoch  int32 // lowest epoch in Good, NoEpoch if none
	// Below is the base offset of a first batch that begins below the offset asked
	// for and reaches it, NoOffset if it doesn't: the source's log start lies
	// within a batch (DeleteRecords), and batches are sent whole.
	Below int64
	// Partial is the size in bytes that a cut-off last batch says it has, 0 if
	// there is none (-1: not even its length arrived). No error.
	Partial int
	// PartialFirst: the cut-off batch is the only one.
	PartialFirst bool
	// Err is the damage right after Good; nil if there is none.
	Err *CorruptError
}

// Scan walks the batches of a partition response and checks each one: whole,
// magic 2, CRC, header fields that can be true, base offsets at or above from
// and rising (gaps are normal on compacted topics). batchBytesMax bounds a
// batch's claimed length: more than fits into a response can never arrive, so
// it is damage and no cut-off (OP-39). Nothing is copied.
func Scan(tp messages.TopicPartition, b []byte, from int64, batchBytesMax int) Scanned {
	s := nothing(from)
	pos := 0
	for pos < len(b) {
		h, n, err := scanOne(b[pos:], s.Next, batchBytesMax, s.Batches == 0)
		if err != nil {
			s.Err = &CorruptError{TopicPartition: tp, Offset: max(s.Next, h.BaseOffset), Reason: err.Error()}
			break
		}
		if n <= 0 {
			s.Partial, s.PartialFirst = -n, s.Batches == 0
			if n == 0 {
				s.Partial = -1
			}
			break
		}
		if s.Batches == 0 || h.LeaderEpoch < s.MinEpoch {
			s.MinEpoch = h.LeaderEpoch
		}
		if h.BaseOffset < s.Next {
			s.Below = h.BaseOffset
		}
		s.MaxEpoch = max(s.MaxEpoch, h.LeaderEpoch)
		s.LastEpoch = h.LeaderEpoch
		s.Batches++
		s.Next = h.LastOffset() + 1
		pos += n
	}
	s.Good = b[:pos:pos]
	return s
}

// nothing is a walk over no bytes.
func nothing(from int64) Scanned {
	return Scanned{Next: from, MaxEpoch: messages.NoEpoch, LastEpoch: messages.NoEpoch, MinEpoch: messages.NoEpoch, Below: messages.NoOffset}
}

// scanOne checks the batch at the start of b. n is its size; n < 0: cut off, the
// batch says it has -n bytes; n = 0: cut off before its length.
func scanOne(b []byte, from int64, batchBytesMax int, first bool) (batch.Header, int, error) {
	h, n, err := peek(b, batchBytesMax)
	if err != nil || n <= 0 {
		return h, n, err
	}
	switch {
	case h.BaseOffset < from && (!first || h.LastOffset() < from):
		return h, 0, fmt.Errorf("base offset %d is below offset %d", h.BaseOffset, from)
	case int64(h.Records) > int64(h.LastOffsetDelta)+1:
		return h, 0, fmt.Errorf("%d records within %d offsets", h.Records, int64(h.LastOffsetDelta)+1)
	case h.Attributes&batch.AttrCompressionMask == 0 && int64(h.Records)*recordBytesMin > int64(n-batch.HeaderSize):
		return h, 0, fmt.Errorf("%d records in %d bytes", h.Records, n-batch.HeaderSize)
	case h.LastOffset() < h.BaseOffset:
		return h, 0, errors.New("offsets overflow")
	}
	if err := batch.CheckCRC(b[:n]); err != nil {
		return h, 0, err
	}
	return h, n, nil
}

// peek reads the header at the start of b without looking at the records.
// Returns as scanOne.
func peek(b []byte, batchBytesMax int) (batch.Header, int, error) {
	if len(b) < batch.Overhead {
		return batch.Header{}, 0, nil
	}
	size := int64(int32(binary.BigEndian.Uint32(b[8:]))) + batch.Overhead
	// Message sets of magic 0 and 1 have the magic byte at the same place.
	if len(b) > 16 && b[16] < 2 && size >= batch.Overhead {
		return batch.Header{BaseOffset: int64(binary.BigEndian.Uint64(b))}, 0,
			fmt.Errorf("message format magic %d, only 2 is copied", b[16])
	}
	if size < batch.HeaderSize {
		return batch.Header{}, 0, fmt.Errorf("batch length %d", size-batch.Overhead)
	}
	if size > int64(batchBytesMax) {
		return batch.Header{}, 0, fmt.Errorf("batch length %d, more than the %d bytes that can arrive", size-batch.Overhead, batchBytesMax)
	}
	if len(b) < batch.HeaderSize {
		return batch.Header{}, -int(size), nil
	}
	h, err := batch.ParseHeader(b)
	if err != nil {
		return h, 0, err
	}
	if int64(len(b)) < size {
		return h, -int(size), nil
	}
	return h, int(size), nil
}

// glance finds where a response ends without checking its records: the offset
// after the last whole batch and that batch's epoch. ok is false when something
// looks wrong, so that nothing is fetched ahead on the strength of it.
func glance(b []byte, from int64, batchBytesMax int) (next int64, epoch int32, ok bool) {
	next, epoch = from, messages.NoEpoch
	for len(b) > 0 {
		h, n, err := peek(b, batchBytesMax)
		if err != nil || (n > 0 && h.BaseOffset < next) {
			return next, epoch, false
		}
		if n <= 0 {
			break
		}
		next, epoch = h.LastOffset()+1, h.LeaderEpoch
		b = b[n:]
	}
	return next, epoch, next > from
}
