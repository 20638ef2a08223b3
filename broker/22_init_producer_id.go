package broker

// InitProducerId: served versions 0-5.
//
// Idempotent producers only: each request gets a fresh id with epoch 0, from a
// block that the controller gave to this node; what the client says about its
// old id doesn't matter then. A transactional id is answered with
// UNSUPPORTED_VERSION, which producers treat as fatal: transactions don't exist
// here yet.

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
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
	id, err := s.newProducerID(ctx, r, req.TransactionalID)
	if err != nil {
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = r.code(err), -1, -1
		return answer(resp)
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return answer(resp)
}

func (s *Server) newProducerID(ctx context.Context, r *request, txn *string) (int64, error) {
	if txn != nil {
		return 0, fmt.Errorf("%w: transactional id %q, but transactions are not supported by this server yet", messages.ErrUnsupportedVersion, *txn)
	}
	if !s.allowedCluster(r, OpIdempotentWrite) && !s.allowed(r, OpWrite, KindTopic, "") {
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
