package cluster

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"kagami/persistence"
)

// idleRounds: retention looks at a log that nothing was appended to once in
// that many rounds, at another one each time. Looking at a log loads it (files,
// indexes, about 1 KB), and a node's idle logs should not all be loaded within
// minutes of a start. With the default interval an idle log's records go at
// most an hour late.
const idleRounds = 12

// retain runs retention again and again.
func (rs *Replicas) retain(ctx context.Context) {
	for round := 0; rs.opts.Clock.Sleep(ctx, rs.opts.RetentionInterval) == nil; round++ {
		rs.expireProducers(ctx)
		rs.retainIf(ctx, func(r *Replica) bool {
			return r.retained.Load() != r.end.Load() || (int(r.key.TopicID[0])+int(r.key.Partition))%idleRounds == round%idleRounds
		})
	}
}

// expireProducers has all logs forget their idle producers, those that keep their records
// for ever, too.
func (rs *Replicas) expireProducers(ctx context.Context) {
	now := rs.opts.Clock.Now().UnixMilli()
	for _, t := range rs.all() {
		for _, r := range t.replicas {
			if ctx.Err() != nil {
				return
			}
			if r != nil && r.log.SizeBytes() > 0 {
				r.log.ExpireProducers(now)
			}
		}
	}
}

// RetainNow is one round of retention over all logs; it returns how many
// segments went. A failing log is logged and passed over.
func (rs *Replicas) RetainNow(ctx context.Context) (deleted int) {
	return rs.retainIf(ctx, func(*Replica) bool { return true })
}

func (rs *Replicas) retainIf(ctx context.Context, due func(*Replica) bool) (deleted int) {
	for _, t := range rs.all() {
		if !t.settings.retains() {
			continue
		}
		for _, r := range t.replicas {
			if ctx.Err() != nil {
				return deleted
			}
			if r != nil && t.settings.mayExpire(r.log.SizeBytes()) && due(r) {
				deleted += rs.retainOne(ctx, r, t.settings)
			}
		}
	}
	return deleted
}

func (rs *Replicas) retainOne(ctx context.Context, r *Replica, s topicSettings) int {
	n, err := r.ApplyRetention(ctx, persistence.RetentionPolicy{
		NowMillis: rs.opts.Clock.Now().UnixMilli(), Millis: s.retentionMillis, Bytes: s.retentionBytes,
	})
	if err != nil && !errors.Is(err, ErrClosed) && ctx.Err() == nil {
		rs.log.Warn("apply retention", zap.Stringer("log", r.tp), zap.Error(err))
	}
	return n
}
