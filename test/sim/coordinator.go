package sim

import (
	"kagami/fsm"
	"kagami/messages"
)

// coordinator is the one shard. Requests wait and become a group; it may crash
// before, within and after the append.
type coordinator struct {
	shard   *fsm.Shard // nil: down or loading
	queue   []waitingWrite
	storing bool
	life    int
}

type waitingWrite struct {
	write  fsm.Write
	answer func(fsm.Answer)
}

func (c *coordinator) crash() {
	c.shard, c.queue, c.storing = nil, nil, false
	c.life++
}

func (c *coordinator) load(w *world) {
	c.life++
	c.shard = fsm.NewShard(int64(c.life))
	for _, r := range w.log {
		if err := c.shard.Apply(r); err != nil {
			w.fail("replay: %v", err)
		}
	}
}

func (c *coordinator) write(w *world, ww waitingWrite) {
	if c.shard == nil {
		return // no answer; the sender repeats
	}
	c.queue = append(c.queue, ww)
	life := c.life
	w.later("coordinator stores a group", false, func() {
		if c.life == life && c.shard != nil {
			c.store(w)
		}
	})
}

func (c *coordinator) store(w *world) {
	group := c.queue
	c.queue = nil
	var writes []fsm.Write
	for _, g := range group {
		writes = append(writes, g.write)
	}
	plan := c.shard.Plan(writes)
	for i, r := range plan.Records {
		if w.chance(60) {
			w.note("coordinator crashes after %d of %d records", i, len(plan.Records))
			c.crash()
			w.later("coordinator loads", false, func() { c.load(w) })
			return
		}
		w.stored1(r)
	}
	c.shard.Commit(plan)
	for i, g := range group {
		g.answer(plan.Answers[i])
	}
}

// stored1 appends one record and checks what it claims against the model.
func (w *world) stored1(r fsm.Record) {
	if r.Kind == fsm.RecordState {
		for p := range w.partitions {
			if topicOf(p) == r.Partition {
				w.transition(p, w.stored(p), r)
			}
		}
	}
	w.log = append(w.log, r)
}

// transition checks a record at the moment it becomes true.
func (w *world) transition(p int, before messages.PartitionState, r fsm.Record) {
	to, rep := r.State.State, w.replicas[p]
	w.note("partition %d: %s -> %s (%s)", p, before.State, to, r.Cause)
	if before.State != to && !fsm.Leads(before.State, to) {
		w.fail("partition %d: stored %s over %s", p, to, before.State)
	}
	if r.State.LeaderEpoch < before.LeaderEpoch {
		w.fail("partition %d: a record of epoch %d after one of %d", p, r.State.LeaderEpoch, before.LeaderEpoch)
	}
	if to == messages.StateStopped && before.State == messages.StateStopping {
		w.stopped(p, before, rep)
	}
}

// stopped: what must be true of the log when STOPPED is stored.
func (w *world) stopped(p int, before messages.PartitionState, rep *modelReplica) {
	switch {
	case rep.mode != messages.ModeSealed:
		w.fail("partition %d: STOPPED while the journal is %s", p, rep.mode)
	case rep.openTransactions() > 0:
		w.fail("partition %d: STOPPED with an open transaction", p)
	case rep.resetEpoch(rep.seal) == messages.NoEpoch:
		w.fail("partition %d: STOPPED without MIRROR_PID_RESET at the end", p)
	case before.LME != messages.NoEpoch && rep.resetEpoch(rep.seal) <= before.LME:
		w.fail("partition %d: reset epoch %d is not above LME %d", p, rep.resetEpoch(rep.seal), before.LME)
	case before.Previous != messages.StateLogTruncation && before.LME != rep.lastBelow(rep.seal):
		w.fail("partition %d: LME %d stored, the log says %d", p, before.LME, rep.lastBelow(rep.seal))
	}
}
