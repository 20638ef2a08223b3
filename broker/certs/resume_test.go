package certs

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages/stores"
	"kagami/test/kafka/pki"
)

// TestTicketsEndWithTheirAuthority: a client whose authority isn't trusted any more can't go on with
// the session ticket of a connection that it once had (C44).
func TestTicketsEndWithTheirAuthority(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		old, next := pki.NewAuthority(t), pki.NewAuthority(t)
		dir := t.TempDir()
		key, trust := filepath.Join(dir, "key.pem"), filepath.Join(dir, "trust.pem")
		pki.Put(t, key, old.Issue(t, "node", time.Now().Add(time.Hour)).PEM(t))
		pki.Put(t, trust, old.CA())
		s, err := NewServer(Settings{ClientAuth: "required", Key: stores.Store{Type: "PEM", File: key}, Trust: stores.Store{Type: "PEM", File: trust}}, zap.NewNop())
		require.NoError(t, err)
		config := s.Config() // one for all connections, as of a listener
		user := old.Issue(t, "user", time.Now().Add(time.Hour))
		roots := x509.NewCertPool()
		roots.AddCert(old.Cert)
		client := &tls.Config{
			RootCAs: roots, ServerName: "localhost", MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1),
			Certificates: []tls.Certificate{{Certificate: [][]byte{user.Cert.Raw}, PrivateKey: user.Key}},
		}
		connect := func() (resumed bool, err error) {
			socket, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer socket.Close()
			near, err := net.Dial("tcp", socket.Addr().String())
			require.NoError(t, err)
			defer near.Close()
			far, err := socket.Accept()
			require.NoError(t, err)
			require.NoError(t, near.SetDeadline(time.Now().Add(20*time.Second)))
			require.NoError(t, far.SetDeadline(time.Now().Add(20*time.Second)))
			done := make(chan error, 1)
			server := tls.Server(far, config)
			go func() {
				err := server.HandshakeContext(t.Context())
				if err == nil {
					_, err = server.Write([]byte{1}) // behind the ticket
				}
				done <- err
				_ = far.Close()
			}()
			c := tls.Client(near, client)
			if err := c.HandshakeContext(t.Context()); err != nil {
				_ = near.Close()
				<-done
				return false, err
			}
			_, err = c.Read(make([]byte, 1))
			_ = near.Close()
			if served := <-done; err == nil {
				err = served
			}
			return server.ConnectionState().DidResume, err
		}
		resumed, err := connect()
		require.NoError(t, err)
		require.False(t, resumed)
		resumed, err = connect()
		require.NoError(t, err)
		require.True(t, resumed, "else this test shows nothing")
		pki.Put(t, trust, next.CA())
		_, err = connect()
		require.Error(t, err, "TLS %x: the client's authority isn't trusted any more", version)
	}
}
