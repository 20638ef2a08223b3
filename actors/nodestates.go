package actors

import (
	"context"
	"fmt"
	"time"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// statesPoll is how often WaitStates looks; a start with few partitions takes
// some milliseconds.
const statesPoll = 5 * time.Millisecond

// WaitStates waits until every mirror partition that this node leads has read its
// state, and takes writes if it is STOPPED. A node that served clients before
// would refuse them a writable topic as read-only, which producers take for final.
// On ctx's end the error names one partition that wasn't there.
func (n *Node) WaitStates(ctx context.Context) error {
	for {
		waiting := n.stateMissing(n.config.Store.Image())
		if waiting == nil {
			return nil
		}
		if err := n.config.Clock.Sleep(ctx, statesPoll); err != nil {
			return fmt.Errorf("wait for the state of %s: %w", waiting, err)
		}
	}
}

// stateMissing is a partition that WaitStates waits for, nil if there is none.
func (n *Node) stateMissing(image *metadata.Image) *messages.TopicPartition {
	for _, t := range image.Topics() {
		if t.Mirror == "" {
			continue
		}
		for i := range t.Partitions {
			tp := messages.TopicPartition{Topic: t.Name, Partition: int32(i)}
			if t.Partitions[i].Leader == n.config.Node && !n.stateKnown(t, tp) {
				return &tp
			}
		}
	}
	return nil
}

func (n *Node) stateKnown(t *metadata.Topic, tp messages.TopicPartition) bool {
	r, err := n.config.Replicas.Get(tp)
	if err != nil {
		return true // it has no log to write to: that is told when it is asked for
	}
	h := n.Partitions.Get(tp)
	if h == nil {
		return false
	}
	state := h.Status().State
	open := state != messages.StateStopped || t.Desired != messages.DesiredStopped || !r.State().ReadOnly
	return state != messages.StateUnknown && open
}
