package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
)

// The checkpoint file is a header and records of one size, big-endian:
//
//	header   0 "KAGAMICP"   8 version uint32   12 zero uint32
//	record   0 crc32c uint32 of what follows
//	         4 kind int8 (1 put, 2 delete)   5 mode int8   6 pending op int8
//	         7 journal int8 (0 direct, 1 stream, 3 stream and behind it)
//	         8 topic id   24 created at int64   32 partition int32
//	        36 epoch int32   40 node int32   44 zero uint32
//	        48 sequence   56 generation   64 log start   72 log end
//	        80 mode offset   88 pending offset   (int64 each)
//	        96 cut: records   104 bytes   112 from   120 to   (int64 each)
//	       128 cut: hash of the mirror's name uint64
//	       136 sequence of the last cut int64
//
// Version 1 ends at 96, version 2 at 136; their files are read, and rewritten when
// they are opened.
// One size means that a damaged record hides no other one.
const (
	checkpointMagic       = "KAGAMICP"
	checkpointVersion     = 3
	checkpointHeaderSize  = 16
	checkpointRecordSize  = 144
	checkpointRecordSize1 = 96  // version 1
	checkpointRecordSize2 = 136 // version 2

	checkpointPut    = 1
	checkpointDelete = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checkpoint is what is durable of a partition's journal state.
type Checkpoint struct {
	Key   messages.PartitionKey
	State journal.State
	// Pending is OpTruncate or OpRestartAt when that cut was decided (State is the
	// state after it) but perhaps not carried out: opening the replica repeats it.
	// 0 = none.
	Pending       journal.OpKind
	PendingOffset int64
	// Cuts are all cuts so far, a pending one included.
	Cuts CutCount
	// Replicated: State counts by a stream's sequence, not by this node's own.
	Replicated bool
	// Behind: the log lacks operations up to Sequence or beyond and has to be copied.
	Behind bool
}

func checkpointHeader() []byte {
	b := make([]byte, checkpointHeaderSize)
	copy(b, checkpointMagic)
	binary.BigEndian.PutUint32(b[8:], checkpointVersion)
	return b
}

// checkCheckpointHeader returns the size of the records that follow.
func checkCheckpointHeader(b []byte) (recordSize int, err error) {
	if len(b) < checkpointHeaderSize || string(b[:8]) != checkpointMagic {
		return 0, fmt.Errorf("%w: it does not start with %s", ErrDamaged, checkpointMagic)
	}
	switch v := binary.BigEndian.Uint32(b[8:]); v {
	case checkpointVersion:
		return checkpointRecordSize, nil
	case 1:
		return checkpointRecordSize1, nil
	case 2:
		return checkpointRecordSize2, nil
	default:
		return 0, fmt.Errorf("%w: version %d, this program knows up to %d", ErrDamaged, v, checkpointVersion)
	}
}

func appendCheckpointRecord(dst []byte, kind byte, c Checkpoint) []byte {
	n := len(dst)
	dst = append(dst, make([]byte, checkpointRecordSize)...)
	b := dst[n:]
	be := binary.BigEndian
	b[4], b[5], b[6] = kind, byte(c.State.Mode), byte(c.Pending)
	if c.Replicated {
		b[7] = 1
	}
	if c.Behind {
		b[7] |= 2
	}
	copy(b[8:], c.Key.TopicID[:])
	be.PutUint64(b[24:], uint64(c.Key.CreatedAt))
	be.PutUint32(b[32:], uint32(c.Key.Partition))
	be.PutUint32(b[36:], uint32(c.State.Epoch))
	be.PutUint32(b[40:], uint32(c.State.Node))
	be.PutUint64(b[48:], uint64(c.State.Sequence))
	be.PutUint64(b[56:], uint64(c.State.Generation))
	be.PutUint64(b[64:], uint64(c.State.LogStart))
	be.PutUint64(b[72:], uint64(c.State.LogEnd))
	be.PutUint64(b[80:], uint64(c.State.ModeOffset))
	be.PutUint64(b[88:], uint64(c.PendingOffset))
	be.PutUint64(b[96:], uint64(c.Cuts.Records))
	be.PutUint64(b[104:], uint64(c.Cuts.Bytes))
	be.PutUint64(b[112:], uint64(c.Cuts.From))
	be.PutUint64(b[120:], uint64(c.Cuts.To))
	be.PutUint64(b[128:], c.Cuts.Mirror)
	be.PutUint64(b[136:], uint64(c.State.CutAt))
	be.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return dst
}

// parseCheckpointRecord reads one record, which is all of b; ok is false if it is
// damaged.
func parseCheckpointRecord(b []byte) (kind byte, c Checkpoint, ok bool) {
	be := binary.BigEndian
	if crc32.Checksum(b[4:], castagnoli) != be.Uint32(b) {
		return 0, c, false
	}
	copy(c.Key.TopicID[:], b[8:24])
	c.Key.CreatedAt = int64(be.Uint64(b[24:]))
	c.Key.Partition = int32(be.Uint32(b[32:]))
	c.State = journal.State{
		Mode:       messages.Mode(b[5]),
		Epoch:      int32(be.Uint32(b[36:])),
		Node:       messages.NodeID(be.Uint32(b[40:])),
		Sequence:   int64(be.Uint64(b[48:])),
		Generation: int64(be.Uint64(b[56:])),
		LogStart:   int64(be.Uint64(b[64:])),
		LogEnd:     int64(be.Uint64(b[72:])),
		ModeOffset: int64(be.Uint64(b[80:])),
	}
	c.Pending = journal.OpKind(b[6])
	c.PendingOffset = int64(be.Uint64(b[88:]))
	if len(b) >= checkpointRecordSize {
		c.Replicated, c.Behind = b[7]&1 != 0, b[7]&2 != 0
		c.State.CutAt = int64(be.Uint64(b[136:]))
	}
	if len(b) >= checkpointRecordSize2 {
		c.Cuts = CutCount{Mirror: be.Uint64(b[128:]), Cut: persistence.Cut{
			Records: int64(be.Uint64(b[96:])), Bytes: int64(be.Uint64(b[104:])),
			From: int64(be.Uint64(b[112:])), To: int64(be.Uint64(b[120:])),
		}}
	}
	return b[4], c, b[4] == checkpointPut || b[4] == checkpointDelete
}

// replayCheckpoints reads the file's content. damaged counts records that fail
// their CRC, a cut-off last one included. A damaged record may have been the
// end of a cut that an older record announces; repeating that cut could remove
// newer data, so everything pending before the damage is dropped.
func replayCheckpoints(b []byte) (live map[messages.PartitionKey]Checkpoint, records, damaged int, err error) {
	live = make(map[messages.PartitionKey]Checkpoint)
	size, err := checkCheckpointHeader(b)
	if err != nil {
		return nil, 0, 0, err
	}
	b = b[checkpointHeaderSize:]
	tail := 0 // damaged records with none intact behind them: an append that didn't finish
	for ; len(b) >= size; b = b[size:] {
		records++
		kind, c, ok := parseCheckpointRecord(b[:size])
		if !ok {
			damaged++
			tail++
			continue
		}
		if tail > 0 {
			tail = 0
			dropPending(live)
		}
		if kind == checkpointDelete {
			delete(live, c.Key)
		} else {
			live[c.Key] = c
		}
	}
	if len(b) > 0 {
		damaged++
	}
	return live, records, damaged, nil
}

func dropPending(live map[messages.PartitionKey]Checkpoint) {
	for k, c := range live {
		if c.Pending != 0 {
			c.Pending, c.PendingOffset = 0, 0
			live[k] = c
		}
	}
}
