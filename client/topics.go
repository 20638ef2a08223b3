package client

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
)

// TopicMetadata is what the source knows of a topic.
type TopicMetadata struct {
	ID         messages.TopicID // zero: the source has no ids
	Partitions int32            // 0: don't create the topic
}

// StartOptions of [Client.StartMirrorTopics].
type StartOptions struct {
	IncludePatterns []string // added to mirror.topics.include
	ExcludePatterns []string // added to mirror.topics.exclude
	// TopicMetadata of the topics on the source; a topic that isn't in it is sent
	// with the zero id and no partition count, so it must exist on the destination.
	TopicMetadata map[string]TopicMetadata
}

// StartMirrorTopics adds topics to a mirror and stores patterns for those to
// come. topics may be empty when patterns are given.
func (c *Client) StartMirrorTopics(ctx context.Context, mirror string, topics []string, opts StartOptions) (TopicResults, error) {
	req := wire.NewPtrStartMirrorTopicsRequest()
	req.MirrorName = mirror
	req.IncludePatterns, req.ExcludePatterns = opts.IncludePatterns, opts.ExcludePatterns
	for _, topic := range topics {
		d := wire.NewStartMirrorTopicsRequestTopicData()
		d.TopicName, d.TopicID, d.NumPartitions = topic, opts.TopicMetadata[topic].ID, opts.TopicMetadata[topic].Partitions
		req.Topics = append(req.Topics, d)
	}
	return c.topicRequest(ctx, wish{mirror, messages.DesiredActive, messages.ErrTopicInMirror}, req)
}

// StopMirrorTopics fails topics over: they become writable once every partition
// is STOPPED. patterns leave mirror.topics.include and go to mirror.topics.exclude.
func (c *Client) StopMirrorTopics(ctx context.Context, mirror string, topics []string, patterns ...string) (TopicResults, error) {
	req := wire.NewPtrStopMirrorTopicsRequest()
	req.MirrorName, req.Patterns = mirror, patterns
	for _, topic := range topics {
		d := wire.NewStopMirrorTopicsRequestTopicData()
		d.TopicName = topic
		req.Topics = append(req.Topics, d)
	}
	return c.topicRequest(ctx, wish{mirror, messages.DesiredStopped, nil}, req)
}

// PauseMirrorTopics pauses active topics: they stay read-only and keep their offsets.
func (c *Client) PauseMirrorTopics(ctx context.Context, mirror string, topics []string) (TopicResults, error) {
	req := wire.NewPtrPauseMirrorTopicsRequest()
	req.MirrorName = mirror
	for _, topic := range topics {
		d := wire.NewPauseMirrorTopicsRequestTopicData()
		d.TopicName = topic
		req.Topics = append(req.Topics, d)
	}
	return c.topicRequest(ctx, wish{mirror, messages.DesiredPaused, messages.ErrAlreadyPaused}, req)
}

// ResumeMirrorTopics undoes a pause.
func (c *Client) ResumeMirrorTopics(ctx context.Context, mirror string, topics []string) (TopicResults, error) {
	req := wire.NewPtrResumeMirrorTopicsRequest()
	req.MirrorName = mirror
	for _, topic := range topics {
		d := wire.NewResumeMirrorTopicsRequestTopicData()
		d.TopicName = topic
		req.Topics = append(req.Topics, d)
	}
	return c.topicRequest(ctx, wish{mirror, messages.DesiredActive, messages.ErrNotPaused}, req)
}

// RecoverMirrorTopics puts FAILED partitions back to their previous state with
// a fresh retry counter (OP-25).
func (c *Client) RecoverMirrorTopics(ctx context.Context, mirror string, topics []string) (TopicResults, error) {
	req := wire.NewPtrRecoverMirrorTopicsRequest()
	req.MirrorName = mirror
	for _, topic := range topics {
		d := wire.NewRecoverMirrorTopicsRequestTopicData()
		d.TopicName = topic
		req.Topics = append(req.Topics, d)
	}
	return c.topicRequest(ctx, wish{mirror: mirror}, req)
}

// topicAnswer is the one shape of the five responses.
type topicAnswer struct {
	code    int16
	message *string
	topics  []topicCode
}

type topicCode struct {
	name string
	code int16
}

func answerOf(r kmsg.Response) topicAnswer {
	var a topicAnswer
	add := func(name string, code int16) { a.topics = append(a.topics, topicCode{name, code}) }
	switch r := r.(type) {
	case *wire.StartMirrorTopicsResponse:
		a.code, a.message = r.ErrorCode, r.ErrorMessage
		for _, t := range r.Topics {
			add(t.Name, t.ErrorCode)
		}
	case *wire.StopMirrorTopicsResponse:
		a.code, a.message = r.ErrorCode, r.ErrorMessage
		for _, t := range r.Topics {
			add(t.Name, t.ErrorCode)
		}
	case *wire.PauseMirrorTopicsResponse:
		a.code, a.message = r.ErrorCode, r.ErrorMessage
		for _, t := range r.Topics {
			add(t.Name, t.ErrorCode)
		}
	case *wire.ResumeMirrorTopicsResponse:
		a.code, a.message = r.ErrorCode, r.ErrorMessage
		for _, t := range r.Topics {
			add(t.Name, t.ErrorCode)
		}
	case *wire.RecoverMirrorTopicsResponse:
		a.code, a.message = r.ErrorCode, r.ErrorMessage
		for _, t := range r.Topics {
			add(t.Name, t.ErrorCode)
		}
	}
	return a
}
