package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"go.uber.org/zap"

	"kagami/broker/sasl"
)

// A connection is secured before its first request: TLS, then SASL where the listener has
// it. What a client sends until then is small, and there is little time for it.

const (
	// saslReceiveDefault is sasl.server.max.receive.size.
	saslReceiveDefault = 512 << 10
	// requestsBeforeAuth bounds what a client asks before it has said who it is.
	requestsBeforeAuth = 32
	// strangerBytesMax bounds what clients that aren't known hold together: they take nothing
	// from those that are.
	strangerBytesMax = 32 << 20
)

// Faults of connections that aren't authenticated.
var (
	errHandshake      = errors.New("TLS handshake")
	errNotYet         = errors.New("request before authentication")
	errAuthentication = errors.New("not authenticated")
	errSessionExpired = errors.New("the session is over: the client should have authenticated again")
)

// session is the SASL side of a connection. Only the goroutine that answers touches it.
type session struct {
	cfg       *SASL
	mechanism *Mechanism    // chosen by the handshake that came last
	exchange  sasl.Exchange // under way; nil: none
	failed    bool          // that has been counted
	raw       bool          // tokens come without a request around them (handshake v0)
	user      string        // "" before the first authentication
	since     time.Time     // of the last one
	expires   time.Time     // zero: never
}

// secure makes the connection ready for requests, and finds out who the client is.
func (c *conn) secure(ctx context.Context, r *bufio.Reader) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("authentication panicked", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("%w: %v", errHandlerPanic, p)
		}
	}()
	c.principal = anonymous
	if c.listener.TLS == nil && c.listener.SASL == nil {
		return nil
	}
	by := c.s.clock.Now().Add(min(c.s.cfg.FrameTimeout, c.s.cfg.IdleTimeout))
	if t, ok := c.nc.(*tls.Conn); ok {
		if err := c.handshake(ctx, t, by); err != nil {
			c.handshakeFailed(err)
			return fmt.Errorf("%w: %w", errHandshake, err)
		}
	}
	if c.listener.SASL == nil {
		c.loggedIn(false)
		return nil
	}
	c.session = &session{cfg: c.listener.SASL}
	defer func() {
		// A refused client that hangs up before it is told so has failed, too, and so has
		// one that asks for something else.
		s, refused := c.session, errors.Is(err, errNotYet)
		if err != nil && s.exchange != nil {
			_, why := s.exchange.Claim()
			refused = refused || why != nil
		}
		if refused && !s.failed {
			c.loginFailed(err)
		}
	}()
	for n := 0; c.session.user == ""; n++ {
		if n >= requestsBeforeAuth {
			return fmt.Errorf("%w: %d requests", errNotYet, n)
		}
		if err := c.authenticateStep(ctx, r, by); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) handshake(ctx context.Context, t *tls.Conn, by time.Time) error {
	if err := c.deadline(by); err != nil {
		return err
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	certs := t.ConnectionState().PeerCertificates
	if c.listener.Protocol != ProtocolSSL || len(certs) == 0 || c.listener.User == nil {
		return nil
	}
	user, err := c.listener.User(certs[0])
	if err != nil {
		return err
	}
	c.principal = userPrefix + user
	return nil
}

// userPrefix begins the principal of a user.
const userPrefix = "User:"

// deadline bounds everything until the client is known, unless the server is closing.
func (c *conn) deadline(by time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrServerClosed
	}
	_ = c.nc.SetDeadline(by)
	return nil
}

// authenticateStep answers one request, or one bare token, of a client that isn't known yet.
func (c *conn) authenticateStep(ctx context.Context, r *bufio.Reader, by time.Time) error {
	limit := c.session.cfg.ReceiveBytesMax
	if limit == 0 {
		limit = saslReceiveDefault
	}
	if err := c.deadline(by); err != nil {
		return err
	}
	if c.session.raw {
		return c.rawToken(ctx, r, limit, by)
	}
	f, err := readFrame(r, frameLimits{largest: limit, small: limit}, c.strangerHooks(ctx, by))
	defer func() { c.s.strangers.give(f.held) }()
	switch {
	case err != nil && c.isStopped():
		return ErrServerClosed
	case err != nil:
		return fmt.Errorf("read request before authentication: %w", err)
	}
	switch f.key {
	case keyAPIVersions, keySASLHandshake, keySASLAuthenticate:
		return c.answerOne(ctx, f)
	default:
		return fmt.Errorf("%w: key %d: does the client's security.protocol leave out SASL?", errNotYet, f.key)
	}
}

