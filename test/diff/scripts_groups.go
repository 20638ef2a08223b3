package diff

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupTopic has two partitions and serves the groups of the script.
const groupTopic = "grouped"

func groupSteps() []step {
	return slices.Concat(groupFixtures(), offsetsOfGroups(), classicRefusals(), classicGroup(), consumerRefusals(), consumerGroup(), assignmentInterval(), groupEnds())
}

func groupFixtures() []step {
	metadata := func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(s.n(groupTopic))
		r.Topics = []kmsg.MetadataRequestTopic{t}
		return r
	}
	find := func(kind int8, keys ...string) func(*side, int16) kmsg.Request {
		return func(s *side, version int16) kmsg.Request {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorType = kind
			for _, k := range keys {
				r.CoordinatorKeys = append(r.CoordinatorKeys, s.n(k))
			}
			if version < 4 {
				r.CoordinatorKey = r.CoordinatorKeys[0]
			}
			return r
		}
	}
	found := func(resp kmsg.Response) bool {
		r := resp.(*kmsg.FindCoordinatorResponse)
		return r.ErrorCode == 0 && !slices.ContainsFunc(r.Coordinators, func(c kmsg.FindCoordinatorResponseCoordinator) bool { return c.ErrorCode != 0 })
	}
	return []step{
		{name: "for groups", once: true, req: func(s *side, _ int16) kmsg.Request { return create(newTopic(s.n(groupTopic), 2, 1)) }},
		{
			name: "of groups", once: true, req: metadata,
			until: func(resp kmsg.Response) bool { return len(resp.(*kmsg.MetadataResponse).Topics[0].Partitions) == 2 },
			keep: func(s *side, resp kmsg.Response) {
				t := resp.(*kmsg.MetadataResponse).Topics[0]
				s.learn(*t.Topic, t.TopicID)
			},
		},
		{name: "of a group, for the first time", req: find(0, "g"), once: true, until: found},
		{
			name: "until the coordinator has loaded", once: true, req: commit("o", -1, "", topicList(at(groupTopic, 0, 1, ""))),
			until: func(resp kmsg.Response) bool {
				return resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == 0
			},
		},
		{name: "of a group", req: find(0, "g"), until: found},
		{name: "of groups", req: find(0, "g", "h"), from: 4, until: found},
		{name: "of an unknown kind", req: find(9, "g"), from: 1},
	}
}

// groupOffset is one entry of OffsetCommit.
func groupOffset(s *side, topic string, partition int32, offset int64, metadata string) kmsg.OffsetCommitRequestTopic {
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = s.n(topic), s.id(s.n(topic))
	if t.TopicID == [16]byte{} {
		t.TopicID = [16]byte{9}
	}
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, offset, -1, &metadata
	t.Partitions = append(t.Partitions, p)
	return t
}

func commit(group string, generation int32, member string, topics func(*side) []kmsg.OffsetCommitRequestTopic) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Group, r.Generation, r.MemberID = named(s, group), generation, memberOf(s, member)
		r.Topics = topics(s)
		return r
	}
}

func named(s *side, group string) string {
	if group == "" {
		return ""
	}
	return s.n(group)
}

// memberOf is the id that a step has kept, or the name itself.
func memberOf(s *side, member string) string {
	if id, ok := s.kept["member "+member].(string); ok {
		return id
	}
	return member
}

func topicList(topics ...func(*side) kmsg.OffsetCommitRequestTopic) func(*side) []kmsg.OffsetCommitRequestTopic {
	return func(s *side) (out []kmsg.OffsetCommitRequestTopic) {
		for _, t := range topics {
			out = append(out, t(s))
		}
		return out
	}
}

func at(topic string, partition int32, offset int64, metadata string) func(*side) kmsg.OffsetCommitRequestTopic {
	return func(s *side) kmsg.OffsetCommitRequestTopic { return groupOffset(s, topic, partition, offset, metadata) }
}

// committed asks for offsets; no topics is all.
func committed(group, member string, epoch int32, topics ...string) func(*side, int16) kmsg.Request {
	return func(s *side, version int16) kmsg.Request {
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Group = named(s, group)
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberEpoch = r.Group, epoch
		if member != "" {
			g.MemberID = new(memberOf(s, member))
		}
		for _, name := range topics {
			id := s.id(s.n(name))
			if id == [16]byte{} {
				id = [16]byte{9}
			}
			r.Topics = append(r.Topics, kmsg.OffsetFetchRequestTopic{Topic: s.n(name), Partitions: []int32{0, 1, 7}})
			g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: s.n(name), TopicID: id, Partitions: []int32{0, 1, 7}})
		}
		if version >= 8 {
			r.Groups = []kmsg.OffsetFetchRequestGroup{g}
		}
		return r
	}
}

