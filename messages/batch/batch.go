package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Layout of a record batch, magic 2 (KIP-98):
//
//	0  baseOffset int64
//	8  batchLength int32         bytes after this field
//	12 partitionLeaderEpoch int32   not covered by the CRC
//	16 magic int8
//	17 crc uint32                CRC32C of all that follows
//	21 attributes int16
//	23 lastOffsetDelta int32
//	27 baseTimestamp int64
//	35 maxTimestamp int64
//	43 producerId int64
//	51 producerEpoch int16
//	53 baseSequence int32
//	57 record count int32
//	61 records
const (
	// Overhead is the bytes before the part that Length counts.
	Overhead = 12
	// HeaderSize is the fixed part in front of the records.
	HeaderSize = 61
)

// Attribute bits of a batch.
const (
	AttrCompressionMask = 0x07
	AttrLogAppendTime   = 0x08
	AttrTransactional   = 0x10
	AttrControl         = 0x20
	AttrDeleteHorizon   = 0x40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the fixed part of a batch.
type Header struct {
	BaseOffset      int64
	Length          int32 // as on the wire: bytes after the length field
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Records         int32
}

// Size is the whole batch in bytes.
func (h Header) Size() int { return int(h.Length) + Overhead }

// LastOffset is the offset of the batch's last record, also when compaction
// removed that record.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// LastSequence wraps around at 2147483647 as Kafka's does; -1 without sequences.
func (h Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return -1
	}
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) % (1 << 31))
}

// IsControl reports a control batch (markers, MIRROR_PID_RESET).
func (h Header) IsControl() bool { return h.Attributes&AttrControl != 0 }

// IsTransactional reports a batch of a transaction.
func (h Header) IsTransactional() bool { return h.Attributes&AttrTransactional != 0 }

// ParseHeader reads the header at the start of b. It checks only what it
// needs to go on: enough bytes for the header, magic 2, a length that can hold
// the header, offset delta and record count not negative. The whole batch need
// not be in b.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d bytes are too few for a batch header", ErrCorrupt, len(b))
	}
	be := binary.BigEndian
	h := Header{
		BaseOffset:      int64(be.Uint64(b)),
		Length:          int32(be.Uint32(b[8:])),
		LeaderEpoch:     int32(be.Uint32(b[12:])),
		Magic:           int8(b[16]),
		CRC:             be.Uint32(b[17:]),
		Attributes:      int16(be.Uint16(b[21:])),
		LastOffsetDelta: int32(be.Uint32(b[23:])),
		BaseTimestamp:   int64(be.Uint64(b[27:])),
		MaxTimestamp:    int64(be.Uint64(b[35:])),
		ProducerID:      int64(be.Uint64(b[43:])),
		ProducerEpoch:   int16(be.Uint16(b[51:])),
		BaseSequence:    int32(be.Uint32(b[53:])),
		Records:         int32(be.Uint32(b[57:])),
	}
	switch {
	case h.Magic != 2:
		return h, fmt.Errorf("%w: magic %d at offset %d, only 2 is known", ErrCorrupt, h.Magic, h.BaseOffset)
	case h.Length < HeaderSize-Overhead:
		return h, fmt.Errorf("%w: batch length %d at offset %d", ErrCorrupt, h.Length, h.BaseOffset)
	case h.BaseOffset < 0 || h.LastOffsetDelta < 0 || h.Records < 0:
		return h, fmt.Errorf("%w: base offset %d, last offset delta %d, %d records", ErrCorrupt, h.BaseOffset, h.LastOffsetDelta, h.Records)
	}
	return h, nil
}

// CheckCRC compares the CRC of the whole batch b with its header.
func CheckCRC(b []byte) error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	if len(b) < h.Size() {
		return fmt.Errorf("%w: batch at offset %d cut off: %d of %d bytes", ErrCorrupt, h.BaseOffset, len(b), h.Size())
	}
	if got := crc32.Checksum(b[21:h.Size()], castagnoli); got != h.CRC {
		return fmt.Errorf("%w: CRC of batch at offset %d is %08x, header says %08x", ErrCorrupt, h.BaseOffset, got, h.CRC)
	}
	return nil
}

// SetOffsetAndEpoch writes base offset and partition leader epoch into the
// batch at the start of b, in place. The CRC covers neither.
func SetOffsetAndEpoch(b []byte, base int64, epoch int32) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
}

// SetLogAppendTime stamps the batch at the start of b with broker time:
// attribute bit, max timestamp and the CRC that covers them.
func SetLogAppendTime(b []byte, millis int64) {
	be := binary.BigEndian
	be.PutUint16(b[21:], be.Uint16(b[21:])|AttrLogAppendTime)
	be.PutUint64(b[35:], uint64(millis))
	size := int(int32(be.Uint32(b[8:]))) + Overhead
	be.PutUint32(b[17:], crc32.Checksum(b[21:size], castagnoli))
}
