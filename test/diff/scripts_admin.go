package diff

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askConfigs is a DescribeConfigs request for one resource; no names: all.
func askConfigs(typ kmsg.ConfigResourceType, name string, names ...string) *kmsg.DescribeConfigsRequest {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.IncludeSynonyms, r.IncludeDocumentation = true, true
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = typ, name, names
	r.Resources = append(r.Resources, res)
	return r
}

func describeConfigsSteps() []step {
	of := func(what string, typ kmsg.ConfigResourceType, name func(s *side) string, names ...string) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request { return askConfigs(typ, name(s), names...) }}
	}
	plain := func(n string) func(*side) string { return func(*side) string { return n } }
	topic := func(n string) func(*side) string { return func(s *side) string { return s.n(n) } }
	return []step{
		of("a topic", 2, topic("t")),
		of("a topic with configs", 2, topic("compacted"), "cleanup.policy", "retention.ms"),
		of("unknown config of a topic", 2, topic("t"), "no.such.config"),
		of("unknown topic", 2, topic("nowhere")),
		of("bad topic name", 2, plain("a b")),
		of("empty topic name", 2, plain("")),
		of("a broker", 4, plain("1")),
		of("some of a broker's", 4, plain("1"), "message.max.bytes", "log.retention.hours", "num.partitions", "node.id", "log.segment.bytes", "compression.type"),
		of("the default of all brokers", 4, plain("")),
		of("another broker", 4, plain("5")),
		of("no broker", 4, plain("x")),
		of("loggers", 8, plain("1")),
		of("loggers of no broker", 8, plain("x")),
		of("a group", 32, plain("g")),
		of("group without name", 32, plain("")),
		of("client metrics", 16, plain("m")),
		of("client metrics without name", 16, plain("")),
		of("unknown type", 99, plain("x")),
		of("type 0", 0, plain("x")),
		{name: "no resources", req: one(func() kmsg.Request { return kmsg.NewPtrDescribeConfigsRequest() })},
		{name: "empty list of names", req: func(s *side, _ int16) kmsg.Request {
			r := askConfigs(2, s.n("t"))
			r.Resources[0].ConfigNames = []string{}
			return r
		}},
		{name: "without synonyms", req: func(s *side, _ int16) kmsg.Request {
			r := askConfigs(2, s.n("t"), "retention.ms")
			r.IncludeSynonyms, r.IncludeDocumentation = false, false
			return r
		}},
		{name: "a resource twice", req: func(s *side, _ int16) kmsg.Request {
			r := askConfigs(2, s.n("t"), "retention.ms")
			r.Resources = append(r.Resources, r.Resources[0])
			return r
		}},
	}
}

// change is one operation of IncrementalAlterConfigs.
type change struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

func alter(typ kmsg.ConfigResourceType, name string, changes ...change) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = typ, name
	for _, c := range changes {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Op, rc.Value = c.name, c.op, c.value
		res.Configs = append(res.Configs, rc)
	}
	r.Resources = append(r.Resources, res)
	return r
}

