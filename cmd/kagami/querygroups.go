package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"kagami/actors"
	"kagami/cluster"
	"kagami/messages"
	pb "kagami/messages/proto"
)

// handleQuery answers other nodes' queries to this node's actors.
func (n *node) handleQuery(ctx context.Context, name string, msg []byte) ([]byte, error) {
	switch name {
	case actors.GroupsActor:
		if groups := n.groupsNow.Load(); groups != nil {
			return groups.HandleQuery(ctx, msg)
		}
	case actors.SharesActor:
		if shares := n.sharesNow.Load(); shares != nil {
			return shares.HandleQuery(ctx, msg)
		}
	default:
		return n.mirroring.HandleQuery(ctx, name, msg)
	}
	return nil, fmt.Errorf("%w: %q isn't started yet", cluster.ErrNotReady, name)
}

// groups is all groups, of all nodes, or one.
func (q queries) groups(ctx context.Context, args url.Values) (any, error) {
	rows := []row{}
	var mu sync.Mutex
	q.onNodes(ctx, q.nodeIDs(), func(ctx context.Context, node messages.NodeID) {
		res, err := q.askActor(ctx, node, actors.GroupsActor, &pb.Query{Query: &pb.Query_GroupList{GroupList: &pb.GroupListQuery{Group: args.Get("group")}}})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			rows = append(rows, row{"group": "-", "node": node, "state": "-", "error": err.Error(), "unreachable": true})
		}
		for _, g := range res.GetGroupList().GetGroups() {
			rows = append(rows, row{
				"group": g.GetGroup(), "node": node, "type": g.GetType(), "state": g.GetState(), "protocolType": g.GetProtocolType(),
				"members": g.GetMembers(), "offsets": g.GetOffsets(), "epoch": g.GetEpoch(), "shard": g.GetShard(),
			})
		}
	})
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(fmt.Sprint(a["group"]), fmt.Sprint(b["group"])), strings.Compare(fmt.Sprint(a["node"]), fmt.Sprint(b["node"])))
	})
	return rows, nil
}
