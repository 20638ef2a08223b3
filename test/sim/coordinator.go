package sim

import (
	"kagami/fsm"
)

// coordinator is the one shard of a cluster. Requests wait and become a group; it
// may crash before, within and after the append.
type coordinator struct {
	shard *fsm.Shard // nil: down or loading
	queue []waitingWrite
	life  int64
}

type waitingWrite struct {
	write  fsm.Write
	answer func(fsm.Answer)
}

func (k *coordinator) crash(c *cluster) {
	k.shard, k.queue = nil, nil
	k.life++
	c.w.later(&action{name: c.name + ":load", run: func(bool) {
		if k.shard == nil {
			k.load(c)
		}
	}})
}

func (k *coordinator) load(c *cluster) {
	k.life++
	k.shard = fsm.NewShard(k.life)
	for _, r := range c.log {
		if err := k.shard.Apply(r); err != nil {
			c.w.fail(invRecord, "replay on %s: %v", c.name, err)
		}
	}
}

func (k *coordinator) write(c *cluster, ww waitingWrite) {
	if k.shard == nil {
		return // no answer; the sender repeats
	}
	k.queue = append(k.queue, ww)
	if len(k.queue) == 1 {
		life := k.life
		c.w.later(&action{name: c.name + ":store", run: func(fault bool) {
			if k.life == life && k.shard != nil {
				k.store(c, fault)
			}
		}})
	}
}

// store appends what a group comes to; with a fault it dies when half of the
// records are there.
func (k *coordinator) store(c *cluster, fault bool) {
	group := k.queue
	k.queue = nil
	writes := make([]fsm.Write, len(group))
	for i, g := range group {
		writes[i] = g.write
	}
	plan := k.shard.Plan(writes)
	for i, r := range plan.Records {
		if fault && 2*i >= len(plan.Records) {
			break
		}
		c.append(r)
	}
	if fault {
		k.crash(c)
		return
	}
	k.shard.Commit(plan)
	k.matches(c)
	for i, g := range group {
		g.answer(plan.Answers[i])
	}
}

// matches: what the coordinator believes is what a replay gives.
func (k *coordinator) matches(c *cluster) {
	for p := range simPartitions {
		live, again := k.shard.Get(simMirror, topicOf(p), -1), c.stored(p)
		if live != again {
			c.w.fail(invReplay, "%s %s: live %+v, replayed %+v", c.name, topics[p], live, again)
		}
	}
}
