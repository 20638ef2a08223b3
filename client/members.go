package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// Membership of a topic: the mirror it belongs to and what the operator wants
// of it. This is the wish, not the state of its partitions.
type Membership struct {
	Mirror  string
	Desired messages.Desired
}

// MirrorTopics lists the topics that belong to mirrors, by name, from their
// configs: it works while no mirror does. Topics whose configs the caller may
// not describe are left out.
func (c *Client) MirrorTopics(ctx context.Context) (map[string]Membership, error) {
	meta, err := kadm.NewClient(c.kgo).Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	return c.members(ctx, meta.Topics)
}

func (c *Client) members(ctx context.Context, topics kadm.TopicDetails) (map[string]Membership, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	names := topics.Names()
	slices.Sort(names)
	for _, name := range names {
		if messages.IsInternalTopic(name) || topics[name].Err != nil {
			continue
		}
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, name
		res.ConfigNames = []string{messages.MirrorNameConfig}
		req.Resources = append(req.Resources, res)
	}
	out := map[string]Membership{}
	if len(req.Resources) == 0 {
		return out, nil
	}
	resp, err := req.RequestWith(ctx, c.kgo)
	if err != nil {
		return nil, fmt.Errorf("look up the mirrors of topics: %w", err)
	}
	for _, r := range resp.Resources {
		for _, cfg := range r.Configs {
			if cfg.Name == messages.MirrorNameConfig && cfg.Value != nil && *cfg.Value != "" {
				mirror, desired := messages.ParseMirrorName(*cfg.Value)
				out[r.ResourceName] = Membership{mirror, desired}
			}
		}
	}
	return out, nil
}
