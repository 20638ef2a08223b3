package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
)

// Record is one typed record of the metadata log: a pointer to one of the
// *Record structs of package wire that applyRecord knows.
//
// A record's value in the log is KRaft's frame: uvarint frame version (1),
// uvarint type, uvarint version, flexible body. The key is null. The headers of
// a batch's first record say who asked and under which claim:
//
//	claim       controller epoch of the author, decimal
//	principal, client-id, host, request-id   the requester, left out when empty
type Record = wire.MetadataRecord

// Header keys of the first record of a batch.
const (
	HeaderClaim     = "claim"
	HeaderPrincipal = "principal"
	HeaderClientID  = "client-id"
	HeaderHost      = "host"
	HeaderRequestID = "request-id"
)

// recordBytesMax bounds a record's value when reading: a config value has at
// most 32 KiB, a partition record a few hundred bytes.
const recordBytesMax = 16 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends the value of a record, in its newest version.
func appendFrame(dst []byte, r Record) []byte {
	r.SetVersion(r.MaxVersion())
	return wire.AppendMetadataRecord(dst, r)
}

// readFrame decodes the value of a record. It refuses unknown types and
// versions (ErrUnknownRecord): to skip them would lose changes.
func readFrame(b []byte) (Record, error) {
	r, err := wire.ReadMetadataRecord(b)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, wire.ErrUnknownType), errors.Is(err, wire.ErrVersion):
		return nil, fmt.Errorf("%w: %w", ErrUnknownRecord, err)
	default:
		return nil, fmt.Errorf("%w: %w", batch.ErrCorrupt, err)
	}
}

type header struct{ key, value string }

func changeHeaders(by messages.Requester, claim int32) []header {
	hs := []header{{HeaderClaim, fmt.Sprint(claim)}}
	for _, h := range []header{
		{HeaderPrincipal, by.Principal},
		{HeaderClientID, by.ClientID},
		{HeaderHost, by.Host},
		{HeaderRequestID, by.RequestID},
	} {
		if h.value != "" {
			hs = append(hs, h)
		}
	}
	return hs
}

// appendBatch appends one uncompressed batch with the records of c. The base
// offset is 0 and the leader epoch -1: the journal assigns both.
func appendBatch(dst []byte, c Change, nowMillis int64) ([]byte, error) {
	if len(c.Records) == 0 {
		return nil, fmt.Errorf("%w: a change without records", ErrBadRecord)
	}
	values := make([][]byte, len(c.Records))
	for i, r := range c.Records {
		values[i] = appendFrame(nil, r)
	}
	return appendRawBatch(dst, rawBatch{
		epoch: messages.NoEpoch, millis: nowMillis, values: values, headers: changeHeaders(c.Requester, c.Claim),
	}), nil
}

// rawBatch is what appendRawBatch needs. headers go to the first record.
type rawBatch struct {
	base    int64
	epoch   int32
	millis  int64
	attrs   int16
	keys    [][]byte // nil: null keys
	values  [][]byte
	headers []header
}

// appendRawBatch appends a magic 2 batch (layout: package batch).
func appendRawBatch(dst []byte, b rawBatch) []byte {
	be, start := binary.BigEndian, len(dst)
	dst = append(dst, make([]byte, batch.HeaderSize)...)
	var body []byte
	for i, v := range b.values {
		body = append(body[:0], 0) // attributes
		body = binary.AppendVarint(body, 0)
		body = binary.AppendVarint(body, int64(i))
		if b.keys == nil {
			body = binary.AppendVarint(body, -1)
		} else {
			body = binary.AppendVarint(body, int64(len(b.keys[i])))
			body = append(body, b.keys[i]...)
		}
		body = binary.AppendVarint(body, int64(len(v)))
		body = append(body, v...)
		var hs []header
		if i == 0 {
			hs = b.headers
		}
		body = binary.AppendVarint(body, int64(len(hs)))
		for _, h := range hs {
			body = binary.AppendVarint(body, int64(len(h.key)))
			body = append(body, h.key...)
			body = binary.AppendVarint(body, int64(len(h.value)))
			body = append(body, h.value...)
		}
		dst = binary.AppendVarint(dst, int64(len(body)))
		dst = append(dst, body...)
	}
	h := dst[start:]
	be.PutUint64(h, uint64(b.base))
	be.PutUint32(h[8:], uint32(len(h)-batch.Overhead))
	be.PutUint32(h[12:], uint32(b.epoch))
	h[16] = 2
	be.PutUint16(h[21:], uint16(b.attrs))
	be.PutUint32(h[23:], uint32(len(b.values)-1))
	be.PutUint64(h[27:], uint64(b.millis))
	be.PutUint64(h[35:], uint64(b.millis))
	be.PutUint64(h[43:], ^uint64(0))
	be.PutUint16(h[51:], ^uint16(0))
	be.PutUint32(h[53:], ^uint32(0))
	be.PutUint32(h[57:], uint32(len(b.values)))
	be.PutUint32(h[17:], crc32.Checksum(h[21:], castagnoli))
	return dst
}

