package broker

// DeleteClusterMirror: served version 0 (KIP-1279).
//
// Right: Alter on the mirror (OP-13). An active or paused topic is
// CLUSTER_MIRROR_NOT_EMPTY without asking anybody; then every partition must be
// STOPPED, which the node finds out before the controller checks again.

import (
	"context"
	"fmt"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleDeleteClusterMirror(ctx context.Context, r *request) reply {
	req := r.body.(*wire.DeleteClusterMirrorRequest)
	resp := wire.NewPtrDeleteClusterMirrorResponse()
	err := s.deleteMirror(ctx, r, req.MirrorName)
	resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
	return answer(resp)
}

func (s *Server) deleteMirror(ctx context.Context, r *request, mirror string) error {
	if err := s.mayChangeTopics(r, mirror, nil); err != nil {
		return err
	}
	for _, t := range s.image().TopicsOfMirror(mirror) {
		if t.Desired != messages.DesiredStopped {
			return fmt.Errorf("%w: topic %s is %s, stop it first", messages.ErrMirrorNotEmpty, t.Name, t.Desired)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, adminTimeoutDefault, messages.ErrTimedOut)
	defer cancel()
	if err := s.deps.Mirrors.CheckDelete(ctx, mirror); err != nil {
		return err
	}
	return firstError(s.submit(ctx, r, 0, messages.DeleteMirror{Name: mirror}))
}
