package sim

import (
	"slices"
	"strconv"

	"kagami/fsm"
	"kagami/messages"
)

// outsideCommand is something that the outside world does.
type outsideCommand struct {
	usage string
	run   func(w *world, args []string) bool
}

// outside is every command but run, fail, lose and twice, which let something
// happen that is on its way ([world.act]).
var outside = map[string]outsideCommand{
	"write":    {"CLUSTER TOPIC [N]: a client writes", onPartition(func(c *cluster, p int, arg string) bool { return c.writeMany(p, arg) })},
	"begin":    {"CLUSTER TOPIC: a client writes in a new transaction", onPartition(func(c *cluster, p int, _ string) bool { return c.produce(p, kindTxn) >= 0 })},
	"commit":   {"CLUSTER TOPIC: the oldest transaction is committed", onPartition(func(c *cluster, p int, _ string) bool { return c.produce(p, kindCommit) >= 0 })},
	"elect":    {"CLUSTER TOPIC [N]: N elections", onPartition((*cluster).elect)},
	"unclean":  {"CLUSTER TOPIC N: an unclean election that loses N records", onPartition((*cluster).unclean)},
	"revive":   {"CLUSTER TOPIC: an unclean election that brings back what the last one lost", onPartition((*cluster).revive)},
	"retain":   {"CLUSTER TOPIC N: retention or DeleteRecords removes the oldest N", onPartition((*cluster).retain)},
	"want":     {"CLUSTER TOPIC active|paused|stopped: an operator", onPartition((*cluster).want)},
	"all":      {"CLUSTER active|paused|stopped: the same for all topics, as with the pattern .*", onCluster((*cluster).wantAll)},
	"recover":  {"CLUSTER TOPIC: RecoverMirrorTopics", toLeader(fsm.Recover{})},
	"fault":    {"CLUSTER TOPIC: something only people can end", toLeader(fsm.Fault{Text: "a fault"})},
	"over":     {"CLUSTER TOPIC: it has ended", toLeader(fsm.FaultOver{})},
	"policy":   {"CLUSTER TOPIC: the retry limits change", toLeader(fsm.PolicyChanged{})},
	"refresh":  {"CLUSTER: the periodic refresh of source metadata", onCluster((*cluster).refresh)},
	"reconn":   {"CLUSTER: connection settings change (OP-8)", onCluster((*cluster).reconnect)},
	"link":     {"CLUSTER up|down|foreign: the way to its source", onCluster((*cluster).setLink)},
	"lookup":   {"CLUSTER ok|blind|silent: what its look-ups of LMEs find: all, nothing, an error", onCluster((*cluster).setLookup)},
	"hints":    {"CLUSTER on|off: whether it names leaders in its errors", onCluster((*cluster).setHints)},
	"follower": {"CLUSTER up|lagging|down: the second replica of its partitions", onCluster((*cluster).setFollower)},
	"support":  {"CLUSTER on|off: mirror.support.unclean.leader.election", onCluster((*cluster).setSupport)},
	"crash":    {"NODE|CLUSTER: a node, or a cluster's coordinator", crash},
	"resend":   {"NODE: what has no answer is sent again", onNode(func(n *node, _ int) bool { n.resend(); return true })},
	"fetch":    {"NODE TOPIC: a fetcher asks", onNode((*node).ask)},
	"timer":    {"NODE TOPIC: a retry timer fires", onNode((*node).timerDue)},
}

func partitionOf(topic string) int { return slices.Index(topics, topic) }

func onCluster(f func(*cluster, string) bool) func(*world, []string) bool {
	return func(w *world, args []string) bool {
		if len(args) == 0 || w.cluster(args[0]) == nil {
			return false
		}
		return f(w.cluster(args[0]), append(args, "")[1])
	}
}

func onPartition(f func(*cluster, int, string) bool) func(*world, []string) bool {
	return func(w *world, args []string) bool {
		if len(args) < 2 || w.cluster(args[0]) == nil || partitionOf(args[1]) < 0 {
			return false
		}
		return f(w.cluster(args[0]), partitionOf(args[1]), append(args, "")[2])
	}
}

