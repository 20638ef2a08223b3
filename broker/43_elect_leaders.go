package broker

// ElectLeaders: served versions 0-2.
//
// v1 kinds of election (KIP-460): 0 the preferred replica, 1 whoever is left. The
// preferred replica must be alive and whole, else PREFERRED_LEADER_NOT_AVAILABLE. An
// unclean election isn't needed: a partition without a leader gets one as soon as a
// replica of it is there, and a replica that isn't whole can't lead (it would lack what
// was acknowledged): ELECTION_NOT_NEEDED where a leader is, else
// ELIGIBLE_LEADERS_NOT_AVAILABLE. Null topics = all partitions; then those that needed
// none are left out of the answer.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// Kinds of election.
const (
	electPreferred = 0
	electUnclean   = 1
)

func (s *Server) handleElectLeaders(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.ElectLeadersRequest)
	resp := kmsg.NewPtrElectLeadersResponse()
	resp.Version = req.Version
	if !s.allowedCluster(r, OpAlter) {
		resp.ErrorCode = r.code(messages.ErrClusterNotAuthorized)
		return answer(resp)
	}
	if req.ElectionType != electPreferred && req.ElectionType != electUnclean {
		return refuseElection(r, req)
	}
	img := s.image()
	all := req.Topics == nil
	if all {
		for _, t := range img.Topics() {
			rt := kmsg.NewElectLeadersRequestTopic()
			rt.Topic = t.Name
			for n := range t.Partitions {
				rt.Partitions = append(rt.Partitions, int32(n))
			}
			req.Topics = append(req.Topics, rt)
		}
	}
	e := &election{s: s, img: img, preferred: req.ElectionType == electPreferred, whole: s.wholeReplica()}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			e.add(t.Topic, p)
		}
	}
	if len(e.cmd.Elections) > 0 {
		spread(e.items, e.sent, s.submit(ctx, r, millis(req.TimeoutMillis), e.cmd))
	}
	n := 0
	for _, t := range req.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			err := e.items[n].Err
			n++
			rp := kmsg.NewElectLeadersResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.ErrorMessage = p, r.code(err), errorText(err)
			if !all || rp.ErrorCode != kerr.ElectionNotNeeded.Code {
				rt.Partitions = append(rt.Partitions, rp)
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

func refuseElection(r *request, req *kmsg.ElectLeadersRequest) reply {
	resp := kmsg.NewPtrElectLeadersResponse()
	resp.Version = req.Version
	err := fmt.Errorf("%w: election type %d", messages.ErrInvalidRequest, req.ElectionType)
	resp.ErrorCode = r.code(err)
	for _, t := range req.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, kmsg.ElectLeadersResponseTopicPartition{Partition: p, ErrorCode: r.code(err), ErrorMessage: errorText(err)})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

// election gathers what one request asks for.
type election struct {
	s         *Server
	img       *metadata.Image
	preferred bool
	whole     func(messages.NodeID, messages.PartitionKey) bool
	items     []messages.Item
	sent      []int
	cmd       messages.ElectLeaders
}

func (e *election) add(topic string, partition int32) {
	e.items = append(e.items, messages.Item{Name: topic, Partition: partition})
	item := &e.items[len(e.items)-1]
	t := e.img.Topic(topic)
	if t == nil {
		item.Err = fmt.Errorf("%w: topic %q", messages.ErrUnknownTopicOrPartition, topic)
		return
	}
	p, ok := t.Partition(partition)
	to := messages.NoNode
	if ok {
		to = p.Replicas[0]
	}
	alive := func(n messages.NodeID) bool { return e.s.cfg.Live == nil || e.s.cfg.Live(n) }
	switch {
	case !ok:
		item.Err = fmt.Errorf("%w: %s has %d partitions", messages.ErrUnknownTopicOrPartition, topic, len(t.Partitions))
	case e.preferred && p.Leader == to, !e.preferred && p.Leader != messages.NoNode && alive(p.Leader):
		item.Err = refuse(kerr.ElectionNotNeeded, "")
	case !e.preferred:
		item.Err = refuse(kerr.EligibleLeadersNotAvailable, "no replica that has everything is alive")
	case !alive(to) || !e.whole(to, t.Key(partition)):
		item.Err = refuse(kerr.PreferredLeaderNotAvailable, fmt.Sprintf("node %d isn't alive, or lacks something", to))
	default:
		e.sent = append(e.sent, len(e.items)-1)
		e.cmd.Elections = append(e.cmd.Elections, messages.Election{TopicID: t.ID, Partition: partition, Node: to})
	}
}

// wholeReplica says of replicas whether they are alive and have everything.
func (s *Server) wholeReplica() func(messages.NodeID, messages.PartitionKey) bool {
	if s.cfg.InSync == nil {
		return func(messages.NodeID, messages.PartitionKey) bool { return true }
	}
	return s.cfg.InSync()
}
