package actors

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

func TestCreateTopics(t *testing.T) {
	type topic = messages.NewTopic
	tests := []struct {
		name string
		ask  topic
		want error
		text string
	}{
		{"defaults", topic{Name: "n", Partitions: -1, ReplicationFactor: -1}, nil, ""},
		{"explicit", topic{Name: "n", Partitions: 5, ReplicationFactor: 2}, nil, ""},
		{"configs", topic{Name: "n", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"retention.ms": new("5")}}, nil, ""},
		{"exists", topic{Name: "t", Partitions: 1, ReplicationFactor: 1}, messages.ErrTopicExists, ""},
		{"id exists", topic{Name: "n", ID: messages.TopicID{200}, Partitions: 1, ReplicationFactor: 1}, messages.ErrTopicExists, "topic t"},
		{"name", topic{Name: "a b", Partitions: 1, ReplicationFactor: 1}, messages.ErrInvalidTopic, ""},
		{"internal", topic{Name: "__cluster_metadata", Partitions: 1, ReplicationFactor: 1}, messages.ErrInvalidTopic, ""},
		{"no partitions", topic{Name: "n", Partitions: 0, ReplicationFactor: 1}, messages.ErrInvalidPartitions, ""},
		{"negative partitions", topic{Name: "n", Partitions: -2, ReplicationFactor: 1}, messages.ErrInvalidPartitions, ""},
		{"too many", topic{Name: "n", Partitions: partitionsMax + 1, ReplicationFactor: 1}, messages.ErrInvalidPartitions, ""},
		{"no replicas", topic{Name: "n", Partitions: 1, ReplicationFactor: 0}, messages.ErrInvalidReplication, ""},
		{"too many replicas", topic{Name: "n", Partitions: 1, ReplicationFactor: 3}, messages.ErrInvalidReplication, "2 node(s) live"},
		{"bad config", topic{Name: "n", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"retention.ms": new("x")}}, messages.ErrInvalidConfig, "retention.ms"},
		{"unknown config", topic{Name: "n", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"x": new("x")}}, messages.ErrInvalidConfig, ""},
		{"null config", topic{Name: "n", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"retention.ms": nil}}, messages.ErrInvalidConfig, ""},
		{"by hand", topic{Name: "n", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {2, 1}, 1: {1, 2}}}, nil, ""},
		{"by hand and count", topic{Name: "n", Partitions: 1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {1}}}, messages.ErrInvalidRequest, ""},
		{"by hand, hole", topic{Name: "n", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {1}, 2: {1}}}, messages.ErrInvalidAssignment, ""},
		{"by hand, dead node", topic{Name: "n", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {9}}}, messages.ErrInvalidAssignment, ""},
		{"by hand, twice", topic{Name: "n", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {1, 1}}}, messages.ErrInvalidAssignment, ""},
		{"by hand, none", topic{Name: "n", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {}}}, messages.ErrInvalidAssignment, ""},
		{"by hand, uneven", topic{Name: "n", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {1}, 1: {1, 2}}}, messages.ErrInvalidAssignment, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, 2)
			w.env.static = map[string]string{"num.partitions": "4", "default.replication.factor": "2"}
			w.topic("t", 1)
			before := w.img.Offset()
			dry := w.do(messages.CreateTopics{Topics: []topic{tt.ask}, ValidateOnly: true})
			wantItems(t, dry, tt.want)
			if w.img.Offset() != before {
				t.Fatal("validate only, yet something was written")
			}
			out := w.do(messages.CreateTopics{Topics: []topic{tt.ask}})
			wantItems(t, out, tt.want)
			if tt.want != nil {
				if w.img.Offset() != before || !strings.Contains(out.Items[0].Err.Error(), tt.text) {
					t.Fatalf("written, or text %v", out.Items[0].Err)
				}
				return
			}
			made, item := w.img.Topic("n"), out.Items[0]
			if int(item.Partitions) != len(made.Partitions) || int(item.Replication) != len(made.Partitions[0].Replicas) || item.TopicID != made.ID {
				t.Fatalf("item %+v, topic %+v", item, made)
			}
			if tt.name == "defaults" && (item.Partitions != 4 || item.Replication != 2) {
				t.Fatalf("item %+v", item)
			}
			if p := made.Partitions[0]; p.Leader != p.Replicas[0] || p.LeaderEpoch != 0 {
				t.Fatalf("partition %+v", p)
			}
		})
	}
}

