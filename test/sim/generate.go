package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"kagami/messages"
)

// generator makes the commands of a seed. Each seed has its own taste: some
// things happen often in it, some never, so that rare histories come about.
type generator struct {
	w          *world
	rng        *rand.Rand
	partitions int
	weights    []int
	sum        int
	outside    int // in 100 commands
	fail       int // one of so many actions; 0 = none
	lose       int
	twice      int
	inOrder    int // in 100 actions: the oldest one
}

// wish is a kind of command that the generator draws. often is its weight.
type wish struct {
	often  int
	always bool // in every seed
	storm  bool // very often in a stormy seed
	make   func(g *generator) string
}

var wishes = []wish{
	{12, true, false, func(g *generator) string { return "write " + g.partition(g.producing) }},
	{3, false, false, func(g *generator) string { return "begin " + g.partition(g.producing) }},
	{3, false, false, func(g *generator) string { return "commit " + g.partition(g.producing) }},
	{10, true, false, (*generator).want},
	{2, false, false, func(g *generator) string {
		return "all " + g.cluster().name + " " + []string{"active", "stopped"}[g.rng.IntN(2)]
	}},
	{14, true, false, func(g *generator) string { return "fetch " + g.leader() }},
	{3, true, true, func(g *generator) string { return "resend " + g.node().name }},
	{3, true, false, func(g *generator) string { return "timer " + g.leader() }},
	{2, true, false, func(g *generator) string { return "refresh " + g.cluster().name }},
	{2, false, true, func(g *generator) string { return "crash " + g.node().name }},
	{2, false, true, func(g *generator) string { return "crash " + g.cluster().name }},
	{2, false, true, func(g *generator) string { return fmt.Sprintf("elect %s %d", g.partition(nil), 1+g.rng.IntN(3)) }},
	{1, false, true, func(g *generator) string { return fmt.Sprintf("elect %s %d", g.partition(nil), 1+g.rng.IntN(15)) }},
	{2, false, false, func(g *generator) string {
		return fmt.Sprintf("unclean %s %d", g.partition(g.producing), 1+g.rng.IntN(4))
	}},
	{1, false, false, func(g *generator) string {
		return fmt.Sprintf("retain %s %d", g.partition(g.producing), 1+g.rng.IntN(6))
	}},
	{2, false, false, func(g *generator) string { return "link " + g.cluster().name + " down" }},
	{3, true, false, func(g *generator) string { return "link " + g.cluster().name + " up" }},
	{1, false, false, func(g *generator) string { return "link " + g.cluster().name + " foreign" }},
	{1, false, false, func(g *generator) string {
		return "lookup " + g.cluster().name + " " + []string{"ok", "blind", "silent"}[g.rng.IntN(3)]
	}},
	{1, false, false, func(g *generator) string { return "hints " + g.cluster().name + " " + g.onOff() }},
	{1, false, false, func(g *generator) string {
		return "follower " + g.cluster().name + " " + []string{"up", "up", "lagging", "down"}[g.rng.IntN(4)]
	}},
	{1, false, false, func(g *generator) string { return "support " + g.cluster().name + " " + g.onOff() }},
	{2, true, false, func(g *generator) string { return "recover " + g.partition(nil) }},
	{1, false, false, func(g *generator) string { return "fault " + g.partition(nil) }},
	{1, false, false, func(g *generator) string { return "over " + g.partition(nil) }},
	{1, false, false, func(g *generator) string { return "policy " + g.partition(nil) }},
	{1, false, false, func(g *generator) string { return "reconn " + g.cluster().name }},
}

func newGenerator(w *world, seed uint64) *generator {
	g := &generator{w: w, rng: rand.New(rand.NewPCG(seed, 78))}
	g.partitions = 1 + g.rng.IntN(simPartitions)
	stormy := g.rng.IntN(3) == 0
	for _, k := range wishes {
		weight := k.often * []int{0, 1, 2, 4}[g.rng.IntN(4)]
		if k.always {
			weight = max(weight, k.often)
		}
		if k.storm && stormy {
			weight = 4 * k.often
		}
		g.weights = append(g.weights, weight)
		g.sum += weight
	}
	g.outside = 8 + g.rng.IntN(20)
	g.fail = []int{0, 60, 20}[g.rng.IntN(3)]
	g.lose = []int{0, 30, 10}[g.rng.IntN(3)]
	g.twice = []int{0, 30, 10}[g.rng.IntN(3)]
	g.inOrder = []int{0, 50, 90}[g.rng.IntN(3)]
	if stormy {
		g.partitions, g.lose, g.twice, g.inOrder = 1, 8, 6, 20
	}
	return g
}

// next is the next command.
func (g *generator) next() string {
	if len(g.w.actions) == 0 || g.rng.IntN(100) < g.outside {
		return g.fromOutside()
	}
	i := g.rng.IntN(len(g.w.actions))
	if g.rng.IntN(100) < g.inOrder {
		i = 0
	}
	how := "run"
	switch {
	case g.oneIn(g.fail):
		how = "fail"
	case g.w.actions[i].net && g.oneIn(g.lose):
		how = "lose"
	case g.w.actions[i].net && g.oneIn(g.twice):
		how = "twice"
	}
	return how + " " + g.w.nameOf(i)
}

func (g *generator) oneIn(n int) bool { return n > 0 && g.rng.IntN(n) == 0 }

func (g *generator) fromOutside() string {
	at := g.rng.IntN(g.sum)
	for i, weight := range g.weights {
		if at -= weight; at < 0 {
			return wishes[i].make(g)
		}
	}
	return ""
}

func (g *generator) cluster() *cluster { return g.w.clusters[g.rng.IntN(2)] }

func (g *generator) node() *node { return g.cluster().nodes[g.rng.IntN(simNodes)] }

func (g *generator) onOff() string { return []string{"on", "on", "off"}[g.rng.IntN(3)] }

// partition is "CLUSTER TOPIC", of a cluster that fits if there is one.
func (g *generator) partition(fits func(c *cluster, p int) bool) string {
	p, i := g.rng.IntN(g.partitions), g.rng.IntN(2)
	if fits != nil && !fits(g.w.clusters[i], p) {
		i = 1 - i
	}
	return g.w.clusters[i].name + " " + topics[p]
}

// producing: clients write here, and have before: cluster a owns the topics first.
func (g *generator) producing(c *cluster, p int) bool {
	return c.writable(p) && (c.name == "a" || c.image[p].desired != messages.DesiredNone)
}

// leader is "NODE TOPIC" of a node that leads, mostly one that fetches.
func (g *generator) leader() string {
	p, c := g.rng.IntN(g.partitions), g.cluster()
	i := c.image[p].leader
	if at := slices.IndexFunc(c.nodes, func(n *node) bool { return n.parts[p].fetcher != nil }); at >= 0 {
		i = at
	}
	return c.nodes[i].name + " " + topics[p]
}

// want is an operator's next wish. Cluster a is mirrored to b first.
func (g *generator) want() string {
	p, c := g.rng.IntN(g.partitions), g.cluster()
	to := []string{"active", "active", "paused", "stopped", "stopped"}[g.rng.IntN(5)]
	if c.name == "a" && c.image[p].desired == messages.DesiredNone && g.w.clusters[1].image[p].desired == messages.DesiredNone {
		c, to = g.w.clusters[1], "active"
	}
	return "want " + c.name + " " + topics[p] + " " + to
}
