package actors

import (
	"slices"
	"time"

	"kagami/fsm"
	"kagami/messages"
	"kagami/messages/configs"
)

// ReplicaReport is what is known of a replica of another node, or of this one, by
// its node's beats.
type ReplicaReport struct {
	Live   bool // the node
	Behind bool // the replica has a hole and is being copied
	There  bool // it has applied the operation that was asked about
}

// ConvergenceView is what the end of LOG_TRUNCATION depends on (OP-24).
type ConvergenceView struct {
	Replicas  []messages.NodeID // assigned
	MinInSync int
	Unclean   bool          // mirror.support.unclean.leader.election
	Waited    time.Duration // since the cut
	LagMax    time.Duration // replica.lag.time.max.ms: how long a live replica that lags is in sync
	// Report says of a node's replica whether it is There: has applied the cut.
	Report func(messages.NodeID) ReplicaReport
}

// Convergence counts. A replica without hole on a live node is in sync; one that
// hasn't applied the cut for LagMax isn't any more.
func (v ConvergenceView) Convergence() fsm.Convergence {
	out := fsm.Convergence{Assigned: len(v.Replicas), MinInSync: v.MinInSync, Unclean: v.Unclean}
	for _, node := range v.Replicas {
		r := v.Report(node)
		whole := r.Live && !r.Behind
		if whole && (r.There || v.Waited < v.LagMax) {
			out.InSync++
		}
		if whole && r.There {
			out.InSyncCut++
			out.AssignedCut++
		}
	}
	return out
}

// convergence is how far the replicas of a partition are with what its leader here
// has applied; nil where each partition has one replica.
func (n *Node) convergence() func(tp messages.TopicPartition, waited time.Duration) fsm.Convergence {
	if n.config.Report == nil {
		return nil
	}
	return func(tp messages.TopicPartition, waited time.Duration) fsm.Convergence {
		image := n.config.Store.Image()
		t := image.Topic(tp.Topic)
		if t == nil {
			return fsm.Convergence{Assigned: 2, MinInSync: 2} // it is being deleted
		}
		part, ok := t.Partition(tp.Partition)
		r, err := n.config.Replicas.Get(tp)
		if !ok || err != nil {
			return fsm.Convergence{Assigned: 2, MinInSync: 2}
		}
		broker := configs.BrokerMap(image.BrokerConfig(n.config.Node), n.config.Static)
		values := configs.TopicValues(t.Configs, broker)
		position := r.State().Generation // that of the cut, or of what came after it
		return ConvergenceView{
			LagMax:   time.Duration(configs.BrokerValues(broker, nil).Int64(configs.ReplicaLagMax)) * time.Millisecond,
			Replicas: slices.Clone(part.Replicas), MinInSync: values.Int(configs.MinInsyncReplicas), Unclean: values.Bool(configs.MirrorSupportUncleanElection), Waited: waited,
			Report: func(node messages.NodeID) ReplicaReport { return n.config.Report(node, r.Key(), position) },
		}.Convergence()
	}
}
