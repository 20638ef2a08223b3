package main

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"kagami/cluster"
	"kagami/messages"
	"kagami/messages/configs"
)

// replicaLag tells which nodes have reached what was the end of a journal shard
// replica.lag.time.max.ms ago: only those count as in sync.
type replicaLag struct {
	marks []lagMark // oldest first; of the goroutine that marks
	due   atomic.Pointer[map[int32]uint64]
}

// lagMark is how far the shards were at a time, by what nodes told.
type lagMark struct {
	at   time.Time
	ends map[int32]uint64
}

// lagMarks are kept for the time that a replica may lag.
const lagMarks = 8

// mark takes note of the ends of now, and has those of lag ago be due.
func (l *replicaLag) mark(now time.Time, lag time.Duration, beats map[messages.NodeID]cluster.Beat) {
	if n := len(l.marks); n == 0 || now.Sub(l.marks[n-1].at) >= lag/lagMarks {
		l.marks = append(l.marks, lagMark{now, shardEndsOf(beats)})
	}
	for len(l.marks) > 1 && now.Sub(l.marks[1].at) >= lag {
		l.marks = l.marks[1:]
	}
	var due map[int32]uint64
	if first := l.marks[0]; now.Sub(first.at) >= lag {
		due = maps.Clone(first.ends)
	}
	l.due.Store(&due)
}

// reached reports whether a node has what is due of a shard.
func (l *replicaLag) reached(beat cluster.Beat, shard int32) bool {
	due := l.due.Load()
	if due == nil || (*due)[shard] == 0 {
		return true
	}
	for _, s := range beat.Shards {
		if s.Shard == shard {
			return s.Applied >= (*due)[shard]
		}
	}
	return false
}

// watchLag marks until the node ends.
func (n *node) watchLag(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			lag := time.Duration(configs.BrokerValues(n.store.Image().BrokerConfig(n.settings.nodeID), n.settings.static).Int64(configs.ReplicaLagMax)) * time.Millisecond
			beats := map[messages.NodeID]cluster.Beat{}
			for _, id := range n.members.Live() {
				if b, _, ok := n.members.Beat(id); ok {
					beats[id] = b
				}
			}
			n.lag.mark(n.clock.Now(), lag, beats)
			if n.clock.Sleep(ctx, min(max(lag/lagMarks, 10*time.Millisecond), time.Second)) != nil {
				return
			}
		}
	}()
	n.defers(func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}
