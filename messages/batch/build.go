package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// NoProducer is the producer id of a batch without one; the epoch is -1 then.
const NoProducer int64 = -1

// Props are the header fields that a builder doesn't work out by itself.
type Props struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Attributes    int16 // AttrTransactional, AttrControl; never a codec
	ProducerID    int64 // NoProducer without one
	ProducerEpoch int16 // -1 without a producer
	BaseSequence  int32 // -1 without sequences
}

// Plain are the properties of a batch of an internal topic: no producer, offset
// and leader epoch 0, to be stamped by [SetOffsetAndEpoch] at the append.
func Plain() Props { return Props{ProducerID: NoProducer, ProducerEpoch: -1, BaseSequence: -1} }

// Single builds an uncompressed batch of one record with create time millis.
// Key or value nil is null.
func Single(millis int64, key, value []byte, headers ...RecordHeader) []byte {
	return Append(nil, Plain(), Record{Timestamp: millis, Key: key, Value: value, Headers: headers})
}

// Append appends an uncompressed batch of the records, of which there must be
// at least one. Offsets are counted up from props.BaseOffset: those in the
// records are ignored, like Sequence and Size.
func Append(dst []byte, props Props, records ...Record) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	base, latest := records[0].Timestamp, records[0].Timestamp
	var body []byte
	for i, r := range records {
		latest = max(latest, r.Timestamp)
		body = appendRecord(body[:0], r, r.Timestamp-base, int64(i))
		dst = binary.AppendVarint(dst, int64(len(body)))
		dst = append(dst, body...)
	}
	b, be := dst[start:], binary.BigEndian
	be.PutUint64(b, uint64(props.BaseOffset))
	be.PutUint32(b[8:], uint32(len(b)-Overhead))
	be.PutUint32(b[12:], uint32(props.LeaderEpoch))
	b[16] = 2
	be.PutUint16(b[21:], uint16(props.Attributes))
	be.PutUint32(b[23:], uint32(len(records)-1))
	be.PutUint64(b[27:], uint64(base))
	be.PutUint64(b[35:], uint64(latest))
	be.PutUint64(b[43:], uint64(props.ProducerID))
	be.PutUint16(b[51:], uint16(props.ProducerEpoch))
	be.PutUint32(b[53:], uint32(props.BaseSequence))
	be.PutUint32(b[57:], uint32(len(records)))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return dst
}

func appendRecord(dst []byte, r Record, timeDelta, offsetDelta int64) []byte {
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendNullable(dst, r.Key)
	dst = appendNullable(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendNullable(dst, h.Value)
	}
	return dst
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}