func offsetsOfGroups() []step {
	return []step{
		{name: "from outside", req: commit("o", -1, "", topicList(at(groupTopic, 0, 5, "m"), at("not-there", 0, 5, "")))},
		{name: "of an unknown partition", req: commit("o", -1, "", topicList(at(groupTopic, 7, 5, "")))},
		{name: "of nothing", req: commit("o", -1, "", topicList())},
		{name: "with much metadata", req: commit("o", -1, "", topicList(at(groupTopic, 0, 6, long(5000)), at(groupTopic, 1, 7, "")))},
		{name: "of a negative offset", req: commit("o", -1, "", topicList(at(groupTopic, 1, -1, "")))},
		{name: "without a group", req: commit("", -1, "", topicList(at(groupTopic, 0, 5, "")))},
		{name: "by a member of no group", req: commit("nobody", 3, "m", topicList(at(groupTopic, 0, 5, "")))},
		{name: "by a member of an empty group", req: commit("o", 3, "m", topicList(at(groupTopic, 0, 5, "")))},
		{name: "some", req: committed("o", "", -1, groupTopic, "not-there")},
		{name: "all", req: committed("o", "", -1), from: 2},
		{name: "of an unknown group", req: committed("nobody", "", -1, groupTopic)},
		{name: "all of an unknown group", req: committed("nobody", "", -1), from: 2},
		{name: "by an unknown member", req: committed("o", "m", 3, groupTopic), from: 9},
		{name: "without a group", req: committed("", "", -1, groupTopic)},
	}
}

func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, topics
	return m.AppendTo(nil)
}

// joining is JoinGroup of a consumer with protocol "range".
func joining(group, member string, change func(s *side, r *kmsg.JoinGroupRequest)) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Group, r.MemberID, r.ProtocolType = named(s, group), memberOf(s, member), "consumer"
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 30000, 30000
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription(s.n(groupTopic))}}
		if change != nil {
			change(s, r)
		}
		return r
	}
}

func keepMember(name string) func(*side, kmsg.Response) {
	return func(s *side, resp kmsg.Response) { s.kept["member "+name] = resp.(*kmsg.JoinGroupResponse).MemberID }
}

func beating(group string, generation int32, member string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.Generation, r.MemberID = named(s, group), generation, memberOf(s, member)
		return r
	}
}

func syncing(group string, generation int32, member string, assignment ...byte) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Group, r.Generation, r.MemberID = named(s, group), generation, memberOf(s, member)
		r.ProtocolType, r.Protocol = new("consumer"), new("range")
		if assignment != nil {
			r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: r.MemberID, MemberAssignment: assignment}}
		}
		return r
	}
}

func leaving(group string, members ...[2]string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group = named(s, group)
		for _, m := range members {
			r.MemberID = memberOf(s, m[0])
			lm := kmsg.NewLeaveGroupRequestMember()
			if lm.MemberID = r.MemberID; m[1] != "" {
				lm.InstanceID = new(m[1])
			}
			r.Members = append(r.Members, lm)
		}
		return r
	}
}

func describing(groups ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrDescribeGroupsRequest()
		for _, g := range groups {
			r.Groups = append(r.Groups, named(s, g))
		}
		return r
	}
}

func deletingOffsets(group, topic string, partitions ...int32) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = named(s, group)
		t := kmsg.OffsetDeleteRequestTopic{Topic: s.n(topic)}
		for _, p := range partitions {
			t.Partitions = append(t.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
		}
		r.Topics = []kmsg.OffsetDeleteRequestTopic{t}
		return r
	}
}

func deletingGroups(groups ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrDeleteGroupsRequest()
		for _, g := range groups {
			r.Groups = append(r.Groups, named(s, g))
		}
		return r
	}
}

func listing(states, types []string) func(*side, int16) kmsg.Request {
	return one(func() kmsg.Request {
		r := kmsg.NewPtrListGroupsRequest()
		r.StatesFilter, r.TypesFilter = states, types
		return r
	})
}

