package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// TestC27TopicNames: names that other stores fold together stay apart, illegal
// ones are refused with 17.
func TestC27TopicNames(t *testing.T) {
	w := newWorld(t)
	adm := kadm.NewClient(w.client())
	long := strings.Repeat("x", 248)
	names := []string{"a.b", "a_b", "a-b", "A.B", "a..b", long + "1", long + "2"}
	_, err := adm.CreateTopics(t.Context(), 1, 1, nil, slices.Clone(names)...)
	require.NoError(t, err)
	list, err := adm.ListTopics(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, names, list.Names())
	for _, bad := range []string{".", "..", strings.Repeat("x", 250), "a/b", "", "ü"} {
		_, err := adm.CreateTopic(t.Context(), 1, 1, nil, bad)
		require.ErrorIs(t, err, kerr.InvalidTopicException, "%q", bad)
	}
	_, err = adm.DeleteTopics(t.Context(), "a.b")
	require.NoError(t, err)
	list, err = kadm.NewClient(w.client()).ListTopics(t.Context()) // a client keeps what it has asked for a while
	require.NoError(t, err)
	require.ElementsMatch(t, names[1:], list.Names())
}

func TestCreateAndDeleteTopics(t *testing.T) {
	w := newWorld(t)
	w.topic("old", 1, nil)
	w.topic(messages.MirrorStateTopic, 1, nil)
	w.deny = func(_ messages.Requester, op Operation, on Resource) bool {
		return op == OpCreate && (on.Kind == KindCluster || strings.HasPrefix(on.Name, "denied")) || op == OpDelete && on.Name == "denied"
	}
	c := w.dial()
	create := func(ts ...kmsg.CreateTopicsRequestTopic) (codes []int16) {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version, req.Topics = 7, ts
		for _, rt := range c.call(req).(*kmsg.CreateTopicsResponse).Topics {
			codes = append(codes, rt.ErrorCode)
			require.Equal(t, rt.ErrorCode == 0, rt.TopicID != [16]byte{})
		}
		return codes
	}
	topic := func(name string, configs ...kmsg.CreateTopicsRequestTopicConfig) kmsg.CreateTopicsRequestTopic {
		return kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 2, ReplicationFactor: 1, Configs: configs}
	}
	mirrorName := kmsg.CreateTopicsRequestTopicConfig{Name: "mirror.name", Value: new("m")}
	require.Equal(t, []int16{0, 36, 40, 29, 17, 42},
		create(topic("new"), topic("old"), topic("m", mirrorName), topic("denied"), topic(messages.ConsumerOffsetsTopic), topic("twice"), topic("twice")))
	require.Len(t, w.Image().Topic("new").Partitions, 2)
	require.Nil(t, w.Image().Topic("twice"))

	id := w.Image().Topic("new").ID
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	req.Topics = []kmsg.DeleteTopicsRequestTopic{
		{TopicID: id}, {Topic: new("new")}, {Topic: new("nope")}, {TopicID: messages.NewTopicID()},
		{Topic: new("denied")}, {Topic: new(messages.MirrorStateTopic)}, {Topic: new("old"), TopicID: id},
	}
	var codes []int16
	resp := c.call(req).(*kmsg.DeleteTopicsResponse)
	for _, rt := range resp.Topics {
		codes = append(codes, rt.ErrorCode)
	}
	require.Equal(t, []int16{0, 42, 3, 100, 3, 17, 42}, codes, "who may describe a topic that isn't there is told so")
	require.Equal(t, "new", *resp.Topics[0].Topic)
	require.Nil(t, w.Image().Topic("new"))
}