func TestCreateTopicsTogether(t *testing.T) {
	w := newWorld(t)
	ask := func(name string, id byte) messages.NewTopic {
		return messages.NewTopic{Name: name, ID: messages.TopicID{id}, Partitions: 1, ReplicationFactor: 1}
	}
	out := w.do(messages.CreateTopics{Topics: []messages.NewTopic{ask("a.b", 1), ask("a.b", 2), ask("a_b", 3), ask("c", 1), ask("d", 4)}})
	wantItems(t, out, nil, messages.ErrTopicExists, messages.ErrInvalidTopic, messages.ErrTopicExists, nil)
}

func TestCommandsAreBounded(t *testing.T) {
	w := newWorld(t)
	var cmd messages.CreateTopics
	for _, name := range []string{"a", "b", "c"} {
		cmd.Topics = append(cmd.Topics, messages.NewTopic{Name: name, Partitions: 70_000, ReplicationFactor: 1})
	}
	if out := w.do(cmd); !errors.Is(out.Err, messages.ErrInvalidRequest) || len(w.img.Topics()) != 0 {
		t.Fatalf("%v", out.Err)
	}
}

func BenchmarkControllerStartTopics(b *testing.B) {
	img, err := metadata.EmptyImage().Apply(0, append(claimRecords(metadata.EmptyImage(), 1, "c", 1),
		metadata.ConfigRecord(messages.ResourceClusterMirror, "m", "bootstrap.servers", new("h:1"))))
	if err != nil {
		b.Fatal(err)
	}
	var cmd messages.Command
	topics := make([]messages.MirrorTopic, 1000)
	for i := range topics {
		topics[i] = messages.MirrorTopic{Name: fmt.Sprintf("topic.%04d", i), NumPartitions: 100}
	}
	cmd = messages.StartMirrorTopics{Mirror: "m", Topics: topics}
	env := controllerEnv{node: 1, live: []messages.NodeID{1, 2, 3}, newID: messages.NewTopicID}
	b.ReportAllocs()
	for b.Loop() {
		d := decide(img.New, cmd, env)
		if _, err := img.New.Apply(10, d.records); err != nil || d.outcome.Err != nil || len(d.records) != 102_000 {
			b.Fatal(err, d.outcome.Err, len(d.records))
		}
	}
}

func TestDeleteTopics(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.start("m", "mirrored")
	w.topic("a", 2)
	id := w.img.Topic("mirrored").ID
	out := w.do(messages.DeleteTopics{
		Names: []string{"a", "none", "a", messages.MirrorStateTopic}, IDs: []messages.TopicID{id, {1, 2}},
	})
	wantItems(t, out, nil, messages.ErrUnknownTopicOrPartition, messages.ErrUnknownTopicOrPartition, messages.ErrInvalidRequest, nil, messages.ErrUnknownTopicID)
	if w.img.Topic("a") != nil || w.img.Topic("mirrored") != nil || out.Items[4].Name != "mirrored" {
		t.Fatalf("items %+v", out.Items)
	}
	w.topic("a", 1) // same name, same id, another life
	if w.img.Topic("a").CreatedAt == 0 {
		t.Fatal("no new life")
	}
}

