package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"kagami/cluster"
	"kagami/messages"
	"kagami/messages/groups"
	pb "kagami/messages/proto"
)

// groupsAtOnce bounds the groups of one request that are asked at the same time.
const groupsAtOnce = 64

// groupAnswerLimit bounds the wait for one request's groups.
const groupAnswerLimit = 15 * time.Second

// committed is what groups that this node coordinates have committed on topics.
func (gs *Groups) committed(ctx context.Context, q *pb.GroupOffsetsQuery) *pb.QueryResult {
	topics := map[string]struct{}{}
	for _, t := range q.GetTopics() {
		topics[t] = struct{}{}
	}
	out := &pb.GroupOffsetsList{Groups: make([]*pb.GroupOffsets, len(q.GetGroups()))}
	atOnce(ctx, len(out.Groups), func(ctx context.Context, i int) {
		name := q.GetGroups()[i]
		g := &pb.GroupOffsets{Group: name}
		out.Groups[i] = g
		a, ok := gs.Ask(ctx, nil, groups.Look{Group: name, Topics: topics}).(*groups.Looked)
		if !ok {
			a = &groups.Looked{Err: messages.ErrInvalidRequest}
		}
		g.Type, g.State, g.Live, g.Status = a.Type, a.State, a.Live, cluster.ErrorStatus(a.Err)
		for _, p := range a.Positions {
			g.Offsets = append(g.Offsets, &pb.GroupOffset{Topic: p.Topic, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata})
		}
	})
	return &pb.QueryResult{Result: &pb.QueryResult_GroupOffsets{GroupOffsets: out}}
}

// follow commits what groups have committed on the source of a mirror.
func (gs *Groups) follow(ctx context.Context, q *pb.FollowGroups) *pb.QueryResult {
	out := &pb.FollowedGroups{Groups: make([]*pb.FollowedGroup, len(q.GetGroups()))}
	follows := func(topic string) bool {
		t := gs.topics.Load().image.Topic(topic)
		return t != nil && t.Mirror == q.GetMirror() && t.Desired == messages.DesiredActive
	}
	atOnce(ctx, len(out.Groups), func(ctx context.Context, i int) {
		g := q.GetGroups()[i]
		req := groups.Follow{Group: g.GetGroup(), Follows: follows}
		for _, o := range g.GetOffsets() {
			req.Positions = append(req.Positions, groups.FollowPosition{Was: o.GetWas(), Position: groups.Position{
				Topic: o.GetTopic(), Partition: o.GetPartition(), Offset: o.GetOffset(), LeaderEpoch: o.GetLeaderEpoch(), Metadata: o.GetMetadata(),
			}})
		}
		moved, err := followed(gs.Ask(ctx, nil, req))
		out.Groups[i] = &pb.FollowedGroup{Group: g.GetGroup(), Moved: moved, Status: cluster.ErrorStatus(err)}
	})
	return &pb.QueryResult{Result: &pb.QueryResult_FollowedGroups{FollowedGroups: out}}
}

// followed sorts out what a coordinator says: a group that has moved by itself is no
// fault.
func followed(answer groups.Answer) (moved bool, err error) {
	a, ok := answer.(*groups.Committed)
	if !ok {
		return false, fmt.Errorf("%w: %T", messages.ErrInvalidRequest, answer)
	}
	errs := append([]error{a.Err}, a.Positions...)
	for i, e := range errs {
		if errors.Is(e, messages.ErrNonEmptyGroup) || errors.Is(e, messages.ErrSettingsChanged) || errors.Is(e, messages.ErrUnstableOffset) {
			moved, errs[i] = true, nil
		}
	}
	return moved, errors.Join(errs...)
}

// atOnce runs f for each number below n, some at the same time, and waits.
func atOnce(ctx context.Context, n int, f func(ctx context.Context, i int)) {
	ctx, cancel := context.WithTimeoutCause(ctx, groupAnswerLimit, messages.ErrTimedOut)
	defer cancel()
	var running sync.WaitGroup
	slots := make(chan struct{}, groupsAtOnce)
	for i := range n {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			f(ctx, i)
		})
	}
	running.Wait()
}
