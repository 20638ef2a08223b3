package broker

// UnregisterBroker: served version 0.
//
// For a node that is gone for good: its replicas go to others. A node that is alive
// is refused, as it would come again with its next start.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleUnregisterBroker(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.UnregisterBrokerRequest)
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	resp.Version = req.Version
	err := fmt.Errorf("%w: %s", messages.ErrClusterNotAuthorized, r.who.Principal)
	if s.allowed(r, OpAlter, KindCluster, ClusterResourceName) {
		err = s.submit(ctx, r, 0, messages.UnregisterNode{ID: messages.NodeID(req.BrokerID)}).Err
	}
	resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
	return answer(resp)
}
