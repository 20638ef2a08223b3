package broker

import (
	"github.com/twmb/franz-go/pkg/kbin"

	"kagami/messages"
	"kagami/persistence"
)

// fetchReply is a Fetch answer whose records are still in their logs. kmsg
// can't leave them there, hence an encoder of our own; a test compares it with
// kmsg's for every version.
type fetchReply struct {
	version   int16
	sessionID int32
	throttle  int32          // ms
	targets   []*fetchTarget // in the answer
	nodes     []hintNode
	all       []*fetchTarget // all that were read, for release
}

// hintNode is the address of a node that an answer hints at.
type hintNode struct {
	id   messages.NodeID
	host string
	port int32
	rack *string
}

// cut is a place in an encoded answer where a chunk belongs.
type cut struct {
	at    int
	chunk *persistence.Chunk
}

// release lets go of all segment files. It may be called twice.
func (f *fetchReply) release() {
	for _, t := range f.all {
		t.chunk.Release()
	}
}

// bytes is how much it carries of logs.
func (f *fetchReply) bytes() (n int) {
	for _, t := range f.targets {
		n += t.chunk.Len
	}
	return n
}

// empty leaves the records out.
func (f *fetchReply) empty() {
	for _, t := range f.all {
		t.chunk.Release()
		t.chunk = persistence.Chunk{}
	}
}

// encode appends the body of the answer to dst, without the records, and says
// where they belong.
func (f *fetchReply) encode(dst []byte) ([]byte, []cut) {
	v, flex := f.version, f.version >= fetchFlexible
	dst = kbin.AppendInt32(dst, f.throttle)
	if v >= fetchSessions {
		dst = kbin.AppendInt16(dst, 0)
		dst = kbin.AppendInt32(dst, f.sessionID)
	}
	groups := groupByTopic(f.targets)
	dst = appendArrayLen(dst, len(groups), flex)
	cuts := make([]cut, 0, len(f.targets))
	for _, g := range groups {
		if v >= fetchTopicIDs {
			dst = kbin.AppendUuid(dst, g[0].key.id)
		} else {
			dst = appendString(dst, g[0].key.topic, flex)
		}
		dst = appendArrayLen(dst, len(g), flex)
		for _, t := range g {
			dst, cuts = f.encodeTarget(dst, cuts, t, flex)
		}
		if flex {
			dst = append(dst, 0)
		}
	}
	if !flex {
		return dst, cuts
	}
	if len(f.nodes) == 0 {
		return append(dst, 0), cuts
	}
	dst = kbin.AppendUvarint(dst, 1)
	return appendTag(dst, 0, f.encodeNodes()), cuts
}

func (f *fetchReply) encodeTarget(dst []byte, cuts []cut, t *fetchTarget, flex bool) ([]byte, []cut) {
	v := f.version
	dst = kbin.AppendInt32(dst, t.key.partition)
	dst = kbin.AppendInt16(dst, t.code)
	dst = kbin.AppendInt64(dst, t.hw)
	dst = kbin.AppendInt64(dst, t.lso)
	if v >= 5 {
		dst = kbin.AppendInt64(dst, t.logStart)
	}
	if t.committed && t.code == 0 {
		dst = appendArrayLen(dst, len(t.aborted), flex)
		for _, a := range t.aborted {
			dst = kbin.AppendInt64(dst, a.ProducerID)
			dst = kbin.AppendInt64(dst, a.FirstOffset)
			if flex {
				dst = append(dst, 0)
			}
		}
	} else {
		dst = appendArrayLen(dst, -1, flex)
	}
	if v >= 11 {
		dst = kbin.AppendInt32(dst, int32(messages.NoNode)) // preferred read replica
	}
	// Empty, not null: librdkafka takes a length of -1 for a broken message set.
	dst = appendArrayLen(dst, t.chunk.Len, flex)
	if t.chunk.Len > 0 {
		cuts = append(cuts, cut{at: len(dst), chunk: &t.chunk})
	}
	if flex {
		dst = appendTargetTags(dst, t)
	}
	return dst, cuts
}

func appendTargetTags(dst []byte, t *fetchTarget) []byte {
	n := uint32(0)
	if t.diverging != nil {
		n++
	}
	if t.leader != nil {
		n++
	}
	dst = kbin.AppendUvarint(dst, n)
	if t.diverging != nil {
		body := kbin.AppendInt64(kbin.AppendInt32(nil, t.diverging.Epoch), t.diverging.StartOffset)
		dst = appendTag(dst, 0, append(body, 0))
	}
	if t.leader != nil {
		body := kbin.AppendInt32(kbin.AppendInt32(nil, int32(t.leader.Leader)), t.leader.LeaderEpoch)
		dst = appendTag(dst, 1, append(body, 0))
	}
	return dst
}

func (f *fetchReply) encodeNodes() []byte {
	b := kbin.AppendCompactArrayLen(nil, len(f.nodes))
	for _, n := range f.nodes {
		b = kbin.AppendInt32(b, int32(n.id))
		b = kbin.AppendCompactString(b, n.host)
		b = kbin.AppendInt32(b, n.port)
		b = kbin.AppendCompactNullableString(b, n.rack)
		b = append(b, 0)
	}
	return b
}

// groupByTopic splits targets into runs of one topic; a topic may have several.
func groupByTopic(targets []*fetchTarget) [][]*fetchTarget {
	var out [][]*fetchTarget
	for i, t := range targets {
		if i > 0 && t.key.topic == targets[i-1].key.topic && t.key.id == targets[i-1].key.id {
			out[len(out)-1] = append(out[len(out)-1], t)
		} else {
			out = append(out, []*fetchTarget{t})
		}
	}
	return out
}

func appendTag(dst []byte, tag uint32, body []byte) []byte {
	dst = kbin.AppendUvarint(dst, tag)
	dst = kbin.AppendUvarint(dst, uint32(len(body)))
	return append(dst, body...)
}

// appendArrayLen also is the length of bytes; -1 is null.
func appendArrayLen(dst []byte, n int, flex bool) []byte {
	if flex {
		return kbin.AppendUvarint(dst, uint32(n+1))
	}
	return kbin.AppendInt32(dst, int32(n))
}

func appendString(dst []byte, s string, flex bool) []byte {
	if flex {
		return kbin.AppendCompactString(dst, s)
	}
	return kbin.AppendString(dst, s)
}
