package broker

// SaslHandshake: served versions 0-1.
//
// After version 0 the tokens follow without a request around each, after version 1 in
// SaslAuthenticate (KIP-152). A mechanism that isn't offered is refused with the list of
// those that are, and the connection ends. On a connection that is authenticated it begins
// another authentication (KIP-368), where those don't last for ever; everywhere else it is
// ILLEGAL_SASL_STATE. Kafka wants a second between two of them: franz-go, which is early by
// some seconds, fails there when sessions are short.

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (s *Server) handleSASLHandshake(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.SASLHandshakeRequest)
	resp := kmsg.NewPtrSASLHandshakeResponse()
	resp.Version = req.Version
	ses := r.conn.session
	if ses == nil || ses.exchange != nil || ses.user != "" && (ses.expires.IsZero() || req.Version == 0) {
		resp.ErrorCode = kerr.IllegalSaslState.Code
		return answer(resp)
	}
	resp.SupportedMechanisms = ses.cfg.names()
	if !slices.Contains(resp.SupportedMechanisms, req.Mechanism) {
		resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		err := fmt.Errorf("%w: mechanism %.32q isn't offered", errAuthentication, req.Mechanism)
		r.conn.failed(ctx, err)
		return reply{resp: resp, last: err}
	}
	if ses.user != "" && ses.mechanism.Name() != req.Mechanism {
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		err := fmt.Errorf("%w: SASL mechanism %s changed to %s on re-authentication", errAuthentication, ses.mechanism.Name(), req.Mechanism)
		r.conn.failed(ctx, err)
		return reply{resp: resp, last: err}
	}
	ses.mechanism = ses.cfg.mechanism(req.Mechanism)
	ses.exchange, ses.raw = ses.mechanism.Start(), req.Version == 0
	return answer(resp)
}
