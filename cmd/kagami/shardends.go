package main

import (
	"maps"
	"slices"
	"time"

	"kagami/cluster"
	"kagami/messages"
)

// inSyncWithin is how long ago the end of a journal shard may have been that a node
// has reached to count as in sync for leaderships. Beats come four times a second.
const inSyncWithin = time.Second

// shardEnds remembers how far the journal shards were, by what nodes told.
type shardEnds struct {
	looked        time.Time // when newer was made
	before, newer map[int32]uint64
	sets          replicaSets
}

// lagging are the nodes that haven't reached what was the end inSyncWithin ago, or
// that don't serve yet, in order.
func (e *shardEnds) lagging(now time.Time, beats map[messages.NodeID]cluster.Beat) []messages.NodeID {
	ends := shardEndsOf(beats)
	switch {
	case e.newer == nil:
		e.before, e.newer, e.looked = ends, ends, now
	case now.Sub(e.looked) >= inSyncWithin:
		e.before, e.newer, e.looked = e.newer, ends, now
	}
	var out []messages.NodeID
	for _, id := range slices.Sorted(maps.Keys(beats)) {
		b, reached := beats[id], 0
		for _, s := range b.Shards {
			if s.Applied >= e.before[s.Shard] {
				reached++
			}
		}
		if b.Starting || reached < len(ends) {
			out = append(out, id)
		}
	}
	return out
}

// shardEndsOf is how far the shards are by what nodes tell.
func shardEndsOf(beats map[messages.NodeID]cluster.Beat) map[int32]uint64 {
	ends := map[int32]uint64{}
	for _, b := range beats {
		for _, s := range b.Shards {
			ends[s.Shard] = max(ends[s.Shard], s.Applied)
		}
	}
	return ends
}
