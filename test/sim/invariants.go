package sim

import (
	"fmt"

	"kagami/fsm"
	"kagami/messages"
)

// The invariants, by the names that a broken one is reported under. Numbers in
// brackets are those of design.md, "What must never happen".
const (
	invTable    = "a stored transition is one of the table's, and leader epochs of records never fall"
	invRecord   = "every record of __mirror_state can be applied"
	invReplay   = "what a coordinator believes is what a replay gives [10]"
	invRising   = "batch epochs never fall in a log, and offsets hold one record each"
	invDLE      = "no batch in a log is above the leader epoch (DLE >= SLE)"
	invGate     = "only a STOPPED partition takes client writes [2]"
	invAcked    = "an acknowledged record leaves a log by a counted cut, retention or the source's own loss, never else [1]"
	invOnce     = "a record is stored once [1]"
	invLanding  = "a fetched batch lands in MIRRORING, never after STOPPED, PAUSED or LOG_TRUNCATION [5]"
	invMatching = "a log that is fetched into equals the source's below the fetch offset"
	invCut      = "a log is cut in LOG_TRUNCATION or MIRRORING, and by nobody but its leader [4]"
	invView     = "what a leader believes is what is stored, unless it is writing"
	invRetry    = "a failed partition waits for its timer, unless the failure is permanent or held"
	invLoop     = "a log is never cut to be aligned with a source that is copying it (OP-35)"
	invCounted  = "cuts counted are records removed [4]"
	invGap      = "a gap is counted [4]"
	invConverge = "MIRRORING begins when the replicas have converged"
	invLME      = "an LME is written once per stop, is the epoch of the last mirrored batch, and goes with the next stop only"
	invStopped  = "STOPPED has a sealed log, no open transaction, and ends in the stop's own batches under a raised epoch"
	invReset    = "a stop writes MIRROR_PID_RESET once"
	invLost     = "a partition without a stored state opens only if its log is empty (OP-44)"
	invNoSource = "a stop needs no source [9]"
	invHeal     = "when the world is healed every wish comes true and copies equal their source"
)

// audit is what the invariants remember of one partition of a cluster.
type audit struct {
	stopping  bool // from STOPPING to STOPPED, failures in between included
	stopEpoch int32
	lmes      int // written in this stop
	resets    int // written in this stop
	converged bool
	removed   int64 // records, by cuts of ours
	gaps      int
	disturbed bool // the leader crashed or changed in this stop
}

func newAudit() audit { return audit{stopEpoch: messages.NoEpoch} }

// fail records the first broken invariant.
func (w *world) fail(invariant, format string, args ...any) {
	if w.broken == "" {
		w.broken = invariant + ": " + fmt.Sprintf(format, args...)
	}
}

// check is every invariant that can be seen from outside at any time.
func (w *world) check() {
	for _, c := range w.clusters {
		for p, r := range c.replicas {
			if r.dirty {
				r.dirty = false
				w.checkLog(c, p, r)
			}
			for _, n := range c.nodes {
				w.checkNode(n, p, c.stored(p).State)
			}
		}
	}
}

func (w *world) checkNode(n *node, p int, stored messages.State) {
	if n.gates[p].open() && n.writes(p) && !n.mayWrite(p, stored) {
		w.fail(invGate, "%s %s: the gate is open in %s", n.name, topics[p], stored)
	}
	if !n.holds(p) {
		return
	}
	v := n.parts[p].core.View()
	switch {
	case !v.Loaded || v.Writing:
	case v.State != stored:
		w.fail(invView, "%s %s: %s, stored is %s", n.name, topics[p], v.State, stored)
	case stored == messages.StateFailed && !v.Permanent && !n.parts[p].timing:
		w.fail(invRetry, "%s %s: attempt %d", n.name, topics[p], v.RetryAttempt)
	}
}

func (w *world) checkLog(c *cluster, p int, r *replica) {
	top, seen := int32(-1), map[uint32]bool{}
	for i, b := range r.log {
		switch {
		case b.epoch < top:
			w.fail(invRising, "%s %s: epoch %d at %d after %d", c.name, topics[p], b.epoch, r.start+i, top)
		case seen[b.id]:
			w.fail(invOnce, "%s %s: record %d is stored again at %d", c.name, topics[p], b.id, r.start+i)
		}
		top, seen[b.id] = b.epoch, true
	}
	if top > r.claimed {
		w.fail(invDLE, "%s %s: batch epoch %d above leader epoch %d", c.name, topics[p], top, r.claimed)
	}
	for id, offset := range r.acked {
		if offset < r.start || offset >= r.end() || r.at(offset).id != id {
			w.fail(invAcked, "%s %s: record %d was acknowledged at %d", c.name, topics[p], id, offset)
		}
	}
}

