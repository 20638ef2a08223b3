package journal

import "kagami/messages"

// Mark is what a node says in a shard's stream before it trims it: of topics that were
// created at metadata offset Below or above, no operation is at Sequence or before.
//
// It is for nodes that find a hole there: a replica of a younger topic has missed
// nothing. What a node can find out by itself, behind the hole, is later: topics may
// have been created between the trim and its start, and of one that nobody has a
// replica of by then all would wait for each other.
type Mark struct {
	Sequence uint64
	Below    int64
}

// markKey is no partition's.
var markKey = messages.PartitionKey{TopicID: messages.TopicID{15: 4}}

// Message is the mark as a message of an author. It has no number: who sent it waits
// for nothing but the stream's answer, and it stays true however often it lands.
func (m Mark) Message(author Author) Message {
	return Message{Author: author, Entries: []Entry{{Key: markKey, Op: Operation{Kind: opMark, Base: int64(m.Sequence), Offset: m.Below}}}}
}

// MarkOf is the mark that a message is, if it is one.
func MarkOf(m Message) (mark Mark, ok bool) {
	if len(m.Entries) != 1 || m.Entries[0].Key != markKey || m.Entries[0].Op.Kind != opMark {
		return Mark{}, false
	}
	op := m.Entries[0].Op
	return Mark{Sequence: uint64(op.Base), Below: op.Offset}, true
}

// Cover is what is covered (see Newborn) of a shard that this node follows from behind
// sequence on, after a mark: what it was before, or what the mark says.
func (m Mark) Cover(covered int64, sequence uint64) int64 {
	if m.Sequence < sequence {
		return covered // it says nothing of the end of the hole
	}
	return min(covered, m.Below)
}
