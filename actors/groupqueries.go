package actors

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"kagami/messages"
	pb "kagami/messages/proto"
)

// GroupsActor is the name of a node's group coordinators in actor RPC.
const GroupsActor = "groups"

// HandleQuery answers a query for the groups that this node coordinates.
func (gs *Groups) HandleQuery(ctx context.Context, msg []byte) ([]byte, error) {
	var q pb.Query
	if err := proto.Unmarshal(msg, &q); err != nil {
		return nil, fmt.Errorf("%w: query can't be read: %w", messages.ErrInvalidRequest, err)
	}
	var result *pb.QueryResult
	var err error
	switch kind := q.GetQuery().(type) {
	case *pb.Query_GroupList:
		result, err = gs.groupList(ctx, kind.GroupList)
	case *pb.Query_GroupOffsets:
		result = gs.committed(ctx, kind.GroupOffsets)
	case *pb.Query_FollowGroups:
		result = gs.follow(ctx, kind.FollowGroups)
	default:
		err = fmt.Errorf("%w: group coordinators have no answer to that query", messages.ErrInvalidRequest)
	}
	if err != nil {
		return nil, err
	}
	return proto.Marshal(result)
}

func (gs *Groups) groupList(ctx context.Context, q *pb.GroupListQuery) (*pb.QueryResult, error) {
	listed, err := gs.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.GroupList{}
	shards := int32(1)
	if t := gs.topics.Load().image.Topic(messages.ConsumerOffsetsTopic); t != nil {
		shards = max(1, int32(len(t.Partitions)))
	}
	for _, l := range listed {
		if want := q.GetGroup(); want != "" && want != l.Group {
			continue
		}
		out.Groups = append(out.Groups, &pb.GroupState{
			Group: l.Group, Type: l.Type, State: l.State, ProtocolType: l.ProtocolType, Members: int32(l.Members), Offsets: int32(l.Offsets), Epoch: l.Epoch,
			Shard: messages.CoordinatorShard(l.Group, shards),
		})
	}
	slices.SortFunc(out.Groups, func(a, b *pb.GroupState) int { return cmp.Compare(a.GetGroup(), b.GetGroup()) })
	out.Groups = out.Groups[:min(len(out.Groups), actorListLimit)]
	return &pb.QueryResult{Result: &pb.QueryResult_GroupList{GroupList: out}}, nil
}