func TestMetadata(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2, nil)
	w.topic("secret", 1, nil)
	w.topic(messages.MirrorStateTopic, 1, nil)
	w.apply(
		metadata.PartitionRecord(topic.ID, 1, metadata.Partition{Leader: 9, LeaderEpoch: 4, Replicas: []messages.NodeID{9}, ISR: []messages.NodeID{9}}),
		metadata.NodeRecord(messages.Node{ID: 3, Rack: "r", Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "::1", Port: 9}}}),
		metadata.NodeRecord(messages.Node{ID: 4, Endpoints: []messages.Endpoint{{Listener: "OTHER", Protocol: "PLAINTEXT", Host: "x", Port: 9}}}),
	)
	w.deny = func(_ messages.Requester, _ Operation, on Resource) bool { return on.Name == "secret" }
	c := w.dial()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.IncludeTopicAuthorizedOperations = 12, true
	resp := c.call(req).(*kmsg.MetadataResponse)
	require.Equal(t, "cluster-of-tests-00000", *resp.ClusterID)
	require.Equal(t, int32(1), resp.ControllerID)
	require.Len(t, resp.Brokers, 2, "node 4 doesn't have this listener")
	require.Equal(t, "::1", resp.Brokers[1].Host, "C46: no brackets")
	require.Len(t, resp.Topics, 2, "what can't be described isn't listed")
	require.True(t, resp.Topics[0].IsInternal)
	got := resp.Topics[1]
	require.Equal(t, topic.ID, messages.TopicID(got.TopicID))
	require.Equal(t, int32(1), got.Partitions[0].Leader)
	require.Equal(t, []int64{-1, 4, int64(kerr.LeaderNotAvailable.Code)}, []int64{int64(got.Partitions[1].Leader), int64(got.Partitions[1].LeaderEpoch), int64(got.Partitions[1].ErrorCode)})
	require.Equal(t, int32(1<<3|1<<4|1<<5|1<<6|1<<7|1<<8|1<<10|1<<11), got.AuthorizedOperations)

	req.Topics = []kmsg.MetadataRequestTopic{
		{Topic: new("nope")}, {Topic: new("secret")}, {Topic: new("a/b")},
		{TopicID: topic.ID}, {TopicID: messages.NewTopicID()}, {TopicID: w.Image().Topic("secret").ID},
	}
	var codes []int16
	for _, mt := range c.call(req).(*kmsg.MetadataResponse).Topics {
		codes = append(codes, mt.ErrorCode)
	}
	require.Equal(t, []int16{3, 29, 17, 0, 100, 100}, codes)
	require.Nil(t, w.Image().Topic("nope"))

	none := kmsg.NewPtrMetadataRequest()
	none.Version, none.Topics = 1, []kmsg.MetadataRequestTopic{}
	require.Empty(t, c.call(none).(*kmsg.MetadataResponse).Topics)
	none.Version = 0
	require.Len(t, c.call(none).(*kmsg.MetadataResponse).Topics, 2, "v0: empty means all")
}

// TestDeadNodesAreNotShown: clients are never sent to a node that doesn't answer.
func TestDeadNodesAreNotShown(t *testing.T) {
	w := newWorld(t, func(_ *world, c *Config) { c.Live = func(id messages.NodeID) bool { return id != 3 } })
	topic := w.topic("t", 2, nil)
	w.apply(
		metadata.NodeRecord(messages.Node{ID: 3, Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "x", Port: 9}}}),
		metadata.PartitionRecord(topic.ID, 1, metadata.Partition{Leader: 3, LeaderEpoch: 4, Replicas: []messages.NodeID{3, 1}, ISR: []messages.NodeID{3, 1}}),
	)
	c := w.dial()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	resp := c.call(req).(*kmsg.MetadataResponse)
	require.Len(t, resp.Brokers, 1)
	dead := resp.Topics[0].Partitions[1]
	require.Equal(t, []int32{-1, 4, int32(kerr.LeaderNotAvailable.Code)}, []int32{dead.Leader, dead.LeaderEpoch, int32(dead.ErrorCode)})
	require.Equal(t, []int32{3}, dead.OfflineReplicas)
	require.Empty(t, resp.Topics[0].Partitions[0].OfflineReplicas)
	ask := kmsg.NewPtrDescribeClusterRequest()
	ask.Version, ask.EndpointType = 1, 1
	require.Len(t, c.call(ask).(*kmsg.DescribeClusterResponse).Brokers, 1)
}

func TestAutoCreate(t *testing.T) {
	w := newWorld(t, func(_ *world, c *Config) { c.StaticConfigs["auto.create.topics.enable"] = "true" })
	c := w.dial()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{{Topic: new("made")}, {Topic: new(messages.ConsumerOffsetsTopic)}}
	require.Equal(t, int16(3), c.call(req).(*kmsg.MetadataResponse).Topics[0].ErrorCode, "the client must allow it")
	req.AllowAutoTopicCreation = true
	resp := c.call(req).(*kmsg.MetadataResponse)
	require.Zero(t, resp.Topics[0].ErrorCode)
	require.Equal(t, int16(3), resp.Topics[1].ErrorCode)
}

