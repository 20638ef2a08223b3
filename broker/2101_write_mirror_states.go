package broker

// WriteMirrorStates: served version 0 (KIP-1279), internal, with private tagged fields
// (OP-42). Passed to the mirror's coordinator as it is; what can't be passed on is
// answered per partition.

import (
	"context"
	"fmt"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleWriteMirrorStates(ctx context.Context, r *request) reply {
	req := r.body.(*wire.WriteMirrorStatesRequest)
	resp := wire.NewPtrWriteMirrorStatesResponse()
	if err := s.mayUseCoordinator(r); err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, adminTimeoutDefault, messages.ErrTimedOut)
	defer cancel()
	body, err := s.deps.Bus.WriteMirrorStates(ctx, req.MirrorName, req.AppendTo(nil))
	if err == nil {
		if err = resp.ReadFrom(body); err == nil {
			return answer(resp)
		}
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	*resp = wire.NewWriteMirrorStatesResponse()
	for _, t := range req.Topics {
		rt := wire.NewWriteMirrorStatesResponseTopicResult()
		rt.Name = t.Name
		for _, p := range t.Partitions {
			rp := wire.NewWriteMirrorStatesResponsePartitionResult()
			rp.PartitionIndex, rp.ErrorCode = p.PartitionIndex, r.code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
