package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// testCertificates writes a CA and a certificate per node and returns the settings
// of the node.
func testCertificates(t *testing.T, ids ...messages.NodeID) func(messages.NodeID) []string {
	t.Helper()
	dir := t.TempDir()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	require.NoError(t, err)
	caFile := write("ca.pem", "CERTIFICATE", der)
	for _, id := range ids {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(int64(id) + 1), Subject: pkix.Name{CommonName: fmt.Sprint("node-", id)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		}, ca, key.Public(), caKey)
		require.NoError(t, err)
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		write(fmt.Sprint(id, ".pem"), "CERTIFICATE", der)
		write(fmt.Sprint(id, ".key"), "PRIVATE KEY", secret)
	}
	return func(id messages.NodeID) []string {
		return []string{
			"cluster.tls.ca.file=" + caFile, "cluster.tls.certificate.file=" + filepath.Join(dir, fmt.Sprint(id, ".pem")),
			"cluster.tls.key.file=" + filepath.Join(dir, fmt.Sprint(id, ".key")),
		}
	}
}

// Three nodes form over TLS with a password; one with another password and one
// without TLS stay outside, and no secret is in what any of them says.
func TestSeveralNodesSecured(t *testing.T) {
	certificates := testCertificates(t, 1, 2, 3, 4)
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "cluster.user=between", "cluster.password=right-4711")
	c.own = certificates
	c.start(1, 2, 3)
	_, cl, adm := c.connect(1)
	c.create(adm, "t", 3)
	produce(t, cl, "t", 10)
	c.equal("t", 3, 1, 2)
	c.equal("t", 3, 1, 3)

	c.peers[4] = testAddress(t)
	for name, strange := range map[string][]string{
		"password": {"cluster.password=wrong-0815"},
		"no TLS":   {"cluster.tls.ca.file=", "cluster.tls.certificate.file=", "cluster.tls.key.file="},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			err := c.tryFor(ctx, 4, strange...)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "form cluster")
		})
	}
	require.Len(t, c.nodes[1].members.Live(), 3)
	refused := false
	for _, e := range c.logs.All() {
		line := fmt.Sprint(e.Message, e.ContextMap())
		require.NotContains(t, line, "right-4711")
		require.NotContains(t, line, "wrong-0815")
		refused = refused || e.Message == "connection between nodes refused: cluster.user and cluster.password, or TLS itself, aren't the same on both"
	}
	require.True(t, refused)
	c.start(4) // as it should be
}

// Nothing listens in the clear for other machines.
func TestSeveralNodesNeedSecurityOnANetwork(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3})
	err := c.try(1, "cluster.listen=0.0.0.0:0")
	require.ErrorContains(t, err, "neither TLS nor credentials")
	c.peers[2] = "192.0.2.1:7000"
	err = c.try(1)
	require.ErrorContains(t, err, "neither TLS nor credentials")
}
