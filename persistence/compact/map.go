package compact

import (
	"hash/maphash"
	"math/bits"

	"kagami/messages"
)

// Map holds the last offset of each identity, by a hash of 128 bits: as Kafka's
// SkimpyOffsetMap, it takes two different keys for one with a chance that can be
// forgotten. It grows as needed up to a limit.
type Map struct {
	seeds  [2]maphash.Seed
	slots  []slot
	used   int
	max    int // slots
	newest int64
}

type slot struct {
	hash   [2]uint64
	offset int64 // +1; 0 = free
}

const (
	slotBytes = 24
	slotsMin  = 1024
	// fill is how full the table may get, in eighths.
	fill = 6
)

// NewMap returns an empty map that takes at most about bytesMax of memory, growing
// included, and at least room for some 700 keys.
func NewMap(bytesMax int) *Map {
	return &Map{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		slots: make([]slot, slotsMin), max: max(bytesMax/slotBytes, slotsMin), newest: messages.NoOffset,
	}
}

// Put notes that identity id is at offset, which is above all before. It reports
// false, having changed nothing, if there is no room for another one.
func (m *Map) Put(id []byte, offset int64) bool {
	if m.used >= len(m.slots)/8*fill && !m.grow() {
		if s := m.find(m.hash(id)); s.offset == 0 {
			return false
		}
	}
	h := m.hash(id)
	s := m.find(h)
	if s.offset == 0 {
		m.used++
	}
	s.hash, s.offset = h, offset+1
	return true
}

// Latest is the last offset of an identity; ok is false if it isn't in the map.
func (m *Map) Latest(id []byte) (offset int64, ok bool) {
	s := m.find(m.hash(id))
	return s.offset - 1, s.offset > 0
}

// Len is the number of identities.
func (m *Map) Len() int { return m.used }

// Newest is the last offset that was read into the map, NoOffset at first.
func (m *Map) Newest() int64 { return m.newest }

func (m *Map) hash(id []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(m.seeds[0], id), maphash.Bytes(m.seeds[1], id)}
}

// find is the slot of a hash, or the free one where it belongs.
func (m *Map) find(h [2]uint64) *slot {
	i, _ := bits.Mul64(h[0], uint64(len(m.slots)))
	for {
		if s := &m.slots[i]; s.offset == 0 || s.hash == h {
			return s
		}
		if i++; i == uint64(len(m.slots)) {
			i = 0
		}
	}
}

// grow doubles the table, or less where old and new one wouldn't fit into the limit
// together.
func (m *Map) grow() bool {
	size := min(2*len(m.slots), m.max-len(m.slots))
	if size < len(m.slots)/8*10 {
		return false
	}
	old := m.slots
	m.slots = make([]slot, size)
	for _, s := range old {
		if s.offset > 0 {
			*m.find(s.hash) = s
		}
	}
	return true
}
