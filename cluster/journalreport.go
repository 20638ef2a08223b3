package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"kagami/messages"
)

// behindMax bounds the replicas that a beat names; a node that is behind with more
// is behind with whole shards and says so with the first of them.
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
	defer j.mu.Unlock()
	out := make([]byte, 0, behindKeySize*min(len(j.repairs), behindMax))
	for o := range j.repairs {
		if len(out) == behindKeySize*behindMax {
			break
		}
		key := o.d.key
		out = append(out, key.TopicID[:]...)
		out = binary.BigEndian.AppendUint64(out, uint64(key.CreatedAt))
		out = binary.BigEndian.AppendUint32(out, uint32(key.Partition))
	}
	return out
}

// DecodeBehind reads the extension of a beat.
func DecodeBehind(b []byte) []messages.PartitionKey {
	out := make([]messages.PartitionKey, 0, len(b)/behindKeySize)
	for ; len(b) >= behindKeySize; b = b[behindKeySize:] {
		var key messages.PartitionKey
		copy(key.TopicID[:], b)
		key.CreatedAt, key.Partition = int64(binary.BigEndian.Uint64(b[16:])), int32(binary.BigEndian.Uint32(b[24:]))
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b messages.PartitionKey) int { return slices.Compare(a.TopicID[:], b.TopicID[:]) })
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
