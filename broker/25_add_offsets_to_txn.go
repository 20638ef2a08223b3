package broker

// AddOffsetsToTxn: served versions 0-4.
//
// v2 PRODUCER_FENCED; v4 TRANSACTION_ABORTABLE. It adds the group's partition of
// __consumer_offsets to the transaction.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/txns"
	"kagami/persistence/metadata"
)

// Versions of AddOffsetsToTxn.
const (
	addOffsetsFenced    = 2
	addOffsetsAbortable = 4
)

func (s *Server) handleAddOffsetsToTxn(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.AddOffsetsToTxnRequest)
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	resp.Version = req.Version
	resp.ErrorCode = txnCode(r, s.addOffsets(ctx, r, req), addOffsetsFenced, addOffsetsAbortable)
	return answer(resp)
}

func (s *Server) addOffsets(ctx context.Context, r *request, req *kmsg.AddOffsetsToTxnRequest) error {
	if !s.allowed(r, OpWrite, KindTxn, req.TransactionalID) {
		return messages.ErrTxnNotAuthorized
	}
	if !s.allowed(r, OpRead, KindGroup, req.Group) {
		return messages.ErrGroupNotAuthorized
	}
	tp, err := offsetsPartition(s.image(), req.Group)
	if err != nil {
		return err
	}
	out, err := askTxn[*txns.Added](ctx, s, r, OpWrite, txns.Add{
		Txn: txns.Txn(req.TransactionalID), Producer: txns.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, Partitions: []messages.TopicPartition{tp},
	})
	if err != nil {
		return err
	}
	return out.Err
}

// offsetsPartition is where a group's offsets are stored.
func offsetsPartition(img *metadata.Image, group string) (messages.TopicPartition, error) {
	t := img.Topic(messages.ConsumerOffsetsTopic)
	if t == nil || len(t.Partitions) == 0 {
		return messages.TopicPartition{}, fmt.Errorf("%w: %s doesn't exist yet", messages.ErrCoordinatorNotAvailable, messages.ConsumerOffsetsTopic)
	}
	return messages.TopicPartition{Topic: t.Name, Partition: messages.CoordinatorShard(group, int32(len(t.Partitions)))}, nil
}
