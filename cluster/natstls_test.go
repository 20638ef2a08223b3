package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/messages"
)

// issueUntil makes a certificate that ends then.
func (ca *testCA) issueUntil(name string, until time.Time) (certFile, keyFile string) {
	ca.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(ca.tb, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, ca.cert, key.Public(), ca.key)
	require.NoError(ca.tb, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(ca.tb, err)
	certFile, keyFile = filepath.Join(ca.dir, name+".pem"), filepath.Join(ca.dir, name+".key")
	require.NoError(ca.tb, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(ca.tb, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return certFile, keyFile
}

// Whoever has the wrong password, CA or certificate, or no TLS, is refused; the log
// says it in words, and no secret is in it.
func TestServerRefusalsAreTold(t *testing.T) {
	ca, other := newTestCA(t), newTestCA(t)
	const secret, wrong = "right-4711", "wrong-0815"
	for _, tc := range []struct {
		name, want string
		change     func(o *Options, id messages.NodeID)
	}{
		{"password", "cluster.password", func(o *Options, _ messages.NodeID) { o.Password = wrong }},
		{"TLS CA", "cluster.tls", other.issue},
		{"expired", "cluster.tls", func(o *Options, _ messages.NodeID) {
			o.TLSCert, o.TLSKey = ca.issueUntil("expired", time.Now().Add(-time.Hour))
		}},
		{"no TLS", "TLS itself", func(o *Options, _ messages.NodeID) { o.TLSCert, o.TLSKey, o.TLSCA = "", "", "" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			c := startTestCluster(t, 3, func(o *ServerOptions) {
				o.Logger = zap.New(core).With(zap.Int32("at", int32(o.Node)))
				o.Cluster.User, o.Cluster.Password = "between", secret
				ca.issue(o.Cluster, o.Node)
				if o.Node == 3 {
					tc.change(o.Cluster, o.Node)
				}
			})
			eventually(t, "the two of one mind", func() bool { return len(c.servers[1].Connected()) == 1 })
			told := func(at messages.NodeID) bool {
				for _, e := range logs.FilterFieldKey("text").All() {
					if e.ContextMap()["at"] == int32(at) && strings.Contains(e.Message, "between nodes refused") && strings.Contains(e.Message, tc.want) {
						return true
					}
				}
				return false
			}
			eventually(t, "a line of a node that refuses", func() bool { return told(1) || told(2) })
			eventually(t, "a line of the node that isn't let in", func() bool { return told(3) })
			for _, e := range logs.All() {
				line := fmt.Sprint(e.Message, e.ContextMap())
				require.NotContains(t, line, secret)
				require.NotContains(t, line, wrong)
			}
		})
	}
}

// A certificate that is replaced is shown at the next handshake, without a restart;
// half written files leave the one before.
func TestServerCertificateReloaded(t *testing.T) {
	ca := newTestCA(t)
	o := Options{TLSCA: filepath.Join(ca.dir, "ca.pem")}
	o.TLSCert, o.TLSKey = ca.issueUntil("first", time.Now().Add(time.Hour))
	core, logs := observer.New(zap.ErrorLevel)
	config, err := o.tlsConfig(zap.New(core))
	require.NoError(t, err)
	shown := func() string {
		cert, err := config.GetCertificate(&tls.ClientHelloInfo{})
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		require.NoError(t, err)
		return leaf.Subject.CommonName
	}
	require.Equal(t, "first", shown())
	cert, key := ca.issueUntil("second", time.Now().Add(time.Hour))
	later := time.Now().Add(time.Minute)
	replace := func(from, to string) {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, content, 0o600))
		require.NoError(t, os.Chtimes(to, later, later))
	}
	replace(cert, o.TLSCert)
	for range 3 {
		require.Equal(t, "first", shown(), "the key isn't that of the new certificate yet")
	}
	replace(key, o.TLSKey)
	require.Equal(t, "second", shown())
	require.NoError(t, os.Remove(o.TLSKey))
	require.Equal(t, "second", shown())
	require.Equal(t, 2, logs.Len(), "two files that couldn't be used, each told once")
	_, err = o.tlsConfig(zap.NewNop())
	require.ErrorContains(t, err, o.TLSCert)
}

// Certificates of all nodes end while they are connected: routes that are there stay, a
// node that comes back isn't let in and is told why, and good files, put in place one
// after the other, let it in without a restart of anybody.
func TestServerCertificatesExpire(t *testing.T) {
	ca := newTestCA(t)
	name := func(id messages.NodeID) string { return fmt.Sprint("route-", id) }
	inAnHour := time.Now().Add(time.Hour)
	for id := range messages.NodeID(3) {
		ca.issueUntil(name(id+1), inAnHour)
	}
	core, logs := observer.New(zap.DebugLevel)
	c := startTestCluster(t, 3, func(o *ServerOptions) {
		o.Logger = zap.New(core).With(zap.Int32("at", int32(o.Node)))
		file := filepath.Join(ca.dir, name(o.Node))
		o.Cluster.TLSCA, o.Cluster.TLSCert, o.Cluster.TLSKey = filepath.Join(ca.dir, "ca.pem"), file+".pem", file+".key"
	})
	for id := range c.peers {
		eventually(t, "routes", func() bool { return len(c.servers[id].Connected()) == 2 })
	}
	for id := range c.peers {
		ca.issueUntil(name(id), time.Now().Add(-time.Hour))
	}
	c.stop(3)
	c.start(3)
	eventually(t, "a line that says so", func() bool {
		for _, e := range logs.FilterFieldKey("text").All() {
			if strings.Contains(e.Message, "between nodes refused") && strings.Contains(fmt.Sprint(e.ContextMap()["text"]), "expired") {
				return true
			}
		}
		return false
	})
	require.Empty(t, c.servers[3].Connected())
	require.Equal(t, []messages.NodeID{2}, c.servers[1].Connected())
	for id := range c.peers {
		ca.issueUntil(name(id), inAnHour)
	}
	for id := range c.peers {
		eventually(t, "routes again", func() bool { return len(c.servers[id].Connected()) == 2 })
	}
}
