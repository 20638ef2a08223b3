package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/groups"
	"kagami/messages/wire"
)

// TestGroupHistoryJudge: the checker finds every kind of fault, and none in a good log.
func TestGroupHistoryJudge(t *testing.T) {
	offset := func(p int32, at int64) groups.Record {
		return groups.Record{Group: "g", Kind: groups.KindOffset, Topic: groupIn, Partition: p, Offset: &groups.Offset{Offset: at}}
	}
	generation := func(n int32, owned ...[]int32) groups.Record {
		s := &groups.State{Generation: n}
		for i, p := range owned {
			s.Members = append(s.Members, groups.MemberState{Member: string(rune('a' + i)), Assignment: wire.EncodeAssignment(1, []groups.Partitions{{Topic: groupIn, Partitions: p}})})
		}
		return groups.Record{Group: "g", Kind: groups.KindGroup, State: s}
	}
	epoch := func(n int32) groups.Record {
		return groups.Record{Group: "n", Kind: groups.KindConsumer, Consumer: &groups.ConsumerGroup{Epoch: n}}
	}
	current := func(member string, n int32, assigned, revoking []int32) groups.Record {
		return groups.Record{Group: "n", Kind: groups.KindCurrent, Member: member, Current: &groups.Current{
			Epoch: n, Assigned: []groups.TopicPartitions{{Partitions: assigned}}, Revoking: []groups.TopicPartitions{{Partitions: revoking}},
		}}
	}
	gone := groups.Record{Group: "n", Kind: groups.KindCurrent, Member: "a", Gone: true}
	for _, row := range []struct {
		name    string
		records []groups.Record
		commits map[groupPart]int64
		want    string
	}{
		{"good", []groups.Record{
			generation(1, []int32{0, 1}), offset(0, 5), generation(2, []int32{0}, []int32{1}), offset(0, 5), offset(1, 2),
			epoch(1), current("a", 1, []int32{0, 1}, nil), epoch(2), current("a", 1, []int32{0}, []int32{1}), current("a", 2, []int32{0}, nil), current("b", 2, []int32{1}, nil),
			gone, current("b", 3, []int32{0, 1}, nil),
		}, map[groupPart]int64{{"g", 0}: 5}, ""},
		{"offset goes back", []groups.Record{offset(0, 5), offset(0, 4)}, nil, "goes back from 5 to 4"},
		{"generation falls", []groups.Record{generation(2), generation(1)}, nil, "generation 1 after 2"},
		{"two owners", []groups.Record{generation(1, []int32{0}, []int32{0})}, nil, "in generation 1 0 belongs to a and b"},
		{"epoch falls", []groups.Record{epoch(2), epoch(1)}, nil, "epoch 1 after 2"},
		{"member epoch falls", []groups.Record{current("a", 2, nil, nil), current("a", 1, nil, nil)}, nil, "member a has epoch 1 after 2"},
		{"given before it was given up", []groups.Record{current("a", 1, []int32{0}, []int32{1}), current("b", 2, []int32{1}, nil)}, nil, "1 belongs to"},
		{"acknowledged and lost", []groups.Record{offset(0, 5)}, map[groupPart]int64{{"g", 0}: 6}, "6 was acknowledged for 0, the last offset is 5"},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := newGroupJudge()
			for _, r := range row.records {
				j.record(r)
			}
			faults := strings.Join(append(j.faults, j.lost(row.commits)...), "\n")
			if row.want == "" {
				require.Empty(t, faults)
				return
			}
			require.Contains(t, faults, row.want)
		})
	}
}
