package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"kagami/messages/stores"
)

// Settings are a listener's ssl.* settings.
type Settings struct {
	Protocol   string       // ssl.protocol
	Protocols  []string     // ssl.enabled.protocols: TLSv1.2, TLSv1.3
	Ciphers    []string     // ssl.cipher.suites, by their IANA names
	ClientAuth string       // ssl.client.auth: none, requested, required
	Key, Trust stores.Store // Trust empty: the system's
}

// Server is the TLS side of one listener. Its methods may be called at any time.
type Server struct {
	settings Settings
	versions stores.Versions
	auth     tls.ClientAuthType
	log      *zap.Logger

	mu    sync.Mutex
	seen  stamps // of the files that were looked at last, whether they were good or not
	fault string // of these; "": they were good
	now   *tls.Config
}

// stamps tell that one of the files is another one than it was; nil: it isn't there.
type stamps [2]os.FileInfo

func (a stamps) same(b stamps) bool {
	for i := range a {
		switch {
		case a[i] == nil || b[i] == nil:
			if a[i] != b[i] {
				return false
			}
		case !os.SameFile(a[i], b[i]), a[i].Size() != b[i].Size(), !a[i].ModTime().Equal(b[i].ModTime()):
			return false
		}
	}
	return true
}

// NewServer reads the stores. Every fault is told at once.
func NewServer(s Settings, log *zap.Logger) (*Server, error) {
	out := &Server{settings: s, log: log}
	var errs []error
	var faults []stores.Fault
	if out.versions, faults = stores.ParseVersions(s.Protocol, s.Protocols, s.Ciphers); len(faults) > 0 {
		for _, f := range faults {
			errs = append(errs, f)
		}
	}
	switch s.ClientAuth {
	case "none", "":
		out.auth = tls.NoClientCert
	case "requested":
		out.auth = tls.VerifyClientCertIfGiven
	case "required":
		out.auth = tls.RequireAndVerifyClientCert
	default:
		errs = append(errs, fmt.Errorf("ssl.client.auth: %q is none of none, requested, required", s.ClientAuth))
	}
	if s.Key.Empty() {
		errs = append(errs, errors.New("ssl.keystore.location: is not set: a listener with TLS needs a key and its certificate"))
	}
	errs = append(errs, checkStores(s.Key, s.Trust)...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out.seen = out.stamps()
	var err error
	if out.now, err = out.load(); err != nil {
		return nil, err
	}
	return out, nil
}

// checkStores refuses what Kafka refuses, settings that would have no effect among it.
func checkStores(key, trust stores.Store) (errs []error) {
	bad := func(setting, why string) { errs = append(errs, fmt.Errorf("%s: %s", setting, why)) }
	text := key.Key != "" || key.Chain != ""
	switch {
	case key.File != "" && text:
		bad("ssl.keystore.key", "is set together with ssl.keystore.location: want one of both")
	case text && key.Type != "PEM":
		bad("ssl.keystore.type", "is "+key.Type+": ssl.keystore.key goes with PEM")
	case text && (key.Key == "" || key.Chain == ""):
		bad("ssl.keystore.key", "goes with ssl.keystore.certificate.chain: set both")
	case key.Type == "PEM" && key.Password != "":
		bad("ssl.keystore.password", "is set, but a PEM key store has none: ssl.key.password is that of an encrypted key")
	}
	switch {
	case trust.File != "" && trust.Chain != "":
		bad("ssl.truststore.certificates", "is set together with ssl.truststore.location: want one of both")
	case trust.Chain != "" && trust.Type != "PEM":
		bad("ssl.truststore.type", "is "+trust.Type+": ssl.truststore.certificates goes with PEM")
	case trust.Type == "PEM" && trust.Password != "":
		bad("ssl.truststore.password", "is set, but a PEM trust store has none")
	}
	return errs
}

func (s *Server) load() (*tls.Config, error) {
	pair, err := s.settings.Key.KeyPair()
	if err != nil {
		return nil, fmt.Errorf("ssl.keystore: %w", err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, errors.New("ssl.keystore: the certificate can't be read")
		}
	}
	var pool *x509.CertPool
	if !s.settings.Trust.Empty() {
		if pool, err = s.settings.Trust.Certificates(); err != nil {
			return nil, fmt.Errorf("ssl.truststore: %w", err)
		}
	}
	return &tls.Config{
		MinVersion: s.versions.Min, MaxVersion: s.versions.Max, CipherSuites: s.versions.Suites,
		Certificates: []tls.Certificate{pair}, ClientAuth: s.auth, ClientCAs: pool,
	}, nil
}

func (s *Server) stamps() (out stamps) {
	for i, file := range []string{s.settings.Key.File, s.settings.Trust.File} {
		if file == "" {
			continue
		}
		if info, err := os.Stat(file); err == nil {
			out[i] = info
		}
	}
	return out
}

// Config is for tls.Server. Every handshake looks whether the files are others than
// before; new ones that can't be used leave the old ones in force.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
}

func (s *Server) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.stamps()
	if at.same(s.seen) && s.fault == "" {
		return s.now
	}
	s.seen = at
	next, err := s.load()
	if err != nil {
		// Looked at again in the next handshake: it may be half written, or its rights be
		// mended, which no stamp shows. Told once.
		if s.fault != err.Error() {
			s.log.Error("changed key or trust store can't be used, the old one stays in force", zap.Error(err))
		}
		s.fault = err.Error()
		return s.now
	}
	s.log.Info("key and trust store read again: a file has changed", zap.Time("validUntil", next.Certificates[0].Leaf.NotAfter))
	s.now, s.fault = next, ""
	return s.now
}

// Expires is when the certificate that is shown ends.
func (s *Server) Expires() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Certificates[0].Leaf.NotAfter
}
