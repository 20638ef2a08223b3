package broker

// JoinGroup: served versions 0-9.
//
// v1 rebalance timeout (before: the session timeout); v4 new members are told
// their id first (KIP-394); v5 static members (KIP-345); v7 protocol type; v8
// reason, for logs; v9 SkipAssignment (KIP-814).
//
// The answer comes when the generation begins: the connection waits as long as a
// rebalance takes. Left out: groups of other kinds than the classic protocol's.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

const (
	joinRebalanceTimeoutSince = 1
	joinMemberIDSince         = 4
	joinNullProtocolSince     = 7
	joinSkipAssignmentSince   = 9
)

func (s *Server) handleJoinGroup(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.JoinGroupRequest)
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = req.Version
	join := groups.Join{
		Group: req.Group, Member: req.MemberID, Instance: textOf(req.InstanceID),
		SessionMillis: req.SessionTimeoutMillis, RebalanceMillis: req.RebalanceTimeoutMillis,
		ProtocolType: req.ProtocolType, ClientID: r.who.ClientID, ClientHost: "/" + r.who.Host,
		NeedsID: req.Version >= joinMemberIDSince, MaySkip: req.Version >= joinSkipAssignmentSince,
	}
	if req.Version < joinRebalanceTimeoutSince || join.RebalanceMillis < 0 {
		join.RebalanceMillis = req.SessionTimeoutMillis
	}
	for _, p := range req.Protocols {
		join.Protocols = append(join.Protocols, groups.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	a, err := ask[*groups.Joined](ctx, s, r, OpRead, join)
	if err != nil {
		a = &groups.Joined{Err: err, Generation: -1, Member: req.MemberID}
	}
	resp.ErrorCode, resp.Generation, resp.LeaderID, resp.MemberID, resp.SkipAssignment = r.code(a.Err), a.Generation, a.Leader, a.Member, a.SkipAssignment
	if errors.Is(a.Err, messages.ErrGroupNotAuthorized) {
		resp.MemberID = "" // as in Kafka
	}
	resp.ProtocolType, resp.Protocol = nullable(a.ProtocolType), nullable(a.Protocol)
	if resp.Protocol == nil && req.Version < joinNullProtocolSince {
		resp.Protocol = new("")
	}
	resp.Members = []kmsg.JoinGroupResponseMember{}
	for _, m := range a.Members {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = m.Member, nullable(m.Instance), m.Metadata
		resp.Members = append(resp.Members, rm)
	}
	return answer(resp)
}
