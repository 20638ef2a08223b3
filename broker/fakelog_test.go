package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// fakeLog is a persistence.Log for tests: whole batches in memory and, with a
// file, the same bytes on disk, which Read then hands out as ranges. It has
// transactions, epochs and duplicates; what the broker doesn't call panics.
type fakeLog struct {
	persistence.Log
	mu      sync.Mutex
	data    []byte
	file    *os.File
	index   []fakeEntry
	start   int64
	end     int64
	epochs  []persistence.EpochEntry
	open    map[int64]int64 // producer id -> first offset
	aborted []persistence.AbortedTxn
	last    map[int64]batch.Header // last batch of each producer
	readErr error
}

type fakeEntry struct {
	h        batch.Header
	pos, len int
}

func newFakeLog(tb testing.TB, onDisk bool) *fakeLog {
	tb.Helper()
	l := &fakeLog{open: map[int64]int64{}, last: map[int64]batch.Header{}}
	if onDisk {
		f, err := os.Create(tb.TempDir() + "/00000000000000000000.log")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = f.Close() })
		l.file = f
	}
	return l
}

func (l *fakeLog) Append(b []byte, _ persistence.AppendOptions) (persistence.AppendInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info := persistence.AppendInfo{FirstOffset: -1}
	for len(b) > 0 {
		h, whole, rest, err := batch.Next(b)
		if err != nil {
			return info, err
		}
		if h.BaseOffset < l.end {
			return info, fmt.Errorf("append at %d below %d", h.BaseOffset, l.end)
		}
		l.index = append(l.index, fakeEntry{h, len(l.data), len(whole)})
		l.data = append(l.data, whole...)
		if l.file != nil {
			if _, err := l.file.Write(whole); err != nil {
				return info, err
			}
		}
		l.track(h, whole)
		if info.FirstOffset < 0 {
			info.FirstOffset = h.BaseOffset
		}
		l.end = h.LastOffset() + 1
		info.LastOffset, info.End = h.LastOffset(), l.end
		b = rest
	}
	return info, nil
}

func (l *fakeLog) track(h batch.Header, b []byte) {
	if n := len(l.epochs); n == 0 || l.epochs[n-1].Epoch < h.LeaderEpoch {
		l.epochs = append(l.epochs, persistence.EpochEntry{Epoch: h.LeaderEpoch, StartOffset: h.BaseOffset})
	}
	if h.ProducerID >= 0 && !h.IsControl() {
		l.last[h.ProducerID] = h
	}
	switch {
	case h.IsControl():
		c, err := batch.ParseControl(b)
		if err != nil {
			return
		}
		if first, ok := l.open[h.ProducerID]; ok && c.Type == batch.ControlAbort {
			l.aborted = append(l.aborted, persistence.AbortedTxn{ProducerID: h.ProducerID, FirstOffset: first, LastOffset: h.BaseOffset})
		}
		delete(l.open, h.ProducerID)
	case h.IsTransactional():
		if _, ok := l.open[h.ProducerID]; !ok {
			l.open[h.ProducerID] = h.BaseOffset
		}
	}
}

func (l *fakeLog) Read(offset int64, maxBytes int, upTo int64, minOne bool) (persistence.Chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readErr != nil {
		return persistence.Chunk{}, l.readErr
	}
	c := persistence.Chunk{FirstOffset: -1}
	from := -1
	for i, e := range l.index {
		if e.h.LastOffset() < offset {
			continue
		}
		if e.h.LastOffset() >= upTo || c.Len+e.len > maxBytes && !(minOne && c.Len == 0) {
			break
		}
		if from < 0 {
			from, c.FirstOffset = i, e.h.BaseOffset
		}
		c.Len += e.len
		c.NextOffset = e.h.LastOffset() + 1
	}
	if from < 0 {
		return persistence.Chunk{}, nil
	}
	c.Pos = int64(l.index[from].pos)
	if l.file != nil {
		c.File = l.file
	} else {
		c.Bytes = slices.Clone(l.data[c.Pos : c.Pos+int64(c.Len)])
	}
	return persistence.NewChunk(c, nil), nil
}

func (l *fakeLog) LogStart() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.start }
func (l *fakeLog) End() int64      { l.mu.Lock(); defer l.mu.Unlock(); return l.end }

func (l *fakeLog) LatestEpoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.epochs) == 0 {
		return messages.NoEpoch
	}
	return l.epochs[len(l.epochs)-1].Epoch
}

func (l *fakeLog) EpochEndOffset(epoch int32) (int32, int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.end
	for _, e := range slices.Backward(l.epochs) {
		if e.Epoch <= epoch {
			return e.Epoch, end, true
		}
		end = e.StartOffset
	}
	return -1, -1, false
}

func (l *fakeLog) EpochForOffset(offset int64) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := messages.NoEpoch
	for _, e := range l.epochs {
		if e.StartOffset <= offset {
			out = e.Epoch
		}
	}
	return out
}

func (l *fakeLog) Epochs() []persistence.EpochEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.epochs)
}

