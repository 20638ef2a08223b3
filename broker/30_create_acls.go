package broker

// CreateAcls: served versions 1-3. Alter on the cluster. An entry that is there already is
// no fault. Resource type 8 is a cluster mirror (KIP-1279).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleCreateACLs(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.CreateACLsRequest)
	resp := kmsg.NewPtrCreateACLsResponse()
	resp.Version = req.Version
	items := make([]messages.Item, len(req.Creations))
	if err := s.mayACL(r, OpAlter); err != nil {
		fillItems(items, err)
	} else if len(req.Creations) > 0 {
		var cmd messages.CreateACLs
		sent := make([]int, 0, len(req.Creations))
		for i, c := range req.Creations {
			sent = append(sent, i)
			cmd.Entries = append(cmd.Entries, messages.ACL{
				Type: messages.ACLResourceType(c.ResourceType), Pattern: messages.ACLPattern(c.ResourcePatternType), Name: c.ResourceName,
				Principal: c.Principal, Host: c.Host, Operation: messages.ACLOperation(c.Operation), Permission: messages.ACLPermission(c.PermissionType),
			})
		}
		spread(items, sent, s.submit(ctx, r, 0, cmd))
	}
	for _, item := range items {
		resp.Results = append(resp.Results, kmsg.CreateACLsResponseResult{ErrorCode: r.code(item.Err), ErrorMessage: errorText(item.Err)})
	}
	return answer(resp)
}

func fillItems(items []messages.Item, err error) {
	for i := range items {
		items[i].Err = err
	}
}
