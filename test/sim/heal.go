package sim

import (
	"fmt"

	"kagami/fsm"
	"kagami/messages"
)

// drain lets everything happen that is on its way, oldest first.
func (w *world) drain(limit int) {
	for range limit {
		if len(w.actions) == 0 || w.broken != "" {
			return
		}
		w.exec("run " + w.actions[0].name)
	}
}

// round is a while without faults: what waits is sent again, fetchers fetch,
// timers fire, and what comes of it happens.
func (w *world) round(timers bool) {
	for _, c := range w.clusters {
		if c.coord.shard == nil {
			c.coord.load(c)
		}
		for _, n := range c.nodes {
			n.resend()
			for p := range simPartitions {
				n.ask(p)
				if timers {
					n.timerDue(p)
				}
			}
		}
	}
	w.drain(400)
}

const (
	healRounds  = 150
	refreshEach = 4
	recoverEach = 12
)

// heal ends all faults. While sources are still out of reach every stop must come
// to its end; then every wish must come true and every copy equal its source.
func (w *world) heal() {
	for _, c := range w.clusters {
		if c.link == linkUp {
			c.link = linkDown
		}
		c.follower, c.blind, c.silent = followerUp, false, false
		clear(c.behind)
	}
	if !w.calm(w.stopsDone) {
		w.fail(invNoSource, "%s", w.unsettled(true))
		return
	}
	for p := range simPartitions {
		a, b := w.clusters[0], w.clusters[1]
		if a.mirrors(p) && b.mirrors(p) { // a loop, found out: an operator ends it
			a.want(p, "stopped")
		}
	}
	for _, c := range w.clusters {
		c.link = linkUp
	}
	if !w.calm(func() bool { return w.unsettled(false) == "" }) {
		w.fail(invHeal, "%s", w.unsettled(false))
	}
}

func (c *cluster) mirrors(p int) bool {
	d := c.image[p].desired
	return d == messages.DesiredActive || d == messages.DesiredPaused
}

// calm lets rounds go by until done; an operator looks at what has failed for good.
func (w *world) calm(done func() bool) bool {
	for i := range healRounds {
		if w.broken != "" {
			return true
		}
		if done() {
			return true
		}
		for _, c := range w.clusters {
			if i%refreshEach == refreshEach-1 {
				c.refresh("")
			}
			for p := range simPartitions {
				if i%recoverEach == recoverEach-1 {
					c.tellLeaders(p, fsm.FaultOver{})
					c.tellLeaders(p, fsm.Recover{})
				}
			}
		}
		w.round(true)
	}
	return false
}

func (w *world) stopsDone() bool { return w.unsettled(true) == "" }

// unsettled says what is not yet as its wish has it, "" if all is.
func (w *world) unsettled(stopsOnly bool) string {
	for _, c := range w.clusters {
		for p := range simPartitions {
			if c.image[p].desired == messages.DesiredNone || stopsOnly && c.image[p].desired != messages.DesiredStopped {
				continue
			}
			if why := c.unsettled(p); why != "" {
				return fmt.Sprintf("%s %s: %s", c.name, topics[p], why)
			}
		}
	}
	if len(w.actions) > 0 {
		return "something is on its way: " + w.actions[0].name
	}
	return ""
}

func (c *cluster) unsettled(p int) string {
	want := map[messages.Desired]messages.State{
		messages.DesiredActive: messages.StateMirroring, messages.DesiredPaused: messages.StatePaused, messages.DesiredStopped: messages.StateStopped,
	}[c.image[p].desired]
	pt, stored := c.nodes[c.image[p].leader].parts[p], c.stored(p)
	switch {
	case stored.State != want:
		return fmt.Sprintf("%s is stored, wanted %s", stored.State, want)
	case pt.core.State() != want || pt.core.View().Writing || pt.running != nil:
		return fmt.Sprintf("its leader is in %s, wanted %s", pt.core.State(), want)
	case want == messages.StateMirroring && pt.fetcher == nil:
		return "nobody fetches"
	case want == messages.StateStopped && !c.nodes[c.image[p].leader].gates[p].open():
		return "clients may not write"
	case stored.CutRecords != c.audits[p].removed:
		return fmt.Sprintf("%s: %d records counted, %d removed", invCounted, stored.CutRecords, c.audits[p].removed)
	case c.audits[p].gaps > 0 && stored.GapTo == 0:
		return invGap
	case want == messages.StateMirroring:
		return c.differs(p)
	}
	return ""
}

// differs says how a copy differs from its source, "" if it doesn't.
func (c *cluster) differs(p int) string {
	rep, src := c.replicas[p], c.source.replicas[p]
	if rep.end() != src.end() {
		return fmt.Sprintf("the log ends at %d, the source's at %d", rep.end(), src.end())
	}
	for i := max(rep.start, src.start); i < rep.end(); i++ {
		if rep.at(i) != src.at(i) {
			return fmt.Sprintf("offset %d holds %v, on the source %v", i, rep.at(i), src.at(i))
		}
	}
	return ""
}
