package broker

// UpdateFeatures: served versions 0-2 (KIP-584).
//
// v1 kinds of change and validate only; v2 no results per feature. All or none, and the
// first refusal is the answer's. mirror.version is the only feature that can be changed
// here: 0 turns the mirror requests off (D36).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleUpdateFeatures(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.UpdateFeaturesRequest)
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	resp.Version = req.Version
	cmd := messages.UpdateFeatures{ValidateOnly: req.ValidateOnly}
	for _, u := range req.FeatureUpdates {
		typ := messages.UpgradeType(u.UpgradeType)
		if req.Version == 0 {
			typ = messages.FeatureUpgrade
			if u.AllowDowngrade {
				typ = messages.FeatureSafeDowngrade
			}
		}
		cmd.Updates = append(cmd.Updates, messages.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Type: typ})
	}
	items := make([]messages.Item, len(cmd.Updates))
	var err error
	switch {
	case !s.allowedCluster(r, OpAlter):
		err = messages.ErrClusterNotAuthorized
	case len(cmd.Updates) == 0:
	default:
		out := s.submit(ctx, r, millis(req.TimeoutMillis), cmd)
		if err = out.Err; err == nil {
			copy(items, out.Items)
		}
	}
	for _, item := range items {
		if err == nil {
			err = item.Err
		}
	}
	resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
	for _, u := range req.FeatureUpdates {
		if err != nil {
			break
		}
		rr := kmsg.NewUpdateFeaturesResponseResult()
		rr.Feature = u.Feature
		resp.Results = append(resp.Results, rr)
	}
	return answer(resp)
}