func onNode(f func(*node, int) bool) func(*world, []string) bool {
	return func(w *world, args []string) bool {
		if len(args) == 0 || w.node(args[0]) == nil {
			return false
		}
		p := 0
		if len(args) > 1 {
			p = partitionOf(args[1])
		}
		return p >= 0 && f(w.node(args[0]), p)
	}
}

// toLeader tells every node that thinks it leads.
func toLeader(in fsm.Input) func(*world, []string) bool {
	return onPartition(func(c *cluster, p int, _ string) bool { return c.tellLeaders(p, in) })
}

func (c *cluster) tellLeaders(p int, in fsm.Input) (told bool) {
	for _, n := range c.nodes {
		if n.parts[p].epoch >= 0 {
			n.tell(p, in)
			told = true
		}
	}
	return told
}

func (w *world) node(name string) *node {
	for _, c := range w.clusters {
		for _, n := range c.nodes {
			if n.name == name {
				return n
			}
		}
	}
	return nil
}

func crash(w *world, args []string) bool {
	if len(args) != 1 {
		return false
	}
	if n := w.node(args[0]); n != nil {
		n.restart()
		return true
	}
	c := w.cluster(args[0])
	if c == nil || c.coord.shard == nil {
		return false
	}
	c.coord.crash(c)
	return true
}

// produce is a client that writes where it is let; the offset, -1 if nowhere.
func (c *cluster) produce(p int, k kind) int {
	for _, n := range c.nodes {
		r := c.replicas[p]
		if !n.gates[p].open() || !n.writes(p) {
			continue
		}
		if s := c.stored(p).State; !n.mayWrite(p, s) {
			c.w.fail(invGate, "%s %s: takes a client write in %s", n.name, topics[p], s)
		}
		b := record{epoch: r.claimed, kind: k, id: c.w.id()}
		switch open := r.openTransactions(); {
		case k == kindTxn:
			b.txn = b.id
		case k == kindCommit && len(open) == 0:
			return -1
		case k == kindCommit:
			b.txn = open[0]
		}
		offset := r.append(b)
		r.acked[b.id] = offset
		if k != kindData {
			c.w.event("%s %s: %s at %d", c.name, topics[p], k, offset)
		}
		return offset
	}
	return -1
}

