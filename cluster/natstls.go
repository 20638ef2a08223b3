package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// tlsConfig is mutual TLS, or nil without TLS. A certificate that is replaced on disk
// is shown in the next handshake; the CA is read once. log is told of one that can't be used.
func (o Options) tlsConfig(log *zap.Logger) (*tls.Config, error) {
	if o.TLSCert == "" {
		return nil, nil //nolint:nilnil // no TLS is no fault
	}
	own := &ownCertificate{certFile: o.TLSCert, keyFile: o.TLSKey, log: log}
	if _, err := own.get(); err != nil {
		return nil, fmt.Errorf("load certificate of connections between nodes (cluster.tls.certificate.file %s, cluster.tls.key.file %s): %w", o.TLSCert, o.TLSKey, err)
	}
	pem, err := os.ReadFile(o.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("read CA of connections between nodes (cluster.tls.ca.file): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read CA of connections between nodes (cluster.tls.ca.file %s): %w: no certificate in it", o.TLSCA, ErrBadOption)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.get() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.get() },
	}, nil
}

// ownCertificate is this node's certificate as it is on disk. One that can't be read,
// because it is being replaced, leaves the one before.
type ownCertificate struct {
	certFile, keyFile string
	log               *zap.Logger

	mu    sync.Mutex
	cert  *tls.Certificate
	at    [2]time.Time // of the files
	fault string       // that has been told; "": none
}

func (c *ownCertificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var at [2]time.Time
	for i, file := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return c.keptOr(err)
		}
		at[i] = info.ModTime()
	}
	if c.cert != nil && at == c.at {
		return c.cert, nil
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return c.keptOr(err)
	}
	c.cert, c.at, c.fault = &cert, at, ""
	return c.cert, nil
}

func (c *ownCertificate) keptOr(err error) (*tls.Certificate, error) {
	if c.cert == nil {
		return nil, err
	}
	if err.Error() != c.fault { // once, not in every handshake
		c.fault = err.Error()
		c.log.Error("changed certificate of connections between nodes can't be used, the old one stays in force", zap.Error(err))
	}
	return c.cert, nil
}
