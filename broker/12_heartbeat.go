package broker

// Heartbeat: served versions 0-4.
//
// v3 static members (KIP-345). REBALANCE_IN_PROGRESS asks the member to join again.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/groups"
)

func (s *Server) handleHeartbeat(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.HeartbeatRequest)
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = req.Version
	a, err := ask[*groups.Done](ctx, s, r, OpRead, groups.Heartbeat{Who: groups.Who{
		Group: req.Group, Generation: req.Generation, Member: req.MemberID, Instance: textOf(req.InstanceID),
	}})
	if err == nil {
		err = a.Err
	}
	resp.ErrorCode = r.code(err)
	return answer(resp)
}
