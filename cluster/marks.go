package cluster

import (
	"context"
	"fmt"
	"math"

	"kagami/cluster/journal"
	"kagami/messages"
)

// cover finds out which topics are younger than a hole in the shard: those that
// the metadata log doesn't have yet.
func (j *Journal) cover(ctx context.Context, s *shard) {
	meta := j.shards[MetadataShard]
	if s == meta {
		return
	}
	hole := s.holes.Load()
	j.running.Go(func() {
		for ctx.Err() == nil && s.holes.Load() == hole {
			_, last, err := meta.stream.Bounds(ctx)
			if err == nil {
				err = meta.waitApplied(ctx, last)
			}
			j.mu.Lock()
			log := j.meta
			j.mu.Unlock()
			if err == nil && log != nil {
				s.cover(hole, log.State().End)
				return
			}
			_ = j.clock.Sleep(ctx, j.opts.FollowRetry)
		}
	})
}

// cover says from which metadata offset on topics are young, unless another hole came.
func (s *shard) cover(hole, from int64) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	if s.holes.Load() == hole {
		s.covered.Store(min(s.covered.Load(), from)) // a mark may have said more
	}
}

// marked takes what the stream says of a hole that this node has met.
func (s *shard) marked(m journal.Mark) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	s.covered.Store(m.Cover(s.covered.Load(), s.hole))
}

// markOf is what this node can say of a shard before it trims it; ok is false if that is
// nothing. It is asked for before the view of the cluster that the trim goes by: that one
// knows all older topics.
func (j *Journal) markOf(s *shard) (m journal.Mark, ok bool) {
	j.mu.Lock()
	data := j.data
	j.mu.Unlock()
	m.Sequence = s.applied.Load() // before the image: that one knows the topics of what is applied
	covered := s.covered.Load()
	if data == nil || covered == math.MaxInt64 || s.id == MetadataShard {
		return m, false
	}
	m.Below = max(data.latestOffset()+1, covered)
	return m, true
}

// mark puts a mark into the stream and waits until it is there.
func (s *shard) mark(ctx context.Context, m journal.Mark) error {
	stored := make(chan error, 1)
	message := m.Message(s.j.author)
	s.stream.Publish("", message.AppendTo(nil), func(_ uint64, err error) { stored <- err })
	select {
	case err := <-stored:
		if err != nil {
			return fmt.Errorf("mark journal shard %d before a trim: %w", s.id, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("mark journal shard %d before a trim: %w", s.id, context.Cause(ctx))
	}
}

// latestOffset is the metadata offset of the newest image seen.
func (rs *Replicas) latestOffset() int64 {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	if rs.latest == nil {
		return messages.NoOffset
	}
	return rs.latest.Offset()
}
