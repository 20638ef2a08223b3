package cluster

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ShardState is a shard as operators see it from one node.
type ShardState struct {
	Name string // of the shard: meta, or its number
	StreamState
	Err      error  // why the stream's own numbers aren't known
	Applied  uint64 // by this node
	Stable   uint64 // first sequence that this node still needs after a crash
	Isolated bool   // the shard's order doesn't reach this node: it leads nothing there
}

// shardStateWait bounds how long a stream without a leader is asked.
const shardStateWait = 2 * time.Second

// States asks every shard's stream for its numbers, the metadata log's first. A
// shard that doesn't answer has Err set.
func (j *Journal) States(ctx context.Context) []ShardState {
	ctx, cancel := context.WithTimeoutCause(ctx, shardStateWait, errors.New("no leader of the stream answers"))
	defer cancel()
	out := make([]ShardState, 0, len(j.shards))
	for id := MetadataShard; id < j.opts.Shards; id++ {
		s := j.shards[id]
		s.dirtyMu.Lock()
		needs := s.stable.Needs()
		s.dirtyMu.Unlock()
		out = append(out, ShardState{Name: ShardName(id), Applied: s.applied.Load(), Stable: needs, Isolated: s.alone()})
	}
	var asking sync.WaitGroup
	for i := range out {
		asking.Go(func() { out[i].StreamState, out[i].Err = j.shards[MetadataShard+int32(i)].stream.State(ctx) })
	}
	asking.Wait()
	return out
}