func TestC33DeleteRecordsAndCreatePartitions(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, map[string]string{"mirror.name": "m"})
	w.topic("u", 1, nil)
	w.topic("compact", 1, map[string]string{"cleanup.policy": "compact"})
	for _, name := range []string{"t", "u", "compact"} {
		for i := range int64(10) {
			w.part(name, 0).mirror(t, made(i, 0, "v"))
		}
	}
	w.part("t", 0).change(func(s *persistence.ReplicaState) { s.ReadOnly = true })
	c := w.dial()
	for _, row := range []struct {
		topic     string
		partition int32
		offset    int64
		code      int16
		low       int64
	}{
		{"t", 0, 5, 44, -1},
		{"u", 0, 4, 0, 4},
		{"u", 0, 2, 0, 4},
		{"u", 0, 11, 1, -1},
		{"u", 0, -2, 1, -1},
		{"u", 3, 0, 3, -1},
		{"u", 0, -1, 0, 10},
		{"compact", 0, 5, 44, -1},
		{"nope", 0, 5, 3, -1},
	} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = 2
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: row.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: row.partition, Offset: row.offset}}}}
		got := c.call(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		require.Equal(t, []int64{int64(row.code), row.low}, []int64{int64(got.ErrorCode), got.LowWatermark}, "%+v", row)
	}
	require.Zero(t, w.part("t", 0).State().LogStart)

	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version = 3
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 3}, {Topic: "u", Count: 3}, {Topic: "nope", Count: 3}}
	resp := c.call(req).(*kmsg.CreatePartitionsResponse)
	require.Equal(t, []int16{44, 0, 3}, []int16{resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode, resp.Topics[2].ErrorCode})
	require.Regexp(t, "^READ_ONLY_TOPIC: ", *resp.Topics[0].ErrorMessage)
	require.Len(t, w.Image().Topic("t").Partitions, 1)
	require.Len(t, w.Image().Topic("u").Partitions, 3)
}

func describeConfigs(c *rawConn, kind kmsg.ConfigResourceType, name string, keys ...string) (int16, map[string]kmsg.DescribeConfigsResponseResourceConfig) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms = 4, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	res := c.call(req).(*kmsg.DescribeConfigsResponse).Resources[0]
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, cfg := range res.Configs {
		out[cfg.Name] = cfg
	}
	return res.ErrorCode, out
}

func TestDescribeConfigs(t *testing.T) {
	w := newWorld(t, func(_ *world, c *Config) {
		c.StaticConfigs["log.retention.hours"] = "2"
		c.StaticConfigs["log.dirs"] = "/data"
	})
	w.topic("t", 1, map[string]string{"mirror.name": "m.stopped", "max.message.bytes": "77"})
	w.topic("u", 1, nil)
	w.mirrorOf("m", map[string]string{"bootstrap.servers": "h:1", "sasl.jaas.config": "the secret"})
	one := "1000"
	w.apply(metadata.ConfigRecord(messages.ResourceBroker, "", "mirror.replication.throttled.rate", &one))
	c := w.dial()

	code, got := describeConfigs(c, 2, "t")
	require.Zero(t, code)
	require.Equal(t, "m.stopped", *got["mirror.name"].Value)
	require.True(t, got["mirror.name"].ReadOnly, "OP-11")
	require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, got["max.message.bytes"].Source)
	require.Equal(t, "7200000", *got["retention.ms"].Value, "the node's hours as ms")
	require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, got["retention.ms"].Source)
	require.Len(t, got["retention.ms"].ConfigSynonyms, 2)
	require.Equal(t, "log.retention.hours=2", got["retention.ms"].ConfigSynonyms[0].Name+"="+*got["retention.ms"].ConfigSynonyms[0].Value, "as it is written")
	require.Equal(t, "log.retention.hours=168", got["retention.ms"].ConfigSynonyms[1].Name+"="+*got["retention.ms"].ConfigSynonyms[1].Value)
	require.Equal(t, kmsg.ConfigSourceDefaultConfig, got["cleanup.policy"].Source)

	code, got = describeConfigs(c, 2, "u", "mirror.name", "cleanup.policy", "no.such.key")
	require.Zero(t, code)
	require.Len(t, got, 1, "in no mirror: nothing to show")

	code, got = describeConfigs(c, 64, "m")
	require.Zero(t, code)
	require.Nil(t, got["sasl.jaas.config"].Value)
	require.True(t, got["sasl.jaas.config"].IsSensitive)
	require.Equal(t, "h:1", *got["bootstrap.servers"].Value)

	code, got = describeConfigs(c, 4, "1")
	require.Zero(t, code)
	require.Equal(t, "/data", *got["log.dirs"].Value)
	require.True(t, got["log.dirs"].ReadOnly)
	require.Equal(t, kmsg.ConfigSourceDynamicDefaultBrokerConfig, got["mirror.replication.throttled.rate"].Source)
	code, got = describeConfigs(c, 4, "")
	require.Zero(t, code)
	require.Len(t, got, 1, "only what is set for all nodes")

	for _, row := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want int16
	}{{2, "nope", 3}, {2, "a/b", 17}, {4, "2", 42}, {4, "x", 42}, {64, "nope", 2137}, {8, "2", 42}, {0, "", 42}} {
		code, _ := describeConfigs(c, row.kind, row.name)
		require.Equal(t, row.want, code, "%+v", row)
	}
}

