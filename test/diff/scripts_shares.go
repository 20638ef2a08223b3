package diff

import "github.com/twmb/franz-go/pkg/kmsg"

func shareAlter(group string, offset int64, topics ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrAlterShareGroupOffsetsRequest()
		r.GroupID = named(s, group)
		for _, name := range topics {
			t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
			t.Topic = s.n(name)
			for _, p := range []int32{0, 1} {
				rp := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
				rp.Partition, rp.StartOffset = p, offset
				t.Partitions = append(t.Partitions, rp)
			}
			r.Topics = append(r.Topics, t)
		}
		return r
	}
}

// shareOffsets asks for offsets; no topics is all.
func shareOffsets(group string, topics ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		g.GroupID = named(s, group)
		for _, name := range topics {
			g.Topics = append(g.Topics, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: s.n(name), Partitions: []int32{0, 1}})
		}
		r.Groups = append(r.Groups, g)
		return r
	}
}

func shareDelete(group string, topics ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
		r.GroupID = named(s, group)
		for _, name := range topics {
			r.Topics = append(r.Topics, kmsg.DeleteShareGroupOffsetsRequestTopic{Topic: s.n(name)})
		}
		return r
	}
}

func shareDescribe(groups ...string) func(*side, int16) kmsg.Request {
	return func(s *side, _ int16) kmsg.Request {
		r := kmsg.NewPtrShareGroupDescribeRequest()
		for _, g := range groups {
			r.GroupIDs = append(r.GroupIDs, named(s, g))
		}
		return r
	}
}

// shareRights are requests about share groups as they are answered to who has no rights. (With rights
// Kafka's coordinator of share states makes each wait for seconds.)
func shareRights() []step {
	return []step{
		{name: "a share group", req: shareDescribe("sg")},
		{name: "offsets of a share group", req: shareOffsets("sg", "data", "not-there")},
		{name: "all offsets of a share group", req: shareOffsets("sg")},
		{name: "alter a share group", req: shareAlter("sg", 3, "data", "not-there")},
		{name: "delete offsets of a share group", req: shareDelete("sg", "data", "not-there")},
	}
}
