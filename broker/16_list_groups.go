package broker

// ListGroups: served versions 0-5.
//
// v4 states, as a filter and shown (KIP-518); v5 types in the same way (KIP-848).
// Upper and lower case don't matter in filters. The groups are those that this node
// coordinates: clients ask every node.

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/groups"
)

func (s *Server) handleListGroups(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.ListGroupsRequest)
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = req.Version
	listed, err := s.deps.Groups.List(ctx)
	if err != nil {
		resp.ErrorCode = r.code(err)
		return answer(resp)
	}
	slices.SortFunc(listed, func(a, b groups.Listed) int { return strings.Compare(a.Group, b.Group) })
	all := s.allowedCluster(r, OpDescribe)
	for _, g := range listed {
		if !matches(req.StatesFilter, g.State) || !matches(req.TypesFilter, g.Type) || !all && !s.allowed(r, OpDescribe, KindGroup, g.Group) {
			continue
		}
		rg := kmsg.NewListGroupsResponseGroup()
		rg.Group, rg.ProtocolType, rg.GroupState, rg.GroupType = g.Group, g.ProtocolType, g.State, g.Type
		resp.Groups = append(resp.Groups, rg)
	}
	return answer(resp)
}

// matches: no filter takes everything.
func matches(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