func alterConfigsSteps() []step {
	const (
		set = iota
		del
		app
		sub
	)
	of := func(what string, typ kmsg.ConfigResourceType, name string, changes ...change) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			if typ == 2 && name != "" {
				return alter(typ, s.n(name), changes...)
			}
			return alter(typ, name, changes...)
		}}
	}
	old := func(what string, typ kmsg.ConfigResourceType, name string, pairs ...string) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrAlterConfigsRequest()
			res := kmsg.NewAlterConfigsRequestResource()
			res.ResourceType, res.ResourceName = typ, name
			if typ == 2 && name != "" {
				res.ResourceName = s.n(name)
			}
			for i := 0; i < len(pairs); i += 2 {
				c := kmsg.NewAlterConfigsRequestResourceConfig()
				c.Name, c.Value = pairs[i], new(pairs[i+1])
				res.Configs = append(res.Configs, c)
			}
			r.Resources = append(r.Resources, res)
			return r
		}}
	}
	seen := func(what string, typ kmsg.ConfigResourceType, name string, names ...string) step {
		return step{name: "after: " + what, once: true, req: func(s *side, _ int16) kmsg.Request {
			n := name
			if typ == 2 {
				n = s.n(n)
			}
			return askConfigs(typ, n, names...)
		}, until: func(resp kmsg.Response) bool {
			// Kafka's brokers hear of a change some time after it was made.
			configs := resp.(*kmsg.DescribeConfigsResponse).Resources[0].Configs
			return typ != 4 && what != "all brokers, on a topic" || len(configs) > 0 && configs[0].Source != kmsg.ConfigSourceDefaultConfig
		}}
	}
	return []step{
		of("set", 2, "t", change{"retention.ms", set, new("60000000")}),
		seen("set", 2, "t", "retention.ms"),
		of("set what is set", 2, "t", change{"retention.ms", set, new("60000000")}),
		of("delete", 2, "t", change{"retention.ms", del, nil}),
		of("delete what isn't set", 2, "t", change{"retention.ms", del, nil}),
		of("delete an unknown config", 2, "t", change{"no.such.config", del, nil}),
		of("append to a list", 2, "t", change{"cleanup.policy", app, new("compact")}),
		seen("append", 2, "t", "cleanup.policy"),
		of("append what is there", 2, "t", change{"cleanup.policy", app, new("compact")}),
		of("subtract from a list", 2, "t", change{"cleanup.policy", sub, new("compact")}),
		of("subtract what isn't there", 2, "t", change{"cleanup.policy", sub, new("compact")}),
		of("delete the list", 2, "t", change{"cleanup.policy", del, nil}),
		of("append to no list", 2, "t", change{"retention.ms", app, new("5")}),
		of("subtract from no list", 2, "t", change{"retention.ms", sub, new("5")}),
		of("set null", 2, "t", change{"retention.ms", set, nil}),
		of("append null", 2, "t", change{"cleanup.policy", app, nil}),
		of("set a bad value", 2, "t", change{"retention.ms", set, new("soon")}),
		of("out of range", 2, "t", change{"retention.ms", set, new("-5")}),
		of("unknown config", 2, "t", change{"no.such.config", set, new("1")}),
		of("empty config name", 2, "t", change{"", set, new("1")}),
		of("config twice", 2, "t", change{"retention.ms", set, new("1")}, change{"retention.ms", set, new("2")}),
		of("unknown operation", 2, "t", change{"retention.ms", 9, new("1")}),
		of("unknown topic", 2, "nowhere", change{"retention.ms", set, new("1")}),
		of("empty topic name", 2, "", change{"retention.ms", set, new("1")}),
		of("no changes", 2, "t"),
		of("one good, one bad", 2, "t", change{"retention.ms", set, new("70000000")}, change{"no.such.config", set, new("1")}),
		seen("one good, one bad", 2, "t", "retention.ms"),
		{name: "validate only", req: func(s *side, _ int16) kmsg.Request {
			r := alter(2, s.n("t"), change{"retention.ms", set, new("80000000")})
			r.ValidateOnly = true
			return r
		}},
		{name: "resource twice", req: func(s *side, _ int16) kmsg.Request {
			r := alter(2, s.n("t"), change{"retention.ms", set, new("80000000")})
			r.Resources = append(r.Resources, r.Resources[0])
			return r
		}},
		{name: "no resources", req: one(func() kmsg.Request { return kmsg.NewPtrIncrementalAlterConfigsRequest() })},
		of("a broker", 4, "1", change{"message.max.bytes", set, new("1000012")}),
		seen("a broker", 4, "1", "message.max.bytes"),
		of("a broker, back", 4, "1", change{"message.max.bytes", del, nil}),
		of("all brokers", 4, "", change{"log.retention.ms", set, new("604800001")}),
		seen("all brokers", 4, "", "log.retention.ms"),
		seen("all brokers, on a topic", 2, "t2", "retention.ms"),
		of("all brokers, back", 4, "", change{"log.retention.ms", del, nil}),
		of("read-only broker config", 4, "1", change{"node.id", set, new("5")}),
		of("unknown broker config", 4, "1", change{"no.such.config", set, new("5")}),
		of("bad broker value", 4, "1", change{"message.max.bytes", set, new("x")}),
		of("per-broker config for all", 4, "", change{"listeners", set, new("PLAINTEXT://:1")}),
		of("another broker", 4, "77", change{"message.max.bytes", set, new("1000012")}),
		of("no broker", 4, "x", change{"message.max.bytes", set, new("1000012")}),
		of("a group", 32, "g", change{"consumer.session.timeout.ms", set, new("46000")}),
		seen("a group", 32, "g"),
		of("a group, unknown config", 32, "g", change{"no.such.config", set, new("1")}),
		of("a group, bad value", 32, "g", change{"consumer.session.timeout.ms", set, new("x")}),
		of("a group, out of range", 32, "g", change{"consumer.session.timeout.ms", set, new("1")}),
		of("a group without name", 32, "", change{"consumer.session.timeout.ms", set, new("46000")}),
		of("a group, back", 32, "g", change{"consumer.session.timeout.ms", del, nil}),
		of("client metrics", 16, "m", change{"interval.ms", set, new("10000")}),
		seen("client metrics", 16, "m"),
		of("client metrics, unknown config", 16, "m", change{"no.such.config", set, new("1")}),
		of("client metrics, bad match", 16, "m", change{"match", set, new("nonsense")}),
		of("client metrics, bad interval", 16, "m", change{"interval.ms", set, new("1")}),
		of("client metrics without name", 16, "", change{"interval.ms", set, new("10000")}),
		of("client metrics, back", 16, "m", change{"interval.ms", del, nil}),
		of("loggers", 8, "1", change{"no.such.logger", set, new("DEBUG")}),
		of("unknown type", 99, "x", change{"a", set, new("1")}),

		old("replace", 2, "t2", "retention.ms", "50000000"),
		old("replace by another", 2, "t2", "segment.ms", "50000000"),
		seen("replace by another", 2, "t2", "retention.ms", "segment.ms"),
		old("replace by nothing", 2, "t2"),
		old("bad value", 2, "t2", "retention.ms", "x"),
		old("unknown config", 2, "t2", "no.such.config", "x"),
		old("config twice", 2, "t2", "retention.ms", "1", "retention.ms", "2"),
		old("unknown topic", 2, "nowhere", "retention.ms", "1"),
		old("another broker", 4, "77", "message.max.bytes", "1000012"),
		old("a group", 32, "g2", "consumer.session.timeout.ms", "46000"),
		old("a group, back", 32, "g2"),
		old("unknown type", 99, "x", "a", "1"),
		{name: "no resources", req: one(func() kmsg.Request { return kmsg.NewPtrAlterConfigsRequest() })},
	}
}

