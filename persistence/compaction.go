package persistence

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence/compact"
)

// CompactionPolicy of Compact: the topic's configs, and what the caller knows.
type CompactionPolicy struct {
	NowMillis             int64
	Rule                  compact.Rule // zero: by key
	DeleteRetentionMillis int64        // delete.retention.ms
	MinLagMillis          int64        // min.compaction.lag.ms: a segment with a younger record stays as it is
	MaxLagMillis          int64        // max.compaction.lag.ms; 0 = none
	MinDirtyRatio         float64      // min.cleanable.dirty.ratio
	// Force cleans whatever the ratio is, if there is a segment to clean: a dirty one, or
	// with a rule for the whole log any.
	Force bool
	// HighWatermark: nothing at or above is read, nor what is above the first open transaction.
	HighWatermark int64
	MapBytes      int // bounds the offset map; default 128 MiB
	// Pace is called with the bytes read or written since the last call, so that the
	// caller can hold up the work. An error ends it. Nil: full speed.
	Pace func(ctx context.Context, bytes int) error
	// Durable is called once before a segment is replaced. What is below the offset
	// must be there after any crash when it returns. Nil: nothing beside the log counts.
	Durable func(offset int64) error
}

// Compaction is what Compact did.
type Compaction struct {
	Passes     int // 0: it wasn't due
	Segments   int // replaced
	Stats      compact.Stats
	DirtyBytes int64 // of segments that may be cleaned, before
	DirtyRatio float64
	CleanedTo  int64 // everything below has been read into a map once
	// NextDue is when it may be due without an append, ms; 0 = never.
	NextDue int64
}

// errSegmentsMoved: the log was cut or its start raised while it was cleaned.
var errSegmentsMoved = errors.New("segments have changed meanwhile")

// compactionPlan is what one pass works on.
type compactionPlan struct {
	segs     []*segment // from the log's first on, all below the bound
	sums     []segmentSummary
	from     int64 // first dirty offset
	dirty    int   // index of the first segment with dirty records
	bound    int64 // offset behind the last of segs
	start    int64
	cuts     uint64
	result   Compaction
	due      bool
	earliest int64 // time of the first dirty record, noTimestamp if not asked for
}

// Compact removes superseded records; see [Log].
func (l *segLog) Compact(ctx context.Context, p CompactionPolicy) (Compaction, error) {
	if p.Rule.Identity == nil {
		p.Rule = compact.ByKey()
	}
	if p.MapBytes <= 0 {
		p.MapBytes = 128 << 20
	}
	if err := l.ensure(); err != nil {
		return Compaction{}, err
	}
	l.cmu.Lock()
	defer l.cmu.Unlock()
	var total Compaction
	for {
		plan, err := l.planCompaction(p)
		done, more := plan.result, false
		if err == nil && (plan.due || total.Passes > 0) && plan.from < plan.bound {
			done, more, err = l.compactOnce(ctx, p, plan)
		}
		if err != nil && l.movedSince(plan) {
			done.NextDue, err = p.NowMillis, nil
		}
		total.Segments += done.Segments
		total.Stats = total.Stats.Plus(done.Stats)
		if total.Passes == 0 {
			total.DirtyBytes, total.DirtyRatio = done.DirtyBytes, done.DirtyRatio
		}
		total.Passes += done.Passes
		total.CleanedTo, total.NextDue = done.CleanedTo, done.NextDue
		if err != nil {
			return total, fmt.Errorf("compact %s: %w", l.info.TopicPartition, err)
		}
		if !more {
			return total, nil
		}
	}
}

// compactOnce is one pass: as much of the dirty part as the map takes. more: there
// is dirt left that another pass would get.
func (l *segLog) compactOnce(ctx context.Context, p CompactionPolicy, plan compactionPlan) (_ Compaction, more bool, err error) {
	if err := l.settleBelow(); err != nil {
		return plan.result, false, err
	}
	if p.Durable != nil {
		if err := p.Durable(plan.bound); err != nil {
			return plan.result, false, err
		}
	}
	if err := l.removeCleaned(); err != nil {
		return plan.result, false, err
	}
	pass := compact.NewPass(compact.Options{
		Rule: p.Rule, NowMillis: p.NowMillis, DeleteRetentionMillis: p.DeleteRetentionMillis,
		Producers: l.activeProducers(p.NowMillis), MapBytes: p.MapBytes,
	})
	full, err := l.collect(ctx, p, plan, pass)
	end := plan.bound
	if full {
		end = pass.End()
	}
	if err != nil || end <= plan.from {
		return plan.result, false, err
	}
	out := plan.result
	out.Passes = 1
	pass.Filtering()
	out.Segments, err = l.rewrite(ctx, p, plan, pass)
	out.Stats = pass.Stats()
	if due := pass.NextDue(); due > 0 && (out.NextDue == 0 || due < out.NextDue) {
		out.NextDue = due
	}
	if err != nil {
		return out, false, err
	}
	out.CleanedTo = end
	if err := l.cleaned(plan.cuts, end); err != nil {
		return out, false, err
	}
	l.log().Info("log compacted", zap.Int64("to", end), zap.Int("segments", out.Segments), zap.Int64("records", out.Stats.Records),
		zap.Int64("kept", out.Stats.RecordsKept), zap.Int64("bytes", out.Stats.Bytes), zap.Int64("bytes_kept", out.Stats.BytesKept))
	return out, full, nil
}

