package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fsm/txn"
	"kagami/messages"
	"kagami/messages/txns"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// Limits of the markers of a shard.
const (
	txnMarkTimeout = 5 * time.Second
	txnMarkBatch   = 2000 // partitions in one request
	txnMarkRetry   = 50 * time.Millisecond
	txnMarkPause   = time.Second // longest pause before markers are tried again
)

// txnSender is the markers of a shard that are to be written: one request at a time
// for each node, in order.
type txnSender struct {
	queue map[messages.NodeID][]txnMark
	busy  map[messages.NodeID]bool
	again []txnMark // to be tried later
	pause time.Duration
	timer bool
	// pending is how many marks aren't done, in whatever place they are.
	pending int
}

// txnMark is a marker for one partition.
type txnMark struct {
	txn       string
	number    int64
	marker    *txns.Marker
	partition messages.TopicPartition
}

// txnMarked is the outcome of a request.
type txnMarked struct {
	attempt int64
	node    messages.NodeID
	marks   []txnMark
	errs    []error // one per mark
}

// txnMarkAgain has markers tried again.
type txnMarkAgain struct{ attempt int64 }

// mark begins to write markers.
func (s *txnShard) mark(c actor.Context, list []txn.Marking) {
	var marks []txnMark
	for i := range list {
		for _, p := range list[i].Marker.Partitions {
			marks = append(marks, txnMark{txn: list[i].Txn, number: list[i].Number, marker: &list[i].Marker, partition: p})
		}
	}
	s.markers.pending += len(marks)
	s.owner.counts.pending.Add(int64(len(marks)))
	s.route(c, marks)
}

// route hands each marker to the node that leads its partition.
func (s *txnShard) route(c actor.Context, marks []txnMark) {
	q := &s.markers
	if q.queue == nil {
		q.queue, q.busy = map[messages.NodeID][]txnMark{}, map[messages.NodeID]bool{}
	}
	image := s.owner.shards.image.Load()
	var needless []txnMark
	nodes := map[messages.NodeID]bool{}
	for _, m := range marks {
		switch leader, ok := markLeader(image, m.partition); {
		case !ok:
			needless = append(needless, m)
		case leader == messages.NoNode:
			q.again = append(q.again, m)
		default:
			q.queue[leader] = append(q.queue[leader], m)
			nodes[leader] = true
		}
	}
	for node := range nodes {
		s.send(c, node)
	}
	if len(q.again) > 0 {
		s.later(c)
	}
	if len(needless) > 0 {
		s.log.Info("partitions are gone or belong to a mirror, their transactions end without a marker", zap.Int("partitions", len(needless)))
		s.settle(c, needless)
	}
}

// markLeader finds who leads a partition; false where it needs no marker: it is gone,
// or a mirror owns its log, which cuts what was written here before.
func markLeader(image *metadata.Image, tp messages.TopicPartition) (messages.NodeID, bool) {
	t := image.Topic(tp.Topic)
	if t == nil || t.Mirror != "" && t.Desired != messages.DesiredStopped {
		return messages.NoNode, false
	}
	p, ok := t.Partition(tp.Partition)
	return p.Leader, ok
}

// send asks a node to write what waits for it, unless it is being asked.
func (s *txnShard) send(c actor.Context, node messages.NodeID) {
	q := &s.markers
	n := min(len(q.queue[node]), txnMarkBatch)
	if q.busy[node] || n == 0 {
		return
	}
	marks := q.queue[node][:n:n]
	if q.queue[node] = q.queue[node][n:]; len(q.queue[node]) == 0 {
		delete(q.queue, node)
	}
	q.busy[node] = true
	root, self, parent, attempt, write := c.ActorSystem().Root, c.Self(), s.ctx, s.attempt, s.owner.config.WriteMarkers
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(parent, txnMarkTimeout, messages.ErrTimedOut)
		defer cancel()
		reached(s.what, "markers", "before")
		errs, err := write(ctx, node, markersOf(marks))
		reached(s.what, "markers", "after")
		if err == nil && len(errs) != len(marks) {
			err = messages.ErrInvalidRequest
		}
		if err != nil {
			errs = make([]error, len(marks))
			for i := range errs {
				errs[i] = err
			}
		}
		root.Send(self, txnMarked{attempt: attempt, node: node, marks: marks, errs: errs})
	})
}

// markersOf groups marks of one marking, which follow one another.
func markersOf(marks []txnMark) []txns.Marker {
	var out []txns.Marker
	for i, m := range marks {
		if i == 0 || marks[i-1].marker != m.marker {
			next := *m.marker
			next.Partitions = nil
			out = append(out, next)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, m.partition)
	}
	return out
}

// marked takes the outcome of a request.
func (s *txnShard) marked(c actor.Context, m txnMarked) {
	if m.attempt != s.attempt || s.core == nil {
		return
	}
	q := &s.markers
	delete(q.busy, m.node)
	var done []txnMark
	for i, mark := range m.marks {
		switch err := m.errs[i]; {
		case err == nil:
			done = append(done, mark)
		case errors.Is(err, persistence.ErrInvalidProducerEpoch):
			// What this marker would end isn't there any more.
			s.log.Warn("the producer has gone on without its marker", zap.String("transactional", mark.txn), zap.Stringer("partition", mark.partition), zap.Error(err))
			done = append(done, mark)
		default:
			s.log.Debug("marker is tried again", zap.String("transactional", mark.txn), zap.Stringer("partition", mark.partition), zap.Error(err))
			q.again = append(q.again, mark)
		}
	}
	if len(done) > 0 {
		q.pause = 0
	}
	if len(q.again) > 0 {
		s.later(c)
	}
	s.send(c, m.node)
	s.settle(c, done)
}

// settle tells the core of partitions that are done.
func (s *txnShard) settle(c actor.Context, done []txnMark) {
	s.markers.pending -= len(done)
	s.owner.counts.pending.Add(-int64(len(done)))
	var all txn.Effects
	for _, m := range done {
		e := s.core.Marked(s.now(), m.txn, m.number, m.partition)
		all.Writes = append(all.Writes, e.Writes...)
	}
	s.perform(c, all)
}

// later has markers tried again after a pause that grows.
func (s *txnShard) later(c actor.Context) {
	q := &s.markers
	if q.timer {
		return
	}
	q.timer = true
	q.pause = min(max(2*q.pause, txnMarkRetry), txnMarkPause)
	if q.pause == txnMarkPause {
		s.log.Warn("markers of transactions can't be written, tried again", zap.Int("partitions", len(q.again)), zap.Stringer("partition", q.again[0].partition))
	}
	root, self, attempt := c.ActorSystem().Root, c.Self(), s.attempt
	s.clock.AfterFunc(q.pause, func() { root.Send(self, txnMarkAgain{attempt: attempt}) })
}

func (s *txnShard) markAgain(c actor.Context) {
	q := &s.markers
	marks := q.again
	q.timer, q.again = false, nil
	s.route(c, marks)
}
