package actors

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

var (
	idA = messages.TopicID{1}
	idB = messages.TopicID{2}
)

// mirrorImage has the mirror m with the topics given: name, id, value of
// mirror.name, and leader epochs of its partitions.
type imageTopic struct {
	name   string
	id     messages.TopicID
	mirror string
	epochs []int32
}

func imageOf(t *testing.T, topics ...imageTopic) *metadata.Image {
	t.Helper()
	servers := "a:9092"
	records := []metadata.Record{
		&wire.ConfigRecord{ResourceType: int8(messages.ResourceClusterMirror), ResourceName: "m", Name: "bootstrap.servers", Value: &servers},
	}
	for _, topic := range topics {
		records = append(records, &wire.TopicRecord{Name: topic.name, TopicID: topic.id, CreatedAt: -1})
		for i, e := range topic.epochs {
			records = append(records, &wire.PartitionRecord{PartitionID: int32(i), TopicID: topic.id, Replicas: []int32{1}, Isr: []int32{1}, Leader: 1, LeaderEpoch: e})
		}
		if topic.mirror != "" {
			records = append(records, &wire.ConfigRecord{ResourceType: int8(messages.ResourceTopic), ResourceName: topic.name, Name: messages.MirrorNameConfig, Value: &topic.mirror})
		}
	}
	delta, err := metadata.EmptyImage().Apply(0, records)
	if err != nil {
		t.Fatal(err)
	}
	return delta.New
}

func source(name string, id messages.TopicID, epochs ...int32) sourceTopic {
	s := sourceTopic{name: name, id: id}
	for _, e := range epochs {
		s.partitions = append(s.partitions, sourcePartition{leader: 7, epoch: e})
	}
	return s
}

func byName(topics ...sourceTopic) map[string]sourceTopic {
	m := map[string]sourceTopic{}
	for _, s := range topics {
		m[s.name] = s
	}
	return m
}

func TestPlanRefresh(t *testing.T) {
	a := imageTopic{name: "a", id: idA, mirror: "m", epochs: []int32{20, 20}}
	selector := func(include, exclude string) (func(string) bool, func(string) bool) {
		s, err := messages.TopicPatterns{Include: messages.ParseList(include), Exclude: messages.ParseList(exclude)}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		return s.Include.Match, s.Exclude.Match
	}
	for _, tc := range []struct {
		name             string
		topics           []imageTopic
		described        map[string]sourceTopic
		listed           map[string]sourceTopic
		include, exclude string
		notCoordinator   bool
		want             refreshPlan
	}{
		{name: "all is well", topics: []imageTopic{a}, described: byName(source("a", idA, 5, 5)), want: refreshPlan{healthy: []string{"a"}}},
		{name: "K4 partitions grew", topics: []imageTopic{a}, described: byName(source("a", idA, 5, 5, 0, 0)), want: refreshPlan{
			healthy: []string{"a"}, grow: []messages.PartitionCount{{Topic: "a", Count: 4}},
		}},
		{name: "C38 more partitions here", topics: []imageTopic{a}, described: byName(source("a", idA, 5)), want: refreshPlan{
			faults: []topicFault{{topic: "a", text: "topic a has 2 partitions here, 1 on the source: a mirror topic can't have more than its source"}},
		}},
		{name: "C11 recreated", topics: []imageTopic{a}, described: byName(source("a", idB, 0, 0)), want: refreshPlan{faults: []topicFault{{topic: "a", text: "topic a was made anew on the source: its id there is " + idB.String() + ", here " + idA.String() + "; delete the topic here to copy the new one from the start"}}}},
		{name: "source without ids", topics: []imageTopic{a}, described: byName(source("a", messages.TopicID{}, 5, 5)), want: refreshPlan{healthy: []string{"a"}}},
		{name: "U11 gone, the second list agrees", topics: []imageTopic{a}, described: byName(sourceTopic{name: "a", missing: true}), listed: byName(), want: refreshPlan{
			gone: []messages.MirrorTopic{{Name: "a", ID: idA}},
		}},
		{name: "gone, but the list has it", topics: []imageTopic{a}, described: byName(sourceTopic{name: "a", missing: true}), listed: byName(source("a", idA, 1, 1))},
		{name: "gone, but the list failed", topics: []imageTopic{a}, described: byName(sourceTopic{name: "a", missing: true})},
		{name: "gone, another node coordinates", topics: []imageTopic{a}, described: byName(sourceTopic{name: "a", missing: true}), listed: byName(), notCoordinator: true},
		{name: "error says nothing", topics: []imageTopic{a}, described: byName(sourceTopic{name: "a", err: errors.New("x")}), listed: byName()},
		{name: "periodic bump at the threshold", topics: []imageTopic{a}, described: byName(source("a", idA, 17, 18)), want: refreshPlan{
			healthy: []string{"a"}, bumps: []messages.EpochBump{{TopicID: idA, Partition: 1, MinLeaderEpoch: 28}},
		}},
		{name: "paused and stopped topics take no part", topics: []imageTopic{
			{name: "a", id: idA, mirror: "m.paused", epochs: []int32{0}}, {name: "b", id: idB, mirror: "m.stopped", epochs: []int32{0}},
		}, described: byName(source("a", idA, 50, 50), sourceTopic{name: "b", missing: true}), listed: byName(), include: ".*"},
		{name: "U10 discovery, members and internals left out", topics: []imageTopic{a, {name: "old", id: idB, mirror: "m.stopped", epochs: []int32{0}}}, described: byName(source("a", idA, 1, 1)),
			listed:  byName(source("a", idA, 1, 1), source("old", idB, 1), source("new2", messages.TopicID{9}, 1, 1), source("new1", messages.TopicID{8}, 1), source("__mirror_state", messages.TopicID{7}, 1), source("skip", messages.TopicID{6}, 1)),
			include: ".*", exclude: "sk.*", want: refreshPlan{healthy: []string{"a"}, discovered: []messages.MirrorTopic{
				{Name: "new1", ID: messages.TopicID{8}, NumPartitions: 1}, {Name: "new2", ID: messages.TopicID{9}, NumPartitions: 2},
			}}},
		{name: "discovery leaves foreign topics alone", topics: []imageTopic{{name: "x", id: idA, epochs: []int32{0}}, {name: "y", id: idB, mirror: "other", epochs: []int32{0}}},
			listed: byName(source("x", idB, 1), source("y", idB, 1)), include: ".*", want: refreshPlan{notes: []topicNote{
				{"x", "it matches the include patterns but exists here with id " + idA.String() + ", on the source with " + idB.String() + ": delete it here to mirror it"},
				{"y", "it matches the include patterns but is in mirror other"},
			}}},
		{name: "exclude stops an active topic", topics: []imageTopic{a}, described: byName(source("a", idA, 5, 5)), exclude: "a", want: refreshPlan{
			excluded: []messages.MirrorTopic{{Name: "a", ID: idA}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			included, excluded := selector(tc.include, tc.exclude)
			got := planRefresh(refreshInput{
				image: imageOf(t, tc.topics...), mirror: "m", described: tc.described, listed: tc.listed,
				coordinator: !tc.notCoordinator, included: included, excluded: excluded, discovering: tc.include != "",
			})
			sortNotes := cmpopts.SortSlices(func(a, b topicNote) bool { return a.topic < b.topic })
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(refreshPlan{}, topicFault{}, topicNote{}), cmpopts.EquateEmpty(), sortNotes); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
		})
	}
}

