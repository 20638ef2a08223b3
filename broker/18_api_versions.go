package broker

// ApiVersions: served versions 0-4.
//
// v3 client software name and features (KIP-511, KIP-584); v4 features whose
// lowest level is 0 (KAFKA-17011).
//
// A newer version than ours is answered in the layout of v0 with error 35 and
// the range of this key, on a connection that stays open (KIP-511, C43). The
// response header has no tags in any version.
//
// Left out: v5 (KIP-1242, checks that a client met the node it wanted).

import (
	"context"
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

const (
	apiVersionsMax      = 4
	apiVersionsSoftware = 3
	mirrorVersionMax    = 1 // newest level of the feature mirror.version

	// groupVersion is the level of group.version, always: the consumer protocol (KIP-848)
	// is on.
	groupVersion        = 1
	groupVersionFeature = "group.version"

	// transactionVersion is the level of transaction.version, always: clients that know
	// it get an epoch for each transaction (KIP-890 part 2), others needn't.
	transactionVersion        = 2
	transactionVersionFeature = "transaction.version"
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
	for _, a := range apis() {
		if a.listed {
			resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
		}
	}
	img := s.image()
	lowest := int16(0)
	if req.Version < apiVersionsMax {
		lowest = 1 // clients below v4 choke on 0
	}
	resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: metadata.MirrorVersionFeature, MinVersion: lowest, MaxVersion: mirrorVersionMax})
	resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: transactionVersionFeature, MinVersion: lowest, MaxVersion: transactionVersion})
	resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: groupVersionFeature, MinVersion: lowest, MaxVersion: groupVersion})
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: groupVersionFeature, MinVersionLevel: groupVersion, MaxVersionLevel: groupVersion})
	resp.FinalizedFeaturesEpoch = img.Offset()
	if level := img.MirrorVersion(); level > 0 {
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: metadata.MirrorVersionFeature, MinVersionLevel: level, MaxVersionLevel: level})
	}
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: transactionVersionFeature, MinVersionLevel: transactionVersion, MaxVersionLevel: transactionVersion})
	return answer(resp)
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
