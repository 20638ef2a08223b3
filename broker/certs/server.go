package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"kagami/messages/stores"
)

// Settings are a listener's ssl.* settings.
type Settings struct {
	Protocols  []string     // ssl.enabled.protocols: TLSv1.2, TLSv1.3
	Ciphers    []string     // ssl.cipher.suites, of TLS 1.2, by their IANA names; none: the safe ones
	ClientAuth string       // ssl.client.auth: none, requested, required
	Key, Trust stores.Store // Trust empty: the system's
}

// Server is the TLS side of one listener. Its methods may be called at any time.
type Server struct {
	settings Settings
	min, max uint16
	ciphers  []uint16
	auth     tls.ClientAuthType
	log      *zap.Logger

	mu   sync.Mutex
	seen [2]stamp // of the files that were looked at last, whether they were good or not
	now  *tls.Config
}

// stamp tells that a file is another one than it was.
type stamp struct {
	size int64
	mod  time.Time
}

// NewServer reads the stores. Every fault is told at once.
func NewServer(s Settings, log *zap.Logger) (*Server, error) {
	out := &Server{settings: s, log: log}
	errs := []error{out.parseVersions(), out.parseCiphers()}
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

func (s *Server) parseVersions() error {
	known := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	for _, p := range s.settings.Protocols {
		v, ok := known[p]
		if !ok {
			return fmt.Errorf("ssl.enabled.protocols: %q is none of TLSv1.2, TLSv1.3", p)
		}
		if s.min == 0 || v < s.min {
			s.min = v
		}
		s.max = max(s.max, v)
	}
	if s.min == 0 {
		s.min, s.max = tls.VersionTLS12, tls.VersionTLS13
	}
	return nil
}

func (s *Server) parseCiphers() error {
	for _, name := range s.settings.Ciphers {
		i := slices.IndexFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool { return c.Name == name })
		if i < 0 {
			return fmt.Errorf("ssl.cipher.suites: %q is unknown or insecure", name)
		}
		s.ciphers = append(s.ciphers, tls.CipherSuites()[i].ID)
	}
	return nil
}

func (s *Server) load() (*tls.Config, error) {
	pair, err := s.settings.Key.KeyPair()
	if err != nil {
		return nil, fmt.Errorf("ssl.keystore: %w", err)
	}
	var pool *x509.CertPool
	if !s.settings.Trust.Empty() {
		if pool, err = s.settings.Trust.Certificates(); err != nil {
			return nil, fmt.Errorf("ssl.truststore: %w", err)
		}
	}
	return &tls.Config{
		MinVersion: s.min, MaxVersion: s.max, CipherSuites: s.ciphers,
		Certificates: []tls.Certificate{pair}, ClientAuth: s.auth, ClientCAs: pool,
	}, nil
}

func (s *Server) stamps() (out [2]stamp) {
	for i, file := range []string{s.settings.Key.File, s.settings.Trust.File} {
		if file == "" {
			continue
		}
		if info, err := os.Stat(file); err == nil {
			out[i] = stamp{size: info.Size(), mod: info.ModTime()}
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
	if at == s.seen {
		return s.now
	}
	s.seen = at
	next, err := s.load()
	if err != nil {
		s.log.Error("changed key or trust store can't be used, the old one stays in force", zap.Error(err))
		return s.now
	}
	s.log.Info("key and trust store read again: a file has changed")
	s.now = next
	return s.now
}
