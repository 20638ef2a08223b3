package diff

import (
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// part is one part of a quota's entity; name "-": null.
type part struct{ typ, name string }

func (p part) nullable() *string {
	if p.name == "-" {
		return nil
	}
	return &p.name
}

// limit is one operation; NaN removes.
type limit struct {
	key   string
	value float64
}

func quotaSteps() []step {
	gone := math.NaN()
	set := func(what string, entity []part, limits ...limit) step {
		return step{name: what, req: one(func() kmsg.Request {
			r := kmsg.NewPtrAlterClientQuotasRequest()
			e := kmsg.NewAlterClientQuotasRequestEntry()
			for _, p := range entity {
				e.Entity = append(e.Entity, kmsg.AlterClientQuotasRequestEntryEntity{Type: p.typ, Name: p.nullable()})
			}
			for _, l := range limits {
				op := kmsg.AlterClientQuotasRequestEntryOp{Key: l.key, Value: l.value, Remove: math.IsNaN(l.value)}
				if op.Remove {
					op.Value = 0
				}
				e.Ops = append(e.Ops, op)
			}
			r.Entries = append(r.Entries, e)
			return r
		})}
	}
	ask := func(what string, strict bool, parts ...kmsg.DescribeClientQuotasRequestComponent) step {
		return step{name: what, req: one(func() kmsg.Request {
			r := kmsg.NewPtrDescribeClientQuotasRequest()
			r.Strict, r.Components = strict, parts
			return r
		})}
	}
	exact := func(typ, name string) kmsg.DescribeClientQuotasRequestComponent {
		return kmsg.DescribeClientQuotasRequestComponent{EntityType: typ, Match: &name}
	}
	other := func(typ string, match kmsg.QuotasMatchType) kmsg.DescribeClientQuotasRequestComponent {
		return kmsg.DescribeClientQuotasRequestComponent{EntityType: typ, MatchType: match}
	}
	user := []part{{"user", "quota-u"}}
	both := []part{{"user", "quota-u"}, {"client-id", "quota-c"}}
	steps := []step{
		set("a user", user, limit{"producer_byte_rate", 1e9}, limit{"consumer_byte_rate", 2e9}),
		set("user and client id", both, limit{"request_percentage", 50.5}),
		set("default client id", []part{{"client-id", "-"}}, limit{"controller_mutation_rate", 1000.5}),
		set("an address", []part{{"ip", "127.0.0.9"}}, limit{"connection_creation_rate", 100}),
		set("default user and client id", []part{{"user", "-"}, {"client-id", "quota-c"}}, limit{"consumer_byte_rate", 5e9}),
		// A broker of Kafka hears of quotas some time after they were set.
		withUntil(ask("the last one", true, other("user", 1), exact("client-id", "quota-c")), func(resp kmsg.Response) bool {
			return len(resp.(*kmsg.DescribeClientQuotasResponse).Entries) > 0
		}),
		ask("all users", false, other("user", 2)),
		ask("a user", false, exact("user", "quota-u")),
		ask("a user, strictly", true, exact("user", "quota-u")),
		ask("default client id", false, other("client-id", 1)),
		ask("user and any client id", true, exact("user", "quota-u"), other("client-id", 2)),
		ask("addresses", false, other("ip", 2)),
		ask("nothing named", false),
		ask("nothing named, strictly", true),
		ask("unknown type", false, exact("planet", "x")),
		ask("a type twice", false, exact("user", "a"), exact("user", "b")),
		ask("address and user", false, exact("user", "a"), exact("ip", "127.0.0.1")),
		ask("exact without a name", false, other("user", 0)),
		ask("default with a name", false, kmsg.DescribeClientQuotasRequestComponent{EntityType: "user", MatchType: 1, Match: new("x")}),
		ask("empty type", false, exact("", "x")),
		ask("unknown match", false, other("user", 9)),
		set("no entity", nil, limit{"producer_byte_rate", 1}),
		set("unknown entity type", []part{{"planet", "x"}}, limit{"producer_byte_rate", 1}),
		set("entity type twice", []part{{"user", "a"}, {"user", "b"}}, limit{"producer_byte_rate", 1}),
		set("user and address", []part{{"user", "a"}, {"ip", "127.0.0.1"}}, limit{"producer_byte_rate", 1}),
		set("empty name", []part{{"user", ""}}, limit{"producer_byte_rate", 1}),
		set("unknown key", user, limit{"no_such_quota", 1}),
		set("key of an address on a user", user, limit{"connection_creation_rate", 1}),
		set("key of a user on an address", []part{{"ip", "127.0.0.1"}}, limit{"producer_byte_rate", 1}),
		set("bad address", []part{{"ip", "not an address"}}, limit{"connection_creation_rate", 1}),
		set("zero", user, limit{"producer_byte_rate", 0}),
		set("negative", user, limit{"producer_byte_rate", -1}),
		set("fraction of bytes", user, limit{"producer_byte_rate", 1.5}),
		set("too large", []part{{"ip", "127.0.0.1"}}, limit{"connection_creation_rate", 1e15}),
		set("a key twice", user, limit{"producer_byte_rate", 1e9}, limit{"producer_byte_rate", 2e9}),
		set("no operations", user),
		set("remove what isn't there", []part{{"user", "nobody"}}, limit{"producer_byte_rate", gone}),
		{name: "validate only", req: one(func() kmsg.Request {
			r := kmsg.NewPtrAlterClientQuotasRequest()
			r.ValidateOnly = true
			r.Entries = []kmsg.AlterClientQuotasRequestEntry{{
				Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: new("quota-v")}},
				Ops:    []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Value: 5}},
			}}
			return r
		})},
		{name: "no entries", req: one(func() kmsg.Request { return kmsg.NewPtrAlterClientQuotasRequest() })},
		ask("after all that", false, other("user", 2)),
	}
	for _, e := range [][]part{user, both, {{"client-id", "-"}}, {{"user", "-"}, {"client-id", "quota-c"}}} {
		steps = append(steps, set("back", e, limit{"producer_byte_rate", gone}, limit{"consumer_byte_rate", gone}, limit{"request_percentage", gone}, limit{"controller_mutation_rate", gone}))
	}
	return append(steps, set("back", []part{{"ip", "127.0.0.9"}}, limit{"connection_creation_rate", gone}))
}