func partitionSteps() []step {
	grow := func(what string, topic func(s *side, v int16) string, count int32, assignment ...[]int32) step {
		return step{name: what, req: func(s *side, v int16) kmsg.Request {
			r := kmsg.NewPtrCreatePartitionsRequest()
			r.TimeoutMillis = 10000
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = topic(s, v), count
			for _, a := range assignment {
				ta := kmsg.NewCreatePartitionsRequestTopicAssignment()
				ta.Replicas = a
				t.Assignment = append(t.Assignment, ta)
			}
			r.Topics = append(r.Topics, t)
			return r
		}}
	}
	name := func(n string) func(s *side, v int16) string { return func(s *side, _ int16) string { return s.n(n) } }
	fresh := func(s *side, v int16) string { return s.v("default", v+2) }
	return []step{
		grow("more", fresh, 3),
		grow("the same count", name("t"), 2),
		grow("fewer", name("t"), 1),
		grow("none", name("t"), 0),
		grow("negative", name("t"), -1),
		grow("unknown topic", name("nowhere"), 5),
		grow("empty name", func(*side, int16) string { return "" }, 5),
		grow("assigned", fresh, 4, []int32{1}),
		grow("assigned to an unknown broker", name("t"), 3, []int32{77}),
		grow("assigned to nobody", name("t"), 3, []int32{}),
		grow("assigned too few", name("t"), 4, []int32{1}),
		grow("assigned too many", name("t"), 3, []int32{1}, []int32{1}),
		grow("assigned with another factor", name("t"), 3, []int32{1, 2}),
		{name: "a topic twice", req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrCreatePartitionsRequest()
			for _, n := range []int32{3, 4} {
				t := kmsg.NewCreatePartitionsRequestTopic()
				t.Topic, t.Count = s.n("t"), n
				r.Topics = append(r.Topics, t)
			}
			return r
		}},
		{name: "validate only", req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrCreatePartitionsRequest()
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = s.n("t"), 9
			r.Topics, r.ValidateOnly = append(r.Topics, t), true
			return r
		}},
		{name: "no topics", req: one(func() kmsg.Request { return kmsg.NewPtrCreatePartitionsRequest() })},
	}
}