func TestCreatePartitions(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.createMirror("m")
	w.start("m", "active", "paused", "stopped")
	w.ok(messages.PauseMirrorTopics{Mirror: "m", Topics: named(0, "paused")})
	w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "stopped")})
	w.topic("t", 2)
	grow := func(topic string, n int32, a ...[]messages.NodeID) messages.Outcome {
		return w.do(messages.CreatePartitions{Topics: []messages.PartitionCount{{Topic: topic, Count: n, Assignment: a}}})
	}
	wantItems(t, grow("none", 3), messages.ErrUnknownTopicOrPartition)
	wantItems(t, grow(messages.MirrorStateTopic, 60), messages.ErrInvalidRequest)
	wantItems(t, grow("t", 2), messages.ErrInvalidPartitions)
	wantItems(t, grow("t", 1), messages.ErrInvalidPartitions)
	wantItems(t, grow("t", partitionsMax+1), messages.ErrInvalidPartitions)
	wantItems(t, grow("t", 4, []messages.NodeID{1}), messages.ErrInvalidAssignment)
	wantItems(t, grow("t", 3, []messages.NodeID{1, 2}), messages.ErrInvalidAssignment)
	wantItems(t, grow("t", 3, []messages.NodeID{7}), messages.ErrInvalidAssignment)
	out := grow("active", 3)
	wantItems(t, out, messages.ErrReadOnlyTopic)
	if text := out.Items[0].Err.Error(); !strings.HasPrefix(text, "READ_ONLY_TOPIC: ") || !strings.Contains(text, "mirror m") {
		t.Fatalf("OP-23 text: %s", text)
	}
	wantItems(t, grow("paused", 3), messages.ErrReadOnlyTopic)
	wantItems(t, grow("stopped", 3), nil)
	wantItems(t, grow("t", 3, []messages.NodeID{2}), nil)
	wantItems(t, grow("t", 10), nil)
	if got := w.img.Topic("t"); len(got.Partitions) != 10 || got.Partitions[2].Leader != 2 {
		t.Fatalf("%+v", got)
	}
	mirror := func(topic string, n int32) messages.Outcome {
		return w.do(messages.CreatePartitions{Mirror: true, Topics: []messages.PartitionCount{{Topic: topic, Count: n}}})
	}
	wantItems(t, mirror("active", 3), nil)
	wantItems(t, mirror("paused", 3), messages.ErrInvalidMirrorStates)
	twice := messages.CreatePartitions{Topics: []messages.PartitionCount{{Topic: "t", Count: 11}, {Topic: "t", Count: 12}}}
	wantItems(t, w.do(twice), nil, messages.ErrInvalidRequest)
}

func TestBumpLeaderEpochs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 3)
	id := messages.TopicID{200}
	bump := func(p, lowest int32) messages.EpochBump {
		return messages.EpochBump{TopicID: id, Partition: p, MinLeaderEpoch: lowest}
	}
	out := w.do(messages.BumpLeaderEpochs{Bumps: []messages.EpochBump{
		bump(0, 10), bump(1, -1), {TopicID: messages.TopicID{9}}, bump(5, 0), bump(-1, 0), bump(2, math.MaxInt32), bump(2, math.MaxInt32-1),
	}})
	wantItems(t, out, nil, nil, messages.ErrUnknownTopicID, messages.ErrUnknownTopicOrPartition, messages.ErrUnknownTopicOrPartition, messages.ErrInvalidRequest, nil)
	if out.Items[2].Name != "" || out.Items[0].Name != "t" {
		t.Fatalf("names %+v", out.Items)
	}
	w.ok(messages.BumpLeaderEpochs{Bumps: []messages.EpochBump{bump(0, 5), bump(0, 5)}}) // already high enough: raised all the same
	parts := w.img.Topic("t").Partitions
	if parts[0].LeaderEpoch != 13 || parts[0].PartitionEpoch != 3 || parts[1].LeaderEpoch != 1 || parts[2].LeaderEpoch != math.MaxInt32 || parts[0].Leader != 1 {
		t.Fatalf("%+v", parts)
	}
	wantItems(t, w.do(messages.BumpLeaderEpochs{Bumps: []messages.EpochBump{bump(2, 0)}}), messages.ErrInvalidRequest)
}

