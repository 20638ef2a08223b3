package simjournal

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// batch is one append: id is whose.
type batch struct {
	base, end int64
	id        uint64
}

// modelLog is a log on a disk, or the one that the truth has.
type modelLog struct {
	start, end int64
	batches    []batch // those above start; never written to in place
	sum        uint64  // of batches
	synced     int64   // what a power cut leaves
}

func mix(b batch) uint64 {
	h := b.id*0x9e3779b97f4a7c15 ^ uint64(b.base)*0xff51afd7ed558ccd ^ uint64(b.end)<<32
	h ^= h >> 29
	return h * 0xc4ceb9fe1a85ec53
}

func (l *modelLog) append(b batch) error {
	if b.base != l.end || b.end <= b.base {
		return fmt.Errorf("append of %d to %d to a log that ends at %d", b.base, b.end, l.end)
	}
	l.batches = append(l.batches, b)
	l.end = b.end
	l.sum += mix(b)
	return nil
}

// truncate cuts whole batches.
func (l *modelLog) truncate(offset int64) {
	if offset >= l.end {
		return
	}
	n := len(l.batches)
	for n > 0 && l.batches[n-1].end > offset {
		n--
		l.sum -= mix(l.batches[n])
	}
	l.batches = slices.Clip(l.batches[:n]) // snapshots share the array
	l.end = offset
	l.start, l.synced = min(l.start, offset), min(l.synced, offset)
}

func (l *modelLog) restartAt(offset int64) {
	*l = modelLog{start: offset, end: offset, synced: offset}
}

func (l *modelLog) raise(offset int64) {
	offset = min(offset, l.end)
	if offset <= l.start {
		return
	}
	l.start = offset
	for len(l.batches) > 0 && l.batches[0].end <= offset {
		l.sum -= mix(l.batches[0])
		l.batches = l.batches[1:]
	}
}

func (l *modelLog) last() uint64 {
	if len(l.batches) == 0 {
		return 0
	}
	return l.batches[len(l.batches)-1].id
}

// from are at most n batches from offset on.
func (l *modelLog) from(offset int64, n int) []batch {
	i, _ := slices.BinarySearchFunc(l.batches, offset, func(b batch, at int64) int { return int(b.base - at) })
	return l.batches[i:min(len(l.batches), i+n)]
}

func (l *modelLog) clone() *modelLog {
	c := *l
	c.batches = slices.Clip(c.batches)
	return &c
}

// boundary is where a batch begins, or the end: what a truncation may name.
func (l *modelLog) boundary(i int) int64 {
	if i >= len(l.batches) {
		return l.end
	}
	return max(l.batches[i].base, l.start)
}

// bytesOf is what an append carries.
func bytesOf(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func idOf(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
