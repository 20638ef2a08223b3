package cluster

import (
	"context"
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/configs"
	"kagami/persistence"
	"kagami/persistence/compact"
)

// CompactionSettings are a topic's configs for its cleaner; comparable, so that a
// change shows.
type CompactionSettings struct {
	DeleteRetentionMillis int64
	MinLagMillis          int64
	MaxLagMillis          int64
	MinDirtyRatio         float64
	// MirrorStates: the topic is __mirror_state, which has a rule of its own (OP-1), with
	// history for AuditMillis (OP-27).
	MirrorStates bool
	AuditMillis  int64
}

// Policy is what [Replica.Compact] wants, but for the time, the map's size and the pace.
func (s CompactionSettings) Policy() persistence.CompactionPolicy {
	p := persistence.CompactionPolicy{
		DeleteRetentionMillis: s.DeleteRetentionMillis, MinLagMillis: s.MinLagMillis, MaxLagMillis: s.MaxLagMillis,
		MinDirtyRatio: s.MinDirtyRatio, Rule: compact.ByKey(),
	}
	if s.MirrorStates {
		p.Rule = compact.MirrorState(s.AuditMillis)
	}
	return p
}

// compactAs fills in what the configs say of compaction. Segments roll early enough
// for max.compaction.lag.ms, as Kafka's do: the active one is never cleaned.
func (s *topicSettings) compactAs(topic string, v configs.Values, node map[string]string) {
	s.compacts = slices.Contains(v.List(configs.CleanupPolicy), "compact")
	if !s.compacts {
		return
	}
	s.compaction = CompactionSettings{
		DeleteRetentionMillis: v.Int64(configs.DeleteRetentionMs), MinLagMillis: v.Int64(configs.MinCompactionLagMs),
		MaxLagMillis: v.Int64(configs.MaxCompactionLagMs), MinDirtyRatio: v.Float(configs.MinCleanableDirtyRatio),
	}
	if topic == messages.MirrorStateTopic {
		s.compaction.MirrorStates = true
		s.compaction.AuditMillis = configs.BrokerValues(node, nil).Int64(configs.MirrorStateAuditRetention)
	}
	s.log.SegmentMillis = min(s.log.SegmentMillis, s.compaction.MaxLagMillis)
}

// Compacted calls f with every replica of a topic with cleanup.policy=compact and its
// settings, in no order, until f returns false. Topics without cost a glance.
func (rs *Replicas) Compacted(f func(*Replica, CompactionSettings) bool) {
	for _, t := range rs.all() {
		if !t.settings.compacts {
			continue
		}
		for _, r := range t.replicas {
			if r != nil && !f(r, t.settings.compaction) {
				return
			}
		}
	}
}

// Compact cleans this node's log as p says, if that is due; the high watermark and
// what has to be durable are filled in here. Every replica does so for itself and in
// its own time: offsets and the log end are the same on all, and so is what a reader
// of committed records comes to, but a superseded record, or a tombstone behind its
// time, may be gone from one and not yet from another. It runs beside other changes.
// A replica that is behind its journal is left alone.
func (r *Replica) Compact(ctx context.Context, p persistence.CompactionPolicy) (persistence.Compaction, error) {
	if r.closed.Load() {
		return persistence.Compaction{}, fmt.Errorf("compact %s: %w", r.tp, ErrClosed)
	}
	p.HighWatermark = r.end.Load()
	if s, ok := r.order.(*streamed); ok {
		if !s.settled() {
			return persistence.Compaction{}, nil
		}
		p.Durable = s.settleTo
	}
	return r.log.Compact(ctx, p)
}

// settled: the replica follows its journal.
func (s *streamed) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.behind && !s.baseline && !s.ended && s.d.failed == nil
}

// settleTo makes a checkpoint at or above offset durable: after a crash the log is cut
// back to the checkpoint and must end there, which a log with holes couldn't.
func (s *streamed) settleTo(offset int64) error {
	if err := s.d.log.Flush(); err != nil { // most of it without the lock
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind || s.baseline || s.ended || s.d.failed != nil || s.d.state.LogEnd < offset {
		return fmt.Errorf("compact %s: %w", s.d.key, errBehind)
	}
	if err := s.d.log.Flush(); err != nil {
		return err
	}
	return s.d.checkpoints.Put(true, s.checkpointLocked())
}

// fill closes the hole below the end that a cut has named: compaction has removed from
// this replica what it still has, or had, on the one that named it. All logs end there.
func fill(log persistence.Log, end int64) error {
	const most = 1<<31 - 1
	for base := log.End(); base < end; base = log.End() {
		b := batch.Filler(base, min(end-1, base+most), log.LatestEpoch(), -1)
		if _, err := log.Append(b, persistence.AppendOptions{}); err != nil {
			return fmt.Errorf("fill %d to %d: %w", base, end, err)
		}
	}
	return nil
}

// copyOrigin is where a log that is being copied has its batches from.
type copyOrigin struct {
	node   messages.NodeID // NoNode: from more than one
	purged int64           // there, when the copy began
}

// lacks reports that p goes on behind tombstones or markers which this log would have
// needed: it ends below where they were removed over there. What they deleted or ended
// would stay here for ever, so the log is copied anew from its start.
func (c copyOrigin) lacks(log persistence.Log, p piece) bool {
	end := log.End()
	return p.purged > end && end > log.LogStart() && c != copyOrigin{p.from, p.purged}
}

// takes notes where the next batches of a log come from.
func (c *copyOrigin) takes(log persistence.Log, p piece) {
	switch {
	case log.End() == log.LogStart():
		*c = copyOrigin{p.from, p.purged}
	case p.from != c.node:
		*c = copyOrigin{messages.NoNode, 0}
	}
}
