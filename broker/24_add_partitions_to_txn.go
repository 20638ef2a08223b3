package broker

// AddPartitionsToTxn: served versions 0-5.
//
// v0-3 are for producers, one transaction each; v2 PRODUCER_FENCED. v4-5 are for
// brokers that act for producers, many transactions each, and verify without
// adding (KIP-890): they need CLUSTER_ACTION.
//
// One partition that can't be added refuses the others with
// OPERATION_NOT_ATTEMPTED. Partitions of mirror topics that aren't STOPPED can't be
// (OP-23).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/txns"
	"kagami/persistence/metadata"
)

// Versions of AddPartitionsToTxn.
const (
	addPartitionsFenced  = 2
	addPartitionsBatched = 4
)

func (s *Server) handleAddPartitionsToTxn(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.AddPartitionsToTxnRequest)
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	resp.Version = req.Version
	if req.Version >= addPartitionsBatched {
		if !s.allowedCluster(r, OpClusterAction) {
			resp.ErrorCode = r.code(messages.ErrClusterNotAuthorized)
			return answer(resp)
		}
		for _, t := range req.Transactions {
			rt := kmsg.NewAddPartitionsToTxnResponseTransaction()
			rt.TransactionalID = t.TransactionalID
			add := txns.Add{Txn: txns.Txn(t.TransactionalID), Producer: txns.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch}, Version: txns.V2, VerifyOnly: t.VerifyOnly}
			for i := range t.Topics {
				add.Partitions = appendPartitions(add.Partitions, t.Topics[i].Topic, t.Topics[i].Partitions)
			}
			codes := s.addPartitions(ctx, r, add)
			for i := range t.Topics {
				out := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
				out.Topic = t.Topics[i].Topic
				for n, p := range t.Topics[i].Partitions {
					out.Partitions = append(out.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: p, ErrorCode: codes[n]})
				}
				codes = codes[len(t.Topics[i].Partitions):]
				rt.Topics = append(rt.Topics, out)
			}
			resp.Transactions = append(resp.Transactions, rt)
		}
		return answer(resp)
	}
	add := txns.Add{Txn: txns.Txn(req.TransactionalID), Producer: txns.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}}
	for i := range req.Topics {
		add.Partitions = appendPartitions(add.Partitions, req.Topics[i].Topic, req.Topics[i].Partitions)
	}
	codes := s.addPartitions(ctx, r, add)
	for i := range req.Topics {
		out := kmsg.NewAddPartitionsToTxnResponseTopic()
		out.Topic = req.Topics[i].Topic
		for n, p := range req.Topics[i].Partitions {
			out.Partitions = append(out.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p, ErrorCode: codes[n]})
		}
		codes = codes[len(req.Topics[i].Partitions):]
		resp.Topics = append(resp.Topics, out)
	}
	return answer(resp)
}

func appendPartitions(dst []messages.TopicPartition, topic string, partitions []int32) []messages.TopicPartition {
	for _, p := range partitions {
		dst = append(dst, messages.TopicPartition{Topic: topic, Partition: p})
	}
	return dst
}

// addPartitions answers one code per partition.
func (s *Server) addPartitions(ctx context.Context, r *request, add txns.Add) []int16 {
	codes := make([]int16, len(add.Partitions))
	all := func(err error) []int16 {
		code := txnCode(r, err, addPartitionsFenced, addPartitionsBatched)
		for i := range codes {
			codes[i] = code
		}
		return codes
	}
	client := r.version < addPartitionsBatched
	if client && !s.allowed(r, OpWrite, KindTxn, add.TransactionalID()) {
		return all(messages.ErrTxnNotAuthorized)
	}
	img := s.image()
	bad := false
	for i, p := range add.Partitions {
		if codes[i] = r.code(s.mayJoin(r, img, p, client)); codes[i] != 0 {
			bad = true
		}
	}
	if bad {
		for i := range codes {
			if codes[i] == 0 {
				codes[i] = kerr.OperationNotAttempted.Code
			}
		}
		return codes
	}
	answered := s.deps.Transactions.Ask(ctx, add)
	out, ok := answered.(*txns.Added)
	switch {
	case !ok:
		return all(errNoAnswer)
	case out.Err != nil:
		return all(out.Err)
	}
	for i, err := range out.Partitions {
		codes[i] = txnCode(r, err, addPartitionsFenced, addPartitionsBatched)
	}
	return codes
}

// mayJoin: a client may write this partition in a transaction.
func (s *Server) mayJoin(r *request, img *metadata.Image, tp messages.TopicPartition, client bool) error {
	if client && !s.allowed(r, OpWrite, KindTopic, tp.Topic) {
		return messages.ErrTopicNotAuthorized
	}
	t := img.Topic(tp.Topic)
	if t == nil {
		return messages.ErrUnknownTopicOrPartition
	}
	if _, ok := t.Partition(tp.Partition); !ok {
		return messages.ErrUnknownTopicOrPartition
	}
	if t.Mirror != "" && t.Desired != messages.DesiredStopped {
		return s.readOnly(t, tp.Partition)
	}
	return nil
}
