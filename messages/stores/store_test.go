package stores

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/stretchr/testify/require"
	"software.sslmate.com/src/go-pkcs12"
)

type pair struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func selfSigned(t *testing.T, subject pkix.Name) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return pair{key, c}
}

func (p pair) secret(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	require.NoError(t, err)
	return der
}

func (p pair) pem(t *testing.T) []byte {
	t.Helper()
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p.secret(t)}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})...)
}

func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func jksFile(t *testing.T, p pair, storePassword, keyPassword string) string {
	t.Helper()
	ks := keystore.New()
	cert := keystore.Certificate{Type: "X509", Content: p.cert.Raw}
	require.NoError(t, ks.SetPrivateKeyEntry("key", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: p.secret(t), CertificateChain: []keystore.Certificate{cert}}, []byte(keyPassword)))
	require.NoError(t, ks.SetTrustedCertificateEntry("ca", keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: cert}))
	path := filepath.Join(t.TempDir(), "store.jks")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, ks.Store(f, []byte(storePassword)))
	require.NoError(t, f.Close())
	return path
}

func TestStores(t *testing.T) {
	p := selfSigned(t, pkix.Name{CommonName: "node"})
	p12, err := pkcs12.Modern.Encode(p.key, p.cert, nil, "storepass")
	require.NoError(t, err)
	p12Trust, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{p.cert}, "storepass")
	require.NoError(t, err)
	jks := jksFile(t, p, "storepass", "keypass")
	pemFile := write(t, "node.pem", p.pem(t))
	p12File, p12TrustFile := write(t, "node.p12", p12), write(t, "trust.p12", p12Trust)
	for name, tc := range map[string]struct {
		store, trust Store
		keyFault     error
	}{
		"PEM file":          {store: Store{Type: "PEM", File: pemFile}, trust: Store{Type: "PEM", File: pemFile}},
		"PEM texts":         {store: Store{Type: "PEM", Key: string(p.pem(t)), Chain: string(p.pem(t))}, trust: Store{Type: "PEM", Chain: string(p.pem(t))}},
		"JKS":               {store: Store{Type: "JKS", File: jks, Password: "storepass", KeyPassword: "keypass"}, trust: Store{Type: "JKS", File: jks, Password: "storepass"}},
		"PKCS12":            {store: Store{Type: "PKCS12", File: p12File, Password: "storepass"}, trust: Store{Type: "PKCS12", File: p12TrustFile, Password: "storepass"}},
		"PKCS12 said JKS":   {store: Store{Type: "JKS", File: p12File, Password: "storepass"}, trust: Store{Type: "JKS", File: p12TrustFile, Password: "storepass"}},
		"JKS, wrong":        {store: Store{Type: "JKS", File: jks, Password: "s3cret-wrong", KeyPassword: "keypass"}, keyFault: ErrPassword},
		"JKS, wrong key":    {store: Store{Type: "JKS", File: jks, Password: "storepass", KeyPassword: "s3cret-wrong"}, keyFault: ErrPassword},
		"PKCS12, wrong":     {store: Store{Type: "PKCS12", File: p12File, Password: "s3cret-wrong"}, keyFault: ErrPassword},
		"PEM of no key":     {store: Store{Type: "PEM", File: write(t, "x", []byte("s3cret-garbage"))}, keyFault: ErrBadPair},
		"JKS of no key":     {store: Store{Type: "JKS", File: write(t, "x", []byte("s3cret-garbage"))}, keyFault: ErrStore},
		"encrypted PEM":     {store: Store{Type: "PEM", File: write(t, "x", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("s3cret")}))}, keyFault: ErrEncryptedKey},
		"PEM said JKS":      {store: Store{Type: "JKS", File: pemFile, Password: "storepass"}, keyFault: ErrIsPEM},
		"no file":           {store: Store{Type: "PEM", File: "/does/not/exist"}, keyFault: os.ErrNotExist},
		"another type":      {store: Store{Type: "BKS", File: pemFile}, keyFault: ErrType},
		"trust for its key": {store: Store{Type: "PKCS12", File: p12TrustFile, Password: "storepass"}, keyFault: ErrStore},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.store.KeyPair()
			if tc.keyFault != nil {
				require.ErrorIs(t, err, tc.keyFault)
				require.ErrorIs(t, err, ErrStore)
				require.NotContains(t, err.Error(), "s3cret")
				return
			}
			require.NoError(t, err)
			require.Equal(t, p.cert.Raw, got.Certificate[0])
			pool, err := tc.trust.Certificates()
			require.NoError(t, err)
			want := x509.NewCertPool()
			want.AddCert(p.cert)
			require.True(t, want.Equal(pool))
		})
	}
}
