package cluster

import "encoding/binary"

// What the placement of leaders has to know of a node's journal and replicas.

// openedSize is that of an offset behind the replicas in a beat's extension, which are
// longer: programs that don't know it pass it by.
const openedSize = 8

// AppendOpened adds to a beat's extension how far this node's replicas follow the
// metadata (Replicas.Opened, read before [Journal.Behind]): of replicas that it got
// later the beat says nothing.
func AppendOpened(extension []byte, offset int64) []byte {
	return binary.BigEndian.AppendUint64(extension, uint64(offset))
}

// OpenedOf is what AppendOpened added; ok is false for a beat of an older program.
func OpenedOf(extension []byte) (offset int64, ok bool) {
	if len(extension)%behindKeySize != openedSize {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(extension[len(extension)-openedSize:])), true
}

// Opened is the metadata offset of the last image whose replicas on this node are open
// and, as far as they lack something, told of by [Journal.Behind].
func (rs *Replicas) Opened() int64 {
	rs.work.Lock()
	defer rs.work.Unlock()
	return rs.opened
}

// Alone is the metadata offset below which a cluster of one wrote before it grew; 0 if
// this was one of several from the start. The metadata log has to be followed.
func (j *Journal) Alone() int64 {
	j.mu.Lock()
	meta := j.meta
	j.mu.Unlock()
	if meta == nil {
		return 0
	}
	return meta.order.State().ModeOffset
}
