package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/messages"
)

// Bumps of renewEpochs: how many partitions one request names, and how long all of
// them may take.
const (
	renewBatch   = 5000
	renewTimeout = 2 * time.Minute
)

// renewEpochs gives each writable partition whose log wasn't closed cleanly a new
// leader epoch, before any client writes to it. Power loss may have taken records
// that a destination has copied; under the old epoch the same offsets would be given
// to other records of the same epoch, and nobody could ever tell the two apart.
// (Kafka gives a new epoch at every start of a leader.) What is mirrored needs none:
// it is copied again.
func (n *node) renewEpochs(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, renewTimeout, messages.ErrTimedOut)
	defer cancel()
	var bumps []messages.EpochBump
	n.replicas.Range(func(r *cluster.Replica) bool {
		tp, s := r.TopicPartition(), r.State()
		if r.Leads() && s.Mode == messages.ModeWritable && !messages.IsInternalTopic(tp.Topic) && n.manager.Recovered(tp) {
			bumps = append(bumps, messages.EpochBump{TopicID: r.Key().TopicID, Partition: tp.Partition, MinLeaderEpoch: messages.NoEpoch})
		}
		return true
	})
	if len(bumps) == 0 {
		return nil
	}
	begun := n.clock.Now()
	for at := 0; at < len(bumps); at += renewBatch {
		out := n.controller.Submit(ctx, n.self("crash"), messages.BumpLeaderEpochs{Bumps: bumps[at:min(at+renewBatch, len(bumps))]})
		if out.Err != nil {
			return out.Err
		}
		for _, item := range out.Items {
			if item.Err != nil { // deleted meanwhile, or no epoch is left
				n.log.Warn("no new leader epoch after an unclean stop", zap.String(messages.FieldTopic, item.Name),
					zap.Int32(messages.FieldPartition, item.Partition), zap.Error(item.Err))
			}
		}
	}
	if err := n.replicas.WaitApplied(ctx, n.store.Image().Offset()); err != nil {
		return err
	}
	n.log.Info("new leader epochs after an unclean stop", zap.Int("partitions", len(bumps)), zap.Duration("took", n.clock.Now().Sub(begun)))
	return nil
}
