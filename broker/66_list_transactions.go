package broker

// ListTransactions: served versions 0-2.
//
// The ids that this node coordinates (KIP-664); v1 those that run for longer than a
// time (KIP-994); v2 whose ids match a pattern (KIP-1152), which Java would read as
// RE2 with few differences; what doesn't compile is INVALID_REGULAR_EXPRESSION.

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/txns"
)

// listTransactionsPattern is the first version with a pattern.
const listTransactionsPattern = 2

func (s *Server) handleListTransactions(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.ListTransactionsRequest)
	resp := kmsg.NewPtrListTransactionsResponse()
	resp.Version = req.Version
	states, ids := map[txns.Status]bool{}, make(map[int64]bool)
	for _, name := range req.StateFilters {
		if status, ok := txns.StatusOf(name); ok {
			states[status] = true
		} else {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	for _, id := range req.ProducerIDFilters {
		ids[id] = true
	}
	matches, err := listPattern(req)
	var list []txns.Listed
	if err == nil {
		list, err = s.deps.Transactions.List(ctx)
	}
	if resp.ErrorCode = r.code(err); err != nil {
		return answer(resp)
	}
	slices.SortFunc(list, func(a, b txns.Listed) int { return strings.Compare(a.ID, b.ID) })
	now := s.clock.Now().UnixMilli()
	for _, l := range list {
		long := req.DurationFilterMillis < 0 || now-l.StartedMillis > req.DurationFilterMillis
		switch {
		case len(req.StateFilters) > 0 && !states[l.Status]:
		case len(req.ProducerIDFilters) > 0 && !ids[l.ProducerID]:
		case !long, !matches(l.ID), !s.allowed(r, OpDescribe, KindTxn, l.ID):
		default:
			t := kmsg.NewListTransactionsResponseTransactionState()
			t.TransactionalID, t.ProducerID, t.TransactionState = l.ID, l.ProducerID, l.Status.String()
			resp.TransactionStates = append(resp.TransactionStates, t)
		}
	}
	return answer(resp)
}

func listPattern(req *kmsg.ListTransactionsRequest) (func(id string) bool, error) {
	text := textOf(req.TransactionalIDPattern)
	if req.Version < listTransactionsPattern || text == "" {
		return func(string) bool { return true }, nil
	}
	p, err := messages.CompileClientPattern(text)
	if err != nil {
		return nil, err
	}
	return p.MatchString, nil
}
