package broker

// Metadata: served versions 0-13.
//
// v1 null = all topics (v0: empty = all); v4 AllowAutoTopicCreation; v5 offline
// replicas; v7 leader epochs; v8 authorized operations (v8-10 of the cluster);
// v10 topic ids; v12 look-up by id; v13 top-level error code.
//
// - Addresses are those of the listener that was asked; a node without that
//   listener isn't shown, and what it leads has no leader.
// - A named topic that doesn't exist is created when the client allows it and
//   auto.create.topics.enable is true (default false here).
// - The leader epoch is that of the metadata log: it never goes back, and for a
//   mirror topic it is at or above every epoch of its batches (C16).
// - Left out: offline replicas (a replica that isn't in sync may be alive).

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

const metadataByID = 12 // version

const configAutoCreate = "auto.create.topics.enable"

// noOperations is the "not asked for" of authorized operations.
const noOperations = -2147483648

func (s *Server) handleMetadata(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.MetadataRequest)
	img := s.image()
	all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
	if !all && (req.Version < 4 || req.AllowAutoTopicCreation) {
		if created := s.autoCreate(ctx, r, img, req); created {
			img = s.image()
		}
	}
	if malformedMetadata(req) {
		return refuseMetadata(r, req)
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	id := img.ClusterID()
	resp.ClusterID = &id
	resp.ControllerID = int32(s.shownController(img, r.listener))
	resp.AuthorizedOperations = noOperations
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = s.clusterOperations(r)
	}
	for _, n := range img.Nodes() {
		if e, ok := s.endpointOf(&n, r.listener); ok {
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(n.ID), Host: e.Host, Port: e.Port, Rack: rackOf(&n)})
		}
	}
	if all {
		for _, t := range img.Topics() {
			if s.allowed(r, OpDescribe, KindTopic, t.Name) {
				resp.Topics = append(resp.Topics, s.metadataTopic(r, img, t, req.IncludeTopicAuthorizedOperations))
			}
		}
		return answer(resp)
	}
	answered := map[sessionKey]bool{}
	for i := range req.Topics {
		t := &req.Topics[i]
		if k := namedTopic(t.Topic, t.TopicID); !answered[k] {
			answered[k] = true
			resp.Topics = append(resp.Topics, s.metadataNamed(r, img, req, t))
		}
	}
	return answer(resp)
}

// namedTopic is a topic as a request names it: by name, or by id where that is null, or
// empty with an id, as the Java client has it.
func namedTopic(name *string, id messages.TopicID) sessionKey {
	if name != nil && (*name != "" || id == messages.TopicID{}) {
		return sessionKey{topic: *name}
	}
	return sessionKey{id: id}
}

// malformedMetadata: ids have a place in the request from version 10 on, and a meaning
// from version 12 on.
func malformedMetadata(req *kmsg.MetadataRequest) bool {
	return req.Version < metadataByID && slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool {
		return t.Topic == nil || messages.TopicID(t.TopicID) != messages.TopicID{}
	})
}

