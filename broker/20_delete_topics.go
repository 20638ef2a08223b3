package broker

// DeleteTopics: served versions 1-6.
//
// v6 topic ids. A mirror topic may be deleted in every state (spec: fetcher.md,
// Read-only enforcement); internal topics may not. delete.topic.enable is true.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

const (
	deleteTopicIDs        = 6
	deleteTopicsThrottled = 5 // KIP-599
)

func (s *Server) handleDeleteTopics(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DeleteTopicsRequest)
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version = req.Version
	if req.Version < deleteTopicIDs {
		for _, name := range req.TopicNames {
			req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &name})
		}
	}
	img := s.image()
	items := make([]messages.Item, len(req.Topics))
	var cmd messages.DeleteTopics
	var sent []int
	times := map[sessionKey]int{}
	for _, t := range req.Topics {
		times[namedTopic(t.Topic, t.TopicID)]++
	}
	seen := map[string]bool{}
	for i := range req.Topics {
		k := namedTopic(req.Topics[i].Topic, req.Topics[i].TopicID)
		t, err := s.deletable(r, img, &req.Topics[i])
		switch {
		case times[k] > 1:
			err = fmt.Errorf("%w: a topic is named %d times", messages.ErrInvalidRequest, times[k])
		case err == nil && seen[t.Name]:
			err = fmt.Errorf("%w: topic %q is named by name and by id", messages.ErrInvalidRequest, t.Name)
		case err == nil:
			err = s.mutate(r, len(t.Partitions), req.Version >= deleteTopicsThrottled)
		}
		if err != nil {
			items[i].Err = err
			continue
		}
		seen[t.Name] = true
		// By name, so that the order of the answer is ours.
		cmd.Names = append(cmd.Names, t.Name)
		sent = append(sent, i)
	}
	if len(sent) > 0 {
		spread(items, sent, s.submit(ctx, r, millis(req.TimeoutMillis), cmd))
	}
	for i := range req.Topics {
		ask := &req.Topics[i]
		if k := namedTopic(ask.Topic, ask.TopicID); times[k] == 0 {
			continue // named twice, refused once
		} else {
			times[k] = 0
		}
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = ask.Topic, ask.TopicID
		if t := img.TopicByID(ask.TopicID); rt.Topic == nil && t != nil && s.allowed(r, OpDescribe, KindTopic, t.Name) {
			rt.Topic = &t.Name
		} else if ask.Topic != nil && items[i].Err == nil {
			rt.TopicID = img.Topic(*ask.Topic).ID
		}
		rt.ErrorCode, rt.ErrorMessage = r.code(items[i].Err), errorText(items[i].Err)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

func (s *Server) deletable(r *request, img *metadata.Image, ask *kmsg.DeleteTopicsRequestTopic) (*metadata.Topic, error) {
	var t *metadata.Topic
	switch {
	case ask.Topic != nil && !messages.TopicID(ask.TopicID).IsZero():
		return nil, fmt.Errorf("%w: topic %q has a name and an id", messages.ErrInvalidRequest, *ask.Topic)
	case ask.Topic == nil && messages.TopicID(ask.TopicID).IsZero():
		return nil, fmt.Errorf("%w: a topic has neither name nor id", messages.ErrInvalidRequest)
	case ask.Topic == nil:
		if t = img.TopicByID(ask.TopicID); t == nil {
			return nil, messages.ErrUnknownTopicID
		}
	default:
		t = img.Topic(*ask.Topic)
	}
	name := ""
	if t != nil {
		name = t.Name
	} else {
		name = *ask.Topic
	}
	all := s.allowedCluster(r, OpDelete) // who may do everything with the cluster, as in Kafka
	switch {
	case !all && !s.allowed(r, OpDescribe, KindTopic, name):
		return nil, messages.ErrTopicNotAuthorized
	case t == nil:
		return nil, messages.ErrUnknownTopicOrPartition
	case !all && !s.allowed(r, OpDelete, KindTopic, name):
		return nil, messages.ErrTopicNotAuthorized
	case messages.IsInternalTopic(name):
		return nil, fmt.Errorf("%w: %s is internal", messages.ErrInvalidTopic, name)
	}
	return t, nil
}
