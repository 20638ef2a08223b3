package broker

// DescribeClientQuotas: served versions 0-1 (KIP-546).
//
// Match types: 0 a name, 1 the default, 2 any of that type. Without strict, an entity
// may have more parts than were asked for.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleDescribeClientQuotas(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeClientQuotasRequest)
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	resp.Version = req.Version
	err := checkQuotaFilter(req)
	if !s.allowedCluster(r, OpDescribeConfigs) {
		err = messages.ErrClusterNotAuthorized
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	for _, q := range s.image().Quotas() {
		if !quotaMatches(req, q.Entity) {
			continue
		}
		e := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, typ := range messages.QuotaTypes() {
			if part := q.Entity.Part(typ); part.Set {
				d := kmsg.NewDescribeClientQuotasResponseEntryEntity()
				d.Type = typ
				if !part.Default {
					d.Name = &part.Name
				}
				e.Entity = append(e.Entity, d)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(q.Limits)) {
			e.Values = append(e.Values, kmsg.DescribeClientQuotasResponseEntryValue{Key: key, Value: q.Limits[key]})
		}
		resp.Entries = append(resp.Entries, e)
	}
	return answer(resp)
}

// checkQuotaFilter refuses what can't be meant.
func checkQuotaFilter(req *kmsg.DescribeClientQuotasRequest) error {
	seen := map[string]bool{}
	for _, c := range req.Components {
		switch {
		case new(messages.QuotaEntity).Part(c.EntityType) == nil && c.EntityType != "":
			return fmt.Errorf("%w: entity type %q", messages.ErrUnsupportedVersion, c.EntityType)
		case c.EntityType == "":
			return fmt.Errorf("%w: empty entity type", messages.ErrInvalidRequest)
		case seen[c.EntityType]:
			return fmt.Errorf("%w: entity type %s is named twice", messages.ErrInvalidRequest, c.EntityType)
		case c.MatchType == kmsg.QuotasMatchTypeExact && c.Match == nil:
			return fmt.Errorf("%w: a name is missing", messages.ErrInvalidRequest)
		case c.MatchType != kmsg.QuotasMatchTypeExact && c.Match != nil:
			return fmt.Errorf("%w: a name where none is expected", messages.ErrInvalidRequest)
		case c.MatchType < kmsg.QuotasMatchTypeExact || c.MatchType > kmsg.QuotasMatchTypeAny:
			return fmt.Errorf("%w: match type %d", messages.ErrInvalidRequest, c.MatchType)
		}
		seen[c.EntityType] = true
	}
	if seen[messages.QuotaIP] && len(seen) > 1 {
		return fmt.Errorf("%w: an address can't be asked for together with users or client ids", messages.ErrInvalidRequest)
	}
	return nil
}

func quotaMatches(req *kmsg.DescribeClientQuotasRequest, e messages.QuotaEntity) bool {
	parts := 0
	for _, typ := range messages.QuotaTypes() {
		if e.Part(typ).Set {
			parts++
		}
	}
	for _, c := range req.Components {
		part := e.Part(c.EntityType)
		if part == nil || !part.Set {
			return false
		}
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if part.Default || part.Name != *c.Match {
				return false
			}
		case kmsg.QuotasMatchTypeDefault:
			if !part.Default {
				return false
			}
		case kmsg.QuotasMatchTypeAny:
		}
	}
	return !req.Strict || parts == len(req.Components)
}
