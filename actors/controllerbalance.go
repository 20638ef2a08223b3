package actors

import (
	"cmp"
	"slices"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// Leaderships are spread twice: those of a topic over the nodes, as a busy topic is the
// load of all of them, and those of all topics of a class, as there may be many small
// ones. What counts is the preferred leader, the first replica: where a leader is for a
// while, because its node was away, isn't where it belongs.

// leaderLoads counts preferred leaders.
type leaderLoads struct {
	class map[string]map[messages.NodeID]int
	topic map[messages.TopicID]map[messages.NodeID]int
	total map[string]int // of a class
}

// loadClass are topics that are the same kind of load: each internal topic for itself,
// as its leaders are coordinators, and all others.
func loadClass(topic string) string {
	if messages.IsInternalTopic(topic) {
		return topic
	}
	return ""
}

func loadsOf(img *metadata.Image) *leaderLoads {
	l := &leaderLoads{class: map[string]map[messages.NodeID]int{}, topic: map[messages.TopicID]map[messages.NodeID]int{}, total: map[string]int{}}
	for _, t := range img.Topics() {
		for _, p := range t.Partitions {
			l.add(loadClass(t.Name), t.ID, p.Replicas[0], 1)
		}
	}
	return l
}

func (l *leaderLoads) add(class string, id messages.TopicID, node messages.NodeID, n int) {
	if l.class[class] == nil {
		l.class[class] = map[messages.NodeID]int{}
	}
	if l.topic[id] == nil {
		l.topic[id] = map[messages.NodeID]int{}
	}
	l.class[class][node] += n
	l.topic[id][node] += n
	l.total[class] += n
}

// less compares nodes by what they lead of the topic, then of its class.
func (l *leaderLoads) less(class string, id messages.TopicID, a, b messages.NodeID) int {
	return cmp.Or(cmp.Compare(l.topic[id][a], l.topic[id][b]), cmp.Compare(l.class[class][a], l.class[class][b]))
}

// spread chooses the replicas of a new partition: its preferred leader is the node that
// leads least, the best by rendezvous among several; the others are the best by
// rendezvous. The choice is counted.
func (l *leaderLoads) spread(class string, id messages.TopicID, n int32, live []messages.NodeID, replicas int) []messages.NodeID {
	ranked := place(id, n, live, len(live))
	leader := slices.MinFunc(ranked, func(a, b messages.NodeID) int { return l.less(class, id, a, b) })
	out := append(make([]messages.NodeID, 0, replicas), leader)
	for _, node := range ranked {
		if node != leader && len(out) < replicas {
			out = append(out, node)
		}
	}
	l.add(class, id, leader, 1)
	return out
}

// spread is leaderLoads.spread with what this command has placed so far.
func (p *plan) spread(topic string, id messages.TopicID, n int32, replicas int) []messages.NodeID {
	if p.loads == nil {
		p.loads = loadsOf(p.img)
	}
	return p.loads.spread(loadClass(topic), id, n, p.env.live, replicas)
}

// imbalancePercent: how much more than its share of a class a node may lead before
// leaderships move for it (Kafka's leader.imbalance.per.broker.percentage is the same).
const imbalancePercent = 10

// balanced gives the lead of a partition, and the preference, to another of its
// replicas that is in order, if its node leads too much; nil: it doesn't. Each move
// evens the topic out, or the class without making the topic worse, so it comes to
// an end.
func (pl *placement) balanced(t *metadata.Topic, n int32, part metadata.Partition) *wire.PartitionChangeRecord {
	if pl.loads == nil || pl.back <= 0 || part.Leader != part.Replicas[0] {
		return nil
	}
	class, from, to := loadClass(t.Name), part.Leader, messages.NoNode
	topic, all := pl.loads.topic[t.ID], pl.loads.class[class]
	tooMany := all[from]*len(pl.live)*100 > pl.loads.total[class]*(100+imbalancePercent)
	for _, node := range part.Replicas[1:] {
		if !pl.live[node] || pl.lags[node] || pl.behind[node][t.Key(n)] {
			continue
		}
		evensTopic := topic[from]-topic[node] >= 2
		evensClass := tooMany && topic[from] > topic[node] && all[from]-all[node] >= 2
		if (evensTopic || evensClass) && (to == messages.NoNode || pl.loads.less(class, t.ID, node, to) < 0) {
			to = node
		}
	}
	if to == messages.NoNode {
		return nil
	}
	pl.back--
	pl.loads.add(class, t.ID, from, -1)
	pl.loads.add(class, t.ID, to, 1)
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID, r.Leader = t.ID, n, int32(to)
	r.Replicas = []int32{int32(to)}
	for _, node := range part.Replicas {
		if node != to {
			r.Replicas = append(r.Replicas, int32(node))
		}
	}
	return r
}

// evens reports whether leaderships may be moved to spread them: all nodes of the
// cluster are there and in order, so that none that is away for a moment counts as one
// that leads nothing.
func (pl *placement) evens() bool {
	for node := range pl.known {
		if !pl.live[node] || pl.lags[node] {
			return false
		}
	}
	return len(pl.live) > 1
}
