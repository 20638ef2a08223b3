package broker

// ReadMirrorStates: served version 0 (KIP-1279), internal.
//
// Passed to the mirror's coordinator as it is; what can't be passed on is
// answered per partition, with PartitionIndex set.

import (
	"context"
	"fmt"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleReadMirrorStates(ctx context.Context, r *request) reply {
	req := r.body.(*wire.ReadMirrorStatesRequest)
	resp := wire.NewPtrReadMirrorStatesResponse()
	if err := s.mayUseCoordinator(r); err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, adminTimeoutDefault, messages.ErrTimedOut)
	defer cancel()
	body, err := s.deps.Bus.ReadMirrorStates(ctx, req.MirrorName, req.AppendTo(nil))
	if err == nil {
		if err = resp.ReadFrom(body); err == nil {
			return answer(resp)
		}
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	*resp = wire.NewReadMirrorStatesResponse()
	for _, t := range req.Topics {
		rt := wire.NewReadMirrorStatesResponseTopicStates()
		rt.Name = t.Name
		for _, p := range t.Partitions {
			rp := wire.NewReadMirrorStatesResponsePartitionStateData()
			rp.PartitionIndex, rp.State, rp.ErrorCode = p.PartitionIndex, int8(messages.StateUnknown), r.code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

// mayUseCoordinator is the check of the internal requests.
func (s *Server) mayUseCoordinator(r *request) error {
	if err := s.mirroringOn(); err != nil {
		return err
	}
	if !s.allowedCluster(r, OpClusterAction) {
		return messages.ErrClusterNotAuthorized
	}
	return nil
}