func classicRefusals() []step {
	return []step{
		{name: "without a group", req: joining("", "", nil)},
		{name: "with a short session", req: joining("c", "", func(_ *side, r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 })},
		{name: "with a long session", req: joining("c", "", func(_ *side, r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 << 30 })},
		{name: "as an unknown member", req: joining("c", "nobody", nil)},
		{name: "without protocols", req: joining("c", "", func(_ *side, r *kmsg.JoinGroupRequest) { r.Protocols = nil })},
		{name: "without a protocol type", req: joining("c", "", func(_ *side, r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })},
		{name: "as an unknown static member", req: joining("c", "nobody", func(_ *side, r *kmsg.JoinGroupRequest) { r.InstanceID = new("i") }), from: 5},
		{name: "to an unknown group", req: beating("nobody", 1, "m")},
		{name: "without a group", req: beating("", 1, "m")},
		{name: "of an unknown group", req: syncing("nobody", 1, "m")},
		{name: "without a group", req: syncing("", 1, "m")},
		{name: "an unknown group", req: leaving("nobody", [2]string{"m", ""})},
		{name: "without a group", req: leaving("", [2]string{"m", ""})},
		{name: "of groups that aren't there", req: describing("nobody", "")},
		{name: "of an unknown state", req: listing([]string{"None"}, nil), from: 4},
		{name: "of an unknown type", req: listing(nil, []string{"none"}), from: 5},
		{name: "groups that aren't there", req: deletingGroups("nobody", "")},
		{name: "of an unknown group", req: deletingOffsets("nobody", groupTopic, 0)},
		{name: "an unknown topic", req: deletingOffsets("o", "not-there", 0)},
		{name: "unknown partitions", req: deletingOffsets("o", groupTopic, 7)},
	}
}

// classicGroup is the life of a group of the classic protocol.
func classicGroup() []step {
	assigned := kmsg.NewConsumerMemberAssignment()
	assigned.Version, assigned.Topics = 1, []kmsg.ConsumerMemberAssignmentTopic{{Topic: groupTopic, Partitions: []int32{0, 1}}}
	return []step{
		{name: "is told its id", once: true, req: joining("c", "", nil), keep: keepMember("c")},
		{name: "leads", once: true, req: joining("c", "c", nil), keep: keepMember("c")},
		{name: "of another generation", once: true, req: syncing("c", 9, "c")},
		{name: "of a group without an assignment", req: describing("c")},
		{name: "commits before it has synced", once: true, req: commit("c", 1, "c", topicList(at(groupTopic, 0, 5, "")))},
		{name: "of the leader", once: true, req: syncing("c", 1, "c", assigned.AppendTo(nil)...)},
		{name: "again", once: true, req: syncing("c", 1, "c")},
		{name: "of the generation", req: beating("c", 1, "c")},
		{name: "of another generation", req: beating("c", 2, "c")},
		{name: "of an unknown member", req: beating("c", 1, "nobody")},
		{name: "of a stable group", req: describing("c")},
		{name: "with another type", req: joining("c", "", func(_ *side, r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })},
		{name: "with another protocol", req: joining("c", "", func(_ *side, r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "roundrobin" })},
		{name: "by a member", req: commit("c", 1, "c", topicList(at(groupTopic, 0, 5, "")))},
		{name: "of another generation", req: commit("c", 2, "c", topicList(at(groupTopic, 0, 5, "")))},
		{name: "by another member", req: commit("c", 1, "nobody", topicList(at(groupTopic, 0, 5, "")))},
		{name: "from outside of a group with members", req: commit("c", -1, "", topicList(at(groupTopic, 0, 5, "")))},
		{name: "a group with members", req: deletingGroups("c")},
		{name: "what is read", req: deletingOffsets("c", groupTopic, 0)},
		{name: "of a classic group", req: consumerDescribing("c")},
		{name: "by an unknown instance", once: true, req: leaving("c", [2]string{"", "i"}, [2]string{"nobody", ""})},
		{name: "as the last one", once: true, req: leaving("c", [2]string{"c", ""})},
		{name: "of an empty group", req: describing("c")},
		{name: "by a member that left", req: commit("c", 1, "c", topicList(at(groupTopic, 0, 5, "")))},
		{name: "of an empty group", req: deletingOffsets("c", groupTopic, 0)},
	}
}

// consumerBeat is ConsumerGroupHeartbeat of a member that joins if the epoch is 0.
func consumerBeat(member string, epoch int32, change func(s *side, r *kmsg.ConsumerGroupHeartbeatRequest)) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = s.n("k"), member, epoch, -1
		if epoch == 0 {
			r.RebalanceTimeoutMillis = 30000
			r.SubscribedTopicNames, r.Topics = []string{s.n(groupTopic)}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		if change != nil {
			change(s, r)
		}
		return r
	}
}

func consumerDescribing(groups ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrConsumerGroupDescribeRequest()
		for _, g := range groups {
			r.Groups = append(r.Groups, named(s, g))
		}
		return r
	}
}

