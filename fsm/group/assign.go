package group

import (
	"bytes"
	"cmp"
	"slices"

	"kagami/messages"
)

// The server side assignors.
const (
	AssignorUniform = "uniform"
	AssignorRange   = "range"
)

// spec is what an assignor is given.
type spec struct {
	members []specMember // by id
	topics  map[messages.TopicID]int32
}

type specMember struct {
	id, instance string
	topics       []messages.TopicID // subscribed to, sorted, all in spec.topics
	current      []partition        // target so far, sorted
}

// assign is the target of each member, sorted, in the members' order.
func (s spec) assign(assignor string) [][]partition {
	var out [][]partition
	switch {
	case len(s.members) == 0:
		return nil
	case assignor == AssignorRange:
		out = s.byRange()
	case s.alike():
		out = s.even()
	default:
		out = s.fair()
	}
	for _, ps := range out {
		slices.SortFunc(ps, comparePartitions)
	}
	return out
}

// alike reports whether all members read the same topics.
func (s spec) alike() bool {
	for _, m := range s.members[1:] {
		if !slices.Equal(m.topics, s.members[0].topics) {
			return false
		}
	}
	return true
}

// subscribers is the members of each topic by place in s.members.
func (s spec) subscribers() map[messages.TopicID][]int {
	out := map[messages.TopicID][]int{}
	for i, m := range s.members {
		for _, t := range m.topics {
			out[t] = append(out[t], i)
		}
	}
	return out
}

func (s spec) sortedTopics() []messages.TopicID {
	out := make([]messages.TopicID, 0, len(s.topics))
	for id := range s.topics {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b messages.TopicID) int { return bytes.Compare(a[:], b[:]) })
	return out
}

// byRange gives each subscriber of a topic a row of its partitions. The members are
// in one order for all topics, static ones first and by their instance, so that
// topics with the same subscribers are split alike.
func (s spec) byRange() [][]partition {
	out := make([][]partition, len(s.members))
	subscribers := s.subscribers()
	for _, topic := range s.sortedTopics() {
		members := subscribers[topic]
		slices.SortFunc(members, func(a, b int) int {
			x, y := s.members[a], s.members[b]
			if (x.instance == "") != (y.instance == "") {
				return cmp.Compare(y.instance, x.instance) // one of them is ""
			}
			return cmp.Or(cmp.Compare(x.instance, y.instance), cmp.Compare(x.id, y.id))
		})
		next, left := int32(0), s.topics[topic]
		for i, m := range members {
			n := left / int32(len(members)-i)
			if left%int32(len(members)-i) > 0 {
				n++
			}
			for range n {
				out[m] = append(out[m], partition{topic, next})
				next++
			}
			left -= n
		}
	}
	return out
}

// even is the uniform assignor where all members read the same topics: shares that
// differ by one at most, and as few moves as that takes.
func (s spec) even() [][]partition {
	out, free := s.kept(s.subscribers())
	total := len(free)
	for _, ps := range out {
		total += len(ps)
	}
	least, bigger := total/len(s.members), total%len(s.members)
	for i, ps := range out {
		quota := least
		if len(ps) > least && bigger > 0 {
			quota++
			bigger--
		}
		if len(ps) > quota {
			free = append(free, ps[quota:]...)
			out[i] = ps[:quota:quota]
		}
	}
	slices.SortFunc(free, comparePartitions)
	for _, quota := range []int{least, least + 1} {
		for i := range out {
			for len(out[i]) < quota && len(free) > 0 {
				out[i] = append(out[i], free[0])
				free = free[1:]
			}
		}
	}
	return out
}

// kept is what members keep if they may, and what nobody has.
func (s spec) kept(subscribers map[messages.TopicID][]int) (out [][]partition, free []partition) {
	out = make([][]partition, len(s.members))
	taken := map[partition]struct{}{}
	for i, m := range s.members {
		for _, p := range m.current {
			_, twice := taken[p]
			if _, reads := slices.BinarySearchFunc(m.topics, p.topic, func(a, b messages.TopicID) int { return bytes.Compare(a[:], b[:]) }); !reads || twice || p.number >= s.topics[p.topic] {
				continue
			}
			taken[p] = struct{}{}
			out[i] = append(out[i], p)
		}
	}
	for _, topic := range s.sortedTopics() {
		if len(subscribers[topic]) == 0 {
			continue
		}
		for n := range s.topics[topic] {
			if _, ok := taken[partition{topic, n}]; !ok {
				free = append(free, partition{topic, n})
			}
		}
	}
	return out, free
}

// fair is the uniform assignor where members read different topics: what nobody has
// goes to the subscriber with least, topics with few subscribers first; then
// partitions move from the member with most to the one with least of a topic, as
// long as that makes them more alike.
func (s spec) fair() [][]partition {
	subscribers := s.subscribers()
	out, free := s.kept(subscribers)
	slices.SortStableFunc(free, func(a, b partition) int {
		return cmp.Or(cmp.Compare(len(subscribers[a.topic]), len(subscribers[b.topic])), comparePartitions(a, b))
	})
	for _, p := range free {
		to := subscribers[p.topic][0]
		for _, m := range subscribers[p.topic] {
			if len(out[m]) < len(out[to]) {
				to = m
			}
		}
		out[to] = append(out[to], p)
	}
	for moved := true; moved; { // each move makes the sum of squares smaller
		moved = false
		for _, topic := range s.sortedTopics() {
			for s.move(out, topic, subscribers[topic]) {
				moved = true
			}
		}
	}
	return out
}

// move takes a partition of a topic from who has most to who has least.
func (s spec) move(out [][]partition, topic messages.TopicID, members []int) bool {
	from, to, at := -1, -1, -1
	for _, m := range members {
		if to < 0 || len(out[m]) < len(out[to]) {
			to = m
		}
		if from >= 0 && len(out[m]) <= len(out[from]) {
			continue
		}
		if i := slices.IndexFunc(out[m], func(p partition) bool { return p.topic == topic }); i >= 0 {
			from, at = m, i
		}
	}
	if from < 0 || len(out[from])-len(out[to]) < 2 {
		return false
	}
	out[to] = append(out[to], out[from][at])
	out[from] = slices.Delete(out[from], at, at+1)
	return true
}
