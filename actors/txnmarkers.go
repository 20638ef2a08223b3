package actors

import (
	"context"
	"sync"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/txns"
)

// MarkedReplica is a partition that takes markers. *cluster.Replica is one.
type MarkedReplica interface {
	AppendMarker(ctx context.Context, m txns.Marker, millis int64) error
}

// TxnMarkers writes the markers of coordinators into partitions that this node
// leads. All fields are required.
type TxnMarkers struct {
	// Replica finds a partition that this node leads.
	Replica func(tp messages.TopicPartition) (MarkedReplica, error)
	// Offsets writes a marker into a partition of __consumer_offsets, by its group
	// coordinator.
	Offsets func(ctx context.Context, partition int32, m txns.Marker) error
	Clock   clock.Clock
}

// markersAtOnce is how many partitions of one request are written at a time.
const markersAtOnce = 32

// Write answers one error per partition, in order of markers and their partitions,
// nil where the marker is stored. Errors wrap messages.ErrNotLeader,
// ErrUnknownTopicOrPartition, ErrReadOnlyTopic, ErrTxnCoordinatorFenced,
// persistence.ErrInvalidProducerEpoch, or are those of a log.
func (w *TxnMarkers) Write(ctx context.Context, markers []txns.Marker) []error {
	type one struct {
		marker    txns.Marker
		partition messages.TopicPartition
	}
	var all []one
	for _, m := range markers {
		for _, p := range m.Partitions {
			all = append(all, one{m, p})
		}
	}
	errs := make([]error, len(all))
	var running sync.WaitGroup
	slots := make(chan struct{}, markersAtOnce)
	for i, o := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = w.write(ctx, o.marker, o.partition)
		})
	}
	running.Wait()
	return errs
}

func (w *TxnMarkers) write(ctx context.Context, m txns.Marker, tp messages.TopicPartition) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	reachedMarker(tp, m, "before")
	defer reachedMarker(tp, m, "after")
	if tp.Topic == messages.ConsumerOffsetsTopic {
		return w.Offsets(ctx, tp.Partition, m)
	}
	r, err := w.Replica(tp)
	if err != nil {
		return err
	}
	return r.AppendMarker(ctx, m, w.Clock.Now().UnixMilli())
}
