package persistence

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"kagami/messages"
	"kagami/messages/batch"
)

// Memory is the memory twin of [Manager]: logs with the same contract that
// live as long as the value, for tests and the simulation. Opening it again
// after Close finds the logs as they were; Crash loses what wasn't flushed.
type Memory struct {
	mu     sync.Mutex
	logs   map[messages.TopicPartition]*memLog
	closed bool
}

// Faults are errors that a memory log's calls return instead of working. They
// stay until changed.
type Faults struct {
	Append, Read, Flush, Truncate, Raise error
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{logs: make(map[messages.TopicPartition]*memLog)}
}

// NewMemoryLog is one log of a store of its own, open and empty.
func NewMemoryLog(info Info, cfg Config) Log {
	l := newMemLog(info)
	l.open(cfg)
	return l
}

func newMemLog(info Info) *memLog {
	info.Key.Partition = info.TopicPartition.Partition
	return &memLog{info: info, segBases: []int64{0}}
}

// Reopen makes a closed store usable again.
func (m *Memory) Reopen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = false
}

// Crash closes all logs without a flush: each goes back to its recovery point.
func (m *Memory) Crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.logs {
		l.crash()
	}
}

// SetFaults sets the faults of a log.
func (m *Memory) SetFaults(tp messages.TopicPartition, f Faults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.logs[tp]; l != nil {
		l.mu.Lock()
		l.faults = f
		l.mu.Unlock()
	}
}

// Infos lists the logs.
func (m *Memory) Infos() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Info
	for _, l := range m.logs {
		out = append(out, l.info)
	}
	return out
}

// Create is [Manager.Create].
func (m *Memory) Create(ctx context.Context, info Info, cfg Config) (Log, error) {
	tp := info.TopicPartition
	m.mu.Lock()
	defer m.mu.Unlock()
	err := errors.Join(context.Cause(ctx), messages.CheckTopicName(tp.Topic))
	switch {
	case m.closed:
		err = ErrClosed
	case err == nil && m.logs[tp] != nil:
		err = ErrExists
	}
	if err != nil {
		return nil, fmt.Errorf("create log %s: %w", tp, err)
	}
	l := newMemLog(info)
	l.open(cfg)
	m.logs[tp] = l
	return l, nil
}

// Open is [Manager.Open].
func (m *Memory) Open(ctx context.Context, tp messages.TopicPartition, cfg Config) (Log, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[tp]
	err := context.Cause(ctx)
	switch {
	case m.closed:
		err = ErrClosed
	case l == nil:
		err = ErrNotFound
	case err == nil && !l.open(cfg):
		err = ErrExists
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", tp, err)
	}
	return l, nil
}

// Delete is [Manager.Delete].
func (m *Memory) Delete(ctx context.Context, tp messages.TopicPartition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[tp]
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("delete log %s: %w", tp, ErrNotFound)
	}
	delete(m.logs, tp)
	return l.Close()
}

// Close closes all logs. It may be called twice.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var errs []error
	for _, l := range m.logs {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

type memBatch struct {
	h    batch.Header
	body []byte
}

// memLog is a [Log] in memory.
type memLog struct {
	mu       sync.RWMutex
	info     Info
	cfg      Config
	isOpen   bool
	faults   Faults
	start    int64
	end      int64
	rp       int64
	batches  []memBatch
	segBases []int64 // where segments would start, for retention
	epochs   epochCache
	prod     producerState
	aborted  []AbortedTxn

	cleanedTo, purgedTo int64
}

func (l *memLog) open(cfg Config) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOpen {
		return false
	}
	l.isOpen, l.cfg = true, cfg.withDefaults()
	return true
}

func (l *memLog) crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOpen = false
	if l.rp < l.end {
		l.cutLocked(l.rp)
	}
}

func (l *memLog) check(fault error) error {
	if !l.isOpen {
		return fmt.Errorf("%s: %w", l.info.TopicPartition, ErrClosed)
	}
	return fault
}

