package broker

// StartMirrorTopics: served version 0 (KIP-1279).
//
// The node checks partition states and loops (workflows.md "Start" step 3,
// OP-35) for topics that exist here or are named; topics that fail get their own
// code and the others go on to the controller, together with the patterns
// (OP-33). A topic that is active or paused in some mirror is refused right
// here: its states needn't be asked for.

import (
	"context"
	"fmt"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleStartMirrorTopics(ctx context.Context, r *request) reply {
	req := r.body.(*wire.StartMirrorTopicsRequest)
	topics := make([]messages.MirrorTopic, 0, len(req.Topics))
	for _, t := range req.Topics {
		topics = append(topics, messages.MirrorTopic{Name: t.TopicName, ID: t.TopicID, NumPartitions: t.NumPartitions})
	}
	items, err := s.startTopics(ctx, r, req, topics)
	a := answerTopics(r, req.MirrorName, topics, items, err)
	resp := wire.NewPtrStartMirrorTopicsResponse()
	resp.ErrorCode, resp.ErrorMessage, resp.MirrorName, resp.Topics = a.code, a.message, a.mirror, a.topics
	return answer(resp)
}

func (s *Server) startTopics(ctx context.Context, r *request, req *wire.StartMirrorTopicsRequest, topics []messages.MirrorTopic) ([]messages.Item, error) {
	if err := s.mayChangeTopics(r, req.MirrorName, topics); err != nil {
		return nil, err
	}
	if err := repeated(topics); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, adminTimeoutDefault, messages.ErrTimedOut)
	defer cancel()
	items := make([]messages.Item, len(topics))
	img := s.image()
	var ask []messages.MirrorTopic
	var asked []int
	for i, t := range topics {
		if have := img.Topic(t.Name); have != nil && (have.Desired == messages.DesiredActive || have.Desired == messages.DesiredPaused) {
			items[i].Err = fmt.Errorf("%w: the topic is in mirror %s", messages.ErrTopicInMirror, have.Mirror)
			continue
		}
		ask, asked = append(ask, t), append(asked, i)
	}
	var errs []error
	if len(ask) > 0 {
		var err error
		if errs, err = s.deps.Mirrors.CheckStart(ctx, req.MirrorName, ask); err != nil {
			return nil, err
		}
	}
	cmd := messages.StartMirrorTopics{Mirror: req.MirrorName, Include: req.IncludePatterns, Exclude: req.ExcludePatterns}
	var sent []int
	for n, i := range asked {
		if n < len(errs) && errs[n] != nil {
			items[i].Err = errs[n]
			continue
		}
		cmd.Topics, sent = append(cmd.Topics, topics[i]), append(sent, i)
	}
	if len(cmd.Topics) == 0 && len(cmd.Include) == 0 && len(cmd.Exclude) == 0 {
		return items, nil
	}
	out := s.submit(ctx, r, 0, cmd)
	if out.Err != nil {
		return nil, out.Err
	}
	spread(items, sent, out)
	return items, nil
}
