// Package pki makes keys and certificates for tests.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/youmark/pkcs8"
)

// Pair is a key with its certificate.
type Pair struct {
	Key  *ecdsa.PrivateKey
	Cert *x509.Certificate
}

// SelfSigned is a pair that trusts itself, for an hour.
func SelfSigned(tb testing.TB, subject pkix.Name) Pair {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(tb, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(tb, err)
	return Pair{Key: key, Cert: c}
}

// Secret is the key in PKCS #8.
func (p Pair) Secret(tb testing.TB) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	require.NoError(tb, err)
	return der
}

// PEM is the key and the certificate as text.
func (p Pair) PEM(tb testing.TB) []byte {
	tb.Helper()
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p.Secret(tb)}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})...)
}

// EncryptedPEM is the key, encrypted by the password, and the certificate.
func (p Pair) EncryptedPEM(tb testing.TB, password string) (key, chain []byte) {
	tb.Helper()
	der, err := pkcs8.MarshalPrivateKey(p.Key, []byte(password), nil)
	require.NoError(tb, err)
	return pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// Authority signs certificates of the loopback addresses.
type Authority struct{ Pair }

// NewAuthority is a CA of its own, for a day.
func NewAuthority(tb testing.TB) Authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "CA " + time.Now().String()}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(tb, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(tb, err)
	return Authority{Pair{Key: key, Cert: c}}
}

// CA is the authority's certificate as text.
func (a Authority) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})
}

// Issue is a pair for a name that ends then; servers and clients may show it.
func (a Authority) Issue(tb testing.TB, name string, until time.Time) Pair {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-23 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.Cert, key.Public(), a.Key)
	require.NoError(tb, err)
	c, err := x509.ParseCertificate(der)
	require.NoError(tb, err)
	return Pair{Key: key, Cert: c}
}

// Put replaces a file as a careful operator does: the new one is complete when it takes
// the old one's name.
func Put(tb testing.TB, file string, content []byte) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(file+".new", content, 0o600))
	require.NoError(tb, os.Rename(file+".new", file))
}
