package admin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/test/kafka/pki"
)

// startTLS is a server with a certificate, and a client that trusts it.
func startTLS(t *testing.T, cfg Config, log *zap.Logger) (*Server, *http.Client) {
	t.Helper()
	ca := pki.NewAuthority(t)
	node := ca.Issue(t, "node", time.Now().Add(time.Hour))
	cfg.Listen = "127.0.0.1:0"
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{node.Cert.Raw}, PrivateKey: node.Key}}}
	s, err := Start(cfg, fakeQueries{}, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return s, &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}}}
}

func live(t *testing.T, s *Server, c *http.Client) {
	t.Helper()
	resp, err := c.Get("https://" + s.Addr() + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func open(t *testing.T, s *Server, bytes string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	_, err = io.WriteString(nc, bytes)
	require.NoError(t, err)
	return nc
}

// closed waits until the server has closed a connection.
func closed(t *testing.T, nc net.Conn) {
	t.Helper()
	require.NoError(t, nc.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := io.ReadAll(nc)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the server holds the connection")
	}
}

// TestSlowHandshakes: who doesn't get on with the handshake, or with its request, is closed
// after a while; garbage at once.
func TestSlowHandshakes(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	// Long enough for the handshakes of a busy machine.
	s, c := startTLS(t, Config{HeaderTimeout: 2 * time.Second}, zap.New(core))
	var slow []net.Conn
	for _, bytes := range []string{"", "\x16", "\x16\x03\x01\x02\x00\x01", "s3cret garbage that is no TLS at all", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
		slow = append(slow, open(t, s, bytes))
	}
	for _, nc := range slow {
		closed(t, nc)
	}
	nc, err := tls.Dial("tcp", s.Addr(), c.Transport.(*http.Transport).TLSClientConfig)
	require.NoError(t, err)
	_, err = io.WriteString(nc, "GET / HT")
	require.NoError(t, err)
	closed(t, nc)
	live(t, s, c)
	require.NotEmpty(t, logs.FilterMessage("admin connection failed").All())
	for _, e := range logs.All() {
		require.NotContains(t, e.ContextMap()["text"], "s3cret")
	}
}

// TestManySilentConnections: more half-open ones than there may be close the oldest of
// them; probes are answered, and the log isn't filled.
func TestManySilentConnections(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	s, c := startTLS(t, Config{}, zap.New(core))
	var held []net.Conn
	for range silentMax + 20 {
		held = append(held, open(t, s, "\x16"))
	}
	live(t, s, c)
	for _, nc := range held[:20] {
		closed(t, nc)
	}
	for range 3 * logLines {
		nc := open(t, s, "garbage garbage")
		closed(t, nc)
	}
	require.LessOrEqual(t, logs.Len(), 2*logLines) // the minute may end meanwhile
	live(t, s, c)
}

// TestLoopbackOnly: a name that turns out to be more than this machine isn't listened on.
func TestLoopbackOnly(t *testing.T) {
	_, err := Start(Config{Listen: "0.0.0.0:0", LoopbackOnly: true}, fakeQueries{}, zap.NewNop())
	require.ErrorIs(t, err, ErrNotLoopback)
	s, err := Start(Config{Listen: "localhost:0", LoopbackOnly: true}, fakeQueries{}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
}
