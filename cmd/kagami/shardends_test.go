package main

import (
	"slices"
	"testing"
	"time"

	"kagami/cluster"
	"kagami/messages"
)

func TestLaggingNodes(t *testing.T) {
	at := time.Unix(1000, 0)
	beat := func(a, b uint64) cluster.Beat {
		return cluster.Beat{Shards: []cluster.ShardProgress{{Shard: 0, Applied: a}, {Shard: 1, Applied: b}}}
	}
	var e shardEnds
	for i, step := range []struct {
		after    time.Duration
		one, two cluster.Beat
		want     []messages.NodeID
	}{
		{0, beat(10, 10), beat(10, 10), nil},
		{0, beat(10, 10), beat(10, 4), []messages.NodeID{2}},
		{900 * time.Millisecond, beat(90, 90), beat(10, 10), nil},                      // the end of a moment ago
		{1000 * time.Millisecond, beat(100, 100), beat(50, 50), nil},                   // the one of a second ago
		{2100 * time.Millisecond, beat(200, 200), beat(50, 150), []messages.NodeID{2}}, // 100, 100 then
		{2200 * time.Millisecond, beat(200, 200), beat(199, 199), nil},
		{2300 * time.Millisecond, beat(200, 200), cluster.Beat{}, []messages.NodeID{2}}, // follows nothing yet
		{2400 * time.Millisecond, beat(200, 200), cluster.Beat{Starting: true, Shards: beat(200, 200).Shards}, []messages.NodeID{2}},
	} {
		if got := e.lagging(at.Add(step.after), map[messages.NodeID]cluster.Beat{1: step.one, 2: step.two}); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