// writes: this node's journal would take a client's batch.
func (n *node) writes(p int) bool {
	rep := n.c.replicas[p]
	return rep.mode == messages.ModeWritable && rep.node == n.id && n.image != nil && n.image[p].epoch == rep.claimed
}

// mayWrite: by what is stored; before the first start for as long as the node
// hasn't heard of it (appends accepted until then may be cut by it).
func (n *node) mayWrite(p int, stored messages.State) bool {
	return stored == messages.StateStopped || stored == messages.StateUnknown && n.image[p].desired == messages.DesiredNone
}

// cut removes records and checks that it may be done now.
func (c *cluster) cut(p, offset int) fsm.Cut {
	rep, a := c.replicas[p], &c.audits[p]
	if offset >= rep.end() {
		return fsm.Cut{}
	}
	s := c.stored(p).State
	if rep.mode == messages.ModeWritable || s == messages.StateStopped || s == messages.StatePaused || s == messages.StateUnknown {
		c.w.fail(invCut, "%s %s: cut to %d in %s, %s", c.name, topics[p], offset, s, rep.mode)
	}
	before := len(rep.log)
	cut := rep.cut(offset)
	c.w.event("%s %s: cut to %d, %d records gone", c.name, topics[p], offset, cut.Records)
	a.removed += int64(before - len(rep.log))
	a.converged = false
	c.cutFollower(p)
	return cut
}

// landing: a fetched batch is about to be appended by n.
func (c *cluster) landing(n *node, p int) {
	s := c.stored(p).State
	switch s {
	case messages.StateStopped, messages.StatePaused, messages.StateLogTruncation, messages.StateUnknown:
		c.w.fail(invLanding, "%s %s: a fetched batch lands in %s", n.name, topics[p], s)
	case messages.StateMirroring, messages.StateEpochFencing, messages.StatePausing, messages.StateStopping, messages.StateFailed:
	}
	if !n.holds(p) {
		c.w.fail(invLanding, "%s %s: a fetched batch lands without the claim", n.name, topics[p])
	}
}

// matching: the source found no divergence, so there must be none.
func (c *cluster) matching(n *node, p int, got fetched) {
	rep, src := c.replicas[p], c.source.replicas[p]
	if got.reply.Code != 0 || got.reply.DivergingEpoch >= 0 || !n.holds(p) || rep.mode != messages.ModeMirroring {
		return
	}
	for i := max(rep.start, src.start); i < min(got.offset, src.end()); i++ {
		if rep.at(i).id != src.at(i).id {
			c.w.fail(invMatching, "%s %s: offset %d is record %d@%d, on the source %d@%d", n.name, topics[p], i,
				rep.at(i).id, rep.at(i).epoch, src.at(i).id, src.at(i).epoch)
			return
		}
	}
}

// reset appends a MIRROR_PID_RESET.
func (c *cluster) reset(p int, b record) {
	a := &c.audits[p]
	a.resets++
	c.w.event("%s %s: MIRROR_PID_RESET at %d, epoch %d", c.name, topics[p], c.replicas[p].end(), b.epoch)
	if a.resets > 1 {
		c.w.fail(invReset, "%s %s: %d of them (leader disturbed: %v)", c.name, topics[p], a.resets, a.disturbed)
	}
	c.replicas[p].append(b)
}

// recorded checks a record of __mirror_state at the moment it becomes true.
func (c *cluster) recorded(p int, r fsm.Record, before, after messages.PartitionState) {
	mine := r.Kind == fsm.RecordState && r.Partition == topicOf(p)
	if before.LME != after.LME {
		c.lmeChanged(p, r, mine, before, after)
	}
	if !mine {
		return
	}
	to := r.State.State
	if before.State != to {
		c.w.event("%s %s: %s -> %s", c.name, topics[p], before.State, to)
	}
	if before.State != to && !fsm.Leads(before.State, to) {
		c.w.fail(invTable, "%s %s: %s over %s", c.name, topics[p], to, before.State)
	}
	if r.State.LeaderEpoch < before.LeaderEpoch {
		c.w.fail(invTable, "%s %s: a record of epoch %d after one of %d", c.name, topics[p], r.State.LeaderEpoch, before.LeaderEpoch)
	}
	if before.State != to {
		c.transition(p, before, to)
	}
}

