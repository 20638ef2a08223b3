package broker

// InitProducerId: served versions 0-5.
//
// v3 the producer that a client believes to be (KIP-360); v4 PRODUCER_FENCED.
//
// Without a transactional id: each request gets a fresh id with epoch 0, from a
// block that the controller gave to this node; what the client says about its
// old id doesn't matter then. With one its coordinator answers.
//
// Left out: v6, which Kafka has not released (KIP-939).

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/txns"
)

// producerIDBlock is how many ids are fetched at a time, as in Kafka.
const producerIDBlock = 1000

// producerIDs hands out this node's block of producer ids. The mutex is held
// while a new block is fetched: everybody waits for the same one.
type producerIDs struct {
	mu   sync.Mutex
	next int64
	end  int64
}

func (s *Server) handleInitProducerID(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.InitProducerIDRequest)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.Version = req.Version
	if req.TransactionalID != nil {
		p, err := s.initTxn(ctx, r, req)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = txnCode(r, err, initProducerFenced, 0), p.ID, p.Epoch
		return answer(resp)
	}
	id, err := s.newProducerID(ctx, r)
	if err != nil {
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = r.code(err), -1, -1
		return answer(resp)
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return answer(resp)
}

// initTxn is for a producer with a transactional id.
func (s *Server) initTxn(ctx context.Context, r *request, req *kmsg.InitProducerIDRequest) (txns.Producer, error) {
	p := txns.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	switch {
	case !s.allowed(r, OpWrite, KindTxn, *req.TransactionalID):
		return txns.None(), messages.ErrTxnNotAuthorized
	case *req.TransactionalID == "":
		return txns.None(), fmt.Errorf("%w: empty transactional id", messages.ErrInvalidRequest)
	case (p.ID == txns.NoProducer) != (p.Epoch == txns.NoEpoch):
		return txns.None(), fmt.Errorf("%w: producer %d with epoch %d", messages.ErrInvalidRequest, p.ID, p.Epoch)
	}
	out, err := askTxn[*txns.Inited](ctx, s, r, OpWrite, txns.Init{Txn: txns.Txn(*req.TransactionalID), TimeoutMillis: req.TransactionTimeoutMillis, Producer: p})
	if err == nil {
		err = out.Err
	}
	if err != nil {
		return txns.None(), err
	}
	return out.Producer, nil
}

// initProducerFenced is the first version that knows PRODUCER_FENCED.
const initProducerFenced = 4

func (s *Server) newProducerID(ctx context.Context, r *request) (int64, error) {
	if !s.allowedCluster(r, OpIdempotentWrite) && !s.allowedAny(r, OpWrite, KindTopic) {
		return 0, messages.ErrClusterNotAuthorized
	}
	s.pids.mu.Lock()
	defer s.pids.mu.Unlock()
	if s.pids.next == s.pids.end {
		out := s.submit(ctx, r, 0, messages.AllocateProducerIDs{Count: producerIDBlock})
		switch {
		case out.Err != nil:
			return 0, out.Err
		case len(out.Items) != 1:
			return 0, fmt.Errorf("allocate producer ids: controller answered %d items", len(out.Items))
		case out.Items[0].Err != nil:
			return 0, out.Items[0].Err
		case out.Items[0].Count <= 0:
			return 0, fmt.Errorf("allocate producer ids: block of %d", out.Items[0].Count)
		}
		s.pids.next = out.Items[0].FirstProducerID
		s.pids.end = s.pids.next + int64(out.Items[0].Count)
	}
	id := s.pids.next
	s.pids.next++
	return id, nil
}
