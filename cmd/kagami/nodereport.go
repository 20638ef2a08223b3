package main

import (
	"kagami/actors"
	"kagami/cluster"
	"kagami/cluster/journal"
	"kagami/messages"
)

// report is what beats tell of replicas; nil in a cluster of one.
func (n *node) report() func(messages.NodeID, messages.PartitionKey, int64) actors.ReplicaReport {
	if n.journal == nil {
		return nil
	}
	return func(id messages.NodeID, key messages.PartitionKey, position int64) actors.ReplicaReport {
		beat, _, ok := n.members.Beat(id)
		if !ok {
			return actors.ReplicaReport{}
		}
		return reportOf(beat, n.members.IsLive(id), key, position)
	}
}

// reportOf reads one beat.
func reportOf(beat cluster.Beat, live bool, key messages.PartitionKey, position int64) actors.ReplicaReport {
	r := actors.ReplicaReport{Live: live, Behind: cluster.NewBehindSet(beat.Extension, journalShards).Has(key)}
	shard := cluster.ShardOf(key, journalShards)
	for _, s := range beat.Shards {
		if s.Shard == shard {
			r.There = s.Applied >= journal.SequenceOf(position)
		}
	}
	return r
}

// inSync looks who is alive and which of their replicas have a hole, or lag for longer
// than replica.lag.time.max.ms; nil in a cluster of one.
func (n *node) inSync() func() func(messages.NodeID, messages.PartitionKey) bool {
	if n.journal == nil {
		return nil
	}
	return func() func(messages.NodeID, messages.PartitionKey) bool {
		live, beats := map[messages.NodeID]cluster.BehindSet{}, map[messages.NodeID]cluster.Beat{}
		for _, id := range n.members.Live() {
			beats[id], _, _ = n.members.Beat(id)
			live[id] = cluster.NewBehindSet(beats[id].Extension, journalShards)
		}
		return func(id messages.NodeID, key messages.PartitionKey) bool {
			behind, ok := live[id]
			return ok && !behind.Has(key) && n.lag.reached(beats[id], cluster.ShardOf(key, journalShards))
		}
	}
}