func (l *fakeLog) records(f func(h batch.Header, r batch.Record) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.index {
		for r, err := range batch.DecompressRecords(l.data[e.pos:e.pos+e.len], 1<<20) {
			if err != nil {
				return err
			}
			if r.Offset >= l.start && !f(e.h, r) {
				return nil
			}
		}
	}
	return nil
}

func (l *fakeLog) OffsetForTimestamp(ts int64) (out persistence.TimestampOffset, ok bool, err error) {
	err = l.records(func(h batch.Header, r batch.Record) bool {
		if r.Timestamp >= ts {
			out, ok = persistence.TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, Epoch: h.LeaderEpoch}, true
		}
		return !ok
	})
	return out, ok, err
}

func (l *fakeLog) MaxTimestamp() (out persistence.TimestampOffset, ok bool, err error) {
	err = l.records(func(h batch.Header, r batch.Record) bool {
		if !ok || r.Timestamp > out.Timestamp {
			out, ok = persistence.TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, Epoch: h.LeaderEpoch}, true
		}
		return true
	})
	return out, ok, err
}

func (l *fakeLog) FirstUnstable() (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, ok := int64(0), false
	for _, o := range l.open {
		if !ok || o < first {
			first, ok = o, true
		}
	}
	return first, ok
}

func (l *fakeLog) AbortedTxns(from, to int64) ([]persistence.AbortedTxn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []persistence.AbortedTxn
	for _, a := range l.aborted {
		if a.FirstOffset < to && a.LastOffset >= from {
			out = append(out, a)
		}
	}
	return out, nil
}

func (l *fakeLog) CheckProducer(h batch.Header) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.last[h.ProducerID]
	switch {
	case h.ProducerID < 0 || !ok:
		return nil
	case h.ProducerEpoch < last.ProducerEpoch:
		return persistence.ErrInvalidProducerEpoch
	case h.BaseSequence == last.BaseSequence && h.LastSequence() == last.LastSequence():
		return &persistence.DuplicateError{FirstOffset: last.BaseOffset, LastOffset: last.LastOffset(), Timestamp: last.MaxTimestamp}
	case h.BaseSequence != last.LastSequence()+1:
		return persistence.ErrOutOfOrderSequence
	default:
		return nil
	}
}

// fakePartition is a Partition over a fakeLog, as cluster.Replica will be.
type fakePartition struct {
	log      *fakeLog
	mu       sync.Mutex
	state    persistence.ReplicaState
	watchers map[int]func()
	seq      int
	refuse   error // of the next appends
}

func newFakePartition(tb testing.TB, onDisk bool) *fakePartition {
	tb.Helper()
	return &fakePartition{log: newFakeLog(tb, onDisk), state: persistence.ReplicaState{Mode: messages.ModeWritable}, watchers: map[int]func(){}}
}

func (p *fakePartition) Log() persistence.Log { return p.log }

func (p *fakePartition) State() persistence.ReplicaState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *fakePartition) AppendClient(_ context.Context, b []byte, opts persistence.ClientAppend) (persistence.AppendInfo, error) {
	p.mu.Lock()
	if err := p.refuse; err != nil {
		p.mu.Unlock()
		return persistence.AppendInfo{}, err
	}
	if p.state.ReadOnly {
		p.mu.Unlock()
		return persistence.AppendInfo{}, messages.ErrReadOnlyTopic
	}
	h, err := batch.ParseHeader(b)
	if err == nil {
		err = p.log.CheckProducer(h)
	}
	var info persistence.AppendInfo
	if err == nil {
		if opts.LogAppendTime {
			batch.SetLogAppendTime(b, opts.NowMillis)
		}
		batch.SetOffsetAndEpoch(b, p.log.End(), p.state.LeaderEpoch)
		info, err = p.log.Append(b, persistence.AppendOptions{})
	}
	p.state.End, p.state.HighWatermark = p.log.End(), p.log.End()
	p.mu.Unlock()
	p.notify()
	return info, err
}

// mirror appends batches as they are.
func (p *fakePartition) mirror(tb testing.TB, batches ...[]byte) {
	tb.Helper()
	for _, b := range batches {
		if _, err := p.log.Append(b, persistence.AppendOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	p.change(func(s *persistence.ReplicaState) { s.End, s.HighWatermark = p.log.End(), p.log.End() })
}

func (p *fakePartition) change(f func(*persistence.ReplicaState)) {
	p.mu.Lock()
	f(&p.state)
	p.mu.Unlock()
	p.notify()
}

func (p *fakePartition) notify() {
	p.mu.Lock()
	var fs []func()
	for _, f := range p.watchers {
		fs = append(fs, f)
	}
	p.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

func (p *fakePartition) RaiseLogStart(_ context.Context, offset int64) error {
	p.log.mu.Lock()
	p.log.start = offset
	p.log.mu.Unlock()
	p.change(func(s *persistence.ReplicaState) { s.LogStart = offset })
	return nil
}

func (p *fakePartition) Watch(f func()) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	id := p.seq
	p.watchers[id] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, id)
	}
}

func (p *fakePartition) watched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watchers)
}

var errFake = errors.New("fake fault")