// strangerHooks are for reading what comes before the client is known, until a time.
func (c *conn) strangerHooks(ctx context.Context, by time.Time) frameHooks {
	pace := &pace{c: c, budget: c.s.strangers}
	return frameHooks{
		before: func(bool) {},
		// A read that meets its deadline would be tried again.
		body: func(got int, held int64) error {
			if !c.s.clock.Now().Before(by) {
				return os.ErrDeadlineExceeded
			}
			return pace.check(got, held)
		},
		grow: func(n int, held int64) (int64, error) { return c.s.strangers.swap(ctx, held, n) },
	}
}

// rawToken takes a token that is a frame by itself, as clients send it after a handshake
// of version 0. Such a client is told of a refusal by the end of the connection.
func (c *conn) rawToken(ctx context.Context, r io.Reader, limit int, by time.Time) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return fmt.Errorf("read token: %w", err)
	}
	n := int(int32(binary.BigEndian.Uint32(size[:])))
	if n < 0 || n > limit {
		return fmt.Errorf("%w: token of %d bytes", errFrameSize, n)
	}
	var f frame
	defer func() { c.s.strangers.give(f.held) }()
	if err := f.readBody(r, n, c.strangerHooks(ctx, by)); err != nil {
		return fmt.Errorf("read token: %w", err)
	}
	answer, err := c.token(ctx, f.body)
	if err != nil {
		return fmt.Errorf("%w: %w", errAuthentication, err)
	}
	return c.w.write(append(kbin.AppendInt32(nil, int32(len(answer))), answer...))
}

// token hands a token of the client on, and takes over who it is, once it is known.
func (c *conn) token(ctx context.Context, token []byte) ([]byte, error) {
	again := c.session.user != ""
	answer, err := c.session.token(ctx, c.s.clock.Now, token)
	switch {
	case err != nil:
		c.failed(ctx, err)
		return nil, err
	case c.session.exchange == nil: // it was the last
		c.loggedIn(again)
		c.principal = userPrefix + c.session.user
		c.s.known(c)
	}
	return answer, nil
}

// errNewUser refuses to be somebody else than before.
var errNewUser = fmt.Errorf("%w: Cannot change principals during re-authentication", sasl.ErrRefused)

// token hands a token on. When the exchange ends well the user is known, and for how long.
func (s *session) token(ctx context.Context, now func() time.Time, token []byte) ([]byte, error) {
	answer, done, err := s.exchange.Next(ctx, token)
	if err != nil || !done {
		return answer, err
	}
	who := s.exchange.Identity()
	if s.user != "" && who.User != s.user {
		return nil, errNewUser
	}
	at := now()
	s.exchange, s.raw, s.user, s.since, s.expires = nil, false, who.User, at, who.Expires
	if d := s.mechanism.MaxReauth; d > 0 && (s.expires.IsZero() || at.Add(d).Before(s.expires)) {
		s.expires = at.Add(d)
	}
	return answer, nil
}

// lifetime is what a client is told of how long its authentication lasts; 0: for ever.
func (s *session) lifetime() time.Duration {
	if s.expires.IsZero() || s.exchange != nil {
		return 0
	}
	return max(0, s.expires.Sub(s.since))
}

// over reports whether the client had to authenticate again before this request.
func (s *session) over(key int16, now time.Time) bool {
	return s != nil && s.user != "" && !s.expires.IsZero() && now.After(s.expires) && key != keySASLHandshake && key != keySASLAuthenticate
}
