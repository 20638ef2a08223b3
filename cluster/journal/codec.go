package journal

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"unicode/utf8"

	"kagami/messages"
)

// A message as it lies in the stream, big endian:
//
//	 0  1  version
//	 1  1  zero
//	 2  2  number of entries
//	 4  4  CRC-32C of everything behind it
//	 8  4  author's node
//	12 16  author's incarnation
//	28  8  author's number
//	36     entries
//
// and an entry, all of whose fields are always there:
//
//	 0 16  topic id
//	16  8  metadata offset of the topic's creation
//	24  4  partition
//	28  1  kind
//	29  1  class
//	30  1  mode
//	31  1  zero
//	32  8  generation
//	40  8  base
//	48  8  end
//	56  8  offset
//	64  4  epoch
//	68  4  node
//	72  2  bytes of the reason
//	74  2  zero
//	76  4  bytes of the batches
//	80     reason, batches
//
// The checksum is over the batches too: a batch's own one leaves out its base
// offset and its epoch, which the journal gave it.
const (
	messageVersion    = 1
	messageHeaderSize = 36
	entryHeaderSize   = 80
)

// Limits of a message.
const (
	// MessageEntriesMax is what the index in a position has room for.
	MessageEntriesMax = 1 << positionIndexBits
	// ReasonBytesMax is where a longer reason of a cut is cut off.
	ReasonBytesMax = 1024
)

// positionIndexBits are the low bits of a position.
const positionIndexBits = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// At is the position of an operation: the sequence of its message in the stream, and
// its index in the message. Positions of one stream are ordered like its
// operations.
func At(sequence uint64, index int) int64 {
	return int64(sequence<<positionIndexBits | uint64(index))
}

// SequenceOf is the sequence of the message that the operation at position came in.
func SequenceOf(position int64) uint64 { return uint64(position) >> positionIndexBits }

// Author is one process of one node. Its incarnation is random, so that nothing an
// earlier process of the node sent is ever taken for this one's.
type Author struct {
	Node        messages.NodeID
	Incarnation [16]byte
}

// MessageID names an author's message for the stream, which drops a repeat of it
// inside its duplicate window.
func (a Author) MessageID(number uint64) string {
	return hex.EncodeToString(a.Incarnation[:]) + "-" + strconv.FormatUint(number, 10)
}

// Entry is one proposed change of one partition.
type Entry struct {
	Key messages.PartitionKey
	Op  Operation
}

// size is what the entry takes in a message.
func (e *Entry) size() int {
	return entryHeaderSize + min(len(e.Op.Reason), ReasonBytesMax) + len(e.Op.Batches)
}

// Message is what one publish carries. Without entries it is a beat: it changes
// nothing and shows its author, when it comes back, that the way through the
// stream is open. (Beats have numbers of their own.)
type Message struct {
	Author  Author
	Number  uint64 // 1, 2, 3, .. of the author in this shard
	Entries []Entry
}

// AppendTo appends the message's bytes to b. Batches are carried unchanged; more than
// MessageEntriesMax entries don't fit.
func (m *Message) AppendTo(b []byte) []byte {
	begin := len(b)
	be := binary.BigEndian
	b = append(b, messageVersion, 0)
	b = be.AppendUint16(b, uint16(len(m.Entries)))
	b = append(b, 0, 0, 0, 0)
	b = be.AppendUint32(b, uint32(m.Author.Node))
	b = append(b, m.Author.Incarnation[:]...)
	b = be.AppendUint64(b, m.Number)
	for i := range m.Entries {
		b = m.Entries[i].appendTo(b)
	}
	setChecksum(b[begin:])
	return b
}

func setChecksum(b []byte) {
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
}

