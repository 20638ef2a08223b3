package broker

// OffsetFetch: served versions 1-10.
//
// v2 null topics = everything that is committed; v5 leader epochs; v7
// RequireStable; v8 several groups (KIP-709); v9 member and epoch, which only the
// new protocol's groups check; v10 topics by id (KIP-848).
//
// A group that doesn't exist has no offsets, that's no error. Without an offset the
// answer is -1, and with RequireStable UNSTABLE_OFFSET_COMMIT where an open
// transaction commits an offset.

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/persistence/metadata"
)

const (
	fetchGroupsSince    = 8
	fetchAllSince       = 2
	fetchTopErrorsSince = 2
)

func (s *Server) handleOffsetFetch(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.OffsetFetchRequest)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = req.Version
	if req.Version >= fetchGroupsSince {
		groupsSeen := repeats[string]{}
		for i := range req.Groups {
			g := &req.Groups[i]
			if groupsSeen.often(g.Group) {
				continue
			}
			resp.Groups = append(resp.Groups, s.fetchOffsets(ctx, r, g, req))
		}
		return answer(resp)
	}
	g := kmsg.OffsetFetchRequestGroup{Group: req.Group, MemberEpoch: -1}
	if req.Topics != nil || req.Version < fetchAllSince {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	out := s.fetchOffsets(ctx, r, &g, req)
	resp.ErrorCode = out.ErrorCode
	if req.Version < fetchTopErrorsSince && out.ErrorCode != 0 {
		out.Topics = refusedTopics(g.Topics, out.ErrorCode)
	}
	for _, t := range out.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

// boundTopics leaves out partitions that are named once too often: each is answered with the text that
// was committed with its offset.
func boundTopics(g *kmsg.OffsetFetchRequestGroup) {
	seen := repeats[partitionKey]{}
	for i := range g.Topics {
		t := &g.Topics[i]
		t.Partitions = slices.DeleteFunc(t.Partitions, func(n int32) bool {
			return seen.often(partitionKey{topic: t.Topic, id: t.TopicID, partition: n})
		})
	}
}

// fetchOffsets answers for one group; null topics are all.
func (s *Server) fetchOffsets(ctx context.Context, r *request, g *kmsg.OffsetFetchRequestGroup, req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchResponseGroup {
	all, byID := g.Topics == nil, req.Version >= groupTopicIDSince
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = g.Group
	img := s.image()
	fetch := groups.Fetch{Group: g.Group, All: all, Member: textOf(g.MemberID), Epoch: g.MemberEpoch, RequireStable: req.RequireStable}
	topics := make([]named, len(g.Topics))
	boundTopics(g)
	for i, t := range g.Topics {
		topics[i] = s.groupTopic(r, img, OpDescribe, t.Topic, t.TopicID, byID)
		if errors.Is(topics[i].err, messages.ErrUnknownTopicOrPartition) {
			topics[i].err = nil // no error to those who ask for offsets: there are none
		}
		if topics[i].err == nil {
			fetch.Topics = append(fetch.Topics, groups.Partitions{Topic: topics[i].name, Partitions: t.Partitions})
		}
	}
	a, err := ask[*groups.Fetched](ctx, s, r, OpDescribe, fetch)
	if err == nil {
		err = a.Err
	}
	if err != nil {
		out.ErrorCode = r.code(err)
		return out
	}
	if all {
		out.Topics = s.allOffsets(r, img, a.Positions, byID)
		return out
	}
	next := 0
	for i, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, n := range t.Partitions {
			rp := noCommit(n, r.code(topics[i].err))
			if topics[i].err == nil {
				rp = r.offsetOf(a.Positions[next])
				next++
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		out.Topics = append(out.Topics, rt)
	}
	return out
}

// allOffsets is every offset of a group on topics that the client may see; with
// ids, on topics that exist.
func (s *Server) allOffsets(r *request, img *metadata.Image, positions []groups.Position, byID bool) []kmsg.OffsetFetchResponseGroupTopic {
	out := []kmsg.OffsetFetchResponseGroupTopic{}
	for _, p := range positions {
		t := img.Topic(p.Topic)
		if !s.allowed(r, OpDescribe, KindTopic, p.Topic) || byID && t == nil {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Topic != p.Topic {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			if rt.Topic = p.Topic; t != nil {
				rt.TopicID = t.ID
			}
			out = append(out, rt)
		}
		rt := &out[len(out)-1]
		rt.Partitions = append(rt.Partitions, r.offsetOf(p))
	}
	return out
}

func (r *request) offsetOf(p groups.Position) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := offsetOf(p)
	rp.ErrorCode = r.code(p.Err)
	return rp
}

func offsetOf(p groups.Position) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p.Partition, p.Offset, p.LeaderEpoch, &p.Metadata
	return rp
}

func noCommit(partition int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := offsetOf(groups.Position{Partition: partition, Offset: messages.NoOffset, LeaderEpoch: messages.NoEpoch})
	rp.ErrorCode = code
	return rp
}

func refusedTopics(topics []kmsg.OffsetFetchRequestGroupTopic, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic = t.Topic
		for _, n := range t.Partitions {
			rt.Partitions = append(rt.Partitions, noCommit(n, code))
		}
		out = append(out, rt)
	}
	return out
}
