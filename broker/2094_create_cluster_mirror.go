package broker

// CreateClusterMirror: served version 0 (KIP-1279).
//
// The name is checked here and again by the controller, which checks the
// configs and creates __mirror_state with the first mirror. A null value means
// the key's default. No source is contacted.

import (
	"context"
	"fmt"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleCreateClusterMirror(ctx context.Context, r *request) reply {
	req := r.body.(*wire.CreateClusterMirrorRequest)
	resp := wire.NewPtrCreateClusterMirrorResponse()
	err := s.createMirror(ctx, r, req)
	resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
	return answer(resp)
}

func (s *Server) createMirror(ctx context.Context, r *request, req *wire.CreateClusterMirrorRequest) error {
	if err := s.mirroringOn(); err != nil {
		return err
	}
	if !s.allowed(r, OpCreate, KindClusterMirror, req.MirrorName) {
		return messages.ErrMirrorNotAuthorized
	}
	if err := messages.CheckMirrorName(req.MirrorName); err != nil {
		return err
	}
	if s.image().Mirror(req.MirrorName) != nil {
		return fmt.Errorf("%w: %q", messages.ErrMirrorExists, req.MirrorName)
	}
	cmd := messages.CreateMirror{Name: req.MirrorName}
	for _, c := range req.Config {
		cmd.Configs = append(cmd.Configs, messages.ConfigChange{Name: c.Name, Op: messages.ConfigSet, Value: c.Value})
	}
	out := s.submit(ctx, r, 0, cmd)
	return firstError(out)
}

// firstError is the refusal of a command about one thing.
func firstError(out messages.Outcome) error {
	if out.Err != nil {
		return out.Err
	}
	for _, item := range out.Items {
		if item.Err != nil {
			return item.Err
		}
	}
	return nil
}