func consumerRefusals() []step {
	type beat = kmsg.ConsumerGroupHeartbeatRequest
	bad := func(name string, epoch int32, change func(s *side, r *beat)) step {
		return step{name: name, req: consumerBeat("x", epoch, change)}
	}
	return []step{
		bad("without a group", 0, func(_ *side, r *beat) { r.Group = "" }),
		bad("without a member", 1, func(_ *side, r *beat) { r.MemberID = "" }),
		bad("without an id of its own", 0, func(_ *side, r *beat) { r.Group, r.MemberID, r.SubscribedTopicNames = "", "", nil }),
		bad("an unknown epoch", -3, nil),
		bad("away without an instance", -2, nil),
		bad("an empty instance", 0, func(_ *side, r *beat) { r.InstanceID = new("") }),
		bad("without a rebalance timeout", 0, func(_ *side, r *beat) { r.RebalanceTimeoutMillis = -1 }),
		bad("without partitions", 0, func(_ *side, r *beat) { r.Topics = nil }),
		bad("with partitions", 0, func(s *side, r *beat) {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: s.id(s.n(groupTopic)), Partitions: []int32{0}}}
		}),
		bad("without a subscription", 0, func(_ *side, r *beat) { r.SubscribedTopicNames = nil }),
		bad("with an unknown assignor", 0, func(_ *side, r *beat) { r.ServerAssignor = new("none") }),
		bad("to an unknown group", 1, nil),
		bad("leaves an unknown group", -1, nil),
		{name: "with a bad expression", from: 1, req: consumerBeat("x", 0, func(_ *side, r *beat) { r.SubscribedTopicRegex = new("(") })},
		{name: "of unknown groups", req: consumerDescribing("nobody", "")},
	}
}

// consumerGroup is the life of a group of the consumer protocol.
func consumerGroup() []step {
	type beat = kmsg.ConsumerGroupHeartbeatRequest
	has := func(numbers ...int32) func(s *side, r *beat) {
		return func(s *side, r *beat) {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			if len(numbers) > 0 {
				r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: s.id(s.n(groupTopic)), Partitions: numbers})
			}
		}
	}
	static := func(name string) func(s *side, r *beat) { return func(_ *side, r *beat) { r.InstanceID = new(name) } }
	do := func(name string, member string, epoch int32, change func(s *side, r *beat)) step {
		return step{name: name, once: true, req: consumerBeat(member, epoch, change)}
	}
	given := func(resp kmsg.Response) bool {
		r := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
		return r.ErrorCode != 0 || r.Assignment != nil && len(r.Assignment.Topics) > 0
	}
	wait := func(st step) step { st.until = given; return st }
	describe := func(n int) step {
		return step{name: fmt.Sprintf("of a group in stage %d", n), req: consumerDescribing("k")}
	}
	return []step{
		wait(do("the first joins", "m1", 0, nil)),
		do("the first says nothing new", "m1", 2, nil),
		do("the first says what it has", "m1", 2, has(0, 1)),
		describe(1),
		do("the second joins", "m2", 0, nil),
		describe(2),
		do("the second waits", "m2", 3, has()),
		do("the first must give up", "m1", 2, has(0, 1)),
		describe(3),
		do("the first doesn't say", "m1", 2, nil),
		do("the first has given up", "m1", 2, has(0)),
		wait(do("the second gets it", "m2", 3, has())),
		describe(4),
		do("the first with its last epoch", "m1", 2, has(0)),
		do("the first with its last epoch and too much", "m1", 2, has(0, 1)),
		do("the first from the future", "m1", 9, has(0)),
		do("the first, all again", "m1", 3, func(s *side, r *beat) {
			has(0)(s, r)
			r.RebalanceTimeoutMillis, r.SubscribedTopicNames = 30000, []string{s.n(groupTopic)}
		}),
		do("an unknown one", "x", 3, has()),
		{name: "of a consumer group", req: describing("k")},
		{name: "by a member", req: commit("k", 3, "m1", topicList(at(groupTopic, 0, 5, ""))), from: 9},
		{name: "with an older epoch", req: commit("k", 2, "m1", topicList(at(groupTopic, 0, 5, ""))), from: 9},
		{name: "with an older epoch, of another one's", req: commit("k", 2, "m2", topicList(at(groupTopic, 0, 5, ""))), from: 9},
		{name: "with a newer epoch", req: commit("k", 4, "m1", topicList(at(groupTopic, 0, 5, ""))), from: 9},
		{name: "by an unknown member", req: commit("k", 3, "x", topicList(at(groupTopic, 0, 5, ""))), from: 9},
		{name: "by a member, in an old version", req: commit("k", 3, "m1", topicList(at(groupTopic, 0, 5, ""))), to: 8},
		{name: "from outside of a consumer group", req: commit("k", -1, "", topicList(at(groupTopic, 0, 5, "")))},
		{name: "by a member of the consumer group", req: committed("k", "m1", 3, groupTopic), from: 9},
		{name: "with a stale epoch", req: committed("k", "m1", 2, groupTopic), from: 9},
		{name: "by nobody of the consumer group", req: committed("k", "x", 3, groupTopic), from: 9},
		{name: "from outside of the consumer group", req: committed("k", "", -1, groupTopic)},
		{name: "a consumer group with members", req: deletingGroups("k")},
		{name: "what a consumer group reads", req: deletingOffsets("k", groupTopic, 0)},
		{name: "of a member of the consumer protocol", req: beating("k", 3, "m1")},
		{name: "of a member of the consumer protocol", req: syncing("k", 3, "m1")},
		do("the second leaves", "m2", -1, nil),
		describe(5),
		wait(do("the first has all again", "m1", 3, has(0))),
		do("a static one joins", "s1", 0, static("i")),
		do("a static one joins as another", "s2", 0, static("i")),
		do("the first must give up for the static one", "m1", 4, has(0, 1)),
		do("the first has given up for the static one", "m1", 4, has(0)),
		wait(do("the static one gets it", "s1", 5, static("i"))),
		do("another one beats as the static one", "s2", 5, static("i")),
		do("the static one is away", "s1", -2, static("i")),
		describe(6),
		do("the static one is back", "s2", 0, static("i")),
		describe(7),
		do("the static one leaves", "s2", -1, static("i")),
		{name: "a member of the consumer protocol", once: true, req: leaving("k", [2]string{"m1", ""})},
		describe(8),
		do("after it was taken out", "m1", 5, has(0)),
	}
}

