package broker

// IncrementalAlterConfigs: served versions 0-1.
//
// Resource types as in AlterConfigs (33). Operations: set, delete, append,
// subtract; the last two on lists only, which the controller checks. A resource
// is changed as a whole or not at all.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleIncrementalAlterConfigs(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.Version = req.Version
	changes := make([]messages.ResourceChange, len(req.Resources))
	for i, res := range req.Resources {
		changes[i] = messages.ResourceChange{Type: messages.ResourceType(res.ResourceType), Name: res.ResourceName}
		for _, c := range res.Configs {
			changes[i].Changes = append(changes[i].Changes, messages.ConfigChange{Name: c.Name, Op: messages.ConfigOp(c.Op), Value: c.Value})
		}
	}
	items := s.alterConfigs(ctx, r, messages.AlterConfigs{Resources: changes, ValidateOnly: req.ValidateOnly})
	for i, res := range req.Resources {
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = res.ResourceType, res.ResourceName
		rr.ErrorCode, rr.ErrorMessage = r.code(items[i].Err), errorText(items[i].Err)
		resp.Resources = append(resp.Resources, rr)
	}
	return answer(resp)
}
