package main

import (
	"encoding/binary"
	"testing"

	"kagami/actors"
	"kagami/cluster"
	"kagami/cluster/journal"
	"kagami/messages"
)

func TestReportOfABeat(t *testing.T) {
	key := messages.PartitionKey{TopicID: messages.TopicID{3}, CreatedAt: 9, Partition: 2}
	other := messages.PartitionKey{TopicID: messages.TopicID{3}, CreatedAt: 9, Partition: 1}
	shard := cluster.ShardOf(key, journalShards)
	named := func(keys ...messages.PartitionKey) (out []byte) {
		for _, k := range keys {
			out = append(out, k.TopicID[:]...)
			out = binary.BigEndian.AppendUint64(out, uint64(k.CreatedAt))
			out = binary.BigEndian.AppendUint32(out, uint32(k.Partition))
		}
		return out
	}
	at := func(applied uint64) []cluster.ShardProgress {
		return []cluster.ShardProgress{{Shard: shard + 1, Applied: 1000}, {Shard: shard, Applied: applied}}
	}
	for name, row := range map[string]struct {
		beat cluster.Beat
		live bool
		want actors.ReplicaReport
	}{
		"there":                 {cluster.Beat{Shards: at(50)}, true, actors.ReplicaReport{Live: true, There: true}},
		"further":               {cluster.Beat{Shards: at(51)}, true, actors.ReplicaReport{Live: true, There: true}},
		"not yet":               {cluster.Beat{Shards: at(49)}, true, actors.ReplicaReport{Live: true}},
		"says nothing of it":    {cluster.Beat{}, true, actors.ReplicaReport{Live: true}},
		"another one is behind": {cluster.Beat{Shards: at(50), Extension: named(other)}, true, actors.ReplicaReport{Live: true, There: true}},
		"it is behind":          {cluster.Beat{Shards: at(50), Extension: named(other, key)}, true, actors.ReplicaReport{Live: true, Behind: true, There: true}},
		"its shard is behind": {cluster.Beat{Shards: at(50), Extension: named(messages.PartitionKey{TopicID: messages.TopicID{15: 3}, Partition: shard})}, true,
			actors.ReplicaReport{Live: true, Behind: true, There: true}},
		"dead": {cluster.Beat{Shards: at(50)}, false, actors.ReplicaReport{There: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reportOf(row.beat, row.live, key, journal.At(50, 3)); got != row.want {
				t.Fatalf("%+v", got)
			}
		})
	}
}