// assignmentInterval is a group whose changes wait for its next assignment (KIP-1263).
func assignmentInterval() []step {
	type beat = kmsg.ConsumerGroupHeartbeatRequest
	interval := func(millis string) step {
		return step{name: "interval of assignments: " + millis, once: true, req: func(s *side, _ int16) kmsg.Request {
			r := kmsg.NewPtrIncrementalAlterConfigsRequest()
			rr := kmsg.NewIncrementalAlterConfigsRequestResource()
			rr.ResourceType, rr.ResourceName = 32, s.n("ki")
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value = "consumer.assignment.interval.ms", new(millis)
			if millis == "" {
				c.Op, c.Value = kmsg.IncrementalAlterConfigOpDelete, nil
			}
			rr.Configs = append(rr.Configs, c)
			r.Resources = append(r.Resources, rr)
			return r
		}}
	}
	do := func(name, member string, epoch int32, numbers ...int32) step {
		return step{name: "interval of assignments: " + name, once: true, req: consumerBeat(member, epoch, func(s *side, r *beat) {
			r.Group = s.n("ki")
			if numbers != nil {
				r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			}
			if len(numbers) > 0 {
				r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: s.id(s.n(groupTopic)), Partitions: numbers})
			}
		})}
	}
	describe := func(n int) step {
		return step{name: fmt.Sprintf("interval of assignments: stage %d", n), once: true, req: consumerDescribing("ki")}
	}
	given := func(resp kmsg.Response) bool {
		r := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
		return r.ErrorCode != 0 || r.Assignment != nil && len(r.Assignment.Topics) > 0
	}
	wait := func(st step) step { st.until = given; return st }
	none := []int32{}
	return []step{
		interval("16000"), interval("15000"),
		do("the first joins", "m1", 0), describe(1),
		do("the first has it", "m1", 2, 0, 1),
		do("the second joins", "m2", 0), describe(2),
		do("the second beats", "m2", 2, none...),
		do("the first beats", "m1", 2, 0, 1), describe(3),
		do("the first leaves", "m1", -1), describe(4),
		do("the second beats alone", "m2", 2, none...),
		do("the second leaves", "m2", -1), describe(5),
		do("a third joins the empty group", "m3", 0), describe(6),
		interval("0"),
		wait(do("the third again", "m3", 2, none...)), describe(7),
		do("the third leaves", "m3", -1),
		interval(""),
	}
}

func groupEnds() []step {
	return []step{
		{name: "groups", once: true, req: deletingGroups("c", "k", "o")},
		{name: "groups again", once: true, req: deletingGroups("c", "k", "o")},
	}
}
