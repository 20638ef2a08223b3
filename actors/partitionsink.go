package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"kagami/cluster"
	"kagami/fetch"
	"kagami/fsm"
	"kagami/messages"
	"kagami/persistence"
)

// replicaSink is the local end of a mirrored partition, as a fetch worker sees it.
type replicaSink struct {
	replica PartitionReplica
	// generation that the worker's decision stands on: taken with its State, shown
	// with its append, so that a cut, claim or seal in between refuses the append.
	// A restart of its own is part of the decision and moves it on.
	generation atomic.Int64
}

var _ fetch.Sink = (*replicaSink)(nil)

// State is described at [fetch.SinkState].
func (s *replicaSink) State() fetch.LocalState {
	st := s.replica.State()
	s.generation.Store(st.Generation)
	return fetch.LocalState{
		LogStart: st.LogStart, HighWatermark: st.HighWatermark, End: st.End,
		LeaderEpoch: st.LeaderEpoch, LatestEpoch: s.replica.Log().LatestEpoch(),
	}
}

// EpochEndOffset is described at [fetch.SinkState].
func (s *replicaSink) EpochEndOffset(epoch int32) (int32, int64, bool) {
	return s.replica.Log().EpochEndOffset(epoch)
}

// AppendMirror is described at [fetch.SinkWriter].
func (s *replicaSink) AppendMirror(ctx context.Context, at int64, batches []byte) (fetch.Appended, error) {
	info, err := s.replica.AppendMirrorAt(ctx, s.generation.Load(), at, batches)
	if err != nil {
		return fetch.Appended{}, sinkError(err)
	}
	return fetch.Appended{End: info.End, MaxTimestamp: info.MaxTimestamp}, nil
}

// Truncate is described at [fetch.SinkWriter].
func (s *replicaSink) Truncate(ctx context.Context, offset int64, reason string) (fetch.Cut, error) {
	cut, err := s.replica.Truncate(ctx, offset, reason)
	return sinkCut(cut), sinkError(err)
}

// RestartAt is described at [fetch.SinkWriter].
func (s *replicaSink) RestartAt(ctx context.Context, offset int64, reason string) (fetch.Cut, error) {
	cut, generation, err := s.replica.RestartAt(ctx, offset, reason)
	if err == nil {
		s.generation.Store(generation)
	}
	return sinkCut(cut), sinkError(err)
}

// RaiseLogStart is described at [fetch.SinkWriter].
func (s *replicaSink) RaiseLogStart(ctx context.Context, offset int64) error {
	return sinkError(s.replica.RaiseLogStart(ctx, offset))
}

// sinkError: the log end moved, or the partition was opened meanwhile. Both mean
// that the partition isn't what the worker believes, not that it is broken.
func sinkError(err error) error {
	if errors.Is(err, cluster.ErrNotLogEnd) || errors.Is(err, cluster.ErrWritable) {
		return fmt.Errorf("%w: %w", messages.ErrNotLeader, err)
	}
	return err
}

func sinkCut(c persistence.Cut) fetch.Cut {
	return fetch.Cut{From: c.From, To: c.To, Records: c.Records, Bytes: c.Bytes}
}

func cutOf(c fetch.Cut) fsm.Cut {
	return fsm.Cut{From: c.From, To: c.To, Records: c.Records, Bytes: c.Bytes}
}