func TestAlterConfigs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, map[string]string{"mirror.name": "m"})
	w.mirrorOf("m", nil)
	c := w.dial()
	for _, row := range []struct {
		kind      kmsg.ConfigResourceType
		name, key string
		want      int16
	}{
		{2, "t", "retention.ms", 0},
		{2, "t", "mirror.name", 40},
		{2, "nope", "retention.ms", 3},
		{4, "", "mirror.replication.throttled.rate", 0},
		{64, "m", "bootstrap.servers", 0},
		{64, "nope", "bootstrap.servers", 2137},
		{8, "2", "x", 42},
	} {
		inc := kmsg.NewPtrIncrementalAlterConfigsRequest()
		inc.Version = 1
		inc.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: row.kind, ResourceName: row.name, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: row.key, Op: 0, Value: new("5")}}}}
		require.Equal(t, row.want, c.call(inc).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode, "%+v", row)
		full := kmsg.NewPtrAlterConfigsRequest()
		full.Version = 2
		full.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: row.kind, ResourceName: row.name, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: row.key, Value: new("5")}}}}
		require.Equal(t, row.want, c.call(full).(*kmsg.AlterConfigsResponse).Resources[0].ErrorCode, "%+v", row)
	}
	require.Equal(t, "m", w.Image().Topic("t").Mirror)
	last := w.lastCommand().(messages.AlterConfigs)
	require.True(t, last.Replace)
	require.False(t, last.Internal)
}

func TestDescribeTopicPartitionsPages(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.topic(name, 3, nil)
	}
	c := w.dial()
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 4
	var seen []string
	pages := 0
	for {
		resp := c.call(req).(*kmsg.DescribeTopicPartitionsResponse)
		pages++
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				seen = append(seen, messages.TopicPartition{Topic: *rt.Topic, Partition: p.Partition}.String())
			}
		}
		if resp.NextCursor == nil {
			break
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	require.Equal(t, []string{"a-0", "a-1", "a-2", "b-0", "b-1", "b-2", "c-0", "c-1", "c-2"}, seen)
	require.Equal(t, 3, pages)
}

func TestDescribeCluster(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version, req.EndpointType = 1, 1
	got := c.call(req).(*kmsg.DescribeClusterResponse)
	require.Equal(t, "cluster-of-tests-00000", got.ClusterID)
	require.Len(t, got.Brokers, 1)
	req.EndpointType = 2
	require.Equal(t, int16(114), c.call(req).(*kmsg.DescribeClusterResponse).ErrorCode)
	req.EndpointType = 7
	require.Equal(t, int16(115), c.call(req).(*kmsg.DescribeClusterResponse).ErrorCode)
}

func TestFindCoordinator(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	find := func(version int16, kind int8, key string) *kmsg.FindCoordinatorResponse {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = version, kind, key, []string{key}
		return c.call(req).(*kmsg.FindCoordinatorResponse)
	}
	require.Equal(t, int16(15), find(7, 3, "m").Coordinators[0].ErrorCode)
	require.NotNil(t, w.Image().Topic(messages.MirrorStateTopic), "asked for and created")
	got := find(7, 3, "m").Coordinators[0]
	require.Equal(t, []int64{0, 1}, []int64{int64(got.ErrorCode), int64(got.NodeID)})
	require.Equal(t, int16(42), find(6, 3, "m").Coordinators[0].ErrorCode)
	require.Equal(t, int16(42), find(2, 3, "m").ErrorCode)
	require.Equal(t, int16(42), find(7, 9, "m").Coordinators[0].ErrorCode)
	require.Equal(t, int16(42), find(7, 3, "bad/name").Coordinators[0].ErrorCode)
	require.Equal(t, int16(15), find(6, 0, "group").Coordinators[0].ErrorCode)
	require.NotNil(t, w.Image().Topic(messages.ConsumerOffsetsTopic), "asked for and created")
	require.Equal(t, int32(1), find(6, 0, "group").Coordinators[0].NodeID)
	require.Equal(t, int32(1), find(0, 0, "group").NodeID)
	require.Equal(t, int16(15), find(1, 1, "txn").ErrorCode)
	require.NotNil(t, w.Image().Topic(messages.TransactionStateTopic), "asked for and created")
	require.Equal(t, int32(1), find(6, 1, "txn").Coordinators[0].NodeID)
}