func (c *cluster) writeMany(p int, arg string) bool {
	first, last := -1, -1
	for range max(1, number(arg)) {
		if last = c.produce(p, kindData); last < 0 {
			return false
		}
		if first < 0 {
			first = last
		}
	}
	c.w.event("%s %s: writes acknowledged at %d-%d", c.name, topics[p], first, last)
	return true
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func (c *cluster) elect(p int, arg string) bool {
	n := max(1, number(arg))
	t := &c.image[p]
	t.leader = (t.leader + n) % simNodes
	t.epoch += int32(n)
	c.publish()
	return true
}

// unclean is for a cluster that behaves like an ordinary source: its partition
// is written by clients. Its new leader takes over at once.
func (c *cluster) unclean(p int, arg string) bool {
	rep := c.replicas[p]
	n := min(number(arg), len(rep.log))
	if rep.mode != messages.ModeWritable || !c.writable(p) || n <= 0 {
		return false
	}
	c.elect(p, "")
	rep.lose(n)
	rep.claim(c.image[p].epoch, c.image[p].leader)
	return true
}

// revive is another one: the replica that wins has what the last one lost, and
// nothing of what came since (C13).
func (c *cluster) revive(p int, _ string) bool {
	rep := c.replicas[p]
	if rep.mode != messages.ModeWritable || !c.writable(p) || !rep.revive() {
		return false
	}
	c.elect(p, "")
	rep.claim(c.image[p].epoch, c.image[p].leader)
	return true
}

func (c *cluster) retain(p int, arg string) bool {
	rep := c.replicas[p]
	n := min(number(arg), len(rep.log))
	if rep.mode != messages.ModeWritable || !c.writable(p) || n <= 0 {
		return false
	}
	rep.raiseStart(rep.start + n)
	return true
}

// want is what the public API allows: a start needs UNKNOWN or STOPPED here, and
// a source that doesn't mirror the topic itself (OP-35).
func (c *cluster) want(p int, arg string) bool {
	t := &c.image[p]
	from, stored := t.desired, c.stored(p).State
	to := map[string]messages.Desired{"active": messages.DesiredActive, "paused": messages.DesiredPaused, "stopped": messages.DesiredStopped}[arg]
	ok := false
	switch {
	case from == to:
	case to == messages.DesiredActive && from != messages.DesiredPaused:
		loop := c.link == linkUp && c.source.describe(p).loops()
		ok = !loop && (stored == messages.StateStopped || stored == messages.StateUnknown)
	case to == messages.DesiredActive:
		ok = true
	case to == messages.DesiredPaused:
		ok = from == messages.DesiredActive
	case to == messages.DesiredStopped:
		ok = from != messages.DesiredNone
	}
	if ok {
		t.desired = to
		c.publish()
	}
	return ok
}

func (c *cluster) wantAll(arg string) (did bool) {
	for p := range c.image {
		did = c.want(p, arg) || did
	}
	return did
}

// refresh is the mirror's periodic look at its source: the cluster id, whether it
// answers, and leader epochs that come near ours.
func (c *cluster) refresh(string) bool {
	for p := range c.image {
		switch c.link {
		case linkUp:
			c.tellLeaders(p, fsm.SourceBack{})
			c.tellLeaders(p, fsm.Refreshed{OK: true})
			for _, n := range c.nodes {
				if s := c.stored(p).State; n.holds(p) && s != messages.StateStopped && s != messages.StateStopping {
					n.bumpAhead(p)
				}
			}
		case linkDown:
			c.tellLeaders(p, fsm.Refreshed{OK: false})
		case linkForeign:
			c.tellLeaders(p, fsm.SourceChanged{Text: "another cluster"})
		}
	}
	return true
}

func (c *cluster) reconnect(string) bool {
	for p := range c.image {
		c.tellLeaders(p, fsm.Reconnect{})
		c.tellLeaders(p, fsm.SourceBack{})
	}
	return true
}

func (c *cluster) setLink(arg string) bool {
	l, ok := map[string]link{"up": linkUp, "down": linkDown, "foreign": linkForeign}[arg]
	if !ok || l == c.link {
		return false
	}
	c.link = l
	return true
}

func (c *cluster) setLookup(arg string) bool {
	c.blind, c.silent = arg == "blind", arg == "silent"
	return true
}

func (c *cluster) setHints(arg string) bool { c.hints = arg == "on"; return true }

func (c *cluster) setSupport(arg string) bool { c.support = arg == "on"; return true }

// follower is what the second replica of a cluster's partitions does.
type follower int8

const (
	followerUp      follower = iota + 1
	followerLagging          // in the ISR, applies nothing
	followerDown             // out of the ISR
)

func (c *cluster) setFollower(arg string) bool {
	f, ok := map[string]follower{"up": followerUp, "lagging": followerLagging, "down": followerDown}[arg]
	if !ok || f == c.follower {
		return false
	}
	c.follower = f
	if f == followerUp {
		clear(c.behind)
	}
	return true
}

func (c *cluster) cutFollower(p int) {
	if c.follower != followerUp {
		c.behind[p] = true
	}
}

func (c *cluster) convergence(p int) fsm.Convergence {
	out := fsm.Convergence{Assigned: 2, InSync: 2, InSyncCut: 2, AssignedCut: 2, MinInSync: 1, Unclean: c.support}
	if c.behind[p] {
		out.InSyncCut, out.AssignedCut = 1, 1
	}
	if c.follower == followerDown {
		out.InSync, out.InSyncCut = 1, 1
	}
	return out
}
