package persistence

import (
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"

	"kagami/messages/batch"
)

// readAttempts bounds how often a read that met a concurrent truncation or a
// bad index starts again.
const readAttempts = 16

// Read returns whole batches from the one that contains offset on; see [Log].
func (l *segLog) Read(offset int64, maxBytes int, upTo int64, minOne bool) (Chunk, error) {
	if err := l.ensure(); err != nil {
		return Chunk{}, err
	}
	for range readAttempts {
		c, cuts, seg, err := l.readOnce(offset, maxBytes, upTo, minOne)
		l.mu.RLock()
		moved := l.cuts != cuts
		l.mu.RUnlock()
		switch {
		case moved:
			c.Release()
		case errors.Is(err, errBadIndex):
			if err := l.rebuildIndexes(seg); err != nil {
				return Chunk{}, err
			}
		default:
			return c, err
		}
	}
	return Chunk{}, storageError("read", l.dir, errBadIndex)
}

func (l *segLog) readOnce(offset int64, maxBytes int, upTo int64, minOne bool) (Chunk, uint64, *segment, error) {
	empty := Chunk{FirstOffset: offset, NextOffset: offset}
	l.mu.RLock()
	closed, cuts, segs := l.closed, l.cuts, l.segs
	start, end := l.start.Load(), l.end.Load()
	l.mu.RUnlock()
	switch {
	case closed:
		return Chunk{}, cuts, nil, fmt.Errorf("%s: %w", l.info.TopicPartition, ErrClosed)
	case offset < start || offset > end:
		return Chunk{}, cuts, nil, fmt.Errorf("read %s at %d: %w [%d, %d]", l.info.TopicPartition, offset, ErrOffsetOutOfRange, start, end)
	case offset == end || offset >= upTo:
		return empty, cuts, nil, nil
	}
	for _, s := range segs[segAt(segs, offset):] {
		v, err := l.view(s)
		if err != nil {
			return Chunk{}, cuts, s, err
		}
		if v.size == 0 || v.next <= offset {
			continue
		}
		c, err := l.readSegment(v, offset, maxBytes, upTo, minOne)
		if errors.Is(err, io.EOF) {
			continue // the rest of the segment was compacted away
		}
		return c, cuts, s, err
	}
	return empty, cuts, nil, nil
}

// readSegment finds the range to return within one segment.
func (l *segLog) readSegment(v segView, offset int64, maxBytes int, upTo int64, minOne bool) (Chunk, error) {
	f, err := l.m.cache.acquire(v.log, false)
	if err != nil {
		return Chunk{}, storageError("open", v.log.path(), err)
	}
	defer l.m.cache.release(v.log, false)
	var first batch.Header
	pos, hit := l.hint(v, offset)
	if hit {
		first, err = headerAt(f, v.log.path(), pos, v.size)
		hit = err == nil && first.BaseOffset >= offset
	}
	if !hit {
		if first, pos, err = v.locate(f, offset); err != nil {
			return Chunk{}, err
		}
	}
	empty := Chunk{FirstOffset: offset, NextOffset: offset}
	if first.LastOffset() >= upTo || (first.Size() > maxBytes && !minOne) {
		return empty, nil
	}
	endPos, next := pos+int64(first.Size()), first.LastOffset()+1
	if limit := min(pos+int64(maxBytes), v.size); limit > endPos {
		if endPos, next, err = v.rangeEnd(f, endPos, next, limit, upTo); err != nil {
			return Chunk{}, err
		}
	}
	l.setHint(v, next, endPos)
	c := Chunk{Pos: pos, Len: int(endPos - pos), FirstOffset: first.BaseOffset, NextOffset: next}
	return l.finishChunk(v, c)
}

// rangeEnd goes on from the boundary pos, before which the last offset is
// next-1, to the last boundary at or below limit with all offsets below upTo.
func (v segView) rangeEnd(f File, pos, next, limit, upTo int64) (int64, int64, error) {
	if limit == v.size && upTo >= v.next {
		return v.size, v.next, nil
	}
	n, err := v.off.search(func(b []byte) bool {
		e := decodeOffsetEntry(v.base, b)
		return e.pos <= limit && e.offset < upTo
	})
	if err != nil {
		return 0, 0, err
	}
	from := pos
	if n >= 2 { // not the last one: its batch may not fit, and then next is unknown
		e, err := v.entryPos(f, n-2)
		if err != nil {
			return 0, 0, err
		}
		if e.pos > limit || e.offset >= upTo {
			return 0, 0, errBadIndex
		}
		from = max(from, e.pos)
	}
	sc := newProbe(f, v.log.path(), from, v.size)
	defer sc.close()
	for {
		h, _, err := sc.next(false)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		if err != nil || sc.pos > limit || h.LastOffset() >= upTo {
			return pos, next, nil
		}
		pos, next = sc.pos, h.LastOffset()+1
	}
}