func refuseMetadata(r *request, req *kmsg.MetadataRequest) reply {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version, resp.ControllerID, resp.AuthorizedOperations = req.Version, -1, noOperations
	for _, t := range req.Topics {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID, rt.AuthorizedOperations = t.Topic, t.TopicID, noOperations
		if rt.Topic == nil {
			rt.Topic = new(string) // not nullable in these versions
		}
		rt.ErrorCode = r.code(messages.ErrInvalidRequest)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

// shownController is a node that clients may send admin requests to: any will
// do, since nodes pass them on; the controller if it has the listener.
func (s *Server) shownController(img *metadata.Image, listener string) messages.NodeID {
	if _, ok := s.endpointOf(img.Node(img.Controller()), listener); ok {
		return img.Controller()
	}
	return s.cfg.NodeID
}

// metadataNamed answers for one topic of the request, named by name or by id.
func (s *Server) metadataNamed(r *request, img *metadata.Image, req *kmsg.MetadataRequest, ask *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID = ask.Topic, ask.TopicID
	out.AuthorizedOperations = noOperations
	var t *metadata.Topic
	var err error
	if askedByID(ask) {
		out.Topic = nil
		if t = img.TopicByID(ask.TopicID); t == nil || !s.allowed(r, OpDescribe, KindTopic, t.Name) {
			err = messages.ErrUnknownTopicID // whether it exists is nobody's business
		}
	} else {
		out.TopicID = messages.TopicID{}
		t = img.Topic(*ask.Topic)
		if !s.allowed(r, OpDescribe, KindTopic, *ask.Topic) {
			err = messages.ErrTopicNotAuthorized
		} else if err = messages.CheckTopicName(*ask.Topic); err == nil && t == nil {
			err = messages.ErrUnknownTopicOrPartition
		}
	}
	if err != nil {
		out.ErrorCode = r.code(err)
		return out
	}
	return s.metadataTopic(r, img, t, req.IncludeTopicAuthorizedOperations)
}

// askedByID reports whether a topic is named by its id. The Java client leaves the name
// empty then, not null.
func askedByID(t *kmsg.MetadataRequestTopic) bool {
	return t.Topic == nil || *t.Topic == "" && t.TopicID != messages.TopicID{}
}

func (s *Server) metadataTopic(r *request, img *metadata.Image, t *metadata.Topic, operations bool) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, messages.IsInternalTopic(t.Name)
	out.AuthorizedOperations = noOperations
	if operations {
		out.AuthorizedOperations = s.operations(r, KindTopic, t.Name)
	}
	inSync := s.inSync()
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for n := range t.Partitions {
		p := &t.Partitions[n]
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.LeaderEpoch = int32(n), p.LeaderEpoch
		mp.Replicas, mp.ISR, mp.OfflineReplicas = nodeIDs(p.Replicas), inSync(p, t.Key(int32(n))), s.offline(p.Replicas)
		mp.Leader = int32(s.shownLeader(img, p, r.listener))
		if mp.Leader == int32(messages.NoNode) {
			mp.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		out.Partitions = append(out.Partitions, mp)
	}
	return out
}

// shownLeader is the leader of p if it is alive and clients of the listener can
// reach it.
func (s *Server) shownLeader(img *metadata.Image, p *metadata.Partition, listener string) messages.NodeID {
	if _, ok := s.endpointOf(img.Node(p.Leader), listener); ok {
		return p.Leader
	}
	return messages.NoNode
}

// offline are the nodes among ids that are dead; empty, not null, without any.
func (s *Server) offline(ids []messages.NodeID) []int32 {
	out := []int32{}
	for _, id := range ids {
		if s.cfg.Live != nil && !s.cfg.Live(id) {
			out = append(out, int32(id))
		}
	}
	return out
}

// inSync makes a function that gives the ISR of partitions: the replicas on live
// nodes that have no hole. Nobody writes it into the metadata log, for it decides
// nothing there: the journal's quorum does.
func (s *Server) inSync() func(*metadata.Partition, messages.PartitionKey) []int32 {
	if s.cfg.InSync == nil {
		return func(p *metadata.Partition, _ messages.PartitionKey) []int32 { return nodeIDs(p.ISR) }
	}
	whole := s.cfg.InSync()
	return func(p *metadata.Partition, key messages.PartitionKey) []int32 {
		out := make([]int32, 0, len(p.Replicas))
		for _, id := range p.Replicas {
			if whole(id, key) {
				out = append(out, int32(id))
			}
		}
		return out
	}
}

func nodeIDs(ids []messages.NodeID) []int32 {
	out := make([]int32, 0, len(ids))
	for _, id := range ids {
		out = append(out, int32(id))
	}
	return out
}

// autoCreate creates the named topics that are missing and may be created. What
// fails shows as an unknown topic.
func (s *Server) autoCreate(ctx context.Context, r *request, img *metadata.Image, req *kmsg.MetadataRequest) bool {
	if s.brokerConfig(configAutoCreate) != "true" {
		return false
	}
	var cmd messages.CreateTopics
	seen := map[string]bool{}
	for _, t := range req.Topics {
		if t.Topic == nil || seen[*t.Topic] || img.Topic(*t.Topic) != nil || messages.CheckTopicName(*t.Topic) != nil || messages.IsInternalTopic(*t.Topic) {
			continue
		}
		if !s.allowedCluster(r, OpCreate) && !s.allowed(r, OpCreate, KindTopic, *t.Topic) {
			continue
		}
		seen[*t.Topic] = true
		cmd.Topics = append(cmd.Topics, messages.NewTopic{Name: *t.Topic, Partitions: -1, ReplicationFactor: -1})
	}
	if len(cmd.Topics) == 0 {
		return false
	}
	out := s.submit(ctx, r, 0, cmd)
	for _, item := range out.Items {
		if item.Err != nil && !errors.Is(item.Err, messages.ErrTopicExists) {
			r.code(item.Err)
		}
	}
	return out.Err == nil
}

// clusterOperations is what the client may do with the cluster, for who may describe it.
func (s *Server) clusterOperations(r *request) int32 {
	if !s.allowedCluster(r, OpDescribe) {
		return 0
	}
	return s.operations(r, KindCluster, ClusterResourceName)
}

// operations is the bit field of what the client may do with a resource.
func (s *Server) operations(r *request, kind ResourceKind, name string) int32 {
	var bits int32
	for _, op := range messages.ACLOperations(kind) {
		if s.allowed(r, op, kind, name) {
			bits |= 1 << op
		}
	}
	return bits
}
