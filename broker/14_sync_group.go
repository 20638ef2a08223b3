package broker

// SyncGroup: served versions 0-5.
//
// v3 static members (KIP-345); v5 protocol type and name, which must be the
// group's. The answer comes when the leader's assignment is stored.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/groups"
)

const syncProtocolSince = 5

func (s *Server) handleSyncGroup(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.SyncGroupRequest)
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version = req.Version
	sync := groups.Sync{
		Who:         groups.Who{Group: req.Group, Generation: req.Generation, Member: req.MemberID, Instance: textOf(req.InstanceID)},
		Assignments: make(map[string][]byte, len(req.GroupAssignment)),
	}
	if req.Version >= syncProtocolSince {
		sync.ProtocolType, sync.Protocol = req.ProtocolType, req.Protocol
	}
	for _, a := range req.GroupAssignment {
		sync.Assignments[a.MemberID] = a.MemberAssignment
	}
	a, err := ask[*groups.Synced](ctx, s, r, OpRead, sync)
	if err == nil {
		err = a.Err
	}
	if err != nil {
		resp.ErrorCode = r.code(err)
		return answer(resp)
	}
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = nullable(a.ProtocolType), nullable(a.Protocol), a.Assignment
	return answer(resp)
}
