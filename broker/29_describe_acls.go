package broker

// DescribeAcls: served versions 1-3. Describe on the cluster.
//
// Entries about cluster mirrors have resource type 8 (KIP-1279); Kafka's own tools, which
// don't know it, show it as UNKNOWN.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleDescribeACLs(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeACLsRequest)
	resp := kmsg.NewPtrDescribeACLsResponse()
	resp.Version = req.Version
	filter := messages.ACLFilter{
		Type: messages.ACLResourceType(req.ResourceType), Pattern: messages.ACLPattern(req.ResourcePatternType), Name: req.ResourceName,
		Principal: req.Principal, Host: req.Host, Operation: messages.ACLOperation(req.Operation), Permission: messages.ACLPermission(req.PermissionType),
	}
	err := filter.Check()
	if refused := s.mayACL(r, OpDescribe); refused != nil {
		err = refused
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	resp.Resources = []kmsg.DescribeACLsResponseResource{}
	for _, a := range s.image().ACLs() {
		if !filter.Matches(a.ACL) {
			continue
		}
		// Entries about one resource stand together.
		if n := len(resp.Resources); n == 0 || !sameResource(&resp.Resources[n-1], a.ACL) {
			rr := kmsg.NewDescribeACLsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ResourcePatternType = kmsg.ACLResourceType(a.Type), a.Name, kmsg.ACLResourcePatternType(a.Pattern)
			resp.Resources = append(resp.Resources, rr)
		}
		last := &resp.Resources[len(resp.Resources)-1]
		last.ACLs = append(last.ACLs, kmsg.DescribeACLsResponseResourceACL{
			Principal: a.Principal, Host: a.Host, Operation: kmsg.ACLOperation(a.Operation), PermissionType: kmsg.ACLPermissionType(a.Permission),
		})
	}
	return answer(resp)
}

func sameResource(r *kmsg.DescribeACLsResponseResource, a messages.ACL) bool {
	return r.ResourceName == a.Name && int8(r.ResourceType) == int8(a.Type) && int8(r.ResourcePatternType) == int8(a.Pattern)
}

// mayACL returns nil if the client may see or change entries.
func (s *Server) mayACL(r *request, op Operation) error {
	switch {
	case s.unguarded:
		return messages.ErrSecurityDisabled
	case !s.allowedCluster(r, op):
		return messages.ErrClusterNotAuthorized
	default:
		return nil
	}
}
