package diff

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func versionSteps() []step {
	versions := func(name, version string) func(*side, int16) kmsg.Request {
		return one(func() kmsg.Request {
			r := kmsg.NewPtrApiVersionsRequest()
			r.ClientSoftwareName, r.ClientSoftwareVersion, r.NodeID = name, version, -1
			return r
		})
	}
	return []step{
		{name: "as a client does", req: versions("diff", "1.0")},
		{name: "bad software name", req: versions("!", "1.0"), from: 3},
		{name: "no software name", req: versions("", ""), from: 3},
		{name: "another cluster", from: 5, req: one(func() kmsg.Request {
			r := kmsg.NewPtrApiVersionsRequest()
			r.ClientSoftwareName, r.ClientSoftwareVersion = "diff", "1.0"
			r.ClusterID, r.NodeID = new("another"), 1
			return r
		})},
		{name: "a node without a cluster", from: 5, req: one(func() kmsg.Request {
			r := kmsg.NewPtrApiVersionsRequest()
			r.ClientSoftwareName, r.ClientSoftwareVersion = "diff", "1.0"
			r.NodeID = 1
			return r
		})},
		{name: "version from the future", req: versions("diff", "1.0"), exact: new(int16(99))},
	}
}

// newTopic is one entry of CreateTopics.
func newTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], new(configs[i+1])
		t.Configs = append(t.Configs, c)
	}
	return t
}

func assigned(name string, replicas ...[]int32) kmsg.CreateTopicsRequestTopic {
	t := newTopic(name, -1, -1)
	for i, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), r
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	return t
}

func create(topics ...kmsg.CreateTopicsRequestTopic) kmsg.Request {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Topics, r.TimeoutMillis = topics, 15000
	return r
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}

func topicSteps() []step {
	name := func(st string) func(s *side, v int16) string {
		return func(s *side, v int16) string { return s.v(st, v) }
	}
	simple := func(what string, topic func(s *side, v int16) kmsg.CreateTopicsRequestTopic) step {
		return step{name: what, req: func(s *side, v int16) kmsg.Request { return create(topic(s, v)) }}
	}
	fresh := name("made")
	steps := []step{
		simple("a topic", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(fresh(s, v), 3, 1) }),
		simple("it exists", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(fresh(s, v), 3, 1) }),
		simple("default counts", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(s.v("default", v), -1, -1) }),
		simple("with configs", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return newTopic(s.v("configured", v), 1, 1, "cleanup.policy", "compact", "retention.ms", "86400000")
		}),
		simple("assigned", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return assigned(s.v("assigned", v), []int32{1}, []int32{1})
		}),
		simple("assigned to an unknown broker", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return assigned(s.v("assigned-bad", v), []int32{77})
		}),
		simple("assigned twice to one broker", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return assigned(s.v("assigned-twice", v), []int32{1, 1})
		}),
		simple("assigned to nobody", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return assigned(s.v("assigned-none", v), []int32{})
		}),
		simple("assigned with a hole", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			t := assigned(s.v("assigned-hole", v), []int32{1}, []int32{1})
			t.ReplicaAssignment[1].Partition = 5
			return t
		}),
		simple("counts and assigned", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			t := assigned(s.v("assigned-counts", v), []int32{1})
			t.NumPartitions, t.ReplicationFactor = 1, 1
			return t
		}),
		simple("assigned unequally", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return assigned(s.v("assigned-unequal", v), []int32{1}, []int32{1, 2})
		}),
		simple("no partitions", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(s.v("zero", v), 0, 1) }),
		simple("negative partitions", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(s.v("negative", v), -2, 1) }),
		simple("no replicas", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(s.v("norf", v), 1, 0) }),
		simple("negative replicas", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(s.v("negrf", v), 1, -2) }),
		simple("more replicas than brokers", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(s.v("rf", v), 1, 5) }),
		simple("empty name", func(*side, int16) kmsg.CreateTopicsRequestTopic { return newTopic("", 1, 1) }),
		simple("name of dots", func(*side, int16) kmsg.CreateTopicsRequestTopic { return newTopic("..", 1, 1) }),
		simple("bad characters", func(s *side, v int16) kmsg.CreateTopicsRequestTopic { return newTopic(s.v("a b", v), 1, 1) }),
		simple("name too long", func(*side, int16) kmsg.CreateTopicsRequestTopic { return newTopic(long(250), 1, 1) }),
		simple("unknown config", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return newTopic(s.v("cfg", v), 1, 1, "no.such.config", "1")
		}),
		simple("bad config value", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return newTopic(s.v("cfg", v), 1, 1, "retention.ms", "soon")
		}),
		simple("config out of range", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return newTopic(s.v("cfg", v), 1, 1, "min.insync.replicas", "0")
		}),
		simple("config without a value", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			t := newTopic(s.v("cfg-null", v), 1, 1, "retention.ms", "")
			t.Configs[0].Value = nil
			return t
		}),
		simple("config named twice", func(s *side, v int16) kmsg.CreateTopicsRequestTopic {
			return newTopic(s.v("cfg-twice", v), 1, 1, "retention.ms", "1", "retention.ms", "2")
		}),
		{name: "validate only", req: func(s *side, v int16) kmsg.Request {
			r := create(newTopic(s.v("validated", v), 2, 1, "retention.ms", "5")).(*kmsg.CreateTopicsRequest)
			r.ValidateOnly = true
			return r
		}},
		{name: "a topic named twice", req: func(s *side, v int16) kmsg.Request {
			return create(newTopic(s.v("twice", v), 1, 1), newTopic(s.v("twice", v), 2, 1))
		}},
		{name: "good and bad together", req: func(s *side, v int16) kmsg.Request {
			return create(newTopic(s.v("good", v), 1, 1), newTopic("", 1, 1), newTopic(s.v("good2", v), 0, 1))
		}},
		{name: "no topics", req: one(func() kmsg.Request { return create() })},
		{name: "names that collide as metrics", req: func(s *side, v int16) kmsg.Request {
			return create(newTopic(s.v("col.a_b", v), 1, 1), newTopic(s.v("col_a.b", v), 1, 1))
		}},
		{name: "collides with one that is there", req: func(s *side, v int16) kmsg.Request {
			return create(newTopic(s.v("col_a_b", v), 1, 1))
		}},
		{name: "an internal topic's name", req: one(func() kmsg.Request { return create(newTopic("__cluster_metadata", 1, 1)) })},
	}
	// What the other scripts use: topics of this run, in the newest version only.
	later := []string{"t", "t2", "data", "small", "segments", "time", "compacted", "gone"}
	for _, t := range later {
		steps = append(steps, step{name: "for later: " + t, once: true, req: func(s *side, _ int16) kmsg.Request {
			switch t {
			case "small":
				return create(newTopic(s.n(t), 1, 1, "max.message.bytes", "200"))
			case "segments":
				return create(newTopic(s.n(t), 1, 1, "segment.bytes", "1048576", "max.message.bytes", "4000000"))
			case "time":
				return create(newTopic(s.n(t), 1, 1, "message.timestamp.type", "LogAppendTime"))
			case "compacted":
				return create(newTopic(s.n(t), 1, 1, "cleanup.policy", "compact"))
			}
			return create(newTopic(s.n(t), 2, 1))
		}, keep: func(s *side, resp kmsg.Response) {
			for _, c := range resp.(*kmsg.CreateTopicsResponse).Topics {
				s.learn(c.Topic, c.TopicID)
			}
		}})
	}
	return append(steps, toldOf(later...))
}