// settleBelow brings all that stands below the active segment to disk, with side files
// and a durable state that say so: recovery then neither walks over what is replaced
// nor takes its holes for segments that a crash has lost.
func (l *segLog) settleBelow() error {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if err := l.flushLocked(flushAll, nil); err != nil {
		return err
	}
	return l.trySaveState(true)
}

// movedSince: the log was cut, its start raised, or it was closed since the plan was
// made. What was done of it is whole; an error says no more than that.
func (l *segLog) movedSince(plan compactionPlan) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.closed || l.takenBack != plan.cuts || l.start.Load() != plan.start
}

// planCompaction finds out what may be cleaned, and whether that is due.
func (l *segLog) planCompaction(p CompactionPolicy) (compactionPlan, error) {
	l.fmu.Lock()
	cleaned := l.st.cleanedTo
	l.fmu.Unlock()
	l.mu.RLock()
	plan := compactionPlan{cuts: l.takenBack, earliest: noTimestamp}
	segs, active := l.segs[:len(l.segs)-1], l.active().base
	bound := min(active, p.HighWatermark)
	if unstable, ok := l.prod.firstUnstable(l.start.Load()); ok {
		bound = min(bound, unstable)
	}
	start := l.start.Load()
	l.mu.RUnlock()
	plan.start = start
	plan.from = max(cleaned, start)
	plan.result.CleanedTo = max(cleaned, start)
	plan.bound = messages.NoOffset
	clean, dirty := int64(0), int64(0)
	for i, s := range segs {
		v, err := l.view(s)
		if err != nil {
			return plan, err
		}
		next := active
		if i+1 < len(segs) {
			next = segs[i+1].base
		}
		if next > bound {
			break
		}
		if next <= plan.from {
			clean += v.size
			plan.dirty = i + 1
		} else {
			if young := p.NowMillis - v.maxTS; p.MinLagMillis > 0 && young < p.MinLagMillis {
				plan.result.NextDue = v.maxTS + p.MinLagMillis
				break
			}
			if plan.earliest == noTimestamp && p.MaxLagMillis > 0 && p.MaxLagMillis < math.MaxInt64 {
				if plan.earliest, err = l.firstTime(v); err != nil {
					return plan, err
				}
			}
			dirty += v.size
		}
		plan.segs, plan.bound = segs[:i+1], next
		plan.sums = append(plan.sums, segmentSummary{base: v.base, next: next, size: v.size})
	}
	plan.decide(p, clean, dirty)
	if p.Rule.Whole {
		plan.due = plan.due || p.Force && clean > 0
		plan.from, plan.dirty = start, 0
	}
	return plan, nil
}

func (plan *compactionPlan) decide(p CompactionPolicy, clean, dirty int64) {
	r := &plan.result
	r.DirtyBytes = dirty
	if clean+dirty > 0 {
		r.DirtyRatio = float64(dirty) / float64(clean+dirty)
	}
	plan.due = dirty > 0 && (p.Force || r.DirtyRatio > p.MinDirtyRatio)
	if plan.earliest < 0 || dirty == 0 {
		return
	}
	lag := plan.earliest + p.MaxLagMillis
	if plan.due = plan.due || p.NowMillis > lag; !plan.due && (r.NextDue == 0 || lag < r.NextDue) {
		r.NextDue = lag + 1
	}
}

// firstTime is the time of a segment's first batch.
func (l *segLog) firstTime(v segView) (int64, error) {
	if v.size == 0 {
		return noTimestamp, nil
	}
	f, err := l.m.cache.acquire(v.log, false)
	if err != nil {
		return 0, storageError("open", v.log.path(), err)
	}
	defer l.m.cache.release(v.log, false)
	h, err := headerAt(f, v.log.path(), 0, v.size)
	return h.MaxTimestamp, err
}

// activeProducers are those whose last sequence has to stay. Others expire here, for
// nothing else looks at a log that is compacted only.
func (l *segLog) activeProducers(now int64) map[int64]compact.Active {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prod.expire(now - l.cfg.ProducerExpiryMs)
	return l.prod.active()
}

func (s *producerState) active() map[int64]compact.Active {
	out := make(map[int64]compact.Active, len(s.entries))
	for id, e := range s.entries {
		a := compact.Active{LastOffset: messages.NoOffset, Epoch: e.epoch}
		if n := len(e.batches); n > 0 {
			a.LastOffset = e.batches[n-1].LastOffset
		}
		out[id] = a
	}
	return out
}

// cleaned notes how far the log is clean now, unless it was cut meanwhile.
func (l *segLog) cleaned(cuts uint64, to int64) error {
	l.fmu.Lock()
	defer l.fmu.Unlock()
	if err := l.unchanged(cuts); err != nil {
		return err
	}
	l.st.cleanedTo = max(l.st.cleanedTo, to)
	return l.trySaveState(false)
}

// unchanged reports whether nothing was cut since. The caller holds fmu.
func (l *segLog) unchanged(cuts uint64) error {
	if err := l.writable(); err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.takenBack != cuts {
		return errSegmentsMoved
	}
	return nil
}

// PurgedTo is [Log.PurgedTo].
func (l *segLog) PurgedTo() int64 {
	if l.ensure() != nil {
		return math.MaxInt64
	}
	l.fmu.Lock()
	defer l.fmu.Unlock()
	return l.st.purgedTo
}
