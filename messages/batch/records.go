package batch

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Record is one record of a batch. Key, Value and header values are nil for
// null, and point into the batch (or into the decompressed bytes).
type Record struct {
	Offset    int64
	Timestamp int64 // ms; the batch's max timestamp with LogAppendTime
	Sequence  int32 // -1 without sequences
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
	Size      int // of the record without its length field, bytes; ignored by builders
}

// RecordHeader is a header of a record. Value nil is null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Header returns the value of the first header called key.
func (r Record) Header(key string) (value []byte, ok bool) {
	for _, h := range r.Headers {
		if h.Key == key {
			return h.Value, true
		}
	}
	return nil, false
}

// Next splits the first whole batch off b. A batch that is cut off, or no
// batch, wraps [ErrCorrupt]; the CRC isn't checked.
func Next(b []byte) (h Header, whole, rest []byte, err error) {
	h, err = ParseHeader(b)
	if err != nil {
		return h, nil, nil, err
	}
	if len(b) < h.Size() {
		return h, nil, nil, fmt.Errorf("%w: batch at offset %d cut off: %d of %d bytes", ErrCorrupt, h.BaseOffset, len(b), h.Size())
	}
	return h, b[:h.Size():h.Size()], b[h.Size():], nil
}

// Records walks the records of one uncompressed batch. It stops after its
// first error, which wraps [ErrCorrupt], or [ErrCompressed] for a compressed
// batch. The CRC isn't checked.
func Records(b []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		h, whole, _, err := Next(b)
		if err == nil && h.Codec() != CodecNone {
			err = fmt.Errorf("%w: batch at offset %d with %s", ErrCompressed, h.BaseOffset, h.Codec())
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		walk(h, whole[HeaderSize:], yield)
	}
}

func walk(h Header, payload []byte, yield func(Record, error) bool) {
	p := parser{src: payload}
	for i := range h.Records {
		r := p.record(h)
		if p.bad {
			yield(Record{}, fmt.Errorf("%w: record %d of %d in batch at offset %d", ErrCorrupt, i, h.Records, h.BaseOffset))
			return
		}
		if !yield(r, nil) {
			return
		}
	}
	if len(p.src) > 0 {
		yield(Record{}, fmt.Errorf("%w: %d bytes after the last record of batch at offset %d", ErrCorrupt, len(p.src), h.BaseOffset))
	}
}

// parser reads records:
//
//	length varint | attributes int8 | timestamp delta varint | offset delta varint |
//	key length varint, key | value length varint, value |
//	header count varint | (key length, key, value length, value)*
type parser struct {
	src []byte
	bad bool
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.src)
	if n <= 0 {
		p.bad = true
		p.src = nil
		return 0
	}
	p.src = p.src[n:]
	return v
}

func (p *parser) span(n int64) []byte {
	if n < 0 || n > int64(len(p.src)) {
		p.bad = true
		p.src = nil
		return nil
	}
	b := p.src[:n:n]
	p.src = p.src[n:]
	return b
}

// nullable reads a length and as many bytes; -1 is null.
func (p *parser) nullable() []byte {
	n := p.varint()
	if n == -1 {
		return nil
	}
	return p.span(n)
}

func (p *parser) record(h Header) Record {
	body := parser{src: p.span(p.varint())}
	if p.bad {
		return Record{}
	}
	r := Record{Size: len(body.src), Sequence: -1}
	body.span(1) // attributes: none are defined
	r.Timestamp = h.BaseTimestamp + body.varint()
	if h.Attributes&AttrLogAppendTime != 0 {
		r.Timestamp = h.MaxTimestamp
	}
	delta := body.varint()
	r.Offset = h.BaseOffset + delta
	if h.BaseSequence >= 0 {
		r.Sequence = int32((int64(h.BaseSequence) + delta) % (1 << 31))
	}
	r.Key, r.Value = body.nullable(), body.nullable()
	count := body.varint()
	if count < 0 || count > int64(len(body.src))/2 { // a header takes two bytes at least
		body.bad = true
	} else if count > 0 {
		r.Headers = make([]RecordHeader, 0, count)
		for range count {
			r.Headers = append(r.Headers, RecordHeader{Key: string(body.span(body.varint())), Value: body.nullable()})
		}
	}
	p.bad = body.bad || len(body.src) > 0 || delta < 0 || delta > int64(h.LastOffsetDelta)
	return r
}
