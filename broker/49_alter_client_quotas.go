package broker

// AlterClientQuotas: served versions 0-1 (KIP-546). An entry is changed as a whole or
// not at all. A null name is the default of all that have no quota of their own. Nodes
// keep them (quotas.go, quotaconnections.go).

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleAlterClientQuotas(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.AlterClientQuotasRequest)
	resp := kmsg.NewPtrAlterClientQuotasResponse()
	resp.Version = req.Version
	items := make([]messages.Item, len(req.Entries))
	var sent []int
	cmd := messages.AlterClientQuotas{ValidateOnly: req.ValidateOnly}
	for i, e := range req.Entries {
		entry, err := quotaEntry(e)
		if !s.allowedCluster(r, OpAlterConfigs) {
			err = messages.ErrClusterNotAuthorized
		}
		if items[i].Err = err; err == nil {
			sent = append(sent, i)
			cmd.Entries = append(cmd.Entries, entry)
		}
	}
	if len(sent) > 0 {
		spread(items, sent, s.submit(ctx, r, 0, cmd))
	}
	for i, e := range req.Entries {
		re := kmsg.NewAlterClientQuotasResponseEntry()
		re.ErrorCode, re.ErrorMessage = r.code(items[i].Err), errorText(items[i].Err)
		for _, d := range e.Entity {
			re.Entity = append(re.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: d.Type, Name: d.Name})
		}
		resp.Entries = append(resp.Entries, re)
	}
	return answer(resp)
}

func quotaEntry(e kmsg.AlterClientQuotasRequestEntry) (messages.QuotaEntry, error) {
	var out messages.QuotaEntry
	for _, d := range e.Entity {
		part := out.Entity.Part(d.Type)
		switch {
		case part == nil:
			return out, fmt.Errorf("%w: a quota can't be of entity type %q", messages.ErrInvalidRequest, d.Type)
		case part.Set:
			return out, fmt.Errorf("%w: entity type %s is named twice", messages.ErrInvalidRequest, d.Type)
		case d.Name != nil && *d.Name == "":
			return out, fmt.Errorf("%w: an empty %s", messages.ErrInvalidRequest, d.Type)
		}
		*part = messages.QuotaPart{Set: true, Default: d.Name == nil}
		if d.Name != nil {
			part.Name = *d.Name
		}
	}
	for _, op := range e.Ops {
		v := messages.QuotaValue{Key: op.Key}
		if !op.Remove {
			v.Value = &op.Value
		}
		out.Values = append(out.Values, v)
	}
	return out, nil
}