// Two clusters never give the same ids (C01).
func TestAllocateProducerIDs(t *testing.T) {
	w := newWorld(t)
	a := w.ok(messages.AllocateProducerIDs{Count: 5}).Items[0]
	b := w.ok(messages.AllocateProducerIDs{}).Items[0]
	first := a.FirstProducerID
	if first != producerIDRoom || a.Count != 5 || b.FirstProducerID != first+5 || b.Count != 1000 || w.img.NextProducerID() != first+1005 {
		t.Fatalf("%+v %+v", a, b)
	}
	other := newWorld(t)
	other.env.newID = func() messages.TopicID { return messages.TopicID{255, 255, 255} }
	if c := other.ok(messages.AllocateProducerIDs{Count: 5}).Items[0]; c.FirstProducerID != 1<<20*producerIDRoom {
		t.Fatalf("%+v", c)
	}
}

func TestRegisterNode(t *testing.T) {
	w := newWorld(t)
	n := *w.img.Node(1)
	before := w.img.Offset()
	w.ok(messages.RegisterNode{Node: n})
	if w.img.Offset() != before {
		t.Fatal("the same registration wrote something")
	}
	n.Rack = "r"
	w.ok(messages.RegisterNode{Node: n})
	if w.img.Node(1).Rack != "r" {
		t.Fatal("not replaced")
	}
	for _, bad := range []messages.Node{{ID: -1, Endpoints: n.Endpoints}, {ID: 2}, {ID: 2, Endpoints: []messages.Endpoint{{Listener: "L", Host: "h"}}}} {
		if out := w.do(messages.RegisterNode{Node: bad}); !errors.Is(out.Err, messages.ErrInvalidRequest) {
			t.Errorf("%+v: %v", bad, out.Err)
		}
	}
}

