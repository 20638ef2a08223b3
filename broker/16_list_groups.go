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
	states, types := filterOf(req.StatesFilter), filterOf(req.TypesFilter)
	for _, g := range listed {
		if !states.matches(g.State) || !types.matches(g.Type) || !all && !s.allowed(r, OpDescribe, KindGroup, g.Group) {
			continue
		}
		rg := kmsg.NewListGroupsResponseGroup()
		rg.Group, rg.ProtocolType, rg.GroupState, rg.GroupType = g.Group, g.ProtocolType, g.State, g.Type
		resp.Groups = append(resp.Groups, rg)
	}
	return answer(resp)
}

// filter is what a list is narrowed to; nil takes everything. A request may name a million things, and
// each is looked at once.
type filter map[string]bool

func filterOf(names []string) filter {
	if len(names) == 0 {
		return nil
	}
	f := make(filter)
	for _, n := range names {
		f[strings.ToLower(n)] = true
	}
	return f
}

func (f filter) matches(value string) bool { return f == nil || f[strings.ToLower(value)] }
