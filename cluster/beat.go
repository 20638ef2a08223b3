package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kagami/messages"
)

// Beat is what a node tells the others every quarter of a second.
type Beat struct {
	Node        messages.NodeID
	Incarnation messages.TopicID // of the process; random
	Number      uint64           // 1, 2, 3 and so on of the incarnation
	Leads       int              // partitions that the node leads
	Shards      []ShardProgress
	Extension   []byte // of the owner; at most 64 KiB
	Leaving     bool   // the node is about to end: it shall lead nothing
	Starting    bool   // the node doesn't serve clients yet: it shall get nothing to lead
	bye         bool   // the last one: the node leaves
}

// ShardProgress is how far a node is in a journal.
type ShardProgress struct {
	Shard        int32
	Applied      uint64 // sequence of the last message applied
	Checkpointed uint64 // sequence that all replicas of the shard have synced
}

// A beat as bytes; numbers are varints, those marked s are signed:
//
//	version 1 | flags (1 bye, 2 leaving, 4 starting) | node s | incarnation 16 | number | leads |
//	shards | per shard: shard s, applied, checkpointed | length | extension
//
// What is added later goes into the extension; a change of anything else is a
// new version, which older nodes refuse.
const (
	beatVersion      = 1
	beatFlagBye      = 1
	beatFlagLeaving  = 2
	beatFlagStarting = 4
	beatShardsMax    = 1 << 12
	beatExtensionMax = 64 << 10
)

var errBeat = errors.New("bytes are no heartbeat")

func (b *Beat) encode() []byte {
	out := make([]byte, 0, 64+8*len(b.Shards)+len(b.Extension))
	var flags byte
	if b.bye {
		flags |= beatFlagBye
	}
	if b.Leaving {
		flags |= beatFlagLeaving
	}
	if b.Starting {
		flags |= beatFlagStarting
	}
	out = append(out, beatVersion, flags)
	out = binary.AppendVarint(out, int64(b.Node))
	out = append(out, b.Incarnation[:]...)
	out = binary.AppendUvarint(out, b.Number)
	out = binary.AppendUvarint(out, uint64(max(0, b.Leads)))
	out = binary.AppendUvarint(out, uint64(len(b.Shards)))
	for _, s := range b.Shards {
		out = binary.AppendVarint(out, int64(s.Shard))
		out = binary.AppendUvarint(out, s.Applied)
		out = binary.AppendUvarint(out, s.Checkpointed)
	}
	out = binary.AppendUvarint(out, uint64(len(b.Extension)))
	return append(out, b.Extension...)
}

func decodeBeat(in []byte) (*Beat, error) {
	if len(in) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", errBeat, len(in))
	}
	if in[0] != beatVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d: update this node", errBeat, in[0], beatVersion)
	}
	r := beatReader{rest: in[2:]}
	b := &Beat{bye: in[1]&beatFlagBye != 0, Leaving: in[1]&beatFlagLeaving != 0, Starting: in[1]&beatFlagStarting != 0}
	b.Node = messages.NodeID(r.signed())
	copy(b.Incarnation[:], r.bytes(uint64(len(b.Incarnation))))
	b.Number, b.Leads = r.unsigned(), int(int32(r.unsigned()))
	n := r.unsigned()
	if n > beatShardsMax {
		return nil, fmt.Errorf("%w: %d shards", errBeat, n)
	}
	for range n {
		s := ShardProgress{Shard: int32(r.signed()), Applied: r.unsigned(), Checkpointed: r.unsigned()}
		if r.short {
			break
		}
		b.Shards = append(b.Shards, s)
	}
	if n = r.unsigned(); n > beatExtensionMax {
		return nil, fmt.Errorf("%w: extension of %d bytes", errBeat, n)
	}
	if n > 0 {
		b.Extension = r.bytes(n)
	}
	if r.short || len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes end elsewhere", errBeat, len(in))
	}
	return b, nil
}

// beatReader reads from the front and remembers when there was too little.
type beatReader struct {
	rest  []byte
	short bool
}

func (r *beatReader) skip(n int) {
	if n <= 0 {
		r.short, r.rest = true, nil
		return
	}
	r.rest = r.rest[n:]
}

func (r *beatReader) signed() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *beatReader) unsigned() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *beatReader) bytes(n uint64) []byte {
	if uint64(len(r.rest)) < n {
		r.short, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
