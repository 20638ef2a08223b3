package persistence

import (
	"errors"
	"hash/crc32"
	"io"
	"sync"

	"kagami/messages/batch"
)

// scanner walks the batches of one .log file from pos to end.
type scanner struct {
	f    io.ReaderAt
	name string // for errors
	pos  int64
	end  int64

	ahead  int    // bytes to read at once
	buf    []byte // bytes of the file from bufPos on
	bufPos int64
	space  *[scanBufferBytes]byte
	last   int // size of the batch before
}

const (
	scanBufferBytes = 64 << 10
	probeBytes      = 8 << 10 // for look-ups: index entries are about half of it apart
	scanHopBytes    = 4 << 10 // read so much only where batches are larger than the buffer
)

var scanBuffers = sync.Pool{New: func() any { return new([scanBufferBytes]byte) }}

// newScanner walks far; close gives its buffer back.
func newScanner(f io.ReaderAt, name string, pos, end int64) *scanner {
	return &scanner{f: f, name: name, pos: pos, end: end, ahead: scanBufferBytes}
}

// newProbe looks at a few batches only.
func newProbe(f io.ReaderAt, name string, pos, end int64) *scanner {
	return &scanner{f: f, name: name, pos: pos, end: end, ahead: probeBytes}
}

func (s *scanner) close() {
	if s.space != nil {
		scanBuffers.Put(s.space)
		s.space, s.buf = nil, nil
	}
}

func (s *scanner) corrupt(offset int64, reason string) error {
	return &CorruptError{File: s.name, Pos: s.pos, Offset: offset, Reason: reason}
}

// next returns the header of the batch at pos and its position, and moves on
// to the batch behind it. io.EOF at the end; a batch that isn't whole, isn't
// valid, or (with crc) has a wrong checksum is a [CorruptError].
func (s *scanner) next(crc bool) (batch.Header, int64, error) {
	if s.pos >= s.end {
		return batch.Header{}, s.pos, io.EOF
	}
	if s.end-s.pos < batch.HeaderSize {
		return batch.Header{}, s.pos, s.corrupt(-1, "the file ends inside a batch header")
	}
	b, err := s.peek(s.pos, batch.HeaderSize)
	if err != nil {
		return batch.Header{}, s.pos, err
	}
	h, err := batch.ParseHeader(b)
	if err != nil {
		return h, s.pos, s.corrupt(h.BaseOffset, err.Error())
	}
	if s.pos+int64(h.Size()) > s.end {
		return h, s.pos, s.corrupt(h.BaseOffset, "the file ends inside the batch")
	}
	if crc {
		if err := s.checkCRC(h); err != nil {
			return h, s.pos, err
		}
	}
	at := s.pos
	s.pos += int64(h.Size())
	s.last = h.Size()
	return h, at, nil
}

// peek returns n bytes at pos, n at most scanBufferBytes.
func (s *scanner) peek(pos int64, n int) ([]byte, error) {
	if off := pos - s.bufPos; off >= 0 && off+int64(n) <= int64(len(s.buf)) {
		return s.buf[off : off+int64(n)], nil
	}
	if s.space == nil {
		s.space, _ = scanBuffers.Get().(*[scanBufferBytes]byte)
	}
	want := max(s.ahead, n)
	if s.last > want && n < scanHopBytes {
		want = scanHopBytes
	}
	want = int(min(int64(want), s.end-pos))
	s.buf, s.bufPos = s.space[:want], pos
	m, err := s.f.ReadAt(s.buf, pos)
	if m < n {
		s.buf = nil
		if err == nil || errors.Is(err, io.EOF) {
			return nil, s.corrupt(-1, "the file is shorter than it was")
		}
		return nil, storageError("read", s.name, err)
	}
	s.buf = s.buf[:m]
	return s.buf[:n], nil
}

func (s *scanner) checkCRC(h batch.Header) error {
	const skip = 21 // the checksum covers everything from the attributes on
	sum := uint32(0)
	pos, left := s.pos+skip, int64(h.Size()-skip)
	s.last, s.ahead = 0, scanBufferBytes
	for left > 0 {
		n := min(left, scanBufferBytes/2)
		b, err := s.peek(pos, int(n))
		if err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, b)
		pos, left = pos+n, left-n
	}
	if sum != h.CRC {
		return s.corrupt(h.BaseOffset, "CRC mismatch")
	}
	return nil
}

// body reads a whole batch.
func (s *scanner) body(pos int64, size int) ([]byte, error) {
	b := make([]byte, size)
	if _, err := s.f.ReadAt(b, pos); err != nil {
		return nil, storageError("read", s.name, err)
	}
	return b, nil
}

// headerAt reads the header of the batch at pos, without reading ahead.
func headerAt(f io.ReaderAt, name string, pos, end int64) (batch.Header, error) {
	s := newScanner(f, name, pos, end)
	s.ahead = batch.HeaderSize
	defer s.close()
	h, _, err := s.next(false)
	return h, err
}
