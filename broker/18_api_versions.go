package broker

// ApiVersions: served versions 0-5.
//
// v3 client software name and features (KIP-511, KIP-584); v4 features whose
// lowest level is 0 (KAFKA-17011).
//
// A newer version than ours is answered in the layout of v0 with error 35 and
// the range of this key, on a connection that stays open (KIP-511, C43). The
// response header has no tags in any version.
//
// v5 the cluster and the node that a client believes to have met (KIP-1242): another
// one answers REBOOTSTRAP_REQUIRED.

import (
	"context"
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

const (
	apiVersionsMax      = 5
	apiVersionsZero     = 4
	apiVersionsNode     = 5
	apiVersionsSoftware = 3
)

var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func (s *Server) handleAPIVersions(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.ApiVersionsRequest)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = req.Version
	if req.Version >= apiVersionsSoftware && !(softwareName.MatchString(req.ClientSoftwareName) && softwareName.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = r.code(messages.ErrInvalidRequest)
		return answer(resp)
	}
	if err := s.checkMet(req); err != nil {
		resp.ErrorCode = r.code(err)
		return answer(resp)
	}
	for _, a := range apis() {
		if a.listed {
			resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
		}
	}
	img := s.image()
	lowest := int16(0)
	if req.Version < apiVersionsZero {
		lowest = 1 // clients below v4 choke on 0
	}
	resp.FinalizedFeaturesEpoch = img.Offset()
	for _, f := range messages.Features() {
		resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: f.Name, MinVersion: max(f.Min, lowest), MaxVersion: f.Max})
		if level := img.FeatureLevel(f); level > 0 {
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: f.Name, MinVersionLevel: level, MaxVersionLevel: level})
		}
	}
	return answer(resp)
}

// checkMet refuses a client that wanted another node.
func (s *Server) checkMet(req *kmsg.ApiVersionsRequest) error {
	switch {
	case req.Version < apiVersionsNode || req.ClusterID == nil && req.NodeID < 0:
		return nil
	case req.ClusterID == nil || req.NodeID < 0:
		return messages.ErrInvalidRequest
	case *req.ClusterID != s.image().ClusterID() || req.NodeID != int32(s.cfg.NodeID):
		return refuse(kerr.RebootstrapRequired, "")
	}
	return nil
}

func apiKey(a api) kmsg.ApiVersionsResponseApiKey {
	return kmsg.ApiVersionsResponseApiKey{ApiKey: a.key, MinVersion: a.min, MaxVersion: a.max}
}

// tooNewAPIVersions is the answer to a version that nobody here knows.
func tooNewAPIVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 0
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	for _, a := range apis() {
		if a.key == keyAPIVersions {
			resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
		}
	}
	return resp
}
