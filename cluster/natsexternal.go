package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

// External is an existing NATS cluster with JetStream that nodes use instead of
// servers of their own. One account of it is for one Kagami cluster.
type External struct {
	// URLs of its servers, nats:// or tls://, without user and password.
	URLs []string
	// User and Password, or Token, or CredentialsFile; none if the servers ask for none.
	User, Password, Token, CredentialsFile string
	// TLSCA is a PEM file with the CA of the servers, the system's if empty. TLSCert and
	// TLSKey are this node's own certificate, both or none; it is read anew at each
	// connection.
	TLSCA, TLSCert, TLSKey string
}

// Validate reports all faults, joined; each wraps ErrBadOption. It reads no file.
func (e External) Validate() error {
	var errs []error
	bad := func(format string, v ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrBadOption}, v...)...))
	}
	if len(e.URLs) == 0 {
		bad("no NATS server")
	}
	for i, text := range e.URLs {
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls":
			bad("NATS server %d isn't nats://host:port or tls://host:port", i+1) // the text may have a secret
		case u.User != nil:
			bad("the URL of NATS server %s has a user: give user and password, token or credentials file by themselves", u.Host)
		}
	}
	ways := 0
	for _, set := range []bool{e.User != "" || e.Password != "", e.Token != "", e.CredentialsFile != ""} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		bad("more than one of user, token and credentials file for NATS is set")
	}
	if (e.User == "") != (e.Password == "") {
		bad("user and password for NATS must be set together")
	}
	if (e.TLSCert == "") != (e.TLSKey == "") {
		bad("certificate and key for NATS must be set together")
	}
	return errors.Join(errs...)
}

func (e External) connectOptions() ([]nats.Option, error) {
	var out []nats.Option
	switch {
	case e.User != "":
		out = append(out, nats.UserInfo(e.User, e.Password))
	case e.Token != "":
		out = append(out, nats.Token(e.Token))
	case e.CredentialsFile != "":
		out = append(out, nats.UserCredentials(e.CredentialsFile))
	}
	if e.TLSCA == "" && e.TLSCert == "" {
		return out, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.TLSCA != "" {
		pem, err := os.ReadFile(e.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("read CA of NATS: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA of NATS %s: %w: no certificate in it", e.TLSCA, ErrBadOption)
		}
	}
	if e.TLSCert != "" {
		own := &ownCertificate{certFile: e.TLSCert, keyFile: e.TLSKey}
		if _, err := own.get(); err != nil {
			return nil, fmt.Errorf("load certificate %s for NATS: %w", e.TLSCert, err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.get() }
	}
	return append(out, nats.Secure(config)), nil
}

// externalWait bounds one try to connect.
const externalWait = 5 * time.Second

// openExternal checks that the servers can be used. Other connections go the same way.
func openExternal(ctx context.Context, o ServerOptions) (*Server, error) {
	e := o.Cluster.External
	if err := e.Validate(); err != nil {
		return nil, fmt.Errorf("check options of NATS: %w", err)
	}
	options, err := e.connectOptions()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, external: append(options, nats.Timeout(externalWait))}
	conn, err := s.connect("check", o.Logger.Named("nats"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if need, have := int64(o.MessageBytesMax+64<<10), conn.MaxPayload(); have < need {
		return nil, fmt.Errorf("%w: NATS server %s takes messages of at most %d bytes, %d are needed: set max_payload on all its servers",
			ErrBadOption, conn.ConnectedUrlRedacted(), have, need)
	}
	if !conn.HeadersSupported() {
		return nil, fmt.Errorf("%w: NATS server %s has no message headers", ErrBadOption, conn.ConnectedUrlRedacted())
	}
	asking, cancel := context.WithTimeout(ctx, externalWait)
	defer cancel()
	answer, err := conn.RequestMsgWithContext(asking, &nats.Msg{Subject: "$JS.API.INFO"})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, nats.ErrNoResponders) || err == nil && strings.Contains(string(answer.Data), `"err_code":10039`) {
		return nil, fmt.Errorf("%w: JetStream isn't enabled for this account on NATS server %s", ErrBadOption, conn.ConnectedUrlRedacted())
	}
	o.Logger.Info("journal and bus are on an external NATS cluster", zap.String("server", conn.ConnectedUrlRedacted()), zap.String("cluster", conn.ConnectedClusterName()))
	return s, nil
}
