package persistence

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"kagami/messages/batch"
)

// AbortedTxns lists aborted transactions that overlap [from, to); see [Log].
func (l *segLog) AbortedTxns(from, to int64) ([]AbortedTxn, error) {
	if err := l.ensure(); err != nil {
		return nil, err
	}
	if err := l.readable(); err != nil {
		return nil, err
	}
	for range readAttempts {
		l.mu.RLock()
		segs, cuts := l.segs, l.cuts
		l.mu.RUnlock()
		out, bad, err := l.abortedIn(segs[segAt(segs, from):], from, to)
		l.mu.RLock()
		moved := l.cuts != cuts
		l.mu.RUnlock()
		switch {
		case moved:
		case errors.Is(err, errBadIndex):
			if err := l.rebuildTxnIndex(bad); err != nil {
				return nil, fmt.Errorf("rebuild transaction index of %s: %w", l.info.TopicPartition, err)
			}
		default:
			return out, err
		}
	}
	return nil, storageError("read transaction index in", l.dir, errBadIndex)
}

// abortedIn collects from the indexes of segs. An entry's last stable offset
// says that what stands behind it in the indexes begins at or above that.
func (l *segLog) abortedIn(segs []*segment, from, to int64) ([]AbortedTxn, *segment, error) {
	var out []AbortedTxn
	for _, s := range segs {
		v, err := l.view(s)
		if err != nil {
			return nil, s, err
		}
		list, err := v.aborted()
		if err != nil {
			return nil, s, err
		}
		for _, t := range list {
			if t.LastOffset >= from && t.FirstOffset < to {
				out = append(out, t)
			}
			if t.LastStableOffset >= to {
				return sortAborted(out), nil, nil
			}
		}
	}
	return sortAborted(out), nil, nil
}

// aborted reads the segment's transaction index and checks what can be checked.
func (v segView) aborted() ([]AbortedTxn, error) {
	if v.txn.n() == 0 {
		return nil, nil
	}
	b, err := v.txn.read(0, v.txn.n())
	if err != nil {
		return nil, errBadIndex // missing or short: it is rebuilt, and a sick disk shows then
	}
	out := make([]AbortedTxn, 0, v.txn.n())
	last := v.base
	for ; len(b) > 0; b = b[txnEntrySize:] {
		t, err := decodeTxnEntry(b[:txnEntrySize])
		if err != nil || t.LastOffset < last || t.LastOffset >= v.next || t.ProducerID < 0 ||
			t.LastStableOffset < 0 || t.LastStableOffset > t.LastOffset+1 {
			return nil, errBadIndex
		}
		last = t.LastOffset
		out = append(out, t)
	}
	return out, nil
}

// rebuildTxnIndex makes a segment's transaction index anew from its batches and
// the producer snapshot at its start.
func (l *segLog) rebuildTxnIndex(s *segment) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if !l.has(s) {
		return nil // it was cut away or replaced meanwhile: what has its name now is another one
	}
	l.log().Warn("transaction index is rebuilt", zap.String("file", s.log.path()))
	from, err := l.pickSnapshot(s.base, l.segs[0].base)
	if err != nil {
		return err
	}
	prod, err := l.producersAt(from, s.base)
	if err != nil {
		return err
	}
	fresh := newIndexFile(l.dir, s.base, txnSuffix, txnEntrySize)
	err = l.scan(s, 0, s.size, false, func(h batch.Header, pos int64, sc *scanner) error {
		body, err := controlBody(h, pos, sc)
		if err != nil {
			return err
		}
		for _, t := range prod.apply(h, body) {
			fresh.pending = appendTxnEntry(fresh.pending, t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := writeFileAtomic(l.m.fs, fresh.cf.path(), fresh.pending, true); err != nil {
		return l.failUnless(storageError("write", fresh.cf.path(), err))
	}
	fresh.count, fresh.pending = fresh.entries(), nil
	l.mu.Lock()
	old := s.txn
	s.txn = fresh
	l.mu.Unlock()
	l.m.cache.drop(&old.cf)
	return nil
}
