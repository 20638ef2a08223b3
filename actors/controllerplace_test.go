package actors

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// placed is a partition before a look at it.
func placed(leader messages.NodeID, replicas ...messages.NodeID) metadata.Partition {
	return metadata.Partition{Leader: leader, LeaderEpoch: 5, Replicas: replicas, ISR: replicas}
}

func change(leader messages.NodeID, replicas ...int32) *wire.PartitionChangeRecord {
	r := wire.NewPtrPartitionChangeRecord()
	r.TopicID, r.PartitionID = messages.TopicID{7}, 0
	if leader >= 0 {
		r.Leader = int32(leader)
	}
	if len(replicas) > 0 {
		r.Replicas, r.Isr = replicas, replicas
	}
	return r
}

func TestPlacementOfOnePartition(t *testing.T) {
	topic := &metadata.Topic{ID: messages.TopicID{7}, Name: "t", CreatedAt: 3}
	grown := place(topic.ID, 0, []messages.NodeID{1, 2, 3}, 3)
	more := []int32{1}
	for _, n := range grown {
		if n != 1 {
			more = append(more, int32(n))
		}
	}
	for name, row := range map[string]struct {
		part   metadata.Partition
		live   []messages.NodeID
		behind []messages.NodeID
		lags   []messages.NodeID
		back   int
		factor int
		want   *wire.PartitionChangeRecord
	}{
		"nothing to do":                               {placed(1, 1, 2, 3), []messages.NodeID{1, 2, 3}, nil, nil, 1, 3, nil},
		"dead leader: the next replica":               {placed(1, 1, 2, 3), []messages.NodeID{2, 3}, nil, nil, 0, 3, change(2)},
		"dead leader: not the one that is behind":     {placed(1, 1, 2, 3), []messages.NodeID{2, 3}, []messages.NodeID{2}, nil, 0, 3, change(3)},
		"dead leader, all others behind: it stays":    {placed(1, 1, 2, 3), []messages.NodeID{2, 3}, []messages.NodeID{2, 3}, nil, 1, 3, nil},
		"all dead: it stays":                          {placed(1, 1, 2, 3), []messages.NodeID{4}, nil, nil, 1, 3, nil},
		"a live leader that is behind makes room":     {placed(2, 1, 2, 3), []messages.NodeID{2, 3}, []messages.NodeID{2}, nil, 1, 3, change(3)},
		"a leader behind, the others too: it stays":   {placed(2, 1, 2, 3), []messages.NodeID{1, 2, 3}, []messages.NodeID{1, 2, 3}, nil, 1, 3, nil},
		"the preferred one is back and lags":          {placed(2, 1, 2, 3), []messages.NodeID{1, 2, 3}, nil, []messages.NodeID{1}, 1, 3, nil},
		"dead leader: one that lags comes last":       {placed(1, 1, 2, 3), []messages.NodeID{2, 3}, nil, []messages.NodeID{2}, 0, 3, change(3)},
		"dead leader: better one that lags than none": {placed(1, 1, 2, 3), []messages.NodeID{2, 3}, []messages.NodeID{3}, []messages.NodeID{2}, 0, 3, change(2)},
		"a leader that lags stays":                    {placed(1, 1, 2, 3), []messages.NodeID{1, 2, 3}, nil, []messages.NodeID{1}, 1, 3, nil},
		"the preferred one is back":                   {placed(2, 1, 2, 3), []messages.NodeID{1, 2, 3}, nil, nil, 1, 3, change(1)},
		"it is back and still behind":                 {placed(2, 1, 2, 3), []messages.NodeID{1, 2, 3}, []messages.NodeID{1}, nil, 1, 3, nil},
		"it is back, but enough go back already":      {placed(2, 1, 2, 3), []messages.NodeID{1, 2, 3}, nil, nil, 0, 3, nil},
		"D51: more replicas as nodes come":            {placed(1, 1), []messages.NodeID{1, 2, 3}, nil, nil, 0, 3, change(-1, more...)},
		"D51: no more than nodes":                     {placed(1, 1), []messages.NodeID{1}, nil, nil, 0, 3, nil},
		"D51: not beyond the configured":              {placed(1, 1, 2), []messages.NodeID{1, 2, 3}, nil, nil, 0, 2, nil},
		"as created: a client's topic keeps its own":  {placed(1, 1), []messages.NodeID{1, 2, 3}, nil, nil, 0, 0, nil},
		"the sole replica's node is dead: no growth":  {placed(1, 1), []messages.NodeID{2, 3}, nil, nil, 1, 3, nil},
		"a dead replica counts: it comes back":        {placed(1, 1, 2, 4), []messages.NodeID{1, 2, 3}, nil, nil, 0, 3, nil},
		"the sole replica is dead, behind elsewhere":  {placed(1, 1, 2), []messages.NodeID{2}, []messages.NodeID{2}, nil, 1, 2, nil},
		"dead leader, the preferred is another's job": {placed(3, 1, 2, 3), []messages.NodeID{1, 2}, nil, nil, 0, 3, change(1)},
	} {
		t.Run(name, func(t *testing.T) {
			pl := placement{live: map[messages.NodeID]bool{}, behind: map[messages.NodeID]map[messages.PartitionKey]bool{}, back: row.back, room: 10}
			pl.lags = map[messages.NodeID]bool{}
			for _, n := range row.lags {
				pl.lags[n] = true
			}
			for _, n := range row.live {
				pl.live[n] = true
			}
			for _, n := range row.behind {
				pl.behind[n] = map[messages.PartitionKey]bool{topic.Key(0): true}
			}
			var want metadata.Record
			if row.want != nil {
				want = row.want
			}
			if got := pl.change(topic, 0, row.part, row.factor); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestPlaceLeadersInSteps: a node that is back gets its leaderships a few at a
// time, a dead one's go at once but in bounded commands, and each move raises the
// epoch.
func TestPlaceLeadersInSteps(t *testing.T) {
	w := newWorld(t, 1, 2, 3)
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "t", Partitions: 60, ReplicationFactor: 3}}})
	before := leadersOf(w.img)
	epochs := func() (out []int32) {
		for _, p := range w.img.Topic("t").Partitions {
			out = append(out, p.LeaderEpoch)
		}
		return out
	}
	at := epochs()
	dead := messages.PlaceLeaders{Live: []messages.NodeID{1, 2}, Back: 5, Max: 7}
	moved := 0
	for PlacementDue(w.img, dead, 1, nil) {
		n := int(w.ok(dead).Items[0].Count)
		if n > 7 {
			t.Fatalf("%d changes in one command", n)
		}
		if moved += n; moved > before[3] {
			t.Fatalf("%d moves for %d partitions", moved, before[3])
		}
	}
	if led := leadersOf(w.img); moved != before[3] || led[3] != 0 || led[1] <= before[1] || led[2] <= before[2] {
		t.Fatalf("%d moves, leaders %v were %v", moved, led, before)
	}
	raised := 0
	for i, e := range epochs() {
		if e > at[i] {
			raised++
		}
	}
	if raised != moved {
		t.Fatalf("%d epochs raised by %d moves", raised, moved)
	}
	back := messages.PlaceLeaders{Live: []messages.NodeID{1, 2, 3}, Back: 5, Max: 100}
	steps := 0
	for PlacementDue(w.img, back, 1, nil) {
		if n := w.ok(back).Items[0].Count; n > 5 {
			t.Fatalf("%d leaders went back at once", n)
		}
		steps++
	}
	if d := cmp.Diff(before, leadersOf(w.img)); d != "" || steps != (before[3]+4)/5 {
		t.Fatalf("%d steps: %s", steps, d)
	}
}

