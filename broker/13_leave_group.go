package broker

// LeaveGroup: served versions 0-5.
//
// v0-2 one member, whose error is the answer's; v3 several members, static ones by
// their instance id alone, as administrators remove them (KIP-345); v5 reason.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/groups"
)

const leaveMembersSince = 3

func (s *Server) handleLeaveGroup(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.LeaveGroupRequest)
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.Version = req.Version
	leave := groups.Leave{Group: req.Group}
	if req.Version < leaveMembersSince {
		leave.Members = []groups.Leaver{{Member: req.MemberID}}
	}
	for _, m := range req.Members {
		leave.Members = append(leave.Members, groups.Leaver{Member: m.MemberID, Instance: textOf(m.InstanceID)})
	}
	a, err := ask[*groups.Left](ctx, s, r, OpRead, leave)
	if err == nil {
		err = a.Err
	}
	switch {
	case err != nil:
		resp.ErrorCode = r.code(err)
	case req.Version < leaveMembersSince:
		resp.ErrorCode = r.code(a.Members[0])
	default:
		for i, m := range req.Members {
			rm := kmsg.NewLeaveGroupResponseMember()
			rm.MemberID, rm.InstanceID, rm.ErrorCode = m.MemberID, m.InstanceID, r.code(a.Members[i])
			resp.Members = append(resp.Members, rm)
		}
	}
	return answer(resp)
}
