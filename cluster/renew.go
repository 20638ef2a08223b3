package cluster

import (
	"context"

	"go.uber.org/zap"

	"kagami/cluster/journal"
)

// renew brings the replica's log back after a failure of its disk. A log that has lost
// something by that goes back to its last checkpoint, if the stream still has what came
// since, and is copied otherwise.
func (s *streamed) renew() error {
	if err := s.d.log.Renew(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end, back := s.d.log.End(), s.d.durable
	if s.ended || !s.behind || !s.whole || s.d.failed != nil || end >= s.d.state.LogEnd {
		return nil
	}
	s.shard.log.Warn("log has lost its unsynced end with the failure of its disk", zap.Stringer("replica", s.d.key),
		zap.Int64("log_end", end), zap.Int64("journal_end", s.d.state.LogEnd), zap.Bool("read again", s.held))
	s.whole = false
	if !s.held || back.LogEnd > end || back.Sequence > s.d.state.Sequence {
		s.held = false
		return nil
	}
	if _, err := s.d.cut(journal.Operation{Kind: journal.OpTruncate, Offset: back.LogEnd}); err != nil {
		s.held = false
		return err
	}
	s.d.state = back
	s.from = s.shard.needs()
	return nil
}

// needs is from where on the stream has what this node hasn't made durable.
func (s *shard) needs() uint64 {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	return s.stable.Needs()
}

// renew brings back what takes no writes since a disk failed: the checkpoint file, and the
// logs of a node that is alone. On one of several the repair of a replica does that.
func (rs *Replicas) renew(ctx context.Context) {
	if err := rs.opts.Checkpoints.Renew(); err != nil {
		rs.log.Error("checkpoint file takes no writes, tried again", zap.Error(err))
	}
	if rs.opts.Journal != nil {
		return
	}
	each := func(r *Replica) bool {
		if err := r.renew(); err != nil {
			rs.log.Error("log takes no writes, tried again", zap.Stringer("replica", r.tp), zap.Error(err))
		}
		return ctx.Err() == nil
	}
	if rs.opts.Metadata != nil {
		each(rs.opts.Metadata)
	}
	rs.Range(each)
}

// renew is that of a replica whose journal is direct.
func (r *Replica) renew() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return nil
	}
	end := r.log.End()
	if err := r.log.Renew(); err != nil {
		return err
	}
	if now := r.log.End(); now != end {
		r.zl.Error("log has lost its unsynced end with the failure of its disk", zap.Stringer("replica", r.tp), zap.Int64("end", now), zap.Int64("end before", end))
		r.order.settle()
		r.publish()
		r.notify()
	}
	return nil
}
