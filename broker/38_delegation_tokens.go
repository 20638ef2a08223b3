package broker

// CreateDelegationToken (versions 1-3), RenewDelegationToken (1-2), ExpireDelegationToken
// (1-2), DescribeDelegationToken (1-3): refused always, with DELEGATION_TOKEN_AUTH_DISABLED
// as by a Kafka that has no key for them, or DELEGATION_TOKEN_REQUEST_NOT_ALLOWED where the
// client isn't authenticated.

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (s *Server) handleDelegationTokens(_ context.Context, r *request) reply {
	code, never := kerr.DelegationTokenAuthDisabled.Code, int64(0)
	if r.conn.principal == anonymous {
		code, never = kerr.DelegationTokenRequestNotAllowed.Code, -1
	}
	resp := r.body.ResponseKind()
	kind, name, _ := strings.Cut(r.who.Principal, ":")
	switch resp := resp.(type) {
	case *kmsg.CreateDelegationTokenResponse:
		resp.ErrorCode, resp.PrincipalType, resp.PrincipalName = code, kind, name
		resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = never, never, never
		resp.TokenRequesterPrincipalType, resp.TokenRequesterPrincipalName = kind, name
	case *kmsg.RenewDelegationTokenResponse:
		resp.ErrorCode, resp.ExpiryTimestamp = code, never
	case *kmsg.ExpireDelegationTokenResponse:
		resp.ErrorCode, resp.ExpiryTimestamp = code, never
	case *kmsg.DescribeDelegationTokenResponse:
		resp.ErrorCode = code
	}
	return answer(resp)
}
