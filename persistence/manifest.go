package persistence

import (
	"encoding/binary"
	"hash/crc32"
	"path/filepath"

	"kagami/messages"
)

// The manifest is the mark of a clean shutdown and lets a folder with very many
// logs open without looking into them: the file kagami.manifest holds one line
// per log, with all that its side files would say. It is removed before the
// first log is opened; after a crash there is none, or none for that log, and
// logs are recovered one by one. A line counts only if the active segment's
// file has the size that it names.
//
//	magic "KGMF" | version uint16 (1) | count uint32 | (length uvarint | line)* | CRC32C of all before
//
// A line is varints, see manifestLog.encode.
const (
	manifestFile    = "kagami.manifest"
	manifestMagic   = "KGMF"
	manifestVersion = 1
	manifestHeader  = 10
)

// manifestLog is one line of the manifest.
type manifestLog struct {
	topic        string
	partition    int32
	folder       string // empty = topic-partition
	topicID      messages.TopicID
	createdAt    int64
	number       uint64 // of the state slot
	start, end   int64
	hasProducers bool
	epochs       []EpochEntry
	segs         []manifestSegment
	firstTS      int64 // of the active segment
	lastTimeTS   int64 // of the active segment
	cleanedTo    int64 // see logState
	purgedTo     int64
}

type manifestSegment struct {
	base, size, next, maxTS, maxTSOffset int64
	txns                                 int64 // entries of the transaction index
}

func (e *manifestLog) encode() []byte {
	var b []byte
	str := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	num := func(vs ...int64) {
		for _, v := range vs {
			b = binary.AppendVarint(b, v)
		}
	}
	str(e.topic)
	str(e.folder)
	b = append(b, e.topicID[:]...)
	has := int64(0)
	if e.hasProducers {
		has = 1
	}
	num(int64(e.partition), e.createdAt, int64(e.number), e.start, e.end, has, e.firstTS, e.lastTimeTS)
	num(int64(len(e.epochs)))
	for _, x := range e.epochs {
		num(int64(x.Epoch), x.StartOffset)
	}
	num(int64(len(e.segs)))
	for _, s := range e.segs {
		num(s.base, s.size, s.next-s.base, s.maxTS, s.maxTSOffset-s.base, s.txns)
	}
	if e.cleanedTo != 0 || e.purgedTo != 0 {
		num(e.cleanedTo, e.purgedTo)
	}
	return b
}

type lineReader struct {
	b   []byte
	bad bool
}

func (r *lineReader) num() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *lineReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *lineReader) str() string {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return ""
	}
	r.b = r.b[n:]
	return string(r.bytes(v))
}

func decodeManifestLog(line []byte) (*manifestLog, error) {
	r := lineReader{b: line}
	e := &manifestLog{topic: r.str(), folder: r.str()}
	copy(e.topicID[:], r.bytes(uint64(len(e.topicID))))
	e.partition, e.createdAt, e.number = int32(r.num()), r.num(), uint64(r.num())
	e.start, e.end, e.hasProducers = r.num(), r.num(), r.num() == 1
	e.firstTS, e.lastTimeTS = r.num(), r.num()
	for n := r.num(); n > 0 && !r.bad; n-- {
		e.epochs = append(e.epochs, EpochEntry{int32(r.num()), r.num()})
	}
	for n := r.num(); n > 0 && !r.bad; n-- {
		s := manifestSegment{base: r.num(), size: r.num(), next: r.num(), maxTS: r.num(), maxTSOffset: r.num(), txns: r.num()}
		s.next += s.base
		s.maxTSOffset += s.base
		e.segs = append(e.segs, s)
	}
	if len(r.b) > 0 {
		e.cleanedTo, e.purgedTo = r.num(), r.num()
	}
	if r.bad || len(e.segs) == 0 {
		return nil, &CorruptError{File: manifestFile, Pos: -1, Offset: -1, Reason: "malformed line"}
	}
	return e, nil
}

func (e *manifestLog) latestEpoch() int32 { return (&epochCache{entries: e.epochs}).latest() }

func (e *manifestLog) size() int64 {
	n := int64(0)
	for _, s := range e.segs {
		n += s.size
	}
	return n
}

func (e *manifestLog) segments(dir string) []*segment {
	segs := make([]*segment, len(e.segs))
	for i, m := range e.segs {
		s := newSegment(dir, m.base)
		s.size, s.next, s.maxTS, s.maxTSOffset = m.size, m.next, m.maxTS, m.maxTSOffset
		s.tsKnown, s.synced = true, true
		s.txn.count = m.txns
		segs[i] = s
	}
	a := segs[len(segs)-1]
	a.firstTS, a.lastTimeTS, a.synced = e.firstTS, e.lastTimeTS, false
	return segs
}

func (e *manifestLog) state(key messages.PartitionKey) logState {
	st := newLogState(key, e.start)
	st.number, st.recoveryPoint, st.sidePoint = e.number, e.end, e.end
	st.cleanedTo, st.purgedTo = e.cleanedTo, e.purgedTo
	return st
}

// manifestLine describes a loaded log whose side files are all on disk. The
// caller holds wmu and fmu.
func (l *segLog) manifestLine() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := manifestLog{
		topic: l.info.TopicPartition.Topic, partition: l.info.TopicPartition.Partition,
		topicID: l.info.Key.TopicID, createdAt: l.info.Key.CreatedAt, number: l.st.number,
		start: l.start.Load(), end: l.end.Load(), hasProducers: len(l.prod.entries) > 0, epochs: l.epochs.entries,
		cleanedTo: l.st.cleanedTo, purgedTo: l.st.purgedTo,
	}
	if f := filepath.Base(l.dir); f != l.info.TopicPartition.String() {
		e.folder = f
	}
	for _, s := range l.segs {
		if err := s.learn(l.m.cache); err != nil {
			return nil, err
		}
		e.segs = append(e.segs, manifestSegment{s.base, s.size, s.next, s.maxTS, s.maxTSOffset, s.txn.count})
	}
	a := l.active()
	e.firstTS, e.lastTimeTS = a.firstTS, a.lastTimeTS
	return e.encode(), nil
}

func encodeManifest(lines [][]byte) []byte {
	b := append([]byte(manifestMagic), 0, manifestVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(lines)))
	for _, l := range lines {
		b = append(binary.AppendUvarint(b, uint64(len(l))), l...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeManifest returns the lines, which share b's memory; none if b isn't a
// whole manifest of this version.
func decodeManifest(b []byte) [][]byte {
	be := binary.BigEndian
	n := len(b) - 4
	if n < manifestHeader || string(b[:4]) != manifestMagic || be.Uint16(b[4:]) != manifestVersion ||
		crc32.Checksum(b[:n], castagnoli) != be.Uint32(b[n:]) {
		return nil
	}
	count := int(be.Uint32(b[6:]))
	lines := make([][]byte, 0, count)
	for b = b[manifestHeader:n]; len(b) > 0; {
		size, k := binary.Uvarint(b)
		if k <= 0 || size > uint64(len(b)-k) {
			return nil
		}
		lines = append(lines, b[k:k+int(size):k+int(size)])
		b = b[k+int(size):]
	}
	if len(lines) != count {
		return nil
	}
	return lines
}
