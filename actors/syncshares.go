package actors

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/groups"
	pb "kagami/messages/proto"
	"kagami/persistence/metadata"
)

// shareGroups copies start offsets of share groups (spec: metadata-sync.md, Share
// groups). A source that has none, because it is too old, is told about once.
func (s *syncer) shareGroups(ctx context.Context, topics []*metadata.Topic) error {
	mi := s.outside.Image().Mirror(s.mirror)
	if mi == nil {
		return nil
	}
	include, exclude, err := groupPatterns(mi)
	if err != nil {
		return err
	}
	switch knows, err := s.source.KnowsShareGroups(ctx, s.view.Brokers); {
	case err != nil:
		return err
	case !knows:
		if s.told.first("share groups") {
			s.log.Warn("offsets of share groups aren't copied: the source doesn't tell them (Kafka does from 4.0 on)")
		}
		return nil
	}
	var errs groupErrors
	listed, err := s.list(ctx)
	errs.add(err)
	var names []string
	for _, g := range listed {
		if g.Type == groups.TypeShare && include.Match(g.Name) && !exclude.Match(g.Name) {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	active := map[string]struct{}{}
	for _, t := range topics {
		active[t.Name] = struct{}{}
	}
	errs.merge(inParts(slices.Compact(names), func(part []string, errs *groupErrors) { s.sharePart(ctx, part, active, errs) }))
	return errs.join()
}

// sharePart copies the offsets of some share groups.
func (s *syncer) sharePart(ctx context.Context, names []string, active map[string]struct{}, errs *groupErrors) {
	source := map[string]map[messages.TopicPartition]int64{}
	topics := map[string]struct{}{}
	for name, g := range s.source.ShareGroupsOffsets(ctx, names) {
		errs.add(g.Err)
		maps.DeleteFunc(g.Starts, func(tp messages.TopicPartition, _ int64) bool {
			_, ok := active[tp.Topic]
			return !ok
		})
		for tp := range g.Starts {
			topics[tp.Topic] = struct{}{}
			source[name] = g.Starts
		}
	}
	if len(source) == 0 {
		return
	}
	sorted := slices.Sorted(maps.Keys(topics))
	if err := s.same(ctx, sorted); err != nil {
		errs.add(err)
		return
	}
	ranges := s.ranges(ctx, sorted, errs)
	for node, some := range s.byCoordinator(ctx, slices.Sorted(maps.Keys(source)), errs) {
		q := &pb.FollowGroups{Mirror: s.mirror}
		for _, name := range some {
			if g := planShare(name, source[name], ranges); g != nil {
				q.Groups = append(q.Groups, g)
			}
		}
		errs.add(again(ctx, s.wall, func() error { return s.followShares(ctx, node, q) }))
	}
}

func (s *syncer) followShares(ctx context.Context, node messages.NodeID, q *pb.FollowGroups) error {
	if len(q.GetGroups()) == 0 {
		return nil
	}
	res, err := s.ask(ctx, node, SharesActor, &pb.Query{Query: &pb.Query_FollowShareGroups{FollowShareGroups: q}})
	if err != nil {
		return err
	}
	var errs groupErrors
	for _, g := range res.GetFollowedGroups().GetGroups() {
		if err := cluster.StatusError(g.GetStatus()); err != nil {
			errs.add(fmt.Errorf("share group %s: %w", g.GetGroup(), err))
		}
		if g.GetMoved() && s.told.first("share group "+g.GetGroup()) {
			s.log.Warn("offsets of a share group aren't copied: here the name is another kind of group's", zap.String("group", g.GetGroup()))
		}
	}
	return errs.join()
}

// planShare is where a share group is to begin here; nil for nothing.
func planShare(group string, source map[messages.TopicPartition]int64, ranges map[messages.TopicPartition]logRange) *pb.GroupOffsets {
	committed := map[messages.TopicPartition]fetch.CommittedOffset{}
	for tp, start := range source {
		committed[tp] = fetch.CommittedOffset{Offset: start, LeaderEpoch: messages.NoEpoch}
	}
	return planGroup(group, committed, ranges, &groupHere{})
}