func TestBumpTargetOverflow(t *testing.T) {
	for _, tc := range []struct {
		name string
		sle  int32
		want int32
		err  bool
	}{
		{name: "ordinary", sle: 5, want: 15},
		{name: "the last that fits", sle: 1<<31 - 12, want: 1<<31 - 2},
		{name: "overflow", sle: 1<<31 - 11, err: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := bumpTarget(tc.sle)
			if got != tc.want || (err != nil) != tc.err {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

func TestParts(t *testing.T) {
	topics := func(partitions ...int32) (out []messages.MirrorTopic) {
		for _, p := range partitions {
			out = append(out, messages.MirrorTopic{NumPartitions: p})
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		in    []messages.MirrorTopic
		limit int
		want  []int
	}{
		{name: "none", limit: 10},
		{name: "all in one", in: topics(1, 2, 3), limit: 10, want: []int{3}},
		{name: "by number", in: topics(1, 2, 3, 4, 5), limit: 2, want: []int{2, 2, 1}},
		{name: "by weight", in: topics(cycleRecordsMax/2, cycleRecordsMax/2-2, 1), limit: 10, want: []int{2, 1}},
		{name: "one that is too heavy stands alone", in: topics(1, cycleRecordsMax*2, 1), limit: 10, want: []int{1, 1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []int
			for part := range parts(tc.in, tc.limit, func(t messages.MirrorTopic) int { return int(t.NumPartitions) }) {
				got = append(got, len(part))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("parts (-want +got):\n%s", d)
			}
		})
	}
}

// TestU12SourceIDBeforeAView: no fetcher begins without the id that was remembered.
func TestU12SourceIDBeforeAView(t *testing.T) {
	known := &metadata.Mirror{Configs: map[string]string{configs.MirrorSourceClusterID: "source"}}
	for name, row := range map[string]struct {
		view *SourceView
		mi   *metadata.Mirror
		want string
	}{
		"nothing yet":           {nil, &metadata.Mirror{}, ""},
		"deleted":               {nil, nil, ""},
		"remembered":            {nil, known, "source"},
		"seen":                  {&SourceView{ClusterID: "source"}, &metadata.Mirror{}, "source"},
		"a source without ids":  {&SourceView{}, known, "source"},
		"seen, and set for now": {&SourceView{ClusterID: "seen"}, known, "seen"},
	} {
		require.Equal(t, row.want, sourceID(row.view, row.mi), name)
	}
}