// rawRecord is a record of a decoded batch; key and value point into the input.
type rawRecord struct {
	key, value []byte
	headers    []header
}

// readRecords decodes the records of one whole, uncompressed batch.
func readRecords(h batch.Header, b []byte) ([]rawRecord, error) {
	if h.Attributes&batch.AttrCompressionMask != 0 {
		return nil, fmt.Errorf("%w: compressed metadata batch at offset %d", batch.ErrCorrupt, h.BaseOffset)
	}
	if int64(h.Records) != int64(h.LastOffsetDelta)+1 {
		return nil, fmt.Errorf("%w: metadata batch at offset %d has %d records and last offset delta %d",
			batch.ErrCorrupt, h.BaseOffset, h.Records, h.LastOffsetDelta)
	}
	c := cursor{b: b[batch.HeaderSize:h.Size()]}
	out := make([]rawRecord, 0, min(int(h.Records), len(c.b)/7+1))
	for range h.Records {
		r := c.sized()
		if c.bad {
			break
		}
		rc := cursor{b: r}
		rc.skip(1)
		_ = rc.varint() // timestamp delta
		_ = rc.varint() // offset delta: batches of the metadata log have no holes
		rec := rawRecord{key: rc.sized(), value: rc.sized()}
		n := rc.varint()
		if n < 0 || n > int64(len(rc.b)) {
			rc.bad = true
			n = 0
		}
		for range n {
			rec.headers = append(rec.headers, header{string(rc.sized()), string(rc.sized())})
		}
		if rc.bad || len(rc.b) != 0 {
			c.bad = true
			break
		}
		out = append(out, rec)
	}
	if c.bad || len(c.b) != 0 {
		return nil, fmt.Errorf("%w: records of the metadata batch at offset %d", batch.ErrCorrupt, h.BaseOffset)
	}
	return out, nil
}

// cursor reads varints and sized byte fields; bad sticks.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	if c.bad || n <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// sized reads a length and that many bytes; a negative length is null.
func (c *cursor) sized() []byte {
	n := c.varint()
	if c.bad || n < 0 {
		return nil
	}
	if n > int64(len(c.b)) || n > recordBytesMax {
		c.bad = true
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) skip(n int) {
	if c.bad || len(c.b) < n {
		c.bad = true
		return
	}
	c.b = c.b[n:]
}

// ReadChange decodes one whole batch of the metadata log: its records, who asked
// for them and under which claim. A control batch has none. For tools and audits.
func ReadChange(b []byte) (Change, error) {
	h, err := batch.ParseHeader(b)
	if err == nil {
		err = batch.CheckCRC(b)
	}
	if err != nil || h.IsControl() {
		return Change{}, err
	}
	raw, err := readRecords(h, b)
	if err != nil {
		return Change{}, err
	}
	return changeOf(raw)
}

func changeOf(raw []rawRecord) (c Change, err error) {
	if c.Records, err = decodeRecords(raw); err != nil || len(raw) == 0 {
		return Change{}, err
	}
	for _, hd := range raw[0].headers {
		switch hd.key {
		case HeaderClaim:
			if n, err := strconv.ParseInt(hd.value, 10, 32); err == nil {
				c.Claim = int32(n)
			}
		case HeaderPrincipal:
			c.Requester.Principal = hd.value
		case HeaderClientID:
			c.Requester.ClientID = hd.value
		case HeaderHost:
			c.Requester.Host = hd.value
		case HeaderRequestID:
			c.Requester.RequestID = hd.value
		}
	}
	return c, nil
}
