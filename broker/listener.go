package broker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"kagami/broker/sasl"
)

// Security protocols of listeners, by Kafka's names.
const (
	ProtocolPlaintext     = "PLAINTEXT"
	ProtocolSSL           = "SSL"
	ProtocolSASLPlaintext = "SASL_PLAINTEXT"
	ProtocolSASLSSL       = "SASL_SSL"
)

// Listener is one address that clients connect to.
type Listener struct {
	Name     string // unique, e.g. "PLAINTEXT"; Metadata answers with the addresses of the listener asked
	Protocol string // one of the protocols above; others are refused (fail closed)
	Address  string // host:port to bind; port 0 = any free one. Host "" = all addresses

	// Socket is used instead of Address when not nil; the server closes it.
	Socket net.Listener
	// TLS is required for ProtocolSSL and ProtocolSASLSSL and forbidden for the others.
	TLS *tls.Config
	// Expires is when the certificate that TLS shows ends; may be nil.
	Expires func() time.Time
	// User makes a user's name of a client's certificate, with ProtocolSSL; nil: nobody is
	// known by it.
	User func(*x509.Certificate) (string, error)
	// SASL is required with the protocols of that name and forbidden for the others.
	SASL *SASL
}

// SASL is how clients of a listener say who they are.
type SASL struct {
	Mechanisms []Mechanism // in the order they are offered in
	// ReceiveBytesMax is the largest frame before a client has authenticated
	// (sasl.server.max.receive.size).
	ReceiveBytesMax int
	// FailureDelay is the wait before a client is told that it failed
	// (connection.failed.authentication.delay.ms).
	FailureDelay time.Duration
}

// Mechanism is a SASL mechanism of a listener.
type Mechanism struct {
	sasl.Mechanism
	// MaxReauth is how long an authentication lasts (connections.max.reauth.ms); 0: as
	// long as the credentials do.
	MaxReauth time.Duration
}

func (s *SASL) mechanism(name string) *Mechanism {
	for i := range s.Mechanisms {
		if s.Mechanisms[i].Name() == name {
			return &s.Mechanisms[i]
		}
	}
	return nil
}

func (s *SASL) names() []string {
	out := make([]string, 0, len(s.Mechanisms))
	for _, m := range s.Mechanisms {
		out = append(out, m.Name())
	}
	return out
}

// validate returns what is wrong with the listener.
func (l Listener) validate() error {
	wantTLS := l.Protocol == ProtocolSSL || l.Protocol == ProtocolSASLSSL
	wantSASL := l.Protocol == ProtocolSASLPlaintext || l.Protocol == ProtocolSASLSSL
	switch {
	case !wantTLS && !wantSASL && l.Protocol != ProtocolPlaintext:
		return fmt.Errorf("%w: security protocol %q of listener %s", ErrNotSupported, l.Protocol, l.Name)
	case !wantTLS && l.TLS != nil:
		return fmt.Errorf("%w: %s is %s but has TLS settings", ErrBadListener, l.Name, l.Protocol)
	case wantTLS && l.TLS == nil:
		return fmt.Errorf("%w: %s is %s but has no TLS settings", ErrBadListener, l.Name, l.Protocol)
	case !wantSASL && l.SASL != nil:
		return fmt.Errorf("%w: %s is %s but has SASL settings", ErrBadListener, l.Name, l.Protocol)
	case wantSASL && (l.SASL == nil || len(l.SASL.Mechanisms) == 0):
		return fmt.Errorf("%w: %s is %s but has no SASL mechanism", ErrBadListener, l.Name, l.Protocol)
	}
	return nil
}
