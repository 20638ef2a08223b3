package broker

// DeleteGroups: served versions 0-3.
//
// v3 a text with the error. A group with members is NON_EMPTY_GROUP. An answer
// means that the deletion is stored.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

func (s *Server) handleDeleteGroups(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DeleteGroupsRequest)
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Version = req.Version
	for _, id := range req.Groups {
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = id
		err := s.deleteGroup(ctx, r, id)
		g.ErrorCode, g.ErrorMessage = r.code(err), errorText(err)
		resp.Groups = append(resp.Groups, g)
	}
	return answer(resp)
}

// deleteGroup deletes a group of any kind; a share group's states go as well.
func (s *Server) deleteGroup(ctx context.Context, r *request, id string) error {
	if s.allowed(r, OpDelete, KindGroup, id) {
		if err := s.deps.Shares.Delete(ctx, id); !errors.Is(err, messages.ErrUnknownGroup) {
			return err
		}
	}
	a, err := ask[*groups.Done](ctx, s, r, OpDelete, groups.Delete{Group: id})
	if err == nil {
		err = a.Err
	}
	return err
}
