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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
