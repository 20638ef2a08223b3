package persistence

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"path/filepath"

	"kagami/messages"
)

// logState is what a log has to know before it looks at its segments. It lives
// in kagami.state, a file of our own that Kafka's tools ignore: two slots, in
// disk sectors of their own, written in turn; the valid one with the higher
// number counts.
//
//	0   magic "KGST"      4  version uint16 (1)   6  unused
//	8   number uint64     16 topic id             32 partition int32
//	36  unused            40 created at int64     48 log start int64
//	56  recovery point    64 side point           72 cut to
//	80  restart at        88 unused               96 CRC32C of bytes 0 to 95
//	128 magic "KGCL"      132 unused              136 number uint64
//	144 cleaned to int64  152 purged to int64     160 CRC32C of bytes 128 to 159
//
// The second part is about compaction; it counts if its number is the slot's.
//
// What a slot says is durable by itself already when the slot is written (data
// below the recovery point is synced, and so on), so a slot need not be synced,
// apart from the intentions, which are: while cutTo or restartAt is set, a
// truncation is under way, and opening the log finishes it.
type logState struct {
	number        uint64
	key           messages.PartitionKey
	logStart      int64
	recoveryPoint int64
	sidePoint     int64 // indexes, epochs and a producer snapshot are durable up to here
	cutTo         int64 // NoOffset = none
	restartAt     int64 // NoOffset = none
	cleanedTo     int64 // compaction has read everything below
	purgedTo      int64 // below it tombstones and markers may be gone
}

const (
	stateFile     = "kagami.state"
	stateSlotStep = 512
	stateSlotSize = 100
	stateCleanPos = 128
	stateSizeMax  = stateCleanPos + 36
	stateMagic    = "KGST"
	stateClean    = "KGCL"
	stateVersion  = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newLogState(key messages.PartitionKey, start int64) logState {
	return logState{
		key: key, logStart: start, recoveryPoint: start, sidePoint: start,
		cutTo: messages.NoOffset, restartAt: messages.NoOffset,
	}
}

func (s logState) encode() []byte {
	be := binary.BigEndian
	b := make([]byte, stateSizeMax)
	copy(b, stateMagic)
	be.PutUint16(b[4:], stateVersion)
	be.PutUint64(b[8:], s.number)
	copy(b[16:], s.key.TopicID[:])
	be.PutUint32(b[32:], uint32(s.key.Partition))
	for i, v := range []int64{s.key.CreatedAt, s.logStart, s.recoveryPoint, s.sidePoint, s.cutTo, s.restartAt, 0} {
		be.PutUint64(b[40+8*i:], uint64(v))
	}
	be.PutUint32(b[96:], crc32.Checksum(b[:96], castagnoli))
	c := b[stateCleanPos:]
	copy(c, stateClean)
	be.PutUint64(c[8:], s.number)
	be.PutUint64(c[16:], uint64(s.cleanedTo))
	be.PutUint64(c[24:], uint64(s.purgedTo))
	be.PutUint32(c[32:], crc32.Checksum(c[:32], castagnoli))
	return b
}

// decodeClean reads the part about compaction, which older files don't have: then
// nothing was ever cleaned.
func (s *logState) decodeClean(b []byte) {
	be := binary.BigEndian
	if len(b) < stateSizeMax {
		return
	}
	c := b[stateCleanPos:]
	if string(c[:4]) == stateClean && be.Uint64(c[8:]) == s.number && crc32.Checksum(c[:32], castagnoli) == be.Uint32(c[32:]) {
		s.cleanedTo, s.purgedTo = int64(be.Uint64(c[16:])), int64(be.Uint64(c[24:]))
	}
}

func decodeSlot(b []byte) (logState, bool) {
	be := binary.BigEndian
	if len(b) < stateSlotSize || string(b[:4]) != stateMagic || be.Uint16(b[4:]) != stateVersion ||
		crc32.Checksum(b[:96], castagnoli) != be.Uint32(b[96:]) {
		return logState{}, false
	}
	i64 := func(i int) int64 { return int64(be.Uint64(b[i:])) }
	s := logState{
		number: be.Uint64(b[8:]), logStart: i64(48), recoveryPoint: i64(56), sidePoint: i64(64),
		cutTo: i64(72), restartAt: i64(80),
	}
	copy(s.key.TopicID[:], b[16:])
	s.key.Partition = int32(be.Uint32(b[32:]))
	s.key.CreatedAt = i64(40)
	s.decodeClean(b)
	return s, true
}

// readState returns the newest valid slot; ok is false if there is none.
func readState(fsys FS, dir string) (s logState, ok bool, err error) {
	b, err := fsys.ReadFile(filepath.Join(dir, stateFile))
	if isNotExist(err) {
		return logState{}, false, nil
	}
	if err != nil {
		return logState{}, false, storageError("read state", dir, err)
	}
	for i := range 2 {
		if len(b) < i*stateSlotStep {
			break
		}
		if t, valid := decodeSlot(b[i*stateSlotStep:]); valid && (!ok || t.number > s.number) {
			s, ok = t, true
		}
	}
	return s, ok, nil
}

// writeState writes the next slot; s.number is the last one used and grows. A
// failed write may have spoilt that slot, never the one before: the same slot is
// written next.
func writeState(fsys FS, dir string, s *logState, sync bool) error {
	s.number++
	name := filepath.Join(dir, stateFile)
	f, err := fsys.OpenFile(name, true)
	if err != nil {
		s.number--
		return storageError("write state", dir, &unwrittenError{err})
	}
	if _, err = f.WriteAt(s.encode(), int64(s.number%2)*stateSlotStep); err != nil {
		s.number--
		return storageError("write state", dir, &unwrittenError{errors.Join(err, f.Close())})
	}
	if sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return storageError("write state", dir, err)
	}
	return nil
}
