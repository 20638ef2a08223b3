package broker

// OffsetCommit: served versions 2-10.
//
// v2-4 a retention time for these offsets; v6 leader epochs; v7 static members
// (KIP-345); v10 topics by id (KIP-848). Generation -1 without a member commits
// for a group that has none. An answer means that the offsets are stored.
//
// Offsets aren't compared with the log, as in Kafka. A member's commit to a group that
// doesn't exist is GROUP_ID_NOT_FOUND from v9 on, before that ILLEGAL_GENERATION.
// Members of the consumer protocol commit from v9 on.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/groups"
)

const (
	groupTopicIDSince      = 10
	commitNotFoundSince    = 9
	commitMemberEpochSince = 9
	commitRetentionVersion = 4 // the last one with a retention time
)

func (s *Server) handleOffsetCommit(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.OffsetCommitRequest)
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = req.Version
	commit := groups.Commit{
		Who:             groups.Who{Group: req.Group, Generation: req.Generation, Member: req.MemberID, Instance: textOf(req.InstanceID)},
		RetentionMillis: -1, Old: req.Version < commitMemberEpochSince,
	}
	if req.Version <= commitRetentionVersion {
		commit.RetentionMillis = req.RetentionTimeMillis
	}
	img := s.image()
	errs := map[[2]int]error{} // by place in the request, of what isn't asked
	for i := range req.Topics {
		t := &req.Topics[i]
		topic := s.groupTopic(r, img, OpRead, t.Topic, t.TopicID, req.Version >= groupTopicIDSince)
		for n, p := range t.Partitions {
			if refused := topic.check(p.Partition); refused != nil {
				errs[[2]int{i, n}] = refused
				continue
			}
			commit.Positions = append(commit.Positions, groups.Position{
				Topic: topic.name, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: textOf(p.Metadata),
			})
		}
	}
	out, err := ask[*groups.Committed](ctx, s, r, OpRead, commit)
	if err == nil {
		err = out.Err
	}
	if errors.Is(err, groups.ErrNone) && req.Version >= commitNotFoundSince {
		err = messages.ErrUnknownGroup
	}
	stored := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for n, p := range t.Partitions {
			refused, ok := errs[[2]int{i, n}]
			switch {
			case err != nil:
				refused = err
			case !ok:
				refused = out.Positions[stored]
				stored++
			}
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, r.code(refused)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
