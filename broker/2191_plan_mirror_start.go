package broker

// PlanMirrorStart: served version 0, private to this project.
//
// The dry run of StartMirrorTopics: what it would cut, of the partitions that the
// asked node leads; a client merges the nodes' answers. The node asks the source,
// whose credentials only it has. Nothing is changed. Needs DESCRIBE on the mirror;
// topics that the client may not describe are left out.

import (
	"context"
	"fmt"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handlePlanMirrorStart(ctx context.Context, r *request) reply {
	req := r.body.(*wire.PlanMirrorStartRequest)
	resp := wire.NewPtrPlanMirrorStartResponse()
	resp.Topics = []wire.PlanMirrorStartResponsePlannedTopic{}
	plans, err := s.planStart(ctx, r, req)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = r.code(err), errorText(err)
		return answer(resp)
	}
	for _, p := range plans {
		if !s.allowed(r, OpDescribe, KindTopic, p.Topic) {
			continue
		}
		if len(resp.Topics) == 0 || resp.Topics[len(resp.Topics)-1].TopicName != p.Topic {
			t := wire.NewPlanMirrorStartResponsePlannedTopic()
			t.TopicName = p.Topic
			resp.Topics = append(resp.Topics, t)
		}
		t := &resp.Topics[len(resp.Topics)-1]
		d := wire.NewPlanMirrorStartResponsePlannedPartition()
		d.PartitionIndex, d.LogEnd, d.CutTo, d.Records, d.Bytes = p.Partition, p.LogEnd, p.CutTo, p.Records, p.Bytes
		d.LastMirrorEpoch, d.Reason, d.Unknown, d.Refused = p.LME, p.Reason, p.Unknown, p.Refused
		t.Partitions = append(t.Partitions, d)
	}
	return answer(resp)
}

func (s *Server) planStart(ctx context.Context, r *request, req *wire.PlanMirrorStartRequest) ([]messages.PlannedStart, error) {
	if err := s.mirroringOn(); err != nil {
		return nil, err
	}
	if !s.allowed(r, OpDescribe, KindClusterMirror, req.MirrorName) {
		return nil, messages.ErrMirrorNotAuthorized
	}
	if s.image().Mirror(req.MirrorName) == nil {
		return nil, fmt.Errorf("%w: %q", messages.ErrUnknownMirror, req.MirrorName)
	}
	return s.deps.Planner.PlanStart(ctx, req.MirrorName, messages.TopicPatterns{Include: req.IncludePatterns, Exclude: req.ExcludePatterns})
}
