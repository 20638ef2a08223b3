package tool

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kagami/messages/batch"
)

// Entry sizes of Kafka's index files, bytes.
const (
	indexEntry     = 8  // relative offset int32 | position int32
	timeIndexEntry = 12 // timestamp int64 | relative offset int32
	txnIndexEntry  = 34 // version int16 | producer id, first, last, last stable offset int64
)

// baseOffset is the offset in the name of a segment's file.
func baseOffset(file string) (int64, error) {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	base, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the name of %s is no offset", file)
	}
	return base, nil
}

// entries reads a file of entries of one size. Kafka preallocates indexes of
// the active segment: entries of zeros at the end are none.
func entries(file string, entrySize int) ([][]byte, int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	var out [][]byte
	for i := 0; i+entrySize <= len(b); i += entrySize {
		out = append(out, b[i:i+entrySize])
	}
	return out, len(b) % entrySize, nil
}

// sanityCheck is the check that Kafka makes at start.
func (t *dumpTool) sanityCheck(file string, rest int, last, base int64) bool {
	if !*t.sanity {
		return false
	}
	if rest != 0 || last < base {
		t.outf("%s failed sanity check.\n", file)
	} else {
		t.outf("%s passed sanity check.\n", file)
	}
	return true
}

func (t *dumpTool) dumpIndex(file string) error {
	base, err := baseOffset(file)
	if err != nil {
		return err
	}
	list, rest, err := entries(file, indexEntry)
	if err != nil {
		return err
	}
	last := base
	for _, e := range list {
		if offset := base + int64(binary.BigEndian.Uint32(e)); offset > last {
			last = offset
		}
	}
	if len(list) == 0 {
		t.outf("%s is empty.\n", file)
		return nil
	}
	if t.sanityCheck(file, rest, last, base) {
		return nil
	}
	for i, e := range list {
		offset, position := base+int64(binary.BigEndian.Uint32(e)), binary.BigEndian.Uint32(e[4:])
		if offset == base && i > 0 {
			return nil // preallocated space
		}
		t.checkIndexed(file, offset, int64(position))
		if !*t.only {
			t.outf("offset: %d position: %d\n", offset, position)
		}
	}
	return nil
}

// checkIndexed complains about an entry that doesn't lead to a batch holding
// its offset.
func (t *dumpTool) checkIndexed(file string, offset, position int64) {
	log := strings.TrimSuffix(file, ".index") + ".log"
	f, err := os.Open(log)
	if err != nil {
		return // no log beside it: nothing to compare with
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, batch.HeaderSize)
	if _, err := f.ReadAt(head, position); err == nil {
		if h, err := batch.ParseHeader(head); err == nil && h.BaseOffset <= offset && h.LastOffset() >= offset {
			return
		}
	}
	t.errf("Index position %d of %s doesn't lead to a batch with offset %d\n", position, filepath.Base(file), offset)
}

func (t *dumpTool) dumpTimeIndex(file string) error {
	base, err := baseOffset(file)
	if err != nil {
		return err
	}
	list, rest, err := entries(file, timeIndexEntry)
	if err != nil {
		return err
	}
	if t.sanityCheck(file, rest, base, base) {
		return nil
	}
	for i, e := range list {
		timestamp, offset := int64(binary.BigEndian.Uint64(e)), base+int64(binary.BigEndian.Uint32(e[8:]))
		if timestamp == 0 && i > 0 {
			return nil
		}
		if !*t.only {
			t.outf("timestamp: %d offset: %d\n", timestamp, offset)
		}
	}
	return nil
}

func (t *dumpTool) dumpTxnIndex(file string) error {
	list, _, err := entries(file, txnIndexEntry)
	if err != nil {
		return err
	}
	for _, e := range list {
		be := binary.BigEndian
		t.outf("version: %d producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n",
			int16(be.Uint16(e)), int64(be.Uint64(e[2:])), int64(be.Uint64(e[10:])), int64(be.Uint64(e[18:])), int64(be.Uint64(e[26:])))
	}
	return nil
}

// dumpProducers prints a producer snapshot:
//
//	version int16 = 1 | crc uint32 | count int32 | entries of 46 bytes
//
// entry: producer id int64 | epoch int16 | last sequence int32 | last offset int64 |
// offset delta int32 | timestamp int64 | coordinator epoch int32 | first offset of
// the open transaction int64
func (t *dumpTool) dumpProducers(file string) error {
	const head, entry = 10, 46
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	be := binary.BigEndian
	if len(b) < head || be.Uint16(b) != 1 || (len(b)-head)%entry != 0 || (len(b)-head)/entry != int(be.Uint32(b[6:])) {
		t.errf("%s is no producer snapshot of version 1\n", file)
		return nil
	}
	if crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)) != be.Uint32(b[2:]) {
		t.errf("CRC of %s doesn't match\n", file)
		return nil
	}
	for e := b[head:]; len(e) > 0; e = e[entry:] {
		open := "OptionalLong.empty"
		if first := int64(be.Uint64(e[38:])); first >= 0 {
			open = fmt.Sprintf("OptionalLong[%d]", first)
		}
		sequence, offset, delta := int32(be.Uint32(e[10:])), int64(be.Uint64(e[14:])), int32(be.Uint32(e[22:]))
		t.outf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
			int64(be.Uint64(e)), int16(be.Uint16(e[8:])), int32(be.Uint32(e[34:])), open, int64(be.Uint64(e[26:])))
		if offset >= 0 { // else it has open transactions or epochs only, no batch
			first := int64(sequence) - int64(delta)
			if first < 0 {
				first += 1 << 31 // sequences wrap around at 2147483647
			}
			t.outf(" firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
				first, sequence, offset, delta, int64(be.Uint64(e[26:])))
		}
		t.outln()
	}
	return nil
}
