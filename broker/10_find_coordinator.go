package broker

// FindCoordinator: served versions 0-7.
//
// v1 key types; v4 several keys (KIP-699); v7 key type 3, CLUSTER_MIRROR
// (KIP-1279), with the layout of v6.
//
// Key type 3: the key is a mirror name, the coordinator is the leader of its
// partition of __mirror_state. Below v7 it is INVALID_REQUEST. As long as the
// topic doesn't exist it is created and COORDINATOR_NOT_AVAILABLE answered.
// Key type 0: the key is a group, its coordinator the leader of its partition of
// __consumer_offsets, which is created in the same way.
// Key type 1: the key is a transactional id, and the same goes for
// __transaction_state.

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/wire"
)

const (
	coordinatorMirrorSince = 7
	coordinatorKeysSince   = 4

	coordinatorGroup       int8 = 0
	coordinatorTransaction int8 = 1
)

func (s *Server) handleFindCoordinator(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = req.Version
	keys := req.CoordinatorKeys
	if req.Version < coordinatorKeysSince {
		keys = []string{req.CoordinatorKey}
	}
	for _, key := range keys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, int32(messages.NoNode), -1
		node, err := s.coordinator(ctx, r, req, key)
		if err != nil {
			c.ErrorCode, c.ErrorMessage = r.code(err), errorText(err)
		} else {
			e, _ := s.endpointOf(node, r.listener)
			c.NodeID, c.Host, c.Port = int32(node.ID), e.Host, e.Port
			c.ErrorMessage = new("") // as Kafka has it
		}
		resp.Coordinators = append(resp.Coordinators, c)
		// One key per request below v4: the same fields, at the top.
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
	}
	return answer(resp)
}

func (s *Server) coordinator(ctx context.Context, r *request, req *kmsg.FindCoordinatorRequest, key string) (*messages.Node, error) {
	switch {
	case req.CoordinatorType == coordinatorGroup:
		if !s.allowed(r, OpDescribe, KindGroup, key) {
			return nil, messages.ErrGroupNotAuthorized
		}
		return s.leaderOf(ctx, r, messages.ConsumerOffsetsTopic, configs.OffsetsTopicPartitions, key)
	case req.CoordinatorType == coordinatorTransaction:
		if !s.allowed(r, OpDescribe, KindTxn, key) {
			return nil, messages.ErrTxnNotAuthorized
		}
		return s.leaderOf(ctx, r, messages.TransactionStateTopic, configs.TransactionTopicPartitions, key)
	case req.CoordinatorType != wire.CoordinatorTypeClusterMirror:
		return nil, fmt.Errorf("%w: coordinator type %d", messages.ErrInvalidRequest, req.CoordinatorType)
	case req.Version < coordinatorMirrorSince:
		return nil, fmt.Errorf("%w: coordinator type %d needs version %d", messages.ErrInvalidRequest, req.CoordinatorType, coordinatorMirrorSince)
	case !s.allowedCluster(r, OpClusterAction):
		return nil, messages.ErrClusterNotAuthorized
	}
	if err := messages.CheckMirrorName(key); err != nil {
		return nil, fmt.Errorf("%w: %w", messages.ErrInvalidRequest, err)
	}
	return s.leaderOf(ctx, r, messages.MirrorStateTopic, configs.MirrorStateTopicPartitions, key)
}

// leaderOf is the leader of a key's partition of an internal topic, which is
// created if it isn't there.
func (s *Server) leaderOf(ctx context.Context, r *request, topic, partitions, key string) (*messages.Node, error) {
	img := s.image()
	t := img.Topic(topic)
	if t == nil || len(t.Partitions) == 0 {
		s.createInternal(ctx, r, topic, partitions)
		return nil, fmt.Errorf("%w: %s doesn't exist yet", messages.ErrCoordinatorNotAvailable, topic)
	}
	p := t.Partitions[messages.CoordinatorShard(key, int32(len(t.Partitions)))]
	n := img.Node(p.Leader)
	if _, ok := s.endpointOf(n, r.listener); !ok {
		return nil, fmt.Errorf("%w: no leader", messages.ErrCoordinatorNotAvailable)
	}
	return n, nil
}

// createInternal asks the controller for an internal topic, whose own settings it
// knows; that it exists meanwhile is no fault.
func (s *Server) createInternal(ctx context.Context, r *request, topic, partitions string) {
	shards := int32(-1)
	if n, err := strconv.ParseInt(s.brokerConfig(partitions), 10, 32); err == nil {
		shards = int32(n)
	}
	out := s.submit(ctx, r, 0, messages.CreateTopics{Topics: []messages.NewTopic{{Name: topic, Partitions: shards, ReplicationFactor: -1}}})
	if out.Err != nil {
		r.code(out.Err)
	}
}