func clusterSteps() []step {
	cluster := func(what string, from int16, change func(r *kmsg.DescribeClusterRequest)) step {
		return step{name: what, from: from, req: one(func() kmsg.Request {
			r := kmsg.NewPtrDescribeClusterRequest()
			r.EndpointType = 1
			change(r)
			return r
		})}
	}
	unregister := func(what string, id int32) step {
		return step{name: what, req: one(func() kmsg.Request {
			r := kmsg.NewPtrUnregisterBrokerRequest()
			r.BrokerID = id
			return r
		})}
	}
	return []step{
		cluster("brokers", 0, func(*kmsg.DescribeClusterRequest) {}),
		cluster("with operations", 0, func(r *kmsg.DescribeClusterRequest) { r.IncludeClusterAuthorizedOperations = true }),
		cluster("controllers", 1, func(r *kmsg.DescribeClusterRequest) { r.EndpointType = 2 }),
		cluster("unknown endpoint type", 1, func(r *kmsg.DescribeClusterRequest) { r.EndpointType = 9 }),
		cluster("endpoint type 0", 1, func(r *kmsg.DescribeClusterRequest) { r.EndpointType = 0 }),
		cluster("with fenced brokers", 2, func(r *kmsg.DescribeClusterRequest) { r.IncludeFencedBrokers = true }),
		unregister("unknown broker", 77),
		unregister("negative broker", -1),
	}
}

func deleteRecordsSteps() []step {
	del := func(what, topic string, partition int32, offset int64) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrDeleteRecordsRequest()
			r.TimeoutMillis = 10000
			t := kmsg.NewDeleteRecordsRequestTopic()
			t.Topic = s.n(topic)
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = partition, offset
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
			return r
		}}
	}
	return []step{
		del("some", "data", 0, 3),
		del("what is gone", "data", 0, 1),
		del("in the middle of a batch", "data", 0, 5),
		del("beyond the end", "data", 0, 1000),
		del("negative", "data", 0, -5),
		del("unknown topic", "nowhere", 0, 1),
		del("unknown partition", "data", 9, 1),
		del("empty partition", "data", 1, 0),
		del("up to the high watermark", "data", 0, -1),
		{name: "a partition twice", req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrDeleteRecordsRequest()
			r.TimeoutMillis = 10000
			t := kmsg.NewDeleteRecordsRequestTopic()
			t.Topic = s.n("data")
			for range 2 {
				t.Partitions = append(t.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Partition: 0, Offset: -1})
			}
			r.Topics = append(r.Topics, t)
			return r
		}},
		{name: "no topics", req: one(func() kmsg.Request { return kmsg.NewPtrDeleteRecordsRequest() })},
	}
}

func epochSteps() []step {
	end := func(what, topic string, partition, current, epoch int32) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrOffsetForLeaderEpochRequest()
			r.ReplicaID = -1
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = s.n(topic)
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
			return r
		}}
	}
	return []step{
		end("the epoch there is", "data", 0, -1, 0),
		end("an epoch to come", "data", 0, -1, 7),
		end("negative epoch", "data", 0, -1, -1),
		end("an empty partition", "data", 1, -1, 0),
		end("leader epoch to come", "data", 0, 99, 0),
		end("right leader epoch", "data", 0, 0, 0),
		end("unknown topic", "nowhere", 0, -1, 0),
		end("unknown partition", "data", 9, -1, 0),
		{name: "a partition twice", req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrOffsetForLeaderEpochRequest()
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = s.n("data")
			for range 2 {
				t.Partitions = append(t.Partitions, kmsg.OffsetForLeaderEpochRequestTopicPartition{CurrentLeaderEpoch: -1})
			}
			r.Topics = append(r.Topics, t)
			return r
		}},
		{name: "no topics", req: one(func() kmsg.Request { return kmsg.NewPtrOffsetForLeaderEpochRequest() })},
	}
}

