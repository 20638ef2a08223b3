package broker

// CreateDelegationToken (versions 1-3), RenewDelegationToken (1-2), ExpireDelegationToken
// (1-2), DescribeDelegationToken (1-3): refused always, with DELEGATION_TOKEN_AUTH_DISABLED
// as by a Kafka that has no key for them, or DELEGATION_TOKEN_REQUEST_NOT_ALLOWED where the
// client isn't authenticated.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (s *Server) handleDelegationTokens(_ context.Context, r *request) reply {
	code := kerr.DelegationTokenAuthDisabled.Code
	if r.conn.principal == anonymous {
		code = kerr.DelegationTokenRequestNotAllowed.Code
	}
	resp := r.body.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.CreateDelegationTokenResponse:
		resp.ErrorCode = code
	case *kmsg.RenewDelegationTokenResponse:
		resp.ErrorCode = code
	case *kmsg.ExpireDelegationTokenResponse:
		resp.ErrorCode = code
	case *kmsg.DescribeDelegationTokenResponse:
		resp.ErrorCode = code
	}
	return answer(resp)
}