// Append is [Log.Append].
func (l *memLog) Append(b []byte, opts AppendOptions) (AppendInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(l.faults.Append); err != nil {
		return AppendInfo{}, err
	}
	hs, info, err := parseBatches(nil, b, l.end, opts)
	if err != nil {
		return AppendInfo{}, fmt.Errorf("append to %s: %w", l.info.TopicPartition, err)
	}
	if len(hs) == 0 {
		return emptyAppend(l.end), nil
	}
	pos := 0
	for i, h := range hs {
		l.roll(h, len(b), i == 0)
		l.take(memBatch{h, append([]byte(nil), b[pos:pos+h.Size()]...)})
		pos += h.Size()
	}
	if l.cfg.FlushAlways {
		l.rp = l.end
	}
	return info, nil
}

func (l *memLog) take(b memBatch) {
	l.batches = append(l.batches, b)
	l.epochs.assign(b.h.LeaderEpoch, b.h.BaseOffset)
	l.aborted = append(l.aborted, l.prod.apply(b.h, b.body)...)
	l.end = b.h.LastOffset() + 1
}

// roll starts a new segment where the real log would, by size and time.
func (l *memLog) roll(h batch.Header, total int, first bool) {
	segs := l.summaries()
	s := segs[len(segs)-1]
	if s.size == 0 {
		return
	}
	full := s.size+int64(h.Size()) > int64(l.cfg.SegmentBytes)
	full = full || (first && total <= l.cfg.SegmentBytes && s.size+int64(total) > int64(l.cfg.SegmentBytes))
	if full || (s.firstTS >= 0 && h.MaxTimestamp-s.firstTS > l.cfg.SegmentMillis) {
		l.segBases = append(l.segBases, l.end)
	}
}

// summaries describes the segments that the real log would have.
func (l *memLog) summaries() []segmentSummary {
	out := make([]segmentSummary, len(l.segBases))
	for i, base := range l.segBases {
		out[i] = segmentSummary{base: base, next: l.end, maxTS: noTimestamp, firstTS: noTimestamp}
		if i > 0 {
			out[i-1].next = base
		}
	}
	i := 0
	for _, b := range l.batches {
		if b.h.BaseOffset < out[0].base {
			continue // in a segment that is gone
		}
		for i+1 < len(out) && b.h.BaseOffset >= out[i+1].base {
			i++
		}
		if out[i].size == 0 {
			out[i].firstTS = b.h.MaxTimestamp
		}
		out[i].size += int64(b.h.Size())
		out[i].maxTS = max(out[i].maxTS, b.h.MaxTimestamp)
	}
	return out
}

// Read is [Log.Read].
func (l *memLog) Read(offset int64, maxBytes int, upTo int64, minOne bool) (Chunk, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.check(l.faults.Read); err != nil {
		return Chunk{}, err
	}
	if offset < l.start || offset > l.end {
		return Chunk{}, fmt.Errorf("read %s at %d: %w [%d, %d]", l.info.TopicPartition, offset, ErrOffsetOutOfRange, l.start, l.end)
	}
	c := Chunk{FirstOffset: offset, NextOffset: offset}
	for _, b := range l.batches {
		if b.h.LastOffset() < offset {
			continue
		}
		if b.h.LastOffset() >= upTo || (c.Len+b.h.Size() > maxBytes && (c.Len > 0 || !minOne)) {
			break
		}
		if c.Len == 0 {
			c.FirstOffset = b.h.BaseOffset
		}
		c.Bytes = append(c.Bytes, b.body...)
		c.Len += b.h.Size()
		c.NextOffset = b.h.LastOffset() + 1
	}
	return c, nil
}

// Truncate is [Log.Truncate].
func (l *memLog) Truncate(offset int64) (Cut, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(l.faults.Truncate); err != nil {
		return Cut{}, err
	}
	switch {
	case offset >= l.end:
		return Cut{From: l.end, To: l.end}, nil
	case offset < l.start:
		return l.restart(offset)
	}
	return l.cutLocked(offset), nil
}