func TestAlterConfigs(t *testing.T) {
	const topic, broker, mirror = messages.ResourceTopic, messages.ResourceBroker, messages.ResourceClusterMirror
	op := func(key string, op messages.ConfigOp, value string) messages.ConfigChange {
		return messages.ConfigChange{Name: key, Op: op, Value: &value}
	}
	del := func(key string) messages.ConfigChange {
		return messages.ConfigChange{Name: key, Op: messages.ConfigDelete}
	}
	tests := []struct {
		name string
		cmd  messages.AlterConfigs
		want error
		key  string // to look at afterwards, "" = nothing
		now  string
	}{
		{"set", alter(topic, "t", set("retention.ms", "7")...), nil, "retention.ms", "7"},
		{"delete", alter(topic, "t", del("retention.ms")), nil, "retention.ms", ""},
		{"delete what isn't set", alter(topic, "t", del("segment.ms")), nil, "segment.ms", ""},
		{"append to the default", alter(topic, "t", op("cleanup.policy", messages.ConfigAppend, "compact")), nil, "cleanup.policy", "delete,compact"},
		{"append again", alter(topic, "t", op("cleanup.policy", messages.ConfigAppend, "delete")), nil, "cleanup.policy", "delete"},
		{"subtract", alter(topic, "t", op("cleanup.policy", messages.ConfigSubtract, "delete")), nil, "cleanup.policy", ""},
		{"append to no list", alter(topic, "t", op("retention.ms", messages.ConfigAppend, "1")), messages.ErrInvalidConfig, "retention.ms", "5"},
		{"unknown operation", alter(topic, "t", op("retention.ms", 9, "1")), messages.ErrInvalidRequest, "", ""},
		{"no value", alter(topic, "t", messages.ConfigChange{Name: "retention.ms"}), messages.ErrInvalidRequest, "", ""},
		{"unknown key", alter(topic, "t", set("nope", "1")...), messages.ErrInvalidConfig, "", ""},
		{"all or nothing", alter(topic, "t", set("segment.ms", "9", "retention.ms", "x")...), messages.ErrInvalidConfig, "segment.ms", ""},
		{"twice", alter(topic, "t", set("retention.ms", "1", "retention.ms", "2")...), messages.ErrInvalidRequest, "", ""},
		{"unknown topic", alter(topic, "none", set("retention.ms", "1")...), messages.ErrUnknownTopicOrPartition, "", ""},
		{"tiered storage", alter(topic, "t", set("remote.storage.enable", "true")...), messages.ErrInvalidConfig, "", ""},
		{"policy of an internal topic", alter(topic, messages.MirrorStateTopic, set("cleanup.policy", "delete")...), messages.ErrPolicyViolation, "", ""},
		{"min ISR of an internal topic", alter(topic, messages.MirrorStateTopic, set("min.insync.replicas", "2")...), nil, "", ""},
		{"replace", messages.AlterConfigs{Replace: true, Resources: alter(topic, "t", set("segment.ms", "9")...).Resources}, nil, "retention.ms", ""},
		{"validate only", messages.AlterConfigs{ValidateOnly: true, Resources: alter(topic, "t", set("retention.ms", "7")...).Resources}, nil, "retention.ms", "5"},
		{"broker default", alter(broker, "", set("log.retention.ms", "7")...), nil, "", ""},
		{"broker", alter(broker, "1", set("mirror.replication.throttled.rate", "7")...), nil, "", ""},
		{"broker read-only", alter(broker, "1", set("node.id", "7")...), messages.ErrInvalidConfig, "", ""},
		{"unknown node", alter(broker, "7", set("log.retention.ms", "7")...), messages.ErrInvalidRequest, "", ""},
		{"no node id", alter(broker, "01", set("log.retention.ms", "7")...), messages.ErrInvalidRequest, "", ""},
		{"unknown mirror", alter(mirror, "none", set("bootstrap.servers", "h:1")...), messages.ErrUnknownMirror, "", ""},
		{"mirror without bootstrap", alter(mirror, "m", del("bootstrap.servers")), messages.ErrInvalidConfig, "", ""},
		{"mirror BKS", alter(mirror, "m", set("ssl.keystore.type", "BKS")...), messages.ErrInvalidConfig, "", ""},
		{"mirror SASL without login", alter(mirror, "m", set("security.protocol", "SASL_PLAINTEXT")...), messages.ErrInvalidConfig, "", ""},
		{"source id by a client", alter(mirror, "m", set(configs.MirrorSourceClusterID, "x")...), messages.ErrInvalidConfig, "", ""},
		{"other resource", alter(8, "1", set("a", "b")...), messages.ErrInvalidRequest, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.createMirror("m")
			w.topic("t", 1)
			w.ok(alter(topic, "t", set("retention.ms", "5")...))
			before := w.img.Offset()
			wantItems(t, w.do(tt.cmd), tt.want)
			if tt.want != nil && w.img.Offset() != before {
				t.Fatal("refused, yet something was written")
			}
			if tt.key != "" && w.topicConfig("t", tt.key) != tt.now {
				t.Fatalf("%s is %q, want %q", tt.key, w.topicConfig("t", tt.key), tt.now)
			}
		})
	}
}

