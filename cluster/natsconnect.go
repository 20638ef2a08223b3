package cluster

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

// dialExternal connects to any server of an external cluster. The client library gives
// the error of one server only, whichever it tried last: what each of them says is
// asked for one by one when none lets this node in.
func (e External) dialExternal(options []nats.Option) (*nats.Conn, error) {
	urls := strings.Join(e.URLs, ",")
	conn, err := nats.Connect(urls, options...)
	if err == nil {
		return conn, nil
	}
	refusal := e.refusal(options)
	if refusal == nil { // one has come back in between
		if conn, err = nats.Connect(urls, options...); err == nil {
			return conn, nil
		}
		refusal = err
	}
	return nil, fmt.Errorf("connect to NATS: %w", refusal)
}

// refusal is why each server doesn't let this node in, in the order of the URLs; nil if
// one does.
func (e External) refusal(options []nats.Option) error {
	errs := make([]error, len(e.URLs))
	var asking sync.WaitGroup
	for i, url := range e.URLs {
		asking.Go(func() { errs[i] = refusalOf(url, options) })
	}
	asking.Wait()
	var out error
	for i, err := range errs {
		switch {
		case err == nil:
			return nil
		case out == nil:
			out = fmt.Errorf("%s: %w", e.URLs[i], err)
		default:
			out = fmt.Errorf("%w; %s: %w", out, e.URLs[i], err)
		}
	}
	return out
}

func refusalOf(url string, options []nats.Option) error {
	var dial lastDial
	options = append(append([]nats.Option{}, options...), nats.NoReconnect(), nats.SetCustomDialer(&dial))
	conn, err := nats.Connect(url, options...)
	if err == nil {
		conn.Close()
		return nil
	}
	if errors.Is(err, nats.ErrNoServers) {
		err = cmp.Or(dial.err, err) // it keeps the reason to itself
	}
	if way := wayIn(err); way != "" {
		return fmt.Errorf("%w (%s)", err, way)
	}
	return err
}

// wayIn says what an operator can do about a refusal, "" where the error says it all.
func wayIn(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch text := err.Error(); {
	case refusesUser(err):
		return "check nats.user and nats.password, nats.token, nats.credentials.file, or the client certificate"
	case errors.As(err, &unknown):
		return "check nats.tls.ca.file"
	case errors.As(err, &name):
		return "use a name in nats.url that the server's certificate has"
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted):
		return "TLS is used on one side only"
	case errors.Is(err, nats.ErrTLS), strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"), strings.Contains(text, "unknown certificate authority"):
		return "the server asks for a client certificate of its CA: check nats.tls.certificate.file and nats.tls.key.file"
	default:
		return ""
	}
}

// lastDial is a dialer that remembers why it failed.
type lastDial struct{ err error }

func (d *lastDial) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, externalWait)
	d.err = err
	return conn, err
}

// stayConnected are the options of a connection that shall outlive whatever its servers
// do: one whose credentials are refused twice would be given up for good otherwise, and
// the node with it. other takes errors that are about something else.
func stayConnected(log *zap.Logger, other nats.ErrHandler) []nats.Option {
	var told atomic.Value // the last reason: it is tried many times a second
	lost := func(conn *nats.Conn, err error) {
		if told.Swap(err.Error()) != err.Error() {
			log.Warn("connection to NATS is lost, tried again", zap.String("connection", conn.Opts.Name), zap.Error(err), zap.String("check", wayIn(err)))
		}
	}
	return []nats.Option{
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectHandler(func(*nats.Conn) { told.Store("") }),
		nats.ReconnectErrHandler(lost),
		nats.ErrorHandler(func(conn *nats.Conn, sub *nats.Subscription, err error) {
			if sub == nil && refusesUser(err) {
				lost(conn, err)
			} else {
				other(conn, sub, err)
			}
		}),
	}
}

func refusesUser(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}
