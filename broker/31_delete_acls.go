package broker

// DeleteAcls: served versions 1-3. Alter on the cluster. Each filter is answered with what
// it has found, and that is gone.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleDeleteACLs(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DeleteACLsRequest)
	resp := kmsg.NewPtrDeleteACLsResponse()
	resp.Version = req.Version
	items := make([]messages.Item, len(req.Filters))
	if err := s.mayACL(r, OpAlter); err != nil {
		fillItems(items, err)
	} else if len(req.Filters) > 0 {
		var cmd messages.DeleteACLs
		sent := make([]int, 0, len(req.Filters))
		for i, f := range req.Filters {
			sent = append(sent, i)
			cmd.Filters = append(cmd.Filters, messages.ACLFilter{
				Type: messages.ACLResourceType(f.ResourceType), Pattern: messages.ACLPattern(f.ResourcePatternType), Name: f.ResourceName,
				Principal: f.Principal, Host: f.Host, Operation: messages.ACLOperation(f.Operation), Permission: messages.ACLPermission(f.PermissionType),
			})
		}
		spread(items, sent, s.submit(ctx, r, 0, cmd))
	}
	for _, item := range items {
		rr := kmsg.NewDeleteACLsResponseResult()
		rr.ErrorCode, rr.ErrorMessage = r.code(item.Err), errorText(item.Err)
		for _, a := range item.ACLs {
			m := kmsg.NewDeleteACLsResponseResultMatchingACL()
			m.ResourceType, m.ResourceName, m.ResourcePatternType = kmsg.ACLResourceType(a.Type), a.Name, kmsg.ACLResourcePatternType(a.Pattern)
			m.Principal, m.Host, m.Operation, m.PermissionType = a.Principal, a.Host, kmsg.ACLOperation(a.Operation), kmsg.ACLPermissionType(a.Permission)
			rr.MatchingACLs = append(rr.MatchingACLs, m)
		}
		resp.Results = append(resp.Results, rr)
	}
	return answer(resp)
}