func (c *cluster) transition(p int, before messages.PartitionState, to messages.State) {
	a, rep := &c.audits[p], c.replicas[p]
	switch to {
	case messages.StateStopping:
		if !a.stopping {
			*a = audit{stopping: true, stopEpoch: rep.claimed, removed: a.removed, gaps: a.gaps}
		}
	case messages.StateStopped:
		if before.State == messages.StateUnknown {
			if rep.end() > 0 {
				c.w.fail(invLost, "%s %s: %d records", c.name, topics[p], len(rep.log))
			}
			return
		}
		c.stopped(p, before)
		a.stopping = false
	case messages.StateLogTruncation:
		a.converged, a.stopping = false, false
	case messages.StateMirroring:
		if before.State == messages.StateLogTruncation && !a.converged {
			c.w.fail(invConverge, "%s %s", c.name, topics[p])
		}
		a.stopping = false
	case messages.StateFailed, messages.StateEpochFencing, messages.StatePausing, messages.StatePaused, messages.StateUnknown:
	}
}

// stopped: what must be true of the log when STOPPED is stored. A start that was
// taken back before it did anything finds the seal of the last stop, and its end.
func (c *cluster) stopped(p int, before messages.PartitionState) {
	a, rep := &c.audits[p], c.replicas[p]
	reset := rep.resetEpoch(rep.modeOffset)
	switch {
	case rep.mode != messages.ModeSealed:
		c.w.fail(invStopped, "%s %s: the journal is %s", c.name, topics[p], rep.mode)
	case len(rep.openTransactions()) > 0:
		c.w.fail(invStopped, "%s %s: transactions %v are open", c.name, topics[p], rep.openTransactions())
	case reset == messages.NoEpoch:
		c.w.fail(invStopped, "%s %s: no MIRROR_PID_RESET at the end", c.name, topics[p])
	case reset <= before.LME || a.resets > 0 && reset <= a.stopEpoch:
		c.w.fail(invStopped, "%s %s: reset epoch %d, LME %d, epoch at the stop %d", c.name, topics[p], reset, before.LME, a.stopEpoch)
	case before.Previous != messages.StateLogTruncation && before.LME != rep.lastBelow(rep.modeOffset):
		c.w.fail(invLME, "%s %s: LME %d is stored, the log says %d", c.name, topics[p], before.LME, rep.lastBelow(rep.modeOffset))
	}
	resets := 0
	for i := max(rep.modeOffset, rep.start); i < rep.end(); i++ {
		b := rep.at(i)
		if b.kind == kindData || b.kind == kindTxn || b.epoch <= rep.modeEpoch {
			c.w.fail(invStopped, "%s %s: %s of epoch %d at %d, above the seal", c.name, topics[p], b.kind, b.epoch, i)
		}
		if b.kind == kindReset {
			resets++
		}
	}
	if resets > 1 {
		c.w.fail(invReset, "%s %s: %d of them above the seal", c.name, topics[p], resets)
	}
}

func (c *cluster) lmeChanged(p int, r fsm.Record, mine bool, before, after messages.PartitionState) {
	a, rep := &c.audits[p], c.replicas[p]
	c.w.event("%s %s: LME %d -> %d", c.name, topics[p], before.LME, after.LME)
	if after.LME == messages.NoEpoch {
		if !mine || r.State.State != messages.StateStopping || r.State.Previous != messages.StateUnknown {
			c.w.fail(invLME, "%s %s: LME %d is dropped by a record of kind %s", c.name, topics[p], before.LME, r.Kind)
		}
		return
	}
	a.lmes++
	switch {
	case before.State != messages.StateStopping || before.Previous == messages.StateLogTruncation:
		c.w.fail(invLME, "%s %s: LME %d is written in %s, previous %s", c.name, topics[p], after.LME, before.State, before.Previous)
	case a.lmes > 1:
		c.w.fail(invLME, "%s %s: LME %d becomes %d in one stop", c.name, topics[p], before.LME, after.LME)
	case rep.mode != messages.ModeSealed || after.LME != rep.lastBelow(rep.modeOffset):
		c.w.fail(invLME, "%s %s: LME %d is written, the log says %d, journal %s", c.name, topics[p], after.LME, rep.lastBelow(rep.modeOffset), rep.mode)
	}
}
