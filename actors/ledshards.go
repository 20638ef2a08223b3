package actors

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// ledShards are the partitions of an internal topic that this node leads, as the
// parent of their coordinators sees them. It belongs to that parent's Receive.
type ledShards struct {
	topic   string
	node    messages.NodeID
	replica func(tp messages.TopicPartition) (StateReplica, error)
	// tell is the message that the parent gets when the tenure of a shard changed.
	tell func(n int32) any
	log  *zap.Logger
	led  map[int32]ledShard
}

// ledShard is a shard that the image says this node leads.
type ledShard struct {
	shardLife
	watch *tenureWatch
}

// shardLife is what a coordinator serves: another one is another coordinator's.
type shardLife struct {
	key    messages.PartitionKey // life of the partition
	epoch  int32
	tenure uint64
}

// follow takes over an image and returns the shards that this node shall lead.
func (s *ledShards) follow(c actor.Context, image *metadata.Image) map[int32]bool {
	seen := map[int32]bool{}
	if t := image.Topic(s.topic); t != nil {
		for n, part := range t.Partitions {
			if part.Leader == s.node && s.lead(c, int32(n), t.Key(int32(n)), part.LeaderEpoch) {
				seen[int32(n)] = true
			}
		}
	}
	for n, l := range s.led {
		if !seen[n] {
			l.watch.cancel()
			delete(s.led, n)
		}
	}
	return seen
}

// lead takes note of a shard that this node shall lead; false without its replica.
func (s *ledShards) lead(c actor.Context, n int32, key messages.PartitionKey, epoch int32) bool {
	replica, err := s.replica(messages.TopicPartition{Topic: s.topic, Partition: n})
	if err != nil {
		s.log.Error("no replica for a coordinator", zap.String(messages.FieldTopic, s.topic), zap.Int32("shard", n), zap.Error(err))
		return false // the next image tries again
	}
	l, known := s.led[n]
	if !known || l.watch.of != tenured(replica) {
		if known {
			l.watch.cancel()
		}
		l.watch = watchTenure(c, replica, s.tell(n))
	}
	l.key, l.epoch = key, epoch
	s.led[n] = l
	return true
}

// now is what this node leads of a shard at this moment, with its replica; false if
// it doesn't.
func (s *ledShards) now(n int32) (shardLife, StateReplica, bool) {
	l, ok := s.led[n]
	if !ok {
		return shardLife{}, nil, false
	}
	if l.tenure, ok = l.watch.leads(); !ok {
		return shardLife{}, nil, false
	}
	replica, ok := l.watch.of.(StateReplica) // it was one when it came
	return l.shardLife, replica, ok
}

// forget ends all watches.
func (s *ledShards) forget() {
	for _, l := range s.led {
		l.watch.cancel()
	}
	clear(s.led)
}

// shardReplayBytes is what is read at a time on replay (states.md; Kafka's
// offsets.load.buffer.size is the same).
const shardReplayBytes = 5 << 20

// replayShard calls apply with every record of a coordinator's log, in order, up to
// end, and counts them. Damage of the log is an error.
func replayShard(ctx context.Context, log persistence.Log, end int64, apply func(batch.Record)) (records int, err error) {
	return replayBatches(ctx, log, end, func(h batch.Header, whole []byte) (int, error) {
		if h.IsControl() {
			return 0, nil
		}
		return eachRecord(whole, apply)
	})
}

// replayDecoded is replayShard for records of one kind. A corrupt one is logged and left out.
func replayDecoded[R any](ctx context.Context, log persistence.Log, end int64, what string, decode func(key, value []byte) (R, error), apply func(R), zl *zap.Logger) (records int, err error) {
	records, err = replayShard(ctx, log, end, func(rec batch.Record) {
		r, err := decode(rec.Key, rec.Value)
		if err != nil {
			zl.Error("a record of "+what+" is left out", zap.Int64(messages.FieldOffset, rec.Offset), zap.Error(err))
			return
		}
		apply(r)
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return records, err
}

// replayBatches is replayShard by whole batches; apply counts the records.
func replayBatches(ctx context.Context, log persistence.Log, end int64, apply func(h batch.Header, whole []byte) (int, error)) (records int, err error) {
	for offset := log.LogStart(); offset < end; {
		if err := ctx.Err(); err != nil {
			return records, context.Cause(ctx)
		}
		chunk, err := log.Read(offset, shardReplayBytes, end, true)
		if err != nil {
			return records, fmt.Errorf("read at %d: %w", offset, err)
		}
		bytes, err := chunk.ReadAll()
		next := chunk.NextOffset
		if err == nil {
			var n int
			n, err = eachBatchOf(bytes, apply)
			records += n
		}
		chunk.Release()
		if err != nil {
			return records, fmt.Errorf("replay at %d: %w", offset, err)
		}
		if next <= offset {
			break // nothing but a hole up to the end
		}
		offset = next
	}
	return records, nil
}

// eachBatchOf calls f with each of whole batches.
func eachBatchOf(bytes []byte, f func(h batch.Header, whole []byte) (int, error)) (records int, err error) {
	for len(bytes) > 0 {
		h, whole, rest, err := batch.Next(bytes)
		if err != nil {
			return records, err
		}
		bytes = rest
		n, err := f(h, whole)
		if records += n; err != nil {
			return records, err
		}
	}
	return records, nil
}

// eachRecord calls f with every record of a batch.
func eachRecord(whole []byte, f func(rec batch.Record)) (records int, err error) {
	for rec, err := range batch.Records(whole) {
		if err != nil {
			return records, err
		}
		records++
		f(rec)
	}
	return records, nil
}
