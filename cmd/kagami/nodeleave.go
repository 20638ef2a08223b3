package main

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// leaveTimeout bounds how long a node that ends waits until others lead what it
// led; after it they take over as from a dead one.
const leaveTimeout = 4 * time.Second

// leaveLook is the longest wait between two looks at what it still leads.
const leaveLook = 100 * time.Millisecond

// staying are the live nodes that aren't about to end.
func (n *node) staying() []messages.NodeID {
	return slices.DeleteFunc(n.members.Live(), n.members.Leaving)
}

// beReady says that this node serves, and what is the first thing at its end.
func (n *node) beReady(context.Context) error {
	n.members.Serve()
	n.defers(n.leave)
	return nil
}

// leave has the other nodes take over: it tells by its beats that it is about to end,
// the controller, which passes on if this was it, moves the leaderships, and clients
// are told while this node still answers. Without it they would wait for the end of
// this node to be noticed.
func (n *node) leave(ctx context.Context) error {
	if n.journal == nil || len(n.staying()) < 2 {
		return nil
	}
	began := n.clock.Now()
	n.members.Leave()
	ctx, cancel := context.WithTimeoutCause(ctx, leaveTimeout, messages.ErrTimedOut)
	defer cancel()
	for {
		img := n.store.Image()
		left := leadable(img, n.settings.nodeID, n.staying(), n.inSync()())
		if len(n.staying()) == 0 {
			return nil // all end together
		}
		if left == 0 && img.Controller() != n.settings.nodeID {
			n.log.Info("other nodes lead what this one led", zap.Duration("after", n.clock.Now().Sub(began)))
			return nil
		}
		waiting, stop := context.WithTimeout(ctx, leaveLook)
		_ = n.store.WaitFor(waiting, img.Offset()+1) // a later look finds what the error was about
		stop()
		if ctx.Err() != nil {
			n.log.Warn("this node ends before all that it leads is led by others", zap.Int("partitions", left), zap.Duration("after", n.clock.Now().Sub(began)))
			return nil
		}
	}
}

// leadable is how many partitions that a node leads one of the others could.
func leadable(img *metadata.Image, node messages.NodeID, others []messages.NodeID, whole func(messages.NodeID, messages.PartitionKey) bool) int {
	count := 0
	for _, t := range img.Topics() {
		for i, p := range t.Partitions {
			if p.Leader != node {
				continue
			}
			if slices.ContainsFunc(p.Replicas, func(id messages.NodeID) bool {
				return id != node && slices.Contains(others, id) && whole(id, t.Key(int32(i)))
			}) {
				count++
			}
		}
	}
	return count
}
