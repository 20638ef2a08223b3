package cluster

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
)

// TrimView is what trimming has to know of the cluster.
type TrimView struct {
	// Turn: this node trims; one at a time is enough, two do no harm.
	Turn bool
	// Nodes that follow the journal, this one included.
	Nodes []messages.NodeID
	// Beat is a node's newest, live whether it still comes.
	Beat func(node messages.NodeID) (beat Beat, live, ok bool)
	// Sole reports whether a node has a replica in a shard that no other live node has
	// whole. It is asked about dead nodes when a stream is too large.
	Sole func(node messages.NodeID, shard int32) bool
}

// trims removes from the streams what every node has checkpointed.
func (j *Journal) trims(ctx context.Context) {
	for j.clock.Sleep(ctx, j.opts.TrimInterval) == nil {
		if v := j.opts.Trim(); v.Turn {
			for id := MetadataShard; id < j.opts.Shards; id++ {
				if err := j.trim(ctx, v, id); err != nil && ctx.Err() == nil {
					j.log.Warn("trim journal shard, tried again", zap.Int32("shard", id), zap.Error(err))
				}
			}
		}
	}
}

// scaled is a stream that can have more copies.
type scaled interface {
	Scale(ctx context.Context, replicas int) error
}

// grow gives a stream that was made when there were fewer nodes the copies that it
// shall have, once that many nodes are there. It never takes any away.
func (j *Journal) grow(ctx context.Context, v TrimView, id int32, state StreamState) error {
	st, ok := j.shards[id].stream.(scaled)
	if !ok || state.Replicas == 0 || state.Replicas >= j.opts.Replicas || state.Moving {
		return nil
	}
	live := 0
	for _, node := range v.Nodes {
		if _, alive, ok := v.Beat(node); ok && alive {
			live++
		}
	}
	if live < j.opts.Replicas {
		return nil
	}
	j.log.Info("journal stream gets more copies", zap.Int32("shard", id), zap.Int("from", state.Replicas), zap.Int("to", j.opts.Replicas))
	return st.Scale(ctx, j.opts.Replicas)
}

// trim is one look at one shard.
func (j *Journal) trim(ctx context.Context, v TrimView, id int32) error {
	ctx, cancel := context.WithTimeoutCause(ctx, trimTimeout, messages.ErrTimedOut)
	defer cancel()
	st := j.shards[id].stream
	state, err := st.State(ctx)
	if err != nil {
		return err
	}
	if err := j.grow(ctx, v, id, state); err != nil {
		return err
	}
	tooLarge := int64(state.Bytes) > j.opts.TrimBytes
	old := tooLarge && j.metadataOld(ctx)
	mark, marks := j.markOf(j.shards[id])
	nodes := make([]journal.Progress, 0, len(v.Nodes))
	for _, node := range v.Nodes {
		p := journal.Progress{Node: node}
		if beat, live, ok := v.Beat(node); ok {
			p.Live = live
			for _, s := range beat.Shards {
				if s.Shard == id {
					p.Needs = s.Checkpointed
				}
			}
		}
		// With metadata that may be old nobody is given up.
		p.Sole = !p.Live && tooLarge && (old || v.Sole(node, id))
		nodes = append(nodes, p)
	}
	keep, givenUp := journal.Trim(state.First, int64(state.Bytes), j.opts.TrimBytes, nodes)
	for _, node := range givenUp {
		j.log.Warn("journal is too large to wait for a dead node: it has to copy when it is back",
			zap.Int32("shard", id), zap.Int32("node", int32(node)), zap.Uint64("bytes", state.Bytes))
	}
	if keep <= state.First {
		return nil
	}
	if id != MetadataShard {
		if !marks || mark.Sequence < keep-1 {
			return nil // a node with a hole of its own says nothing of it until it knows more
		}
		widened, err := j.shards[id].markInto(ctx, mark)
		if widened != nil {
			defer func() {
				if err := widened.Widen(ctx, 0); err != nil {
					j.log.Warn("a full journal stream was given room for a trim and keeps it", zap.Int32("shard", id), zap.Error(err))
				}
			}()
		}
		if err != nil {
			return err
		}
	}
	return st.Purge(ctx, keep-1)
}

// metadataOld reports whether what this node knows of the cluster may be old. A full
// stream takes no beats, so that its shard looks isolated; but a leader that hears a quorum
// says whether this node has everything.
func (j *Journal) metadataOld(ctx context.Context) bool {
	if !j.Isolated(MetadataShard) {
		return false
	}
	meta := j.shards[MetadataShard]
	_, last, err := meta.stream.Bounds(ctx)
	return err != nil || meta.applied.Load() < last
}

// wide is a stream that can be given more room than it was made with.
type wide interface {
	// Widen sets the room beyond that, in bytes.
	Widen(ctx context.Context, bytes int64) error
}

// markRoom is what a full stream gets so that it takes a mark, without which it can't be
// trimmed. Others may be faster to use it.
const markRoom = 256 << 10

// markInto is mark, for a full stream too: then it returns what has more room now.
func (s *shard) markInto(ctx context.Context, m journal.Mark) (wide, error) {
	err := s.mark(ctx, m)
	w, ok := s.stream.(wide)
	if !ok || !errors.Is(err, ErrJournalFull) {
		return nil, err
	}
	if err := w.Widen(ctx, markRoom); err != nil {
		return nil, err
	}
	return w, s.mark(ctx, m)
}

// trimTimeout bounds the look at one shard.
const trimTimeout = 10 * time.Second
