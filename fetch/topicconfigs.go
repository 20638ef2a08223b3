package fetch

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicConfigs are the configs of one source topic or why they aren't known.
type TopicConfigs struct {
	// Overrides are the keys that are set on the topic itself, without the source's
	// broker defaults: what metadata sync copies.
	Overrides map[string]string
	// Hidden are keys that are set on the topic and whose value the source doesn't give.
	Hidden []string
	Err    error // a *CodeError, TOPIC_AUTHORIZATION_FAILED for instance
}

// TopicConfigs asks for the configs of topics (DescribeConfigs). Every name gets
// an answer. Sensitive values are left out: the source doesn't give them.
func (s *Source) TopicConfigs(ctx context.Context, names []string) (map[string]TopicConfigs, error) {
	return s.topicConfigs(ctx, names, nil)
}

// topicConfigs asks for some keys only, or for all of them (nil).
func (s *Source) topicConfigs(ctx context.Context, names, keys []string) (map[string]TopicConfigs, error) {
	out := make(map[string]TopicConfigs, len(names))
	if len(names) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, n := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, n
		r.ConfigNames = keys
		req.Resources = append(req.Resources, r)
		out[n] = TopicConfigs{Err: codeError("DescribeConfigs of "+n, codeUnknownTopic, nil)}
	}
	kresp, err := s.client.Request(ctx, req)
	if err != nil {
		return nil, s.unanswered("DescribeConfigs", err)
	}
	resp, ok := kresp.(*kmsg.DescribeConfigsResponse)
	if !ok {
		return nil, errors.New("describe configs: answer of another kind")
	}
	for _, r := range resp.Resources {
		c := TopicConfigs{Overrides: make(map[string]string), Err: codeError("DescribeConfigs of "+r.ResourceName, r.ErrorCode, r.ErrorMessage)}
		for _, e := range r.Configs {
			override := e.Source == kmsg.ConfigSourceDynamicTopicConfig
			if resp.Version == 0 {
				override = !e.IsDefault
			}
			switch {
			case !override:
			case e.IsSensitive || e.Value == nil:
				c.Hidden = append(c.Hidden, e.Name)
			default:
				c.Overrides[e.Name] = *e.Value
			}
		}
		out[r.ResourceName] = c
	}
	return out, nil
}
