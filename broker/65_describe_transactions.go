package broker

// DescribeTransactions: served version 0.
//
// Asked of the coordinator of each id (KIP-664). Partitions of topics that the client
// may not describe are left out.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/txns"
)

func (s *Server) handleDescribeTransactions(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeTransactionsRequest)
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	resp.Version = req.Version
	for _, id := range bounded(req.TransactionalIDs) {
		state := kmsg.NewDescribeTransactionsResponseTransactionState()
		state.TransactionalID = id
		out, err := s.describedTxn(ctx, r, id)
		if state.ErrorCode = r.code(err); err == nil {
			s.describeTxn(r, &state, out)
		}
		resp.TransactionStates = append(resp.TransactionStates, state)
	}
	return answer(resp)
}

func (s *Server) describedTxn(ctx context.Context, r *request, id string) (*txns.Described, error) {
	if id == "" && s.allowed(r, OpDescribe, KindTxn, id) {
		return nil, fmt.Errorf("%w: no transactional id", messages.ErrInvalidRequest)
	}
	out, err := askTxn[*txns.Described](ctx, s, r, OpDescribe, txns.Describe{Txn: txns.Txn(id)})
	if err == nil {
		err = out.Err
	}
	return out, err
}

func (s *Server) describeTxn(r *request, state *kmsg.DescribeTransactionsResponseTransactionState, out *txns.Described) {
	state.State, state.TimeoutMillis, state.StartTimestamp = out.Status.String(), out.TimeoutMillis, out.StartedMillis
	state.ProducerID, state.ProducerEpoch = out.Producer.ID, out.Epoch
	for _, p := range out.Partitions {
		if !s.allowed(r, OpDescribe, KindTopic, p.Topic) {
			continue
		}
		if n := len(state.Topics); n == 0 || state.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			t.Topic = p.Topic
			state.Topics = append(state.Topics, t)
		}
		t := &state.Topics[len(state.Topics)-1]
		t.Partitions = append(t.Partitions, p.Partition)
	}
}
