package persistence

import (
	"encoding/binary"
	"hash/crc32"

	"kagami/messages"
)

// Kafka's producer snapshot, version 1, file <offset>.snapshot: the state of
// all producers after everything below that offset.
//
//	version int16 = 1 | crc uint32, CRC32C of what follows | count int32 |
//	entries: producer id int64 | epoch int16 | last sequence int32 | last offset int64 |
//	  offset delta int32 | timestamp int64 | coordinator epoch int32 | first offset of the open transaction int64
//
// It keeps the last batch of each producer only.
const (
	snapshotVersion   = 1
	snapshotHeader    = 10
	snapshotEntrySize = 46
)

func (s *producerState) encode() []byte {
	be := binary.BigEndian
	list := s.list()
	b := make([]byte, snapshotHeader, snapshotHeader+len(list)*snapshotEntrySize)
	be.PutUint16(b, snapshotVersion)
	be.PutUint32(b[6:], uint32(len(list)))
	for _, p := range list {
		last := ProducerBatch{LastSequence: noSequence, LastOffset: messages.NoOffset, FirstOffset: messages.NoOffset}
		if n := len(p.Batches); n > 0 {
			last = p.Batches[n-1]
		}
		b = be.AppendUint64(b, uint64(p.ProducerID))
		b = be.AppendUint16(b, uint16(p.ProducerEpoch))
		b = be.AppendUint32(b, uint32(last.LastSequence))
		b = be.AppendUint64(b, uint64(last.LastOffset))
		b = be.AppendUint32(b, uint32(last.LastOffset-last.FirstOffset))
		b = be.AppendUint64(b, uint64(p.LastTimestamp))
		b = be.AppendUint32(b, uint32(p.CoordinatorEpoch))
		b = be.AppendUint64(b, uint64(p.TxnFirstOffset))
	}
	be.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

func decodeProducers(name string, b []byte) (producerState, error) {
	be := binary.BigEndian
	bad := func(why string) (producerState, error) {
		return producerState{}, &CorruptError{File: name, Pos: -1, Offset: -1, Reason: why}
	}
	switch {
	case len(b) < snapshotHeader:
		return bad("producer snapshot is too short")
	case be.Uint16(b) != snapshotVersion:
		return bad("unknown version of the producer snapshot")
	case crc32.Checksum(b[6:], castagnoli) != be.Uint32(b[2:]):
		return bad("CRC of the producer snapshot")
	case int64(be.Uint32(b[6:]))*snapshotEntrySize != int64(len(b)-snapshotHeader):
		return bad("entry count and size of the producer snapshot differ")
	}
	var s producerState
	for b = b[snapshotHeader:]; len(b) > 0; b = b[snapshotEntrySize:] {
		p := s.get(int64(be.Uint64(b)))
		p.epoch = int16(be.Uint16(b[8:]))
		lastSeq, lastOffset := int32(be.Uint32(b[10:])), int64(be.Uint64(b[14:]))
		delta := int32(be.Uint32(b[22:]))
		p.lastTimestamp = int64(be.Uint64(b[26:]))
		p.coordEpoch = int32(be.Uint32(b[34:]))
		p.txnFirst = int64(be.Uint64(b[38:]))
		if lastOffset >= 0 {
			p.batches = []ProducerBatch{{
				FirstSequence: sequenceBefore(lastSeq, delta), LastSequence: lastSeq,
				FirstOffset: lastOffset - int64(delta), LastOffset: lastOffset, Timestamp: p.lastTimestamp,
			}}
		}
	}
	s.reopen()
	return s, nil
}

func sequenceBefore(seq, by int32) int32 {
	if seq < by {
		return int32(int64(seq) - int64(by) + 1<<31)
	}
	return seq - by
}

// reopen rebuilds the list of open transactions from the entries.
func (s *producerState) reopen() {
	s.open = nil
	for id, p := range s.entries {
		if p.txnFirst >= 0 {
			s.open = append(s.open, OpenTransaction{ProducerID: id, ProducerEpoch: p.epoch, FirstOffset: p.txnFirst})
		}
	}
	sortOpen(s.open)
}