// finishChunk gives the chunk its file or its bytes.
func (l *segLog) finishChunk(v segView, c Chunk) (Chunk, error) {
	f, err := l.m.cache.acquireChunk(v.log, c.Pos+int64(c.Len))
	if err != nil {
		return Chunk{}, storageError("open", v.log.path(), err)
	}
	release := func() { l.m.cache.releaseChunk(v.log) }
	if of := f.OS(); of != nil && !l.m.opts.VerifyReads {
		c.File = of
		return NewChunk(c, release), nil
	}
	defer release()
	c.Bytes = make([]byte, c.Len)
	if _, err := f.ReadAt(c.Bytes, c.Pos); err != nil {
		return Chunk{}, storageError("read", v.log.path(), err)
	}
	c.Pos = 0
	if l.m.opts.VerifyReads {
		for rest := c.Bytes; len(rest) > 0; {
			h, b, tail, err := batch.Next(rest)
			if err == nil {
				err = batch.CheckCRC(b)
			}
			if err != nil {
				return Chunk{}, &CorruptError{File: v.log.path(), Pos: int64(c.Len - len(rest)), Offset: h.BaseOffset, Reason: err.Error()}
			}
			rest = tail
		}
	}
	return c, nil
}

// hint remembers where the last reads ended, which is where the next ones
// begin: consumers read on.
type hint struct {
	seg    *segment
	cuts   uint64
	offset int64
	pos    int64
}

const hintSlots = 4

func (l *segLog) hint(v segView, offset int64) (int64, bool) {
	h := l.hints[offset%hintSlots].Load()
	if h == nil || h.seg != v.seg || h.cuts != v.cuts || h.offset != offset {
		return 0, false
	}
	return h.pos, true
}

func (l *segLog) setHint(v segView, offset, pos int64) {
	l.hints[offset%hintSlots].Store(&hint{v.seg, v.cuts, offset, pos})
}

// rebuildIndexes makes offset and time index of a segment anew by walking its
// headers: they were missing or didn't fit.
func (l *segLog) rebuildIndexes(s *segment) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if !l.has(s) {
		return nil // it was cut away or replaced meanwhile: what has its name now is another one
	}
	l.log().Warn("index is rebuilt", zap.String("file", s.log.path()))
	l.mu.RLock()
	interval, size := l.cfg.IndexIntervalBytes, s.size
	l.mu.RUnlock()
	fresh := newEmptySegment(l.dir, s.base)
	f, err := l.m.cache.acquire(s.log, false)
	if err != nil {
		return storageError("open", s.log.path(), err)
	}
	defer l.m.cache.release(s.log, false)
	sc := newScanner(f, s.log.path(), 0, size)
	defer sc.close()
	for {
		h, _, err := sc.next(false)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		fresh.add(h, interval)
	}
	if s != l.active() {
		fresh.addTime()
	}
	if err := l.replaceIndexes(s, fresh); err != nil {
		return l.failUnless(err)
	}
	return nil
}

// replaceIndexes writes the indexes of fresh over those of s.
func (l *segLog) replaceIndexes(s, fresh *segment) error {
	for _, ix := range []*indexFile{fresh.off, fresh.time} {
		if err := writeFileAtomic(l.m.fs, ix.cf.path(), ix.pending, true); err != nil {
			return storageError("write", ix.cf.path(), err)
		}
		ix.count, ix.pending = ix.entries(), nil
	}
	l.mu.Lock()
	old := [2]*indexFile{s.off, s.time}
	s.off, s.time, s.sinceIndex, s.lastTimeTS = fresh.off, fresh.time, fresh.sinceIndex, fresh.lastTimeTS
	s.maxTS, s.maxTSOffset, s.firstTS, s.tsKnown = fresh.maxTS, fresh.maxTSOffset, fresh.firstTS, true
	l.mu.Unlock()
	for _, ix := range old {
		l.m.cache.drop(&ix.cf)
	}
	return nil
}
