package broker

// SaslAuthenticate: served versions 0-2 (KIP-152, KIP-368: v1 tells how long it lasts).
//
// A refusal is SASL_AUTHENTICATION_FAILED, and ends the connection. Without a handshake,
// or after it has done its work, ILLEGAL_SASL_STATE.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/broker/sasl"
)

func (s *Server) handleSASLAuthenticate(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.SASLAuthenticateRequest)
	resp := kmsg.NewPtrSASLAuthenticateResponse()
	resp.Version = req.Version
	ses := r.conn.session
	if ses == nil || ses.exchange == nil {
		text := "SaslAuthenticate request received after successful authentication"
		resp.ErrorCode, resp.ErrorMessage = kerr.IllegalSaslState.Code, &text
		if ses != nil && ses.user == "" {
			return reply{resp: resp, last: fmt.Errorf("%w: SaslAuthenticate before SaslHandshake", errAuthentication)}
		}
		return answer(resp)
	}
	token, err := r.conn.token(ctx, req.SASLAuthBytes)
	if err != nil {
		text := kerr.SaslAuthenticationFailed.Description
		if errors.Is(err, sasl.ErrRefused) {
			text = err.Error()
		}
		resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, &text
		return reply{resp: resp, last: fmt.Errorf("%w: %w", errAuthentication, err)}
	}
	resp.SASLAuthBytes = token
	resp.SessionLifetimeMillis = ses.lifetime().Milliseconds()
	return answer(resp)
}
