package persistence

import "fmt"

// unfinishedCut is a cut that is announced on disk and found no room to be
// finished. Readers see the log as it will be. It takes no change until the same
// call comes again, or it is opened again: that finishes the cut as well.
type unfinishedCut struct {
	restart bool // RestartAt, not Truncate
	offset  int64
	cut     Cut
	finish  func() error // can be done again
}

// finishLocked finishes u, and keeps it for another try where there was no room.
// The caller holds wmu and fmu.
func (l *segLog) finishLocked(u *unfinishedCut) error {
	l.mu.Lock()
	l.failure = nil
	l.mu.Unlock()
	l.unfinished = nil
	err := u.finish()
	if err == nil {
		return nil
	}
	if isUnwritten(err) {
		l.unfinished = u
	}
	return l.fail(fmt.Errorf("cut to %d is not finished: %w", u.offset, err))
}

// finishAgain finishes a cut that is under way. same reports that it was this
// call's own: cut is what it removed then. The caller holds wmu.
func (l *segLog) finishAgain(restart bool, offset int64) (cut Cut, same bool, err error) {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	u := l.unfinished
	if u == nil || l.readable() != nil {
		return Cut{}, false, nil
	}
	if err := l.finishLocked(u); err != nil {
		return Cut{}, false, fmt.Errorf("%s: %w", l.info.TopicPartition, err)
	}
	if u.restart != restart || u.offset != offset {
		return Cut{}, false, nil
	}
	return u.cut, true, nil
}
