package broker

// TxnOffsetCommit: served versions 0-6.
//
// v2 leader epochs; v3 member and generation (KIP-447); v4 TRANSACTION_ABORTABLE; v5
// adds the group's partition of __consumer_offsets to the transaction (KIP-890); v6
// topics by id.
//
// The offsets are stored at once and count when the transaction is committed. Before
// the first of a transaction the coordinator is asked, as for records.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/groups"
	"kagami/messages/txns"
)

// Versions of TxnOffsetCommit.
const (
	txnCommitAbortable = 4
	txnCommitJoins     = 5
	txnCommitTopicIDs  = 6
)

func (s *Server) handleTxnOffsetCommit(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.TxnOffsetCommitRequest)
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version = req.Version
	producer := txns.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	commit := groups.Commit{
		Who:             groups.Who{Group: req.Group, Generation: req.Generation, Member: req.MemberID, Instance: textOf(req.InstanceID)},
		RetentionMillis: -1, Txn: &producer,
	}
	img := s.image()
	errs := map[[2]int]error{} // by place in the request, of what isn't asked
	for i := range req.Topics {
		t := &req.Topics[i]
		topic := s.groupTopic(r, img, OpRead, t.Topic, t.TopicID, req.Version >= txnCommitTopicIDs)
		for n, p := range t.Partitions {
			if topic.err != nil {
				errs[[2]int{i, n}] = topic.err
				continue
			}
			commit.Positions = append(commit.Positions, groups.Position{
				Topic: topic.name, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: textOf(p.Metadata),
			})
		}
	}
	out, err := s.commitTxn(ctx, r, req, commit)
	stored := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
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
			if errors.Is(refused, messages.ErrStaleMemberEpoch) {
				// Producers don't know the code of the consumer protocol.
				refused = fmt.Errorf("%w: %w", messages.ErrIllegalGeneration, refused)
			}
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, txnCode(r, refused, 0, txnCommitAbortable)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

// commitTxn asks the two coordinators; its answer has an error per position.
func (s *Server) commitTxn(ctx context.Context, r *request, req *kmsg.TxnOffsetCommitRequest, commit groups.Commit) (*groups.Committed, error) {
	if !s.allowed(r, OpWrite, KindTxn, req.TransactionalID) {
		return nil, messages.ErrTxnNotAuthorized
	}
	if !s.allowed(r, OpRead, KindGroup, req.Group) {
		return nil, messages.ErrGroupNotAuthorized
	}
	switch {
	case req.Group == "":
		return nil, fmt.Errorf("%w: no group", messages.ErrInvalidGroupID)
	case len(commit.Positions) == 0:
		return &groups.Committed{}, nil
	}
	img := s.image()
	tp, err := offsetsPartition(img, req.Group)
	if err != nil {
		return nil, err
	}
	part, err := s.checkPartition(img.Topic(tp.Topic), tp.Partition, messages.NoEpoch)
	if err != nil {
		return nil, messages.ErrNotCoordinator
	}
	add := txns.Add{Txn: txns.Txn(req.TransactionalID), Producer: *commit.Txn, Version: txns.V2, Partitions: []messages.TopicPartition{tp}}
	if add.VerifyOnly = req.Version < txnCommitJoins; add.VerifyOnly {
		add.Version = txns.V0
	}
	guard := part.GuardTxn(add.Producer, add.Version, 0)
	defer part.ReleaseTxn(add.Producer.ID, guard)
	commit.Holds = func() bool { return part.HoldsTxn(add.Producer, guard) }
	if guard != nil && !(add.VerifyOnly && s.brokerConfig(configs.TransactionVerification) == "false") {
		joined := s.join(ctx, add)
		err := joined.Err
		if err == nil && len(joined.Partitions) > 0 {
			err = joined.Partitions[0]
		}
		if err != nil {
			return nil, commitRefusal(err, add.Version)
		}
	}
	out, err := ask[*groups.Committed](ctx, s, r, OpRead, commit)
	if err == nil {
		err = out.Err
	}
	if err == nil && len(out.Positions) != len(commit.Positions) {
		err = errNoAnswer
	}
	return out, err
}

// commitRefusal says what a transaction's coordinator refused in words that producers
// expect of a group's: what passes is COORDINATOR_LOAD_IN_PROGRESS, which they try
// again without looking for the group's coordinator.
func commitRefusal(err error, v txns.Version) error {
	passes := errors.Is(err, messages.ErrNotCoordinator) || errors.Is(err, messages.ErrCoordinatorLoading) ||
		errors.Is(err, messages.ErrCoordinatorNotAvailable) || errors.Is(err, messages.ErrTimedOut) ||
		errors.Is(err, messages.ErrConcurrentTransactions) && !v.Bumps()
	if passes {
		return messages.ErrCoordinatorLoading
	}
	return joinRefusal(err, true, v)
}