func (l *memLog) cutLocked(offset int64) Cut {
	cut := Cut{To: l.end}
	old := l.batches
	epochs := l.epochs // compaction may have left nothing of some
	l.batches, l.end, l.prod, l.aborted = nil, l.segBases[0], producerState{}, nil
	for _, b := range old {
		if b.h.LastOffset() >= offset {
			cut.Records += int64(b.h.Records)
			cut.Bytes += int64(b.h.Size())
			continue
		}
		l.take(b)
	}
	l.end = max(l.end, l.start)
	l.epochs = epochs
	l.epochs.truncateEnd(l.end)
	l.cleanedTo, l.purgedTo = min(l.cleanedTo, l.end), min(l.purgedTo, l.end)
	for n := len(l.segBases); n > 1 && l.segBases[n-1] > l.end; n-- {
		l.segBases = l.segBases[:n-1]
	}
	l.rp = min(l.rp, l.end)
	cut.From = l.end
	return cut
}

// RestartAt is [Log.RestartAt].
func (l *memLog) RestartAt(offset int64) (Cut, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(l.faults.Truncate); err != nil {
		return Cut{}, err
	}
	return l.restart(offset)
}

func (l *memLog) restart(offset int64) (Cut, error) {
	if offset < 0 {
		return Cut{}, fmt.Errorf("restart %s at %d: %w", l.info.TopicPartition, offset, ErrOffsetOutOfRange)
	}
	cut := Cut{From: offset, To: l.end}
	for _, b := range l.batches {
		if b.h.LastOffset() >= l.start {
			cut.Records += int64(b.h.Records)
			cut.Bytes += int64(b.h.Size())
		}
	}
	l.batches, l.prod, l.aborted, l.epochs = nil, producerState{}, nil, epochCache{}
	l.segBases = []int64{offset}
	l.start, l.end, l.rp = offset, offset, offset
	l.cleanedTo, l.purgedTo = 0, 0
	return cut, nil
}

// Roll is [Log.Roll].
func (l *memLog) Roll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(nil); err != nil {
		return err
	}
	if segs := l.summaries(); segs[len(segs)-1].size > 0 {
		l.segBases = append(l.segBases, l.end)
	}
	return nil
}

// RaiseLogStart is [Log.RaiseLogStart]. Batches below stay in memory, unread:
// they hold what is known of producers.
func (l *memLog) RaiseLogStart(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(l.faults.Raise); err != nil {
		return err
	}
	if offset > l.end {
		return fmt.Errorf("raise log start of %s to %d: %w: log end is %d", l.info.TopicPartition, offset, ErrOffsetOutOfRange, l.end)
	}
	l.raise(offset)
	return nil
}

func (l *memLog) raise(offset int64) int {
	if offset <= l.start {
		return 0
	}
	l.start = offset
	l.epochs.truncateStart(offset)
	n := 0
	for n < len(l.segBases)-1 && l.segBases[n+1] <= offset {
		n++
	}
	l.segBases = l.segBases[n:]
	return n
}

// ExpireProducers is [Log.ExpireProducers].
func (l *memLog) ExpireProducers(nowMillis int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prod.expire(nowMillis - l.cfg.ProducerExpiryMs)
}

// ApplyRetention is [Log.ApplyRetention].
func (l *memLog) ApplyRetention(ctx context.Context, p RetentionPolicy) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.check(nil), context.Cause(ctx)); err != nil {
		return 0, err
	}
	l.prod.expire(p.NowMillis - l.cfg.ProducerExpiryMs)
	segs := l.summaries()
	start := expiredStart(segs, l.start, l.end, p)
	if start > segs[len(segs)-1].base && start == l.end {
		l.segBases = append(l.segBases, l.end)
	}
	return l.raise(start), nil
}

// Flush is [Log.Flush].
func (l *memLog) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(l.faults.Flush); err != nil {
		return err
	}
	l.rp = l.end
	return nil
}

// Sync is [Log.Sync].
func (l *memLog) Sync() error { return l.Flush() }

// Renew does nothing: the faults of a memory log end by themselves.
func (l *memLog) Renew() error { return nil }

// SetConfig is [Log.SetConfig].
func (l *memLog) SetConfig(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = c.withDefaults()
}

// Close is [Log.Close].
func (l *memLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOpen && l.faults.Flush == nil {
		l.rp = l.end
	}
	l.isOpen = false
	return nil
}

func emptyAppend(end int64) AppendInfo {
	return AppendInfo{FirstOffset: end, LastOffset: end - 1, End: end, MaxTimestamp: noTimestamp, MaxEpoch: messages.NoEpoch}
}
