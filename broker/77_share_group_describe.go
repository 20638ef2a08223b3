package broker

// ShareGroupDescribe: served version 1 (KIP-932).
//
// Nobody consumes by share groups here, so a group has no members: it is what
// administrators and mirrors have made. A group of another kind is GROUP_ID_NOT_FOUND.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

// shareAssignor is the name of Kafka's only assignor of share groups.
const shareAssignor = "simple"

func (s *Server) handleShareGroupDescribe(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.ShareGroupDescribeRequest)
	resp := kmsg.NewPtrShareGroupDescribeResponse()
	resp.Version = req.Version
	for _, id := range bounded(req.GroupIDs) {
		g := kmsg.NewShareGroupDescribeResponseGroup()
		g.GroupID = id
		a, err := ask[*groups.ShareLooked](ctx, s, r, OpDescribe, groups.LookShare{Group: id})
		if err == nil {
			err = a.Err
		}
		if id == "" {
			err = messages.ErrInvalidGroupID
		}
		if err != nil {
			g.ErrorCode, g.ErrorMessage = r.code(err), errorText(err)
		} else {
			g.GroupState, g.GroupEpoch, g.AssignmentEpoch, g.Assignor = a.State, a.Epoch, a.Epoch, shareAssignor
			if req.IncludeAuthorizedOperations {
				g.AuthorizedOperations = s.operations(r, KindGroup, id)
			}
		}
		resp.Groups = append(resp.Groups, g)
	}
	return answer(resp)
}
