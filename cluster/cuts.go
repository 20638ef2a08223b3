package cluster

import (
	"context"
	"fmt"
	"hash/fnv"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
)

// planCut is what op is going to remove. It shows after a crash in the middle of a
// cut; that, and nothing else, depends on it.
func (d *direct) planCut(op journal.Operation) persistence.Cut {
	at := op.Offset
	if op.Kind == journal.OpRestartAt {
		at = d.log.LogStart()
	}
	plan, err := d.log.PlanCut(at)
	if err != nil { // damaged: offsets are an upper bound
		plan = persistence.Cut{Records: max(0, d.log.End()-max(at, d.log.LogStart()))}
	}
	plan.From, plan.To = op.Offset, d.log.End()
	return plan
}

// CutCount is what was cut from a partition in the life of a mirror.
type CutCount struct {
	Mirror uint64 // hash of the mirror's name
	// Cut has sums of records and bytes, and the offsets of the last cut. All zero
	// = none. From > To: the last one was a restart above the log end To, which is
	// no cut but leaves a gap up to From.
	persistence.Cut
}

// plus counts one more cut. One of nothing isn't any, and neither is a restart
// above the log end (fsm counts them alike): of that one only the place is kept,
// until the next cut, so that a crash doesn't hide the gap.
func (c CutCount) plus(cut persistence.Cut) CutCount {
	switch {
	case cut.To == cut.From, cut.To == 0:
		return c
	case cut.To < cut.From:
		c.From, c.To = cut.From, cut.To
		return c
	case c.From > c.To && cut.Records == 0:
		return c // the restart is corrected to the beginning of a batch
	}
	cut.Records += c.Records
	cut.Bytes += c.Bytes
	c.Cut = cut
	return c
}

func mirrorHash(mirror string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(mirror)) // never fails
	return h.Sum64()
}

// CountCuts says what the mirror's coordinator has stored of the partition's cuts,
// and returns what it hasn't: cuts that an earlier process made, and died before
// it could have them stored. (A count is durable together with its cut.) It takes
// no lock. A partition that has no state yet in the mirror: see ForgetCuts.
func (r *Replica) CountCuts(mirror string, stored persistence.Cut) (missing persistence.Cut) {
	hash := mirrorHash(mirror)
	r.cutsStored.Store(&CutCount{Mirror: hash, Cut: stored})
	c := r.cutsAtOpen.Load()
	if c == nil || c.Mirror != hash || c.Records <= stored.Records && c.Bytes <= stored.Bytes {
		return persistence.Cut{}
	}
	return persistence.Cut{From: c.From, To: c.To, Records: max(0, c.Records-stored.Records), Bytes: max(0, c.Bytes-stored.Bytes)}
}

// GapAtOpen is where an earlier process restarted the log above its end: offsets
// [from, to) were never copied, which it perhaps died before it could have stored.
// ok is false if there was none, or another cut came after it. It takes no lock.
func (r *Replica) GapAtOpen(mirror string) (from, to int64, ok bool) {
	c := r.cutsAtOpen.Load()
	if c == nil || r.cutSince.Load() || c.Mirror != mirrorHash(mirror) || c.From <= c.To {
		return 0, 0, false
	}
	return c.To, c.From, true
}

// finisher is an orderer that repeats a cut which found no room.
type finisher interface{ finished() *persistence.Cut }

func (d *direct) finished() *persistence.Cut { return &d.owed }

// TakeFinished returns, once, the cuts that were refused because the disk was full
// and have been finished since; nobody else has heard of them.
func (r *Replica) TakeFinished() persistence.Cut {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.order.(finisher)
	if !ok {
		return persistence.Cut{}
	}
	cut := *f.finished()
	*f.finished() = persistence.Cut{}
	return cut
}

// finishedLocked reports whether there are such cuts. Each has begun a generation.
func (r *Replica) finishedLocked() bool {
	f, ok := r.order.(finisher)
	return ok && *f.finished() != persistence.Cut{}
}

// HasCuts reports whether any cut is counted. It takes no lock.
func (r *Replica) HasCuts() bool { return r.hasCuts.Load() }

// ForgetCuts begins to count cuts from nothing, for a mirror in which the
// partition has no state yet; it must return before the first one is stored. It
// writes only if there is something to forget.
func (r *Replica) ForgetCuts(_ context.Context, mirror string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return fmt.Errorf("forget cuts of %s: replica is closed: %w", r.tp, messages.ErrNotLeader)
	}
	if err := r.order.forgetCuts(mirrorHash(mirror)); err != nil {
		return fmt.Errorf("forget cuts of %s: %w", r.tp, err)
	}
	r.cutsAtOpen.Store(nil)
	r.cutsStored.Store(nil)
	r.hasCuts.Store(false)
	return nil
}

func (d *direct) cutCount() CutCount { return d.cuts }

func (d *direct) countCutsFrom(stored CutCount) {
	if d.cuts.Mirror != stored.Mirror {
		d.cuts = stored
		return
	}
	if d.cuts.To == 0 {
		d.cuts.From, d.cuts.To = stored.From, stored.To
	}
	d.cuts.Records, d.cuts.Bytes = max(d.cuts.Records, stored.Records), max(d.cuts.Bytes, stored.Bytes)
}

func (d *direct) forgetCuts(mirror uint64) error {
	had := d.cuts
	d.cuts = CutCount{Mirror: mirror}
	if had.To == 0 {
		return nil
	}
	err := d.failed
	if err == nil {
		err = d.persist(false)
	}
	if err != nil {
		d.cuts = had
	}
	return err
}