// toldOf waits until a broker tells of topics and of leaders of all their partitions,
// which may be some time after they were created.
func toldOf(topics ...string) step {
	return step{
		name: "topics of later steps", once: true, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrMetadataRequest()
			for _, t := range topics {
				rt := kmsg.NewMetadataRequestTopic()
				rt.Topic = new(s.n(t))
				r.Topics = append(r.Topics, rt)
			}
			return r
		},
		until: func(resp kmsg.Response) bool {
			return !slices.ContainsFunc(resp.(*kmsg.MetadataResponse).Topics, func(t kmsg.MetadataResponseTopic) bool {
				return t.ErrorCode != 0 || slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.ErrorCode != 0 })
			})
		},
	}
}

func metadataSteps() []step {
	ask := func(names ...string) func(s *side, v int16) kmsg.Request {
		return func(s *side, v int16) kmsg.Request {
			r := kmsg.NewPtrMetadataRequest()
			r.Topics = []kmsg.MetadataRequestTopic{}
			r.AllowAutoTopicCreation = false
			for _, n := range names {
				t := kmsg.NewMetadataRequestTopic()
				if n != "" {
					n = s.n(n)
				}
				t.Topic = &n
				r.Topics = append(r.Topics, t)
			}
			return r
		}
	}
	byID := func(ids func(s *side) [][16]byte) func(s *side, v int16) kmsg.Request {
		return func(s *side, v int16) kmsg.Request {
			r := ask()(s, v).(*kmsg.MetadataRequest)
			for _, id := range ids(s) {
				t := kmsg.NewMetadataRequestTopic()
				t.TopicID = id
				r.Topics = append(r.Topics, t)
			}
			return r
		}
	}
	return []step{
		{name: "one topic", req: ask("t")},
		{name: "two topics", req: ask("t", "data")},
		{name: "unknown topic", req: ask("nowhere")},
		{name: "unknown topic, may be created", req: func(s *side, v int16) kmsg.Request {
			r := ask("nowhere")(s, v).(*kmsg.MetadataRequest)
			r.AllowAutoTopicCreation = true
			return r
		}},
		{name: "bad name", req: ask("a b")},
		{name: "empty name", req: ask("")},
		{name: "name too long", req: ask(long(300))},
		{name: "a topic twice", req: ask("t", "t")},
		{name: "no topics", req: ask(), from: 1},
		{name: "with operations", from: 8, to: 10, req: func(s *side, v int16) kmsg.Request {
			r := ask("t")(s, v).(*kmsg.MetadataRequest)
			r.IncludeTopicAuthorizedOperations, r.IncludeClusterAuthorizedOperations = true, true
			return r
		}},
		{name: "with topic operations", from: 11, req: func(s *side, v int16) kmsg.Request {
			r := ask("t")(s, v).(*kmsg.MetadataRequest)
			r.IncludeTopicAuthorizedOperations = true
			return r
		}},
		{name: "by id", from: 12, req: byID(func(s *side) [][16]byte { return [][16]byte{s.id(s.n("t"))} })},
		{name: "by unknown id", from: 12, req: byID(func(*side) [][16]byte { return [][16]byte{{1, 2, 3}} })},
		{name: "by known and unknown id", from: 12, req: byID(func(s *side) [][16]byte { return [][16]byte{s.id(s.n("t")), {1, 2, 3}} })},
		{name: "null name without id", from: 10, req: byID(func(*side) [][16]byte { return [][16]byte{{}} })},
		{name: "id and name", from: 10, req: func(s *side, v int16) kmsg.Request {
			r := ask("t")(s, v).(*kmsg.MetadataRequest)
			r.Topics[0].TopicID = s.id(s.n("t"))
			return r
		}},
		{name: "id before version 12", from: 10, to: 11, req: byID(func(s *side) [][16]byte { return [][16]byte{s.id(s.n("t"))} })},
	}
}
