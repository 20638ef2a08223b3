package persistence

import (
	"errors"
	"io"

	"kagami/messages/batch"
)

const (
	noTimestamp = -1

	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	cutSuffix      = ".cut" // a .log being rewritten by a truncation
)

// segment is one .log file with its indexes. Its fields are guarded by the
// log's lock, but for synced.
type segment struct {
	base int64
	log  *cachedFile
	size int64
	next int64 // offset after the last batch; base while empty

	tsKnown     bool  // the next two are known
	maxTS       int64 // largest batch timestamp, noTimestamp if none
	maxTSOffset int64 // last offset of the first batch that has it
	firstTS     int64 // largest timestamp of the first batch

	off, time, txn *indexFile
	sinceIndex     int   // bytes since the last offset index entry
	lastTimeTS     int64 // of the last time index entry

	synced bool // log and indexes are on disk; for segments behind the active one; guarded by fmu
}

func newSegment(dir string, base int64) *segment {
	return &segment{
		base: base, next: base, log: &cachedFile{dir: dir, base: base, suffix: logSuffix},
		maxTS: noTimestamp, maxTSOffset: base, firstTS: noTimestamp, lastTimeTS: noTimestamp,
		off:  newIndexFile(dir, base, indexSuffix, offsetEntrySize),
		time: newIndexFile(dir, base, timeSuffix, timeEntrySize),
		txn:  newIndexFile(dir, base, txnSuffix, txnEntrySize),
	}
}

// newEmptySegment is a segment whose files don't exist yet.
func newEmptySegment(dir string, base int64) *segment {
	s := newSegment(dir, base)
	s.tsKnown = true
	s.off.count, s.time.count, s.txn.count = 0, 0, 0
	return s
}

func (s *segment) files() [4]*cachedFile {
	return [4]*cachedFile{s.log, &s.off.cf, &s.time.cf, &s.txn.cf}
}

func (s *segment) indexes() [3]*indexFile { return [3]*indexFile{s.off, s.time, s.txn} }

// add takes the batch with header h, which stands at the segment's end, into
// account: size, timestamps and index entries, as Kafka's LogSegment.append.
func (s *segment) add(h batch.Header, interval int) {
	if s.size == 0 {
		s.firstTS = h.MaxTimestamp
	}
	if h.MaxTimestamp > s.maxTS {
		s.maxTS, s.maxTSOffset = h.MaxTimestamp, h.LastOffset()
	}
	if s.sinceIndex > interval {
		s.off.pending = appendOffsetEntry(s.off.pending, s.base, offsetEntry{h.LastOffset(), s.size})
		s.addTime()
		s.sinceIndex = 0
	}
	s.size += int64(h.Size())
	s.sinceIndex += h.Size()
	s.next = h.LastOffset() + 1
}

// addTime appends a time index entry if there is news.
func (s *segment) addTime() {
	if s.maxTS > s.lastTimeTS {
		s.time.pending = appendTimeEntry(s.time.pending, s.base, timeEntry{s.maxTS, s.maxTSOffset})
		s.lastTimeTS = s.maxTS
	}
}

// segView is what a reader needs of a segment, taken under the log's lock.
type segView struct {
	seg              *segment
	base, size, next int64
	log              *cachedFile
	maxTS, maxTSOff  int64
	cuts             uint64 // of the log when the view was taken
	off, time, txn   indexView
}

func (s *segment) view(c *fileCache) segView {
	return segView{
		seg: s, base: s.base, size: s.size, next: s.next, log: s.log, maxTS: s.maxTS, maxTSOff: s.maxTSOffset,
		off:  indexView{c, s.off, s.off.count, s.off.pending},
		time: indexView{c, s.time, s.time.count, s.time.pending},
		txn:  indexView{c, s.txn, s.txn.count, s.txn.pending},
	}
}

// known reports whether a view can be taken: index sizes and times are there.
func (s *segment) known() bool {
	return s.tsKnown && s.off.count >= 0 && s.time.count >= 0 && s.txn.count >= 0
}

// learn finds out what view needs. The caller holds the log's lock.
func (s *segment) learn(c *fileCache) error {
	for _, ix := range s.indexes() {
		if err := ix.stat(c); err != nil {
			return err
		}
	}
	if s.tsKnown {
		return nil
	}
	f, err := c.acquire(s.log, false)
	if err != nil {
		return storageError("open", s.log.path(), err)
	}
	defer c.release(s.log, false)
	v := s.view(c)
	from := int64(0)
	// the last time index entry covers everything before its batch
	if n := v.time.n(); n > 0 {
		if e, pos, ok := v.timeEntryAt(f, n-1); ok {
			s.maxTS, s.maxTSOffset, from = e.ts, e.offset, pos
		}
	}
	sc := newScanner(f, s.log.path(), from, s.size)
	defer sc.close()
	for {
		h, _, err := sc.next(false)
		if _, damaged := asCorrupt(err); damaged || errors.Is(err, io.EOF) {
			break // a read of the damaged batch says so; others go on
		}
		if err != nil {
			return err
		}
		if h.MaxTimestamp > s.maxTS {
			s.maxTS, s.maxTSOffset = h.MaxTimestamp, h.LastOffset()
		}
	}
	s.tsKnown = true
	return nil
}

var errBadIndex = errors.New("index doesn't fit its segment")

// timeEntryAt reads time index entry i and finds its batch; ok is false if the
// two don't fit together.
func (v segView) timeEntryAt(f File, i int64) (e timeEntry, pos int64, ok bool) {
	b, err := v.time.read(i, i+1)
	if err != nil {
		return e, 0, false
	}
	e = decodeTimeEntry(v.base, b)
	h, pos, err := v.locate(f, e.offset)
	if err != nil || h.LastOffset() != e.offset || h.MaxTimestamp != e.ts {
		return e, 0, false
	}
	return e, pos, true
}

// floor is the position of a batch that starts at or below offset: the largest
// offset index entry, checked against the batch it points to; 0 without one.
func (v segView) floor(f File, offset int64) (int64, error) {
	i, err := v.off.search(func(b []byte) bool { return decodeOffsetEntry(v.base, b).offset <= offset })
	if err != nil {
		return 0, err
	}
	if i == 0 {
		return 0, nil
	}
	e, err := v.entryPos(f, i-1)
	if err == nil && e.offset > offset {
		err = errBadIndex
	}
	return e.pos, err
}

// entryPos reads offset index entry i and checks it against its batch.
func (v segView) entryPos(f File, i int64) (offsetEntry, error) {
	b, err := v.off.read(i, i+1)
	if err != nil {
		return offsetEntry{}, err
	}
	e := decodeOffsetEntry(v.base, b)
	h, err := headerAt(f, v.log.path(), e.pos, v.size)
	if err != nil || h.LastOffset() != e.offset {
		return e, errBadIndex
	}
	return e, nil
}

// locate finds the first batch whose last offset is at or above offset; io.EOF
// if the segment has none.
func (v segView) locate(f File, offset int64) (batch.Header, int64, error) {
	pos, err := v.floor(f, offset)
	if err != nil {
		return batch.Header{}, 0, err
	}
	sc := newProbe(f, v.log.path(), pos, v.size)
	defer sc.close()
	for {
		h, at, err := sc.next(false)
		if err != nil || h.LastOffset() >= offset {
			return h, at, err
		}
	}
}
