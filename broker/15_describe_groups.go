package broker

// DescribeGroups: served versions 0-6.
//
// v3 authorized operations; v4 static members; v6 GROUP_ID_NOT_FOUND with a text
// for a group that doesn't exist (KIP-1043), before that it is Dead. Protocol,
// metadata and assignments are shown of a stable group only.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

const describeNotFoundSince = 6

func (s *Server) handleDescribeGroups(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeGroupsRequest)
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Version = req.Version
	for _, id := range bounded(req.Groups) {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.AuthorizedOperations = id, noOperations
		a, err := ask[*groups.Described](ctx, s, r, OpDescribe, groups.Describe{Group: id})
		if err == nil {
			err = a.Err
			g.State, g.ProtocolType, g.Protocol = a.State, a.ProtocolType, a.Protocol
		}
		if errors.Is(err, messages.ErrUnknownGroup) && req.Version < describeNotFoundSince {
			err = nil
		}
		if err != nil {
			g.ErrorCode, g.ErrorMessage = r.code(err), errorText(err)
			resp.Groups = append(resp.Groups, g)
			continue
		}
		if req.IncludeAuthorizedOperations {
			g.AuthorizedOperations = s.operations(r, KindGroup, id)
		}
		for _, m := range a.Members {
			gm := kmsg.NewDescribeGroupsResponseGroupMember()
			gm.MemberID, gm.InstanceID, gm.ClientID, gm.ClientHost = m.Member, nullable(m.Instance), m.ClientID, m.ClientHost
			gm.ProtocolMetadata, gm.MemberAssignment = m.Metadata, m.Assignment
			g.Members = append(g.Members, gm)
		}
		resp.Groups = append(resp.Groups, g)
	}
	return answer(resp)
}
