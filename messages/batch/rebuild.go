package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// NoHorizon stands for a batch without a delete horizon.
const NoHorizon int64 = -1

// DeleteHorizon is the time, ms, from which compaction may remove the batch's
// tombstones or its marker (KIP-534). It stands in the place of the base timestamp,
// which record timestamps are relative to all the same.
func (h Header) DeleteHorizon() (millis int64, ok bool) {
	if h.Attributes&AttrDeleteHorizon == 0 {
		return NoHorizon, false
	}
	return h.BaseTimestamp, true
}

// Rebuild makes the batch with header h anew with those of its records that stay, at
// least one, in the same codec. Everything else is kept: base offset and last offset,
// so that there are holes, producer, sequences, epoch, time type. With a horizon that
// isn't NoHorizon the batch says from when on its tombstones may go. As Kafka, the
// largest timestamp becomes that of the records that stay, unless it is the broker's.
func Rebuild(h Header, records []Record, horizon int64) ([]byte, error) {
	base, latest := records[0].Timestamp, records[0].Timestamp
	if horizon != NoHorizon {
		base = horizon
	}
	var plain, body []byte
	for _, r := range records {
		latest = max(latest, r.Timestamp)
		body = appendRecord(body[:0], r, r.Timestamp-base, r.Offset-h.BaseOffset)
		plain = binary.AppendVarint(plain, int64(len(body)))
		plain = append(plain, body...)
	}
	if h.Attributes&AttrLogAppendTime != 0 {
		latest = h.MaxTimestamp
	}
	h.Attributes &^= AttrDeleteHorizon
	if horizon != NoHorizon {
		h.Attributes |= AttrDeleteHorizon
	}
	h.BaseTimestamp, h.MaxTimestamp, h.Records = base, latest, int32(len(records))
	return pack(h.encode(), plain, h.Codec(), DefaultLevel(h.Codec()))
}

// Emptied is the batch with header h without any record: it keeps the offsets, the
// producer's last sequence and the time.
func Emptied(h Header) []byte {
	h.Attributes &^= AttrDeleteHorizon | AttrCompressionMask
	h.BaseTimestamp, h.Records, h.Length = h.MaxTimestamp, 0, HeaderSize-Overhead
	b := h.encode()
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// Filler is an empty batch that takes the offsets from base to last: it says that
// nothing is there.
func Filler(base, last int64, epoch int32, millis int64) []byte {
	return Emptied(Header{
		BaseOffset: base, LastOffsetDelta: int32(last - base), LeaderEpoch: epoch, Magic: 2, MaxTimestamp: millis,
		ProducerID: NoProducer, ProducerEpoch: -1, BaseSequence: -1,
	})
}

// encode is the header's bytes; length and CRC are the caller's business.
func (h Header) encode() []byte {
	b, be := make([]byte, HeaderSize), binary.BigEndian
	be.PutUint64(b, uint64(h.BaseOffset))
	be.PutUint32(b[8:], uint32(h.Length))
	be.PutUint32(b[12:], uint32(h.LeaderEpoch))
	b[16] = byte(h.Magic)
	be.PutUint32(b[17:], h.CRC)
	be.PutUint16(b[21:], uint16(h.Attributes))
	be.PutUint32(b[23:], uint32(h.LastOffsetDelta))
	be.PutUint64(b[27:], uint64(h.BaseTimestamp))
	be.PutUint64(b[35:], uint64(h.MaxTimestamp))
	be.PutUint64(b[43:], uint64(h.ProducerID))
	be.PutUint16(b[51:], uint16(h.ProducerEpoch))
	be.PutUint32(b[53:], uint32(h.BaseSequence))
	be.PutUint32(b[57:], uint32(h.Records))
	return b
}