func logDirSteps() []step {
	ask := func(what string, topics ...kmsg.DescribeLogDirsRequestTopic) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrDescribeLogDirsRequest()
			r.Topics = []kmsg.DescribeLogDirsRequestTopic{}
			for _, t := range topics {
				t.Topic = s.n(t.Topic)
				r.Topics = append(r.Topics, t)
			}
			return r
		}}
	}
	move := func(what, dir, topic string, partition int32) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrAlterReplicaLogDirsRequest()
			d := kmsg.NewAlterReplicaLogDirsRequestDir()
			d.Dir = dir
			d.Topics = append(d.Topics, kmsg.AlterReplicaLogDirsRequestDirTopic{Topic: s.n(topic), Partitions: []int32{partition}})
			r.Dirs = append(r.Dirs, d)
			return r
		}}
	}
	return []step{
		ask("a topic", kmsg.DescribeLogDirsRequestTopic{Topic: "t", Partitions: []int32{0, 1}}),
		ask("one of two partitions", kmsg.DescribeLogDirsRequestTopic{Topic: "t", Partitions: []int32{1}}),
		ask("unknown topic", kmsg.DescribeLogDirsRequestTopic{Topic: "nowhere", Partitions: []int32{0}}),
		ask("no topics"),
		move("to an unknown folder", "/no/such/folder", "t", 0),
		move("unknown topic", "/no/such/folder", "nowhere", 0),
		{name: "no folders", req: one(func() kmsg.Request { return kmsg.NewPtrAlterReplicaLogDirsRequest() })},
	}
}

