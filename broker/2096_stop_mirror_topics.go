package broker

// StopMirrorTopics: served version 0 (KIP-1279).
//
// Every partition state is acceptable (OP-2), so the controller decides alone. The
// answer holds the named topics, not those that only a pattern stopped.

import (
	"context"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleStopMirrorTopics(ctx context.Context, r *request) reply {
	req := r.body.(*wire.StopMirrorTopicsRequest)
	topics := make([]messages.MirrorTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		topics = append(topics, messages.MirrorTopic{Name: t.TopicName, ID: t.TopicID})
	}
	items, err := s.changeTopics(ctx, r, req.MirrorName, topics, messages.StopMirrorTopics{Mirror: req.MirrorName, Topics: topics, Patterns: req.Patterns})
	a := answerTopics(r, req.MirrorName, topics, items, err)
	resp := wire.NewPtrStopMirrorTopicsResponse()
	resp.ErrorCode, resp.ErrorMessage, resp.MirrorName = a.code, a.message, a.mirror
	for _, t := range a.topics {
		resp.Topics = append(resp.Topics, wire.StopMirrorTopicsResponseTopicResult{Name: t.Name, ErrorCode: t.ErrorCode})
	}
	return answer(resp)
}
