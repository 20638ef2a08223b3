package fetch_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/stretchr/testify/require"
	"software.sslmate.com/src/go-pkcs12"

	"kagami/fetch"
	"kagami/messages/stores"
)

// javaStores writes a key store of a certificate by ca, and a trust store of ca.
func javaStores(t *testing.T, ca *authority, typ string) (key, trust string) {
	t.Helper()
	keyPEM, chainPEM := ca.leaf(t, "client")
	pair, err := tls.X509KeyPair([]byte(chainPEM), []byte(keyPEM))
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	dir := t.TempDir()
	key, trust = filepath.Join(dir, "key"), filepath.Join(dir, "trust")
	if typ == "PKCS12" {
		b, err := pkcs12.Modern.Encode(pair.PrivateKey, leaf, []*x509.Certificate{ca.cert}, "store-4711")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(key, b, 0o600))
		b, err = pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{ca.cert}, "store-4711")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(trust, b, 0o600))
		return key, trust
	}
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	write := func(file string, fill func(keystore.KeyStore) error) {
		ks := keystore.New()
		var b bytes.Buffer
		require.NoError(t, errors.Join(fill(ks), ks.Store(&b, []byte("store-4711"))))
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	}
	write(key, func(ks keystore.KeyStore) error {
		chain := []keystore.Certificate{{Type: "X509", Content: leaf.Raw}, {Type: "X509", Content: ca.cert.Raw}}
		return ks.SetPrivateKeyEntry("a", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: secret, CertificateChain: chain}, []byte("key-4711"))
	})
	write(trust, func(ks keystore.KeyStore) error {
		return ks.SetTrustedCertificateEntry("ca", keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: keystore.Certificate{Type: "X509", Content: ca.cert.Raw}})
	})
	return key, trust
}

// TestJavaStores: Java's own kinds of stores towards a source that wants a certificate.
func TestJavaStores(t *testing.T) {
	ca := newAuthority(t)
	source := tlsStub(t, ca, true, "127.0.0.1")
	for _, typ := range []string{"JKS", "PKCS12"} {
		key, trust := javaStores(t, ca, typ)
		with := func(more ...string) map[string]string {
			m := map[string]string{
				"bootstrap.servers": source.Address(), "security.protocol": "SSL",
				"ssl.keystore.type": typ, "ssl.keystore.location": key, "ssl.keystore.password": "store-4711",
				"ssl.truststore.type": typ, "ssl.truststore.location": trust, "ssl.truststore.password": "store-4711",
			}
			if typ == "JKS" {
				m["ssl.key.password"] = "key-4711"
			}
			for i := 0; i < len(more); i += 2 {
				m[more[i]] = more[i+1]
			}
			return m
		}
		t.Run(typ, func(t *testing.T) { require.NoError(t, clusterIDWith(t, with())) })
		for name, row := range map[string]struct {
			change []string
			fault  error
		}{
			"wrong password of the key store":   {[]string{"ssl.keystore.password", "wrong-0815"}, stores.ErrPassword},
			"wrong password of the trust store": {[]string{"ssl.truststore.password", "wrong-0815"}, stores.ErrPassword},
			"no such file":                      {[]string{"ssl.keystore.location", "/does/not/exist"}, os.ErrNotExist},
		} {
			t.Run(typ+" "+name, func(t *testing.T) {
				err := clusterIDWith(t, with(row.change...))
				require.ErrorIs(t, err, row.fault)
				conn, ok := errors.AsType[*fetch.ConnectionError](err)
				require.True(t, ok)
				require.True(t, conn.Auth(), "it is told as an error: waiting doesn't heal it")
				require.ErrorContains(t, err, "ssl."+map[bool]string{true: "truststore", false: "keystore"}[row.change[0] == "ssl.truststore.password"]+".location")
				for _, secret := range []string{"4711", "0815"} {
					require.NotContains(t, err.Error(), secret)
				}
			})
		}
	}
}
