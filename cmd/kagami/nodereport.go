package main

import (
	"slices"

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

// behindNamesMax is how many replicas a beat names.
const behindNamesMax = 1024

// reportOf reads one beat.
func reportOf(beat cluster.Beat, live bool, key messages.PartitionKey, position int64) actors.ReplicaReport {
	behind := cluster.DecodeBehind(beat.Extension)
	// A beat names so many at most; who is behind with more is held for behind with all.
	r := actors.ReplicaReport{Live: live, Behind: len(behind) >= behindNamesMax || slices.Contains(behind, key)}
	shard := cluster.ShardOf(key, journalShards)
	for _, s := range beat.Shards {
		if s.Shard == shard {
			r.There = s.Applied >= journal.SequenceOf(position)
		}
	}
	return r
}

// inSync looks who is alive and which of their replicas have a hole; nil in a cluster
// of one.
func (n *node) inSync() func() func(messages.NodeID, messages.PartitionKey) bool {
	if n.journal == nil {
		return nil
	}
	return func() func(messages.NodeID, messages.PartitionKey) bool {
		live := map[messages.NodeID]map[messages.PartitionKey]bool{}
		for _, id := range n.members.Live() {
			live[id] = map[messages.PartitionKey]bool{}
			if beat, _, ok := n.members.Beat(id); ok {
				for _, key := range cluster.DecodeBehind(beat.Extension) {
					live[id][key] = true
				}
			}
		}
		return func(id messages.NodeID, key messages.PartitionKey) bool {
			behind, ok := live[id]
			return ok && !behind[key]
		}
	}
}
