package persistence

import "fmt"

// PlanCut is [Log.PlanCut].
func (l *segLog) PlanCut(offset int64) (Cut, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if err := l.ensureLocked(); err != nil {
		return Cut{}, err
	}
	end := l.End()
	if offset >= end {
		return Cut{From: end, To: end}, nil
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	var p cutPoint
	var err error
	from := offset
	if offset < l.LogStart() {
		p, err = l.countCut(cutPoint{keep: 1})
	} else {
		p, err = l.findCut(offset)
		from = p.end
	}
	if err != nil {
		return Cut{}, fmt.Errorf("plan cut of %s to %d: %w", l.info.TopicPartition, offset, err)
	}
	return Cut{From: from, To: end, Records: p.records, Bytes: p.bytes}, nil
}

// PlanCut is [Log.PlanCut].
func (l *memLog) PlanCut(offset int64) (Cut, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(nil); err != nil {
		return Cut{}, err
	}
	if offset >= l.end {
		return Cut{From: l.end, To: l.end}, nil
	}
	plan := Cut{From: l.segBases[0], To: l.end}
	for _, b := range l.batches {
		switch {
		case b.h.LastOffset() < offset:
			plan.From = b.h.LastOffset() + 1
		case offset >= l.start || b.h.LastOffset() >= l.start: // what a restart counts
			plan.Records += int64(b.h.Records)
			plan.Bytes += int64(b.h.Size())
		}
	}
	if plan.From = max(plan.From, l.start); offset < l.start {
		plan.From = offset
	}
	return plan, nil
}
