package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/messages"
	"kagami/messages/txns"
)

// Transactions are the transaction coordinators: those of this node, and by Join all.
type Transactions interface {
	// Ask hands a request to the coordinator of its id, if that is on this node, and
	// waits for the answer of the type that goes with the request. A refusal is an
	// answer: its error wraps ErrNotCoordinator where another node coordinates the id.
	Ask(ctx context.Context, req txns.Request) txns.Answer
	// Join adds partitions to a transaction, or verifies that they are in it, wherever
	// its coordinator is.
	Join(ctx context.Context, req txns.Add) *txns.Added
	// List is the ids that this node coordinates, in no order.
	List(ctx context.Context) ([]txns.Listed, error)
	// WriteMarkers ends transactions in partitions that this node leads: one error per
	// partition, in order.
	WriteMarkers(ctx context.Context, markers []txns.Marker) []error
}

// askTxn has an id's coordinator answer, if the client has the right. A is the
// answer's type, which goes with the request.
func askTxn[A txns.Answer](ctx context.Context, s *Server, r *request, op Operation, req txns.Request) (A, error) {
	var a txns.Answer
	if s.allowed(r, op, KindTxn, req.TransactionalID()) {
		a = s.deps.Transactions.Ask(ctx, req)
	} else {
		a = txns.Refusal(req, fmt.Errorf("%w: transactional id %q", messages.ErrTxnNotAuthorized, req.TransactionalID()))
	}
	out, ok := a.(A)
	if !ok {
		return out, fmt.Errorf("%w: %T for %T", errNoAnswer, a, req)
	}
	return out, nil
}

// txnCode is errorCode in the words of an older client: those that don't know
// PRODUCER_FENCED (fencedSince is the first version that does) and
// TRANSACTION_ABORTABLE.
func txnCode(r *request, err error, fencedSince, abortableSince int16) int16 {
	switch code := r.code(err); {
	case code == kerr.ProducerFenced.Code && r.version < fencedSince:
		return kerr.InvalidProducerEpoch.Code
	case code == kerr.TransactionAbortable.Code && r.version < abortableSince:
		return kerr.InvalidTxnState.Code
	default:
		return code
	}
}
