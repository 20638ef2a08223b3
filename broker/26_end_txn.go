package broker

// EndTxn: served versions 0-5.
//
// v2 PRODUCER_FENCED; v4 TRANSACTION_ABORTABLE; v5 the epoch grows with each
// transaction, and the answer has the producer of the next one (KIP-890 part 2).
//
// The answer comes when the outcome is stored; markers follow by themselves.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/txns"
)

// Versions of EndTxn.
const (
	endTxnFenced    = 2
	endTxnAbortable = 4
	endTxnBumps     = 5
)

func (s *Server) handleEndTxn(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.EndTxnRequest)
	resp := kmsg.NewPtrEndTxnResponse()
	resp.Version = req.Version
	end := txns.End{Txn: txns.Txn(req.TransactionalID), Producer: txns.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, Commit: req.Commit}
	if req.Version >= endTxnBumps {
		end.Version = txns.V2
	}
	out, err := askTxn[*txns.Ended](ctx, s, r, OpWrite, end)
	if err == nil {
		err = out.Err
	}
	resp.ErrorCode = txnCode(r, err, endTxnFenced, endTxnAbortable)
	if err == nil {
		resp.ProducerID, resp.ProducerEpoch = out.Producer.ID, out.Epoch
	}
	return answer(resp)
}