// TestD51ReplicasGrow: what was created on one node gets the configured number of
// replicas as nodes join: internal topics and mirror topics, but not a topic that a
// client made with one.
func TestD51ReplicasGrow(t *testing.T) {
	w := newWorld(t, 1)
	w.env.static = map[string]string{configs.DefaultReplicationFactor: "3"}
	w.ok(messages.CreateMirror{Name: "m", Configs: set("bootstrap.servers", "h:1")})
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: messages.ConsumerOffsetsTopic}}})
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "own", Partitions: 2, ReplicationFactor: 1}}})
	w.ok(messages.StartMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{ID: messages.TopicID{1, 2}, Name: "copied", NumPartitions: 2}}})
	for _, n := range []messages.NodeID{2, 3, 4} {
		w.ok(messages.RegisterNode{Node: messages.Node{ID: n, Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9094}}}})
		live := make([]messages.NodeID, n)
		for i := range live {
			live[i] = messages.NodeID(i + 1)
		}
		cmd := messages.PlaceLeaders{Live: live, Max: 1000}
		w.ok(cmd)
		if PlacementDue(w.img, cmd, 1, w.env.static) {
			t.Fatalf("%d nodes: more to do", n)
		}
		want := map[string]int{"own": 1, "copied": min(int(n), 3), messages.MirrorStateTopic: min(int(n), 3), messages.ConsumerOffsetsTopic: min(int(n), 3)}
		for _, topic := range w.img.Topics() {
			for i, p := range topic.Partitions {
				distinct := slices.Compact(slices.Sorted(slices.Values(p.Replicas)))
				if len(p.Replicas) != want[topic.Name] || len(distinct) != len(p.Replicas) || p.Leader != 1 || p.Replicas[0] != 1 {
					t.Fatalf("%d nodes: %s-%d has %s, want %d", n, topic.Name, i, fmt.Sprint(p.Replicas), want[topic.Name])
				}
			}
		}
	}
}
