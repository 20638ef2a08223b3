package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
)

// sendTriesMin is how often a request is sent at least while nobody answers.
const sendTriesMin = 4

// send sends req to any node and, when a connection breaks, to the next. again
// says that an earlier try may have reached a node, whose answer was lost: then
// "already so" is what we did ourselves.
func (c *Client) send(ctx context.Context, req kmsg.Request) (resp kmsg.Response, again bool, err error) {
	for try := 0; ; try++ {
		nodes := append(c.kgo.SeedBrokers(), c.kgo.DiscoveredBrokers()...)
		resp, err = nodes[try%len(nodes)].Request(ctx, req)
		last := try+1 >= max(sendTriesMin, len(nodes)+1)
		if err == nil || ctx.Err() != nil || last || errors.Is(err, kgo.ErrClientClosed) {
			return resp, again, err
		}
		again = again || reached(err)
		if perr := c.clock.Sleep(ctx, attemptPause); perr != nil {
			return nil, again, errors.Join(err, perr)
		}
	}
}

// reached reports whether a request that failed may have got to a node.
func reached(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}

// wish is what a request asks of its topics, and what a node answers when they
// are so already.
type wish struct {
	mirror  string
	desired messages.Desired
	already error // nil: such an answer doesn't exist
}

// done takes "already so" for success where a repeated request met what its
// first try had done: the topic is in this mirror now, in the wish that was asked
// for.
func (c *Client) done(ctx context.Context, w wish, results TopicResults) (TopicResults, error) {
	var ask []string
	for _, r := range results {
		if w.already != nil && errors.Is(r.Err, w.already) {
			ask = append(ask, r.Topic)
		}
	}
	if len(ask) == 0 {
		return results, nil
	}
	now, err := c.MirrorTopics(ctx)
	if err != nil {
		return results, fmt.Errorf("look whether the first try has worked: %w", err)
	}
	for i, r := range results {
		m, member := now[r.Topic]
		if errors.Is(r.Err, w.already) && member && m.Mirror == w.mirror && m.Desired == w.desired {
			results[i].Err = nil
		}
	}
	return results, nil
}

func (c *Client) topicRequest(ctx context.Context, w wish, req kmsg.Request) (TopicResults, error) {
	again := false
	raw, err := c.repeat(ctx, req, func() (kmsg.Response, error) {
		resp, repeated, err := c.send(ctx, req)
		again = again || repeated
		return resp, err
	}, func(r kmsg.Response) (int16, *string) {
		a := answerOf(r)
		return a.code, a.message
	})
	if err != nil {
		return nil, err
	}
	a := answerOf(raw)
	var out TopicResults
	for _, t := range a.topics {
		out = append(out, TopicResult{t.name, wire.ErrorForCode(t.code, reason(a.message, t.name))})
	}
	if again {
		return c.done(ctx, w, out)
	}
	return out, nil
}
