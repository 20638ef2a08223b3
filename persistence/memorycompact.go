package persistence

import (
	"context"
	"errors"
	"fmt"

	"kagami/persistence/compact"
)

// Compact is [Log.Compact], in one pass.
func (l *memLog) Compact(ctx context.Context, p CompactionPolicy) (Compaction, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.check(nil), context.Cause(ctx)); err != nil {
		return Compaction{}, err
	}
	if p.Rule.Identity == nil {
		p.Rule = compact.ByKey()
	}
	l.prod.expire(p.NowMillis - l.cfg.ProducerExpiryMs)
	plan := l.planCompaction(p)
	if !plan.due || plan.from >= plan.bound {
		return plan.result, nil
	}
	pass := compact.NewPass(compact.Options{
		Rule: p.Rule, NowMillis: p.NowMillis, DeleteRetentionMillis: p.DeleteRetentionMillis,
		Producers: l.prod.active(), MapBytes: p.MapBytes,
	})
	aborted := make([]compact.Aborted, len(l.aborted))
	for i, t := range l.aborted {
		aborted[i] = compact.Aborted(t)
	}
	pass.Aborted(0, aborted)
	for _, b := range l.batches {
		if b.h.BaseOffset >= plan.bound || b.h.LastOffset() < plan.sums[plan.dirty].base {
			continue
		}
		if b.h.LastOffset() < plan.from {
			continue
		}
		if fits, err := pass.Collect(b.h, b.body, plan.from); err != nil || !fits {
			return plan.result, fmt.Errorf("compact %s: map full or %w", l.info.TopicPartition, err)
		}
	}
	pass.Filtering()
	pass.Aborted(0, aborted)
	return l.filter(plan, pass)
}

func (l *memLog) filter(plan compactionPlan, pass *compact.Pass) (Compaction, error) {
	first := plan.sums[0].base
	ends := map[int64]bool{} // where groups end
	for _, g := range plan.groups(l.cfg) {
		ends[g.next] = true
	}
	var kept []memBatch
	for i, b := range l.batches {
		if b.h.BaseOffset < first || b.h.BaseOffset >= plan.bound {
			kept = append(kept, b)
			continue
		}
		last := false
		for next := range ends {
			last = last || b.h.LastOffset() < next && (i+1 == len(l.batches) || l.batches[i+1].h.BaseOffset >= next)
		}
		out, err := pass.Filter(b.h, b.body, last)
		if err != nil {
			return plan.result, err
		}
		if out != nil {
			hs, _, err := parseBatches(nil, out, 0, AppendOptions{})
			if err != nil {
				return plan.result, err
			}
			kept = append(kept, memBatch{hs[0], append([]byte(nil), out...)})
		}
	}
	l.batches = kept
	var aborted []AbortedTxn
	for _, t := range l.aborted { // those beyond what was read stay
		if t.LastOffset >= plan.bound || t.LastOffset < first {
			aborted = append(aborted, t)
		}
	}
	for _, t := range pass.TakeAborted() {
		aborted = append(aborted, AbortedTxn(t))
	}
	l.aborted = sortAborted(aborted)
	var bases []int64
	for _, g := range plan.groups(l.cfg) {
		bases = append(bases, g.base)
	}
	l.segBases = append(bases, l.segBases[len(plan.sums):]...)
	l.cleanedTo, l.purgedTo = max(l.cleanedTo, plan.bound), max(l.purgedTo, pass.Purged())
	out := plan.result
	out.Passes, out.Segments, out.Stats, out.CleanedTo = 1, len(plan.sums), pass.Stats(), plan.bound
	if due := pass.NextDue(); due > 0 && (out.NextDue == 0 || due < out.NextDue) {
		out.NextDue = due
	}
	return out, nil
}

func (l *memLog) planCompaction(p CompactionPolicy) compactionPlan {
	plan := compactionPlan{earliest: noTimestamp, start: l.start, from: max(l.cleanedTo, l.start), bound: -1}
	plan.result.CleanedTo = plan.from
	segs := l.summaries()
	bound := min(segs[len(segs)-1].base, p.HighWatermark)
	if unstable, ok := l.prod.firstUnstable(l.start); ok {
		bound = min(bound, unstable)
	}
	clean, dirty := int64(0), int64(0)
	for i, s := range segs[:len(segs)-1] {
		if s.next > bound {
			break
		}
		if s.next <= plan.from {
			clean += s.size
			plan.dirty = i + 1
		} else {
			if p.MinLagMillis > 0 && p.NowMillis-s.maxTS < p.MinLagMillis {
				plan.result.NextDue = s.maxTS + p.MinLagMillis
				break
			}
			if plan.earliest == noTimestamp && p.MaxLagMillis > 0 {
				plan.earliest = s.firstTS
			}
			dirty += s.size
		}
		plan.sums, plan.bound = segs[:i+1], s.next
	}
	plan.decide(p, clean, dirty)
	if p.Rule.Whole {
		plan.due = plan.due || p.Force && clean > 0
		plan.from, plan.dirty = l.start, 0
	}
	return plan
}

// PurgedTo is [Log.PurgedTo].
func (l *memLog) PurgedTo() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.purgedTo
}