func assignmentSteps() []step {
	elect := func(what string, from int16, kind int8, topic string, partition int32) step {
		return step{name: what, from: from, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrElectLeadersRequest()
			r.ElectionType, r.TimeoutMillis = kind, 10000
			r.Topics = append(r.Topics, kmsg.ElectLeadersRequestTopic{Topic: s.n(topic), Partitions: []int32{partition}})
			return r
		}}
	}
	assign := func(what, topic string, partition int32, replicas []int32) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			r.TimeoutMillis = 10000
			t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
			t.Topic = s.n(topic)
			t.Partitions = append(t.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: partition, Replicas: replicas})
			r.Topics = append(r.Topics, t)
			return r
		}}
	}
	list := func(what string, topics ...kmsg.ListPartitionReassignmentsRequestTopic) step {
		return step{name: what, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrListPartitionReassignmentsRequest()
			r.TimeoutMillis = 10000
			for _, t := range topics {
				t.Topic = s.n(t.Topic)
				r.Topics = append(r.Topics, t)
			}
			return r
		}}
	}
	return []step{
		elect("preferred", 0, 0, "t", 0),
		elect("unclean", 1, 1, "t", 0),
		elect("unknown kind", 1, 9, "t", 0),
		elect("unknown topic", 0, 0, "nowhere", 0),
		elect("unknown partition", 0, 0, "t", 99),
		{name: "all partitions", req: one(func() kmsg.Request {
			r := kmsg.NewPtrElectLeadersRequest()
			r.Topics, r.TimeoutMillis = nil, 10000
			return r
		})},
		{name: "no topics", req: one(func() kmsg.Request {
			r := kmsg.NewPtrElectLeadersRequest()
			r.Topics, r.TimeoutMillis = []kmsg.ElectLeadersRequestTopic{}, 10000
			return r
		})},
		assign("as it is", "t", 0, []int32{1}),
		assign("cancel", "t", 0, nil),
		assign("to nobody", "t", 0, []int32{}),
		assign("to an unknown broker", "t", 0, []int32{77}),
		assign("to one and an unknown broker", "t", 0, []int32{1, 77}),
		assign("twice to one broker", "t", 0, []int32{1, 1}),
		assign("negative broker", "t", 0, []int32{-1}),
		assign("unknown topic", "nowhere", 0, []int32{1}),
		assign("unknown partition", "t", 99, []int32{1}),
		{name: "without leave to resize", from: 1, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			r.TimeoutMillis, r.AllowReplicationFactorChange = 10000, false
			t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
			t.Topic = s.n("t")
			t.Partitions = append(t.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Replicas: []int32{1, 77}})
			r.Topics = append(r.Topics, t)
			return r
		}},
		{name: "no topics", req: one(func() kmsg.Request { return kmsg.NewPtrAlterPartitionAssignmentsRequest() })},
		list("all reassignments"),
		list("of a topic", kmsg.ListPartitionReassignmentsRequestTopic{Topic: "t", Partitions: []int32{0}}),
		list("of an unknown topic", kmsg.ListPartitionReassignmentsRequestTopic{Topic: "nowhere", Partitions: []int32{0}}),
	}
}

func featureSteps() []step {
	update := func(what string, name string, level int16, kind int8) step {
		return step{name: what, req: one(func() kmsg.Request {
			r := kmsg.NewPtrUpdateFeaturesRequest()
			r.TimeoutMillis = 10000
			r.FeatureUpdates = append(r.FeatureUpdates, kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: name, MaxVersionLevel: level, UpgradeType: kind, AllowDowngrade: kind > 1})
			return r
		})}
	}
	resources := func(what string, from int16, types ...int8) step {
		return step{name: what, from: from, req: one(func() kmsg.Request {
			r := kmsg.NewPtrListConfigResourcesRequest()
			r.ResourceTypes = types
			return r
		})}
	}
	return []step{
		update("what it is", "group.version", 1, 1),
		update("unknown feature", "no.such.version", 1, 1),
		update("level too high", "group.version", 99, 1),
		update("negative level", "group.version", -1, 3),
		update("downgrade as an upgrade", "group.version", 0, 1),
		update("metadata.version below all", "metadata.version", 1, 3),
		{name: "a feature twice", req: one(func() kmsg.Request {
			r := kmsg.NewPtrUpdateFeaturesRequest()
			for range 2 {
				r.FeatureUpdates = append(r.FeatureUpdates, kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: "group.version", MaxVersionLevel: 1, UpgradeType: 1})
			}
			return r
		})},
		update("transaction.version too high", "transaction.version", 3, 1),
		update("transaction.version, downgrade as an upgrade", "transaction.version", 1, 1),
		oneTime(update("transaction.version 1", "transaction.version", 1, 2)),
		{name: "with transaction.version 1", once: true, req: one(func() kmsg.Request {
			r := kmsg.NewPtrApiVersionsRequest()
			r.ClientSoftwareName, r.ClientSoftwareVersion = "diff", "1"
			return r
		}), until: func(resp kmsg.Response) bool {
			return slices.ContainsFunc(resp.(*kmsg.ApiVersionsResponse).FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
				return f.Name == "transaction.version" && f.MaxVersionLevel == 1
			})
		}},
		oneTime(update("transaction.version 0", "transaction.version", 0, 3)),
		oneTime(update("transaction.version 2, as a downgrade", "transaction.version", 2, 2)),
		oneTime(update("transaction.version 2", "transaction.version", 2, 1)),
		{name: "no features", req: one(func() kmsg.Request { return kmsg.NewPtrUpdateFeaturesRequest() })},
		resources("brokers", 1, 4),
		resources("loggers", 1, 8),
		resources("groups", 1, 32),
		resources("client metrics", 0, 16),
		resources("unknown type", 1, 99),
		resources("type 0", 1, 0),
		resources("a type twice", 1, 4, 4),
	}
}

func oneTime(st step) step { st.once = true; return st }
