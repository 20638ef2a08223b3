package persistence

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// Entry sizes of Kafka's index files:
//
//	.index      relative offset int32 | position int32
//	.timeindex  timestamp int64 | relative offset int32
//	.txnindex   version int16 = 0 | producer id | first offset | last offset | last stable offset, int64 each
//
// An offset index entry is the last offset of a batch and where the batch
// starts. A time index entry says: no batch up to this offset (a batch's last)
// is newer than this time. Both grow strictly.
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
	txnEntrySize    = 34
)

// indexFile is one index of one segment: count entries in the file and, behind
// them, pending ones in memory. Guarded by the log's lock; the slice pending is
// appended to or replaced, never overwritten, so that a view stays valid.
type indexFile struct {
	cf      cachedFile
	entry   int
	count   int64 // entries in the file; -1 = not looked at yet
	pending []byte
}

// indexView is what a reader needs of an index, taken under the log's lock.
type indexView struct {
	cache   *fileCache
	ix      *indexFile
	count   int64
	pending []byte
}

func newIndexFile(dir string, base int64, suffix string, entry int) *indexFile {
	return &indexFile{cf: cachedFile{dir: dir, base: base, suffix: suffix}, entry: entry, count: -1}
}

// stat counts the entries in the file. A missing file has none.
func (ix *indexFile) stat(c *fileCache) error {
	if ix.count >= 0 {
		return nil
	}
	st, err := c.fs.Stat(ix.cf.path())
	switch {
	case isNotExist(err):
		ix.count = 0
	case err != nil:
		return storageError("stat", ix.cf.path(), err)
	default:
		ix.count = st.Size / int64(ix.entry)
	}
	return nil
}

func (ix *indexFile) entries() int64 { return max(ix.count, 0) + int64(len(ix.pending)/ix.entry) }

// writePending moves the pending entries into the file. Only the owner of the
// segment's writing side calls it; set publishes the result under the log's lock.
func (v indexView) writePending() error {
	if len(v.pending) == 0 {
		return nil
	}
	f, err := v.cache.acquire(&v.ix.cf, true)
	if err != nil {
		return storageError("open", v.ix.cf.path(), &unwrittenError{err})
	}
	_, err = f.WriteAt(v.pending, v.count*int64(v.ix.entry))
	v.cache.release(&v.ix.cf, true)
	if err != nil {
		return storageError("write", v.ix.cf.path(), &unwrittenError{err})
	}
	return nil
}

func (v indexView) n() int64 { return v.count + int64(len(v.pending)/v.ix.entry) }

// read returns entries [from, to), which must exist.
func (v indexView) read(from, to int64) ([]byte, error) {
	size := int64(v.ix.entry)
	if from >= v.count {
		return v.pending[(from-v.count)*size : (to-v.count)*size], nil
	}
	b := make([]byte, (to-from)*size)
	inFile := min(to, v.count)
	f, err := v.cache.acquire(&v.ix.cf, false)
	if err != nil {
		return nil, storageError("open", v.ix.cf.path(), err)
	}
	_, err = f.ReadAt(b[:(inFile-from)*size], from*size)
	v.cache.release(&v.ix.cf, false)
	if err != nil {
		return nil, storageError("read", v.ix.cf.path(), err)
	}
	if to > inFile {
		copy(b[(inFile-from)*size:], v.pending[:(to-inFile)*size])
	}
	return b, nil
}

// indexBlock is how many entries are read at once when a search has come close.
const indexBlock = 512

// search finds the number of leading entries for which less holds, as sort.Search.
func (v indexView) search(less func(entry []byte) bool) (int64, error) {
	size := v.ix.entry
	lo, hi := int64(0), v.n()
	if k := v.count; k < hi && len(v.pending) > 0 {
		if less(v.pending[:size]) {
			lo = k
		} else {
			hi = k
		}
	}
	for hi-lo > indexBlock && lo < v.count {
		mid := (lo + hi) / 2
		b, err := v.read(mid, mid+1)
		if err != nil {
			return 0, err
		}
		if less(b) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == hi {
		return lo, nil
	}
	b, err := v.read(lo, hi)
	if err != nil {
		return 0, err
	}
	n := sort.Search(int(hi-lo), func(i int) bool { return !less(b[i*size : (i+1)*size]) })
	return lo + int64(n), nil
}

type offsetEntry struct {
	offset int64 // absolute
	pos    int64
}

func decodeOffsetEntry(base int64, b []byte) offsetEntry {
	return offsetEntry{base + int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))}
}

func appendOffsetEntry(b []byte, base int64, e offsetEntry) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(e.offset-base))
	return binary.BigEndian.AppendUint32(b, uint32(e.pos))
}

type timeEntry struct {
	ts     int64
	offset int64 // absolute
}

func decodeTimeEntry(base int64, b []byte) timeEntry {
	return timeEntry{int64(binary.BigEndian.Uint64(b)), base + int64(binary.BigEndian.Uint32(b[8:]))}
}

func appendTimeEntry(b []byte, base int64, e timeEntry) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.ts))
	return binary.BigEndian.AppendUint32(b, uint32(e.offset-base))
}

func appendTxnEntry(b []byte, t AbortedTxn) []byte {
	b = binary.BigEndian.AppendUint16(b, 0)
	for _, v := range []int64{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStableOffset} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func decodeTxnEntry(b []byte) (AbortedTxn, error) {
	if v := binary.BigEndian.Uint16(b); v != 0 {
		return AbortedTxn{}, fmt.Errorf("%w: transaction index version %d", ErrCorrupt, v)
	}
	i := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	t := AbortedTxn{ProducerID: i(2), FirstOffset: i(10), LastOffset: i(18), LastStableOffset: i(26)}
	if t.FirstOffset < 0 || t.LastOffset < t.FirstOffset {
		return t, fmt.Errorf("%w: transaction index entry from %d to %d", ErrCorrupt, t.FirstOffset, t.LastOffset)
	}
	return t, nil
}
