package stores

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/stretchr/testify/require"
	"software.sslmate.com/src/go-pkcs12"

	"kagami/test/kafka/pki"
)

func write(tb testing.TB, name string, b []byte) string {
	tb.Helper()
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	require.NoError(tb, os.WriteFile(path, b, 0o600))
	return path
}

func jksFile(tb testing.TB, p pki.Pair, storePassword, keyPassword string) string {
	tb.Helper()
	tb.Helper()
	ks := keystore.New()
	cert := keystore.Certificate{Type: "X509", Content: p.Cert.Raw}
	require.NoError(tb, ks.SetPrivateKeyEntry("key", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: p.Secret(tb), CertificateChain: []keystore.Certificate{cert}}, []byte(keyPassword)))
	require.NoError(tb, ks.SetTrustedCertificateEntry("ca", keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: cert}))
	path := filepath.Join(tb.TempDir(), "store.jks")
	f, err := os.Create(path)
	require.NoError(tb, err)
	require.NoError(tb, ks.Store(f, []byte(storePassword)))
	require.NoError(tb, f.Close())
	return path
}

// blocks are the PEM blocks of a type.
func blocks(b []byte, suffix string) string {
	var out strings.Builder
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, suffix) {
			out.Write(pem.EncodeToMemory(block))
		}
	}
	return out.String()
}

func TestStores(t *testing.T) {
	p := pki.SelfSigned(t, pkix.Name{CommonName: "node"})
	p12, err := pkcs12.Modern.Encode(p.Key, p.Cert, nil, "storepass")
	require.NoError(t, err)
	p12Trust, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{p.Cert}, "storepass")
	require.NoError(t, err)
	jks := jksFile(t, p, "storepass", "keypass")
	pemFile := write(t, "node.pem", p.PEM(t))
	p12File, p12TrustFile := write(t, "node.p12", p12), write(t, "trust.p12", p12Trust)
	other := pki.SelfSigned(t, pkix.Name{CommonName: "other"})
	keyOnly, certOnly := blocks(p.PEM(t), "PRIVATE KEY"), blocks(p.PEM(t), "CERTIFICATE")
	for name, tc := range map[string]struct {
		store, trust Store
		keyFault     error
	}{
		"PEM file":          {store: Store{Type: "PEM", File: pemFile}, trust: Store{Type: "PEM", File: pemFile}},
		"PEM texts":         {store: Store{Type: "PEM", Key: string(p.PEM(t)), Chain: string(p.PEM(t))}, trust: Store{Type: "PEM", Chain: string(p.PEM(t))}},
		"JKS":               {store: Store{Type: "JKS", File: jks, Password: "storepass", KeyPassword: "keypass"}, trust: Store{Type: "JKS", File: jks, Password: "storepass"}},
		"PKCS12":            {store: Store{Type: "PKCS12", File: p12File, Password: "storepass"}, trust: Store{Type: "PKCS12", File: p12TrustFile, Password: "storepass"}},
		"PKCS12 said JKS":   {store: Store{Type: "JKS", File: p12File, Password: "storepass"}, trust: Store{Type: "JKS", File: p12TrustFile, Password: "storepass"}},
		"JKS, wrong":        {store: Store{Type: "JKS", File: jks, Password: "s3cret-wrong", KeyPassword: "keypass"}, keyFault: ErrPassword},
		"JKS, wrong key":    {store: Store{Type: "JKS", File: jks, Password: "storepass", KeyPassword: "s3cret-wrong"}, keyFault: ErrPassword},
		"PKCS12, wrong":     {store: Store{Type: "PKCS12", File: p12File, Password: "s3cret-wrong"}, keyFault: ErrPassword},
		"PEM of no key":     {store: Store{Type: "PEM", File: write(t, "x", []byte("s3cret-garbage"))}, keyFault: ErrNoKey},
		"PEM, other key":    {store: Store{Type: "PEM", Key: string(other.PEM(t)), Chain: string(p.PEM(t))}, keyFault: ErrBadPair},
		"PEM, no key":       {store: Store{Type: "PEM", Key: certOnly, Chain: certOnly}, keyFault: ErrNoKey},
		"PEM, no chain":     {store: Store{Type: "PEM", Key: keyOnly, Chain: keyOnly}, keyFault: ErrNoCerts},
		"JKS, none":         {store: Store{Type: "JKS", File: jks, KeyPassword: "keypass"}, keyFault: ErrNoPassword},
		"PKCS12, none":      {store: Store{Type: "PKCS12", File: p12File}, keyFault: ErrNoPassword},
		"JKS of no key":     {store: Store{Type: "JKS", File: write(t, "x", []byte("s3cret-garbage"))}, keyFault: ErrStore},
		"PEM said JKS":      {store: Store{Type: "JKS", File: pemFile, Password: "storepass"}, keyFault: ErrIsPEM},
		"no file":           {store: Store{Type: "PEM", File: "/does/not/exist"}, keyFault: os.ErrNotExist},
		"another type":      {store: Store{Type: "BKS", File: pemFile}, keyFault: ErrType},
		"trust for its key": {store: Store{Type: "PKCS12", File: p12TrustFile, Password: "storepass"}, keyFault: ErrNoKey},
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
			require.Equal(t, p.Cert.Raw, got.Certificate[0])
			pool, err := tc.trust.Certificates()
			require.NoError(t, err)
			want := x509.NewCertPool()
			want.AddCert(p.Cert)
			require.True(t, want.Equal(pool))
		})
	}
}