func TestAlterConfigsBrokersAndSeveral(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	cmd := messages.AlterConfigs{Resources: []messages.ResourceChange{
		{Type: messages.ResourceBroker, Name: "", Changes: set("log.retention.ms", "1", "mirror.num.replica.fetchers", "2")},
		{Type: messages.ResourceTopic, Name: "none", Changes: set("retention.ms", "1")},
		{Type: messages.ResourceBroker, Name: "1", Changes: set("mirror.num.replica.fetchers", "3")},
		{Type: messages.ResourceTopic, Name: "t", Changes: set("retention.ms", "1")},
		{Type: messages.ResourceTopic, Name: "t", Changes: set("retention.ms", "2")},
	}}
	wantItems(t, w.do(cmd), nil, messages.ErrUnknownTopicOrPartition, nil, nil, messages.ErrInvalidRequest)
	if got := w.img.BrokerConfig(1); !maps.Equal(got, map[string]string{"log.retention.ms": "1", "mirror.num.replica.fetchers": "3"}) {
		t.Fatalf("node 1: %v", got)
	}
	if got := w.img.BrokerConfig(2); got["mirror.num.replica.fetchers"] != "2" {
		t.Fatalf("node 2: %v", got)
	}
	before := w.img.Offset()
	w.ok(alter(messages.ResourceTopic, "t", set("retention.ms", "1")...))
	if w.img.Offset() != before {
		t.Fatal("the same value wrote something")
	}
}

func TestMirrorManagerAltersConfigs(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.start("m", "t")
	w.topic("plain", 1)
	internal := func(typ messages.ResourceType, name string, changes ...messages.ConfigChange) messages.Outcome {
		c := alter(typ, name, changes...)
		c.Internal = true
		return w.do(c)
	}
	// OP-28: which keys were copied stays with the topic.
	w.ok(alter(messages.ResourceTopic, "t", set("flush.ms", "1")...))
	wantItems(t, internal(messages.ResourceTopic, "t", set("retention.ms", "5", "cleanup.policy", "compact")...), nil)
	if got := w.topicConfig("t", configs.MirrorCopiedConfigs); got != "cleanup.policy,retention.ms" {
		t.Fatalf("copied %q", got)
	}
	wantItems(t, internal(messages.ResourceTopic, "t", messages.ConfigChange{Name: "cleanup.policy", Op: messages.ConfigDelete}), nil)
	if got := w.topicConfig("t", configs.MirrorCopiedConfigs); got != "retention.ms" || w.topicConfig("t", "cleanup.policy") != "" || w.topicConfig("t", "flush.ms") != "1" {
		t.Fatalf("copied %q, configs %v", got, w.img.Topic("t").Configs)
	}
	wantItems(t, internal(messages.ResourceTopic, "plain", set("retention.ms", "5")...), messages.ErrInvalidMirrorStates)
	w.ok(messages.StopMirrorTopics{Mirror: "m", Topics: named(0, "t")})
	wantItems(t, internal(messages.ResourceTopic, "t", set("retention.ms", "6")...), messages.ErrInvalidMirrorStates)

	// OP-36: the source's id stays until a connection setting changes.
	id := func() string { return w.img.Mirror("m").Configs[configs.MirrorSourceClusterID] }
	wantItems(t, internal(messages.ResourceClusterMirror, "m", set(configs.MirrorSourceClusterID, "src")...), nil)
	w.ok(alter(messages.ResourceClusterMirror, "m", set("mirror.topics.include", "a", "mirror.topic.properties.exclude", "b")...))
	w.ok(messages.StartMirrorTopics{Mirror: "m", Include: []string{"z"}})
	w.ok(alter(messages.ResourceClusterMirror, "m", set("bootstrap.servers", "h:9092")...)) // the same
	if id() != "src" {
		t.Fatalf("source id %q", id())
	}
	w.ok(alter(messages.ResourceClusterMirror, "m", set("bootstrap.servers", "other:9092")...))
	if id() != "" {
		t.Fatalf("source id %q after the connection changed", id())
	}
	wantItems(t, internal(messages.ResourceClusterMirror, "m", set(configs.MirrorSourceClusterID, "src")...), nil)
	w.ok(messages.AlterConfigs{Replace: true, Resources: alter(messages.ResourceClusterMirror, "m", set("bootstrap.servers", "other:9092")...).Resources})
	if id() != "src" {
		t.Fatalf("source id %q after a replacement that leaves the connection", id())
	}
}
