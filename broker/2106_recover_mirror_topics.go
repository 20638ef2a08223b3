package broker

// RecoverMirrorTopics: served version 0 (OP-25).
//
// The node checks rights and membership and passes the topics on to the leaders
// of their partitions; nothing in the metadata changes.

import (
	"context"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleRecoverMirrorTopics(ctx context.Context, r *request) reply {
	req := r.body.(*wire.RecoverMirrorTopicsRequest)
	topics := make([]messages.MirrorTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		topics = append(topics, messages.MirrorTopic{Name: t.TopicName, ID: t.TopicID})
	}
	items, err := s.recoverTopics(ctx, r, req.MirrorName, topics)
	a := answerTopics(r, req.MirrorName, topics, items, err)
	resp := wire.NewPtrRecoverMirrorTopicsResponse()
	resp.ErrorCode, resp.ErrorMessage, resp.MirrorName = a.code, a.message, a.mirror
	for _, t := range a.topics {
		resp.Topics = append(resp.Topics, wire.RecoverMirrorTopicsResponseTopicResult{Name: t.Name, ErrorCode: t.ErrorCode})
	}
	return answer(resp)
}

func (s *Server) recoverTopics(ctx context.Context, r *request, mirror string, topics []messages.MirrorTopic) ([]messages.Item, error) {
	if err := s.mayChangeTopics(r, mirror, topics); err != nil {
		return nil, err
	}
	if err := repeated(topics); err != nil {
		return nil, err
	}
	items := make([]messages.Item, len(topics))
	img := s.image()
	var names []string
	var sent []int
	for i, t := range topics {
		if items[i].Err = member(img, mirror, t); items[i].Err == nil {
			names, sent = append(names, t.Name), append(sent, i)
		}
	}
	if len(names) == 0 {
		return items, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, adminTimeoutDefault, messages.ErrTimedOut)
	defer cancel()
	spread(items, sent, messages.Outcome{Items: s.deps.Mirrors.Recover(ctx, r.who, mirror, names)})
	return items, nil
}
