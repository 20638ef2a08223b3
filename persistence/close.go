package persistence

import "fmt"

// Close flushes, writes side files and closes; see [Log].
func (l *segLog) Close() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if l.readable() != nil {
		return nil
	}
	line, err := l.closeLocked()
	l.shut()
	l.m.released(l, line)
	if err != nil {
		return fmt.Errorf("close %s: %w", l.info.TopicPartition, err)
	}
	return nil
}

// closeLocked brings everything to disk and describes the result; no line for a
// log that failed: it must be recovered.
func (l *segLog) closeLocked() ([]byte, error) {
	l.mu.RLock()
	failure, line := l.failure, l.line
	l.mu.RUnlock()
	switch {
	case failure != nil:
		return nil, nil //nolint:nilerr // it was reported when it happened; without a line the log is recovered
	case !l.loaded.Load():
		return line, nil
	}
	if l.touched.Load() {
		l.mu.Lock()
		l.active().addTime()
		l.mu.Unlock()
		at, err := l.sidesNow()
		if err != nil {
			return nil, err
		}
		if err := l.flushLocked(flushAll, at); err != nil {
			return nil, err
		}
	}
	return l.manifestLine()
}

// shut closes the log's files; chunks that are out keep theirs. The caller
// holds wmu and fmu.
func (l *segLog) shut() {
	l.mu.Lock()
	l.closed = true
	segs := l.segs
	l.mu.Unlock()
	for _, s := range segs {
		for _, cf := range s.files() {
			l.m.cache.drop(cf)
		}
	}
}

// abandon closes a log whose files are about to go: nothing is written.
func (l *segLog) abandon() {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.fmu.Lock()
	defer l.fmu.Unlock()
	l.shut()
}
