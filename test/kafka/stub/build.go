package stub

import (
	"encoding/binary"
	"hash/crc32"

	"kagami/messages/batch"
)

// Record of a batch that is built. Key and Value nil mean null.
type Record struct {
	OffsetDelta int32 // 0 in the first record; NextDelta() is not assumed: say it, or leave all zero for 0, 1, 2, ...
	Key, Value  []byte
	Headers     []Header
}

// Header of a record; Value nil means null.
type Header struct {
	Key   string
	Value []byte
}

// Spec says what a batch looks like. Zero producer fields are taken as "none"
// unless Producer is set.
type Spec struct {
	Base            int64
	Epoch           int32
	Codec           int16  // 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
	Payload         []byte // record bytes as they are, compressed by the caller; nil = built from Records
	Records         []Record
	Count           int32 // with Payload: the record count
	LastOffsetDelta int32 // -1 = of the last record (0 with Payload and Count 0)
	Producer        bool
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Transactional   bool
	Control         bool
	LogAppendTime   bool
	Timestamp       int64
}

// Build makes the bytes of a batch with a right CRC, independently of the code
// under test.
func Build(s Spec) []byte {
	payload, count, last := s.Payload, s.Count, s.LastOffsetDelta
	if payload == nil {
		count = int32(len(s.Records))
		numbered := false
		for _, r := range s.Records {
			numbered = numbered || r.OffsetDelta != 0
		}
		for i, r := range s.Records {
			if !numbered {
				r.OffsetDelta = int32(i)
			}
			payload = appendRecord(payload, r)
			if s.LastOffsetDelta <= 0 {
				last = max(last, r.OffsetDelta)
			}
		}
	}
	attributes := s.Codec
	set := func(on bool, bit int16) {
		if on {
			attributes |= bit
		}
	}
	set(s.LogAppendTime, batch.AttrLogAppendTime)
	set(s.Transactional, batch.AttrTransactional)
	set(s.Control, batch.AttrControl)
	pid, pepoch, seq := int64(-1), int16(-1), int32(-1)
	if s.Producer {
		pid, pepoch, seq = s.ProducerID, s.ProducerEpoch, s.BaseSequence
	}
	be := binary.BigEndian
	b := make([]byte, 0, batch.HeaderSize+len(payload))
	b = be.AppendUint64(b, uint64(s.Base))
	b = be.AppendUint32(b, uint32(batch.HeaderSize-batch.Overhead+len(payload)))
	b = be.AppendUint32(b, uint32(s.Epoch))
	b = append(b, 2)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint16(b, uint16(attributes))
	b = be.AppendUint32(b, uint32(max(last, 0)))
	b = be.AppendUint64(b, uint64(s.Timestamp))
	b = be.AppendUint64(b, uint64(s.Timestamp))
	b = be.AppendUint64(b, uint64(pid))
	b = be.AppendUint16(b, uint16(pepoch))
	b = be.AppendUint32(b, uint32(seq))
	b = be.AppendUint32(b, uint32(count))
	b = append(b, payload...)
	return Seal(b)
}

// Seal writes the right CRC into a batch, in place.
func Seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// EndMarker is a COMMIT or ABORT control batch.
func EndMarker(base int64, epoch int32, producerID int64, producerEpoch int16, commit bool) []byte {
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	return Build(Spec{
		Base: base, Epoch: epoch, Producer: true, ProducerID: producerID, ProducerEpoch: producerEpoch, BaseSequence: -1,
		Transactional: true, Control: true, Records: []Record{{Key: key, Value: []byte{0, 0, 0, 0, 0, 0}}},
	})
}

func appendRecord(dst []byte, r Record) []byte {
	var body []byte
	body = append(body, 0)
	body = binary.AppendVarint(body, 0)
	body = binary.AppendVarint(body, int64(r.OffsetDelta))
	body = appendBytes(body, r.Key)
	body = appendBytes(body, r.Value)
	body = binary.AppendVarint(body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendBytes(body, h.Value)
	}
	dst = binary.AppendVarint(dst, int64(len(body)))
	return append(dst, body...)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
