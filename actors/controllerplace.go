package actors

import (
	"slices"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// placement is one look at who leads what.
type placement struct {
	live   map[messages.NodeID]bool
	behind map[messages.NodeID]map[messages.PartitionKey]bool
	lags   map[messages.NodeID]bool
	known  map[messages.NodeID]bool // registered; nil: all
	loads  *leaderLoads             // nil: leaderships aren't to be spread now
	back   int                      // leaderships that may still move though their node is there
	room   int                      // changes that may still be made
}

// PlacementDue reports whether the controller on node, with the settings of its
// file, would change anything for the command now.
func PlacementDue(img *metadata.Image, cmd messages.PlaceLeaders, node messages.NodeID, static map[string]string) bool {
	cmd.Max = 1
	return len(decide(img, cmd, controllerEnv{node: node, live: cmd.Live, static: static}).records) > 0
}

// placeLeaders is messages.PlaceLeaders.
func (p *plan) placeLeaders(c messages.PlaceLeaders) {
	pl := placement{live: make(map[messages.NodeID]bool, len(c.Live)), behind: make(map[messages.NodeID]map[messages.PartitionKey]bool), lags: make(map[messages.NodeID]bool), back: c.Back, room: c.Max}
	for _, n := range c.Live {
		pl.live[n] = true
	}
	pl.known = make(map[messages.NodeID]bool, len(p.img.Nodes()))
	for _, n := range p.img.Nodes() {
		pl.known[n.ID] = true
	}
	for _, n := range c.Lagging {
		pl.lags[n] = true
	}
	for n, keys := range c.Behind {
		pl.behind[n] = make(map[messages.PartitionKey]bool, len(keys))
		for _, k := range keys {
			pl.behind[n][k] = true
		}
	}
	if pl.evens() {
		pl.loads = loadsOf(p.img)
	}
	for _, t := range p.img.Topics() {
		factor := p.factorOf(t, c.Alone)
		for n, part := range t.Partitions {
			if pl.room == 0 {
				break
			}
			if r := pl.change(t, int32(n), part, factor); r != nil {
				pl.room--
				p.add(r)
			}
		}
	}
	p.items = []messages.Item{{Count: int32(len(p.records))}}
}

// factorOf is how many replicas a topic's partitions shall have; 0: as they are. A
// client's own topic keeps what it was created with, unless that was when there was one
// node and nothing to choose.
func (p *plan) factorOf(t *metadata.Topic, alone int64) int {
	switch {
	case t.Name == messages.MirrorStateTopic:
		return p.settings().Int(configs.MirrorStateTopicRF)
	case t.Name == messages.ConsumerOffsetsTopic:
		return p.settings().Int(configs.OffsetsTopicRF)
	case t.Name == messages.TransactionStateTopic:
		return p.settings().Int(configs.TransactionTopicRF)
	case t.Name == messages.ShareGroupStateTopic:
		return p.settings().Int(configs.ShareStateTopicRF)
	case t.Mirror != "", t.CreatedAt < alone:
		return p.settings().Int(configs.DefaultReplicationFactor)
	default:
		return 0
	}
}

// change is what has to change of one partition; nil: nothing.
func (pl *placement) change(t *metadata.Topic, n int32, part metadata.Partition, factor int) metadata.Record {
	key := t.Key(n)
	able := func(node messages.NodeID) bool { return pl.live[node] && !pl.behind[node][key] }
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID = t.ID, n
	if !pl.live[part.Leader] || pl.behind[part.Leader][key] {
		i := slices.IndexFunc(part.Replicas, func(node messages.NodeID) bool { return able(node) && !pl.lags[node] })
		if i < 0 {
			i = slices.IndexFunc(part.Replicas, able)
		}
		if i < 0 || part.Replicas[i] == part.Leader {
			return nil // nobody else can; the old leader is the first who will
		}
		r.Leader = int32(part.Replicas[i])
		return r
	}
	if preferred := part.Replicas[0]; preferred != part.Leader && able(preferred) && !pl.lags[preferred] && pl.back > 0 {
		pl.back--
		r.Leader = int32(preferred)
		return r
	}
	if others := pl.moved(t.ID, n, part); others != nil {
		r.Replicas, r.Isr = others, others
		return r
	}
	if more := pl.grown(t.ID, n, part, factor); more != nil {
		r.Replicas, r.Isr = more, more
		return r
	}
	if r := pl.balanced(t, n, part); r != nil {
		return r
	}
	return nil
}

// moved is the replicas of a partition without those of nodes that were taken out of
// the cluster, and others in their places as far as nodes are live; nil: it has none.
// Its leader is live and whole, so nothing is lost with what those had.
func (pl *placement) moved(id messages.TopicID, n int32, part metadata.Partition) []int32 {
	gone := func(node messages.NodeID) bool { return !pl.known[node] && !pl.live[node] }
	if pl.known == nil || !slices.ContainsFunc(part.Replicas, gone) {
		return nil
	}
	rest := part
	rest.Replicas = slices.DeleteFunc(slices.Clone(part.Replicas), gone)
	if out := pl.grown(id, n, rest, len(part.Replicas)); out != nil {
		return out
	}
	out := make([]int32, len(rest.Replicas))
	for i, node := range rest.Replicas {
		out[i] = int32(node)
	}
	return out
}

// grown is the replicas of a partition that has too few, as far as nodes are live;
// nil: it has enough.
func (pl *placement) grown(id messages.TopicID, n int32, part metadata.Partition, factor int) []int32 {
	if len(part.Replicas) >= min(factor, len(pl.live)) {
		return nil
	}
	live := make([]messages.NodeID, 0, len(pl.live))
	for node := range pl.live {
		live = append(live, node)
	}
	slices.Sort(live)
	out := make([]int32, 0, factor)
	for _, node := range part.Replicas {
		out = append(out, int32(node))
	}
	for _, node := range place(id, n, live, len(live)) {
		if len(out) < factor && !slices.Contains(part.Replicas, node) {
			out = append(out, int32(node))
		}
	}
	return out
}
