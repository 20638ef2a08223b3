package broker

// DescribeCluster: served versions 0-2.
//
// v1 endpoint type (KIP-919): 1 brokers; 2 controllers, which don't listen on
// their own here, is MISMATCHED_ENDPOINT_TYPE. v2 fenced brokers: none.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	endpointBrokers     = 1
	endpointControllers = 2
)

func (s *Server) handleDescribeCluster(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeClusterRequest)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	resp.ControllerID, resp.ClusterAuthorizedOperations = -1, noOperations
	resp.EndpointType = endpointBrokers
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		err := refuse(kerr.UnsupportedEndpointType, fmt.Sprintf("endpoint type %d", req.EndpointType))
		if req.EndpointType == endpointControllers {
			err = refuse(kerr.MismatchedEndpointType, "this is a broker listener")
		}
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	img := s.image()
	resp.ClusterID = img.ClusterID()
	resp.ControllerID = int32(s.shownController(img, r.listener))
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = s.clusterOperations(r)
	}
	for _, n := range img.Nodes() {
		if e, ok := s.endpointOf(&n, r.listener); ok {
			resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: int32(n.ID), Host: e.Host, Port: e.Port, Rack: rackOf(&n)})
		}
	}
	return answer(resp)
}
