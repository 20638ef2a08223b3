package group

import (
	"fmt"
	"testing"

	"kagami/messages/groups"
)

// BenchmarkConsumer: members of one group that beat, and one that comes and goes.
func BenchmarkConsumer(b *testing.B) {
	for _, members := range []int{10, 1000} {
		config := testConfig()
		config.ConsumerSizeMax = members + 1
		core := New(config)
		core.SetTopics((&someTopics{}).set("t", int32(members)))
		store := func(e Effects) Effects {
			var out Effects
			for len(e.Writes) > 0 {
				w := e.Writes[0]
				e.Writes = e.Writes[1:]
				next := core.Stored(0, w.ID)
				e.Writes = append(e.Writes, next.Writes...)
				out.Replies = append(out.Replies, next.Replies...)
			}
			return out
		}
		epochs := make([]int32, members)
		join := func(i int) groups.Beat {
			return groups.Beat{Group: "g", Member: fmt.Sprint("m", i), RebalanceMillis: rebalance, Topics: []string{"t"}, Owned: []groups.TopicPartitions{}}
		}
		for i := range members {
			store(core.Handle(0, Ticket(i+1), "", join(i)))
		}
		for range 3 {
			for i := range members {
				id := fmt.Sprint("m", i)
				con := core.groups["g"].consumer
				m := con.members[id]
				store(core.Handle(0, Ticket(i+1), "", groups.Beat{Group: "g", Member: id, Epoch: m.epoch, RebalanceMillis: -1, Owned: topicPartitions(m.assigned.sorted())}))
				epochs[i] = m.epoch
			}
		}
		b.Run(fmt.Sprintf("beat/members=%d", members), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				core.Handle(0, 1, "", groups.Beat{Group: "g", Member: fmt.Sprint("m", i), Epoch: epochs[i], RebalanceMillis: -1})
				i = (i + 1) % members
			}
		})
		b.Run(fmt.Sprintf("join/members=%d", members), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				store(core.Handle(0, 1, "", join(members)))
				store(core.Handle(0, 1, "", groups.Beat{Group: "g", Member: fmt.Sprint("m", members), Epoch: groups.EpochLeaves, RebalanceMillis: -1}))
			}
		})
	}
}
