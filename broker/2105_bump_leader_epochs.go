package broker

// BumpLeaderEpochs: served version 0 (KIP-1279), internal.
//
// Each partition named gets max(MinLeaderEpoch, current) + 1. The request names
// topics by id, the answer by name, in the order of the request; an unknown id
// has the empty name.

import (
	"context"

	"kagami/messages"
	"kagami/messages/wire"
)

func (s *Server) handleBumpLeaderEpochs(ctx context.Context, r *request) reply {
	req := r.body.(*wire.BumpLeaderEpochsRequest)
	resp := wire.NewPtrBumpLeaderEpochsResponse()
	if err := s.mayUseCoordinator(r); err != nil {
		resp.ErrorCode = r.code(err)
		return answer(resp)
	}
	var cmd messages.BumpLeaderEpochs
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			cmd.Bumps = append(cmd.Bumps, messages.EpochBump{TopicID: t.TopicID, Partition: p.PartitionIndex, MinLeaderEpoch: p.MinLeaderEpoch})
		}
	}
	sent := make([]int, len(cmd.Bumps))
	for i := range sent {
		sent[i] = i
	}
	items := make([]messages.Item, len(cmd.Bumps))
	if len(cmd.Bumps) > 0 {
		out := s.submit(ctx, r, 0, cmd)
		if out.Err != nil {
			resp.ErrorCode = r.code(out.Err)
			return answer(resp)
		}
		spread(items, sent, out)
	}
	img := s.image()
	for _, t := range req.Topics {
		rt := wire.NewBumpLeaderEpochsResponseTopicResult()
		if have := img.TopicByID(t.TopicID); have != nil {
			rt.TopicName = have.Name
		}
		for _, p := range t.Partitions {
			rp := wire.NewBumpLeaderEpochsResponsePartitionResult()
			rp.PartitionIndex, rp.ErrorCode = p.PartitionIndex, r.code(items[0].Err)
			items = items[1:]
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
