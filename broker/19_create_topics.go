package broker

// CreateTopics: served versions 2-7.
//
// v4 defaults for partitions and replication (KIP-464); v5 the answer holds the
// topic's shape (KIP-525); v7 topic ids.
//
// mirror.name can't be set here (OP-11). Left out: v8 and MirrorInfo (OP-24).

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/configs"
)

func (s *Server) handleCreateTopics(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.CreateTopicsRequest)
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.Version = req.Version
	cmd := messages.CreateTopics{ValidateOnly: req.ValidateOnly}
	items := make([]messages.Item, len(req.Topics))
	var sent []int // index into items of each topic of cmd
	seen := map[string]int{}
	for _, t := range req.Topics {
		seen[t.Topic]++
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		nt, err := s.newTopic(r, t, seen[t.Topic])
		if err == nil && !req.ValidateOnly {
			err = s.mutate(r, s.partitionsOf(nt), req.Version >= createTopicsThrottled)
		}
		if err != nil {
			items[i].Err = err
			continue
		}
		cmd.Topics = append(cmd.Topics, nt)
		sent = append(sent, i)
	}
	if len(sent) > 0 {
		spread(items, sent, s.submit(ctx, r, millis(req.TimeoutMillis), cmd))
	}
	for i := range req.Topics {
		if seen[req.Topics[i].Topic] == 0 {
			continue // named twice, refused once
		}
		seen[req.Topics[i].Topic] = 0
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = req.Topics[i].Topic
		rt.ErrorCode, rt.ErrorMessage = r.code(items[i].Err), errorText(items[i].Err)
		rt.NumPartitions, rt.ReplicationFactor = -1, -1
		if items[i].Err == nil {
			rt.TopicID, rt.NumPartitions, rt.ReplicationFactor = items[i].TopicID, items[i].Partitions, items[i].Replication
			s.createdConfigs(r, &req.Topics[i], &rt)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

// createTopicsThrottled is the version from which clients know
// THROTTLING_QUOTA_EXCEEDED (KIP-599).
const createTopicsThrottled = 6

// partitionsOf is how many partitions a new topic gets.
func (s *Server) partitionsOf(t messages.NewTopic) int {
	switch {
	case len(t.Assignment) > 0:
		return len(t.Assignment)
	case t.Partitions > 0:
		return int(t.Partitions)
	}
	n, _ := strconv.Atoi(s.brokerConfig(configs.NumPartitions)) // was checked when set
	return n
}

func (s *Server) newTopic(r *request, t *kmsg.CreateTopicsRequestTopic, times int) (messages.NewTopic, error) {
	nt := messages.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	switch {
	case times > 1:
		return nt, fmt.Errorf("%w: topic %q is named %d times", messages.ErrInvalidRequest, t.Topic, times)
	case !s.allowedCluster(r, OpCreate) && !s.allowed(r, OpCreate, KindTopic, t.Topic):
		return nt, messages.ErrTopicNotAuthorized
	case t.Topic == messages.ClusterMetadataTopic:
		return nt, fmt.Errorf("%w: %s isn't made by requests", messages.ErrInvalidRequest, t.Topic)
	case messages.IsInternalTopic(t.Topic):
		return nt, fmt.Errorf("%w: %s is internal", messages.ErrInvalidTopic, t.Topic)
	}
	if err := messages.CheckTopicName(t.Topic); err != nil {
		return nt, err
	}
	for _, a := range t.ReplicaAssignment {
		if nt.Assignment == nil {
			nt.Assignment = map[int32][]messages.NodeID{}
		}
		if _, twice := nt.Assignment[a.Partition]; twice {
			return nt, fmt.Errorf("%w: partition %d is assigned twice", messages.ErrInvalidAssignment, a.Partition)
		}
		nt.Assignment[a.Partition] = make([]messages.NodeID, 0, len(a.Replicas)) // an empty one is to be refused, not left out
		for _, n := range a.Replicas {
			nt.Assignment[a.Partition] = append(nt.Assignment[a.Partition], messages.NodeID(n))
		}
	}
	for _, c := range t.Configs {
		if c.Name == messages.MirrorNameConfig {
			return nt, mirrorNameRefused()
		}
		if nt.Configs == nil {
			nt.Configs = map[string]*string{}
		}
		nt.Configs[c.Name] = c.Value
	}
	return nt, nil
}

// createdConfigs tells the configs of a new topic to those who may see them: the others
// don't learn its shape either.
func (s *Server) createdConfigs(r *request, t *kmsg.CreateTopicsRequestTopic, rt *kmsg.CreateTopicsResponseTopic) {
	if !s.allowed(r, OpDescribeConfigs, KindTopic, t.Topic) {
		rt.ConfigErrorCode, rt.NumPartitions, rt.ReplicationFactor = kerr.TopicAuthorizationFailed.Code, -1, -1
		return
	}
	own := map[string]string{}
	for _, c := range t.Configs {
		if c.Value != nil {
			own[c.Name] = *c.Value
		}
	}
	d := described{set: configs.Topic(), own: []configs.Layer{{Source: configs.SourceTopic, Values: own}}, node: s.nodeLayers(s.image())}
	rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	for _, c := range d.list(&kmsg.DescribeConfigsRequest{}, nil) {
		rt.Configs = append(rt.Configs, kmsg.CreateTopicsResponseTopicConfig{Name: c.Name, Value: c.Value, ReadOnly: c.ReadOnly, Source: int8(c.Source), IsSensitive: c.IsSensitive})
	}
}

func mirrorNameRefused() error {
	return fmt.Errorf("%w: %s is set by the mirror requests only", messages.ErrInvalidConfig, messages.MirrorNameConfig)
}

// spread puts the items of an outcome where they belong: sent[i] is the place of
// item i. A refusal of the whole command becomes the error of each.
func spread(items []messages.Item, sent []int, out messages.Outcome) {
	for i, at := range sent {
		switch {
		case out.Err != nil:
			items[at].Err = out.Err
		case i < len(out.Items):
			items[at] = out.Items[i]
		default:
			items[at].Err = fmt.Errorf("controller answered %d of %d items", len(out.Items), len(sent))
		}
	}
}
