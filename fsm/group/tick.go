package group

// Tick ends what has lasted too long. It is called at [Core.Wake], or later.
func (c *Core) Tick(now int64) Effects {
	c.wake = noWake
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		if g.consumer != nil {
			c.tickConsumer(now, g)
		}
		if g.consumer == nil {
			c.tick(now, g)
		}
		c.again(g)
		c.tidy(g)
	}
	return c.take()
}

func (c *Core) tick(now int64, g *group) {
	lost := false
	for _, id := range sortedKeys(g.pending) {
		if g.pending[id] <= now {
			delete(g.pending, id)
		}
	}
	for _, m := range g.sorted() {
		switch {
		case m.expires > now:
		case m.join != 0 && !m.fresh, m.sync != 0:
			c.alive(now, m) // who waits for us is there
		default:
			c.remove(g, m)
			lost = true
		}
	}
	if lost {
		c.afterLeave(now, g)
	}
	c.complete(now, g) // an id that was given out may have been waited for
	if g.state == PreparingRebalance && g.joinBy <= now {
		c.joinTimeout(now, g)
	}
	if (g.state == CompletingRebalance || g.state == Stable) && g.syncBy != 0 && g.syncBy <= now {
		c.syncTimeout(now, g)
	}
}

// syncTimeout takes out the members that joined the generation and never asked for
// their assignment.
func (c *Core) syncTimeout(now int64, g *group) {
	g.syncBy = 0
	lost := false
	for _, m := range g.sorted() {
		if !m.synced {
			c.remove(g, m)
			lost = true
		}
	}
	if lost {
		c.afterLeave(now, g)
	}
}

// again finds the next deadline of a group.
func (c *Core) again(g *group) {
	if g.consumer != nil {
		c.againConsumer(g.consumer)
		return
	}
	for _, until := range g.pending {
		c.by(until)
	}
	for _, m := range g.members {
		c.by(m.expires)
	}
	if g.state == PreparingRebalance {
		c.by(g.joinBy)
	}
	if g.syncBy != 0 {
		c.by(g.syncBy)
	}
}
