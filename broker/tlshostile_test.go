package broker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/kafka/pki"
)

// withTLS makes the only listener one with TLS.
func withTLS(config *tls.Config) worldOption {
	return func(_ *world, cfg *Config) {
		cfg.Listeners[0].Protocol, cfg.Listeners[0].TLS = ProtocolSSL, config
	}
}

// TestHostileTLS: what isn't TLS, or no more than its begin, costs its own connection; half-open ones
// don't shut out a client that comes after them.
func TestHostileTLS(t *testing.T) {
	p := pki.NewAuthority(t)
	node := p.Issue(t, "node", time.Now().Add(time.Hour))
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{node.Cert.Raw}, PrivateKey: node.Key}}}
	w := newWorld(t, withTLS(config), func(_ *world, cfg *Config) { cfg.ConnectionsMax = 20 })
	roots := x509.NewCertPool()
	roots.AddCert(p.Cert)
	good := func() {
		t.Helper()
		raw := w.dial()
		raw.Conn = tls.Client(raw.Conn, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
		raw.metadata()
		_ = raw.Close()
	}
	bytesOf := func(text string) []byte {
		b, err := hex.DecodeString(text)
		require.NoError(t, err)
		return b
	}
	hello := append(bytesOf("1603010200010001fc0303"), make([]byte, 32+1+2)...)
	for name, input := range map[string][]byte{
		"a request in the clear":    encodeRequest(kmsg.NewPtrApiVersionsRequest(), 1, "clear"),
		"HTTP":                      []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"an impossible length":      bytesOf("160301ffff01"),
		"an alert":                  bytesOf("15030300020228"),
		"data before the handshake": bytesOf("170303001000000000000000000000000000000000"),
		"SSL 2":                     bytesOf("802e0100020015000000100100800200800300800400800500800600400700c0"),
		"zeros":                     make([]byte, 1<<16),
		"a hello full of nothing":   append(hello, make([]byte, 512)...),
	} {
		t.Run(name, func(t *testing.T) {
			c := w.dial()
			_, err := c.Write(input)
			require.NoError(t, err)
			for err == nil { // an alert may come first
				_, err = c.Read(make([]byte, 1024))
			}
			good()
		})
	}
	for range 50 {
		w.attack(hello) // and nothing comes after it
	}
	for range 5 {
		good()
	}
}