func (e *Entry) appendTo(b []byte) []byte {
	be := binary.BigEndian
	op := &e.Op
	reason := op.Reason
	if len(reason) > ReasonBytesMax {
		cut := ReasonBytesMax
		for cut > 0 && !utf8.RuneStart(reason[cut]) {
			cut--
		}
		reason = reason[:cut]
	}
	b = append(b, e.Key.TopicID[:]...)
	b = be.AppendUint64(b, uint64(e.Key.CreatedAt))
	b = be.AppendUint32(b, uint32(e.Key.Partition))
	b = append(b, byte(op.Kind), byte(op.Class), byte(op.Mode), 0)
	b = be.AppendUint64(b, uint64(op.Generation))
	b = be.AppendUint64(b, uint64(op.Base))
	b = be.AppendUint64(b, uint64(op.End))
	b = be.AppendUint64(b, uint64(op.Offset))
	b = be.AppendUint32(b, uint32(op.Epoch))
	b = be.AppendUint32(b, uint32(op.Node))
	b = be.AppendUint16(b, uint16(len(reason)))
	b = append(b, 0, 0)
	b = be.AppendUint32(b, uint32(len(op.Batches)))
	b = append(b, reason...)
	return append(b, op.Batches...)
}

// Parse reads a message; the batches of its entries are parts of b. Bytes that are no
// message wrap ErrDamagedMessage, those of a newer program ErrNewerMessage. What the
// operations say is not looked at: Decide does that, on every replica alike.
func Parse(b []byte) (Message, error) {
	be := binary.BigEndian
	if len(b) > 0 && b[0] > messageVersion {
		return Message{}, fmt.Errorf("%w: version %d, this program knows up to %d: update this node", ErrNewerMessage, b[0], messageVersion)
	}
	if len(b) < messageHeaderSize || b[0] == 0 {
		return Message{}, fmt.Errorf("%w: %d bytes that don't begin like one", ErrDamagedMessage, len(b))
	}
	if sum, want := crc32.Checksum(b[8:], castagnoli), be.Uint32(b[4:]); sum != want {
		return Message{}, fmt.Errorf("%w: checksum is %08x, its bytes give %08x", ErrDamagedMessage, want, sum)
	}
	count := int(be.Uint16(b[2:]))
	if count > MessageEntriesMax || count*entryHeaderSize > len(b)-messageHeaderSize {
		return Message{}, fmt.Errorf("%w: %d entries in %d bytes", ErrDamagedMessage, count, len(b))
	}
	m := Message{Author: Author{Node: messages.NodeID(be.Uint32(b[8:]))}, Number: be.Uint64(b[28:])}
	copy(m.Author.Incarnation[:], b[12:28])
	rest := b[messageHeaderSize:]
	if count > 0 {
		m.Entries = make([]Entry, count)
	}
	for i := range m.Entries {
		var ok bool
		if rest, ok = m.Entries[i].parse(rest); !ok {
			return Message{}, fmt.Errorf("%w: entry %d of %d", ErrDamagedMessage, i, count)
		}
	}
	if len(rest) > 0 || b[1] != 0 {
		return Message{}, fmt.Errorf("%w: %d bytes behind the last entry", ErrDamagedMessage, len(rest))
	}
	return m, nil
}

// parse reads one entry from the front of b.
func (e *Entry) parse(b []byte) (rest []byte, ok bool) {
	be := binary.BigEndian
	if len(b) < entryHeaderSize || b[31]|b[74]|b[75] != 0 {
		return nil, false
	}
	reason, batches := int(be.Uint16(b[72:])), int64(be.Uint32(b[76:]))
	if reason > ReasonBytesMax || int64(len(b)-entryHeaderSize) < int64(reason)+batches {
		return nil, false
	}
	copy(e.Key.TopicID[:], b)
	e.Key.CreatedAt = int64(be.Uint64(b[16:]))
	e.Key.Partition = int32(be.Uint32(b[24:]))
	e.Op = Operation{
		Kind:       OpKind(b[28]),
		Class:      messages.Class(b[29]),
		Mode:       messages.Mode(b[30]),
		Generation: int64(be.Uint64(b[32:])),
		Base:       int64(be.Uint64(b[40:])),
		End:        int64(be.Uint64(b[48:])),
		Offset:     int64(be.Uint64(b[56:])),
		Epoch:      int32(be.Uint32(b[64:])),
		Node:       messages.NodeID(be.Uint32(b[68:])),
	}
	b = b[entryHeaderSize:]
	e.Op.Reason = string(b[:reason])
	if end := reason + int(batches); batches > 0 {
		e.Op.Batches = b[reason:end:end]
	}
	return b[reason+int(batches):], true
}
