package broker

// ResumeMirrorTopics: served version 0 (KIP-1279).
//
// The controller checks the desired state only (OP-17).

import (
	"context"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleResumeMirrorTopics(ctx context.Context, r *request) reply {
	req := r.body.(*wire.ResumeMirrorTopicsRequest)
	topics := make([]messages.MirrorTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		topics = append(topics, messages.MirrorTopic{Name: t.TopicName, ID: t.TopicID})
	}
	items, err := s.changeTopics(ctx, r, req.MirrorName, topics, messages.ResumeMirrorTopics{Mirror: req.MirrorName, Topics: topics})
	a := answerTopics(r, req.MirrorName, topics, items, err)
	resp := wire.NewPtrResumeMirrorTopicsResponse()
	resp.ErrorCode, resp.ErrorMessage, resp.MirrorName = a.code, a.message, a.mirror
	for _, t := range a.topics {
		resp.Topics = append(resp.Topics, wire.ResumeMirrorTopicsResponseTopicResult{Name: t.Name, ErrorCode: t.ErrorCode})
	}
	return answer(resp)
}
