package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"kagami/messages"
)

// behindMax bounds the replicas that a beat names. Of a node that is behind with more,
// the shards with the most of them are named instead ([ExpandBehind]).
const behindMax = 1024

const behindKeySize = 28

// Shards is how far this node is, for its beat.
func (j *Journal) Shards() []ShardProgress {
	out := make([]ShardProgress, 0, len(j.shards))
	for id, p := range j.Progress() {
		out = append(out, ShardProgress{Shard: id, Applied: p[0], Checkpointed: p[1]})
	}
	slices.SortFunc(out, func(a, b ShardProgress) int { return int(a.Shard - b.Shard) })
	return out
}

// Behind is the replicas of this node that can't lead, for its beat's extension.
func (j *Journal) Behind() []byte {
	j.mu.Lock()
	keys := make([]messages.PartitionKey, 0, len(j.repairs))
	for o := range j.repairs {
		keys = append(keys, o.d.key)
	}
	data := j.data
	j.mu.Unlock()
	if data != nil {
		keys = slices.AppendSeq(keys, maps.Keys(data.unopened()))
	}
	return encodeBehind(keys, j.opts.Shards)
}

func encodeBehind(keys []messages.PartitionKey, shards int32) []byte {
	if len(keys) > behindMax {
		keys = byShard(keys, shards)
	}
	slices.SortFunc(keys, compareKeys)
	out := make([]byte, 0, behindKeySize*len(keys))
	for _, key := range keys {
		out = append(out, key.TopicID[:]...)
		out = binary.BigEndian.AppendUint64(out, uint64(key.CreatedAt))
		out = binary.BigEndian.AppendUint32(out, uint32(key.Partition))
	}
	return out
}

// byShard names whole shards, those with the most keys first, until few enough are left.
func byShard(keys []messages.PartitionKey, shards int32) []messages.PartitionKey {
	in := make(map[int32][]messages.PartitionKey)
	for _, key := range keys {
		shard := MetadataShard
		if key.TopicID != MetadataTopicID {
			shard = ShardOf(key, shards)
		}
		in[shard] = append(in[shard], key)
	}
	ids := slices.SortedFunc(maps.Keys(in), func(a, b int32) int {
		return cmp.Or(cmp.Compare(len(in[b]), len(in[a])), cmp.Compare(a, b))
	})
	left := len(keys)
	for _, id := range ids {
		if left <= behindMax {
			break
		}
		left += 1 - len(in[id])
		in[id] = []messages.PartitionKey{shardKey(id)}
	}
	return slices.Concat(slices.Collect(maps.Values(in))...)
}

func compareKeys(a, b messages.PartitionKey) int {
	return cmp.Or(slices.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Partition, b.Partition))
}

// BehindSet is what a beat says of replicas that can't lead.
type BehindSet struct {
	keys   map[messages.PartitionKey]bool
	shards int32
}

// NewBehindSet reads the extension of a beat.
func NewBehindSet(extension []byte, shards int32) BehindSet {
	b := BehindSet{keys: make(map[messages.PartitionKey]bool), shards: shards}
	for _, key := range DecodeBehind(extension) {
		b.keys[key] = true
	}
	return b
}

// Has reports whether the replica of a topic's partition is named, or its shard.
func (b BehindSet) Has(key messages.PartitionKey) bool {
	return len(b.keys) > 0 && (b.keys[key] || b.keys[shardKey(ShardOf(key, b.shards))])
}

// ExpandBehind puts the partitions of a shard in place of its name: whoever names a
// shard is taken to be behind with all of it. all are the partitions that are asked about.
func ExpandBehind(keys []messages.PartitionKey, shards int32, all iter.Seq[messages.PartitionKey]) []messages.PartitionKey {
	named := make(map[int32]bool)
	keys = slices.DeleteFunc(keys, func(key messages.PartitionKey) bool {
		if isShardKey(key) {
			named[key.Partition] = true
		}
		return isShardKey(key)
	})
	if len(named) == 0 {
		return keys
	}
	for key := range all {
		if named[ShardOf(key, shards)] {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

// DecodeBehind reads the extension of a beat; [ExpandBehind] what it says of whole shards.
func DecodeBehind(b []byte) []messages.PartitionKey {
	out := make([]messages.PartitionKey, 0, len(b)/behindKeySize)
	for ; len(b) >= behindKeySize; b = b[behindKeySize:] {
		var key messages.PartitionKey
		copy(key.TopicID[:], b)
		key.CreatedAt, key.Partition = int64(binary.BigEndian.Uint64(b[16:])), int32(binary.BigEndian.Uint32(b[24:]))
		out = append(out, key)
	}
	slices.SortFunc(out, compareKeys)
	return out
}

// Silence is how long no message of a node came through a shard; since the start of
// this node, if there was none.
func (j *Journal) Silence(shard int32, node messages.NodeID) time.Duration {
	s := j.shards[shard]
	s.mu.Lock()
	at, ok := s.heard[node]
	s.mu.Unlock()
	if !ok {
		at = s.began.Load()
	}
	return j.clock.Now().Sub(time.Unix(0, at))
}

// WaitCaughtUp waits until this node has applied what a shard had when it was
// called, and its replica is in order. It is for the metadata log at the start.
func (j *Journal) WaitCaughtUp(ctx context.Context, shard int32) error {
	s := j.shards[shard]
	_, last, err := s.stream.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("catch up with journal shard %d: %w", shard, err)
	}
	if err := s.waitApplied(ctx, last); err != nil {
		return err
	}
	for {
		behind := false
		j.replicas(shard, func(r *Replica) { behind = behind || r.order.(*streamed).isBehind() })
		if !behind {
			return nil
		}
		if err := j.clock.Sleep(ctx, caughtUpPoll); err != nil {
			return fmt.Errorf("wait for copies in journal shard %d: %w", shard, context.Cause(ctx))
		}
	}
}

// caughtUpPoll is how often WaitCaughtUp looks at copies that are being made.
const caughtUpPoll = 20 * time.Millisecond