func describeTopicSteps() []step {
	ask := func(what string, limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrDescribeTopicPartitionsRequest()
			r.ResponsePartitionLimit = limit
			for _, n := range topics {
				t := kmsg.NewDescribeTopicPartitionsRequestTopic()
				t.Topic = s.n(n)
				r.Topics = append(r.Topics, t)
			}
			if cursor != nil {
				c := *cursor
				c.Topic = s.n(c.Topic)
				r.Cursor = &c
			}
			return r
		}}
	}
	at := func(topic string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = topic, partition
		return &c
	}
	return []step{
		ask("a topic", 2000, nil, "t"),
		ask("topics out of order", 2000, nil, "t", "data"),
		ask("limit 1", 1, nil, "t"),
		ask("limit 3 of 4", 3, nil, "t", "data"),
		ask("limit 0", 0, nil, "t"),
		ask("limit -1", -1, nil, "t"),
		ask("unknown topic", 2000, nil, "nowhere"),
		ask("known and unknown", 2000, nil, "nowhere", "t"),
		ask("bad name", 2000, nil, "a b"),
		ask("a topic twice", 2000, nil, "t", "t"),
		ask("from a cursor", 2000, at("t", 1), "t", "data"),
		ask("cursor on another topic", 2000, at("s", 0), "t", "data"),
		ask("cursor beyond", 2000, at("t", 99), "t"),
		ask("negative cursor", 2000, at("t", -1), "t"),
	}
}

func withUntil(st step, until func(resp kmsg.Response) bool) step { st.until = until; return st }

func producerIDSteps() []step {
	init := func(what string, from int16, change func(r *kmsg.InitProducerIDRequest)) step {
		return step{name: what, from: from, req: one(func() kmsg.Request {
			r := kmsg.NewPtrInitProducerIDRequest()
			r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = -1, -1, -1
			change(r)
			return r
		})}
	}
	return []step{
		withUntil(init("the first id", 0, func(*kmsg.InitProducerIDRequest) {}), func(resp kmsg.Response) bool {
			return resp.(*kmsg.InitProducerIDResponse).ErrorCode == 0
		}),
		init("an id", 0, func(*kmsg.InitProducerIDRequest) {}),
		init("id without epoch", 3, func(r *kmsg.InitProducerIDRequest) { r.ProducerID = 5 }),
		init("epoch without id", 3, func(r *kmsg.InitProducerIDRequest) { r.ProducerEpoch = 5 }),
		init("id and epoch", 3, func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = 5, 5 }),
	}
}

func deleteTopicsSteps() []step {
	byName := func(what string, names ...func(s *side, v int16) string) step {
		return step{name: what, req: func(s *side, v int16) kmsg.Request {
			r := kmsg.NewPtrDeleteTopicsRequest()
			r.TimeoutMillis = 15000
			for _, n := range names {
				name := n(s, v)
				r.TopicNames = append(r.TopicNames, name)
				t := kmsg.NewDeleteTopicsRequestTopic()
				t.Topic = &name
				r.Topics = append(r.Topics, t)
			}
			return r
		}}
	}
	byID := func(what string, id func(s *side) [16]byte, name *string) step {
		return step{name: what, from: 6, req: func(s *side, v int16) kmsg.Request {
			r := kmsg.NewPtrDeleteTopicsRequest()
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.TopicID, t.Topic = id(s), name
			r.Topics, r.TimeoutMillis = append(r.Topics, t), 15000
			return r
		}}
	}
	made := func(s *side, v int16) string { return s.v("made", max(v, 2)) } // gone already in version 2
	plain := func(n string) func(*side, int16) string { return func(s *side, _ int16) string { return s.n(n) } }
	return []step{
		byName("a topic", made),
		byName("unknown topic", plain("nowhere")),
		byName("empty name", func(*side, int16) string { return "" }),
		byName("a topic twice", plain("gone"), plain("gone")),
		byName("no topics"),
		byID("unknown id", func(*side) [16]byte { return [16]byte{1, 2, 3} }, nil),
		byID("neither name nor id", func(*side) [16]byte { return [16]byte{} }, nil),
		byID("name and id", func(s *side) [16]byte { return s.id(s.n("gone")) }, new("x")),
		byID("an id", func(s *side) [16]byte { return s.id(s.n("gone")) }, nil),
	}
}
