package certs

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages/stores"
	"kagami/test/kafka"
	"kagami/test/kafka/pki"
)

// TestKeytool: stores that Java's own tool has made.
func TestKeytool(t *testing.T) {
	kafka.RequireProgram(t, "keytool")
	for _, typ := range []string{"JKS", "PKCS12"} {
		dir := t.TempDir()
		store, trust, cert := filepath.Join(dir, "s"), filepath.Join(dir, "t"), filepath.Join(dir, "c")
		for _, args := range [][]string{
			{"-genkeypair", "-keystore", store, "-storetype", typ, "-alias", "a", "-keyalg", "EC", "-dname", "CN=node", "-storepass", "storepass"},
			{"-exportcert", "-keystore", store, "-alias", "a", "-file", cert, "-storepass", "storepass"},
			{"-importcert", "-keystore", trust, "-storetype", typ, "-alias", "ca", "-file", cert, "-noprompt", "-storepass", "storepass"},
		} {
			out, err := exec.CommandContext(t.Context(), "keytool", args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		s, err := NewServer(Settings{ClientAuth: "required", Key: stores.Store{Type: typ, File: store, Password: "storepass"}, Trust: stores.Store{Type: typ, File: trust, Password: "storepass"}}, zap.NewNop())
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(s.current().Certificates[0].Certificate[0])
		require.NoError(t, err)
		require.Equal(t, "node", leaf.Subject.CommonName)
		_, err = leaf.Verify(x509.VerifyOptions{Roots: s.current().ClientCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		require.NoError(t, err)
	}
}

func TestServerSettings(t *testing.T) {
	p := pki.SelfSigned(t, pkix.Name{CommonName: "node"})
	key := stores.Store{Type: "PEM", Key: string(p.PEM(t)), Chain: string(p.PEM(t))}
	s, err := NewServer(Settings{Protocols: []string{"TLSv1.2"}, Ciphers: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, ClientAuth: "requested", Key: key}, zap.NewNop())
	require.NoError(t, err)
	c, err := s.Config().GetConfigForClient(nil)
	require.NoError(t, err)
	require.Equal(t, uint16(tls.VersionTLS12), c.MaxVersion)
	require.Equal(t, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, c.CipherSuites)
	require.Equal(t, tls.VerifyClientCertIfGiven, c.ClientAuth)
	_, err = NewServer(Settings{Protocols: []string{"SSLv3"}, Ciphers: []string{"RC4"}, ClientAuth: "maybe"}, zap.NewNop())
	for _, what := range []string{"SSLv3", "RC4", "maybe", "ssl.keystore.location"} {
		require.ErrorContains(t, err, what)
	}
}

// TestStoreSettings: what contradicts itself is refused, as by Kafka.
func TestStoreSettings(t *testing.T) {
	p := pki.SelfSigned(t, pkix.Name{CommonName: "node"})
	text := string(p.PEM(t))
	good := stores.Store{Type: "PEM", Key: text, Chain: text}
	for name, tc := range map[string]struct {
		key, trust stores.Store
		want       string
	}{
		"file and text":        {key: stores.Store{Type: "PEM", File: "/x", Key: text, Chain: text}, want: "ssl.keystore.key"},
		"text of a JKS":        {key: stores.Store{Type: "JKS", Key: text, Chain: text}, want: "ssl.keystore.type"},
		"key without chain":    {key: stores.Store{Type: "PEM", Key: text}, want: "ssl.keystore.certificate.chain"},
		"PEM with a password":  {key: stores.Store{Type: "PEM", File: "/x", Password: "s3cret"}, want: "ssl.keystore.password"},
		"trust file and text":  {key: good, trust: stores.Store{Type: "PEM", File: "/x", Chain: text}, want: "ssl.truststore.certificates"},
		"trust text of a JKS":  {key: good, trust: stores.Store{Type: "JKS", Chain: text}, want: "ssl.truststore.type"},
		"trust PEM's password": {key: good, trust: stores.Store{Type: "PEM", File: "/x", Password: "s3cret"}, want: "ssl.truststore.password"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewServer(Settings{Key: tc.key, Trust: tc.trust}, zap.NewNop())
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "s3cret")
		})
	}
}

// TestRules: the right values are those of Kafka's SslPrincipalMapper.
func TestRules(t *testing.T) {
	const dn = "CN=Duke,OU=ServiceUsers,O=Unknown,C=US"
	for rules, want := range map[string]string{
		"":                                      dn,
		"DEFAULT":                               dn,
		`RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/`: "Duke",
		`RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$2/L`:                               "duke@$2",
		`RULE:^cn=(.*?),ou=(.*?),.*$/$1@$2/L, RULE:^CN=(.*?),OU=(.*?),.*/$2-$1/U`: "SERVICEUSERS-DUKE",
		`RULE:CN=Duke/x/, DEFAULT`:                                                dn, // a pattern stands for all of it
		`RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L , DEFAULT`:                      "duke",
		`RULE:CN=(.*?)/$1/`:                                                       "Duke,OU=ServiceUsers,O=Unknown,C=US", // each piece that fits: CN= with nothing behind it
		`RULE:^CN=(.*),OU=.*$/$0!/`:                                               dn + "!",
		`RULE:.*CN=(\w+),(.*)/$12\/$9\$1/`:                                        "Duke2/$9$1",
	} {
		r, err := ParseRules(rules)
		require.NoError(t, err, rules)
		got, err := r.Name(dn)
		require.NoError(t, err, rules)
		require.Equal(t, want, got, rules)
	}
	r, err := ParseRules("RULE:^CN=(x)$/$1/")
	require.NoError(t, err)
	_, err = r.Name(dn)
	require.ErrorIs(t, err, ErrNoRule)
	for _, bad := range []string{"default", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "RULE:a/b/L RULE:c/d/"} {
		_, err := ParseRules(bad)
		require.Error(t, err, bad)
	}
}

// TestSubject: as Java's X500Principal.getName has it.
func TestSubject(t *testing.T) {
	p := pki.SelfSigned(t, pkix.Name{
		CommonName: "a, b", Organization: []string{`#Org "x"`}, OrganizationalUnit: []string{"u1"}, Country: []string{"US"},
		ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}, Value: "uid1"},
			{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, Value: "e@x"},
		},
	})
	got, err := Subject(p.Cert)
	require.NoError(t, err)
	require.Equal(t, `1.2.840.113549.1.9.1=#0c03654078,UID=uid1,CN=a\, b,OU=u1,O=\#Org \"x\",C=US`, got)
}
