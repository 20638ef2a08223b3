package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// authority signs certificates of tests.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{t: t, key: key, next: 1}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// issue is a key with its certificate, as PEM.
func (a *authority) issue(subject pkix.Name) string {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	a.next++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})) + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// client is the TLS side of a client that trusts the authority, and shows pair if not "".
func (a *authority) client(pair string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if pair != "" {
		p, err := tls.X509KeyPair([]byte(pair), []byte(pair))
		require.NoError(a.t, err)
		c.Certificates = []tls.Certificate{p}
	}
	return c
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const (
	plainUsersConfig = `org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-4711" user_alice="alice-4711" user_bob="bob-4711";`
	adminACLs        = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
)

// allListeners are settings of a node with every protocol and mechanism. admin is the super
// user, whom it makes at its first start.
func allListeners(t *testing.T, a *authority) []string {
	t.Helper()
	dir := t.TempDir()
	return []string{
		"listeners=PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0,MUTUAL://[::1]:0,CLEAR://127.0.0.1:0,BOTH://127.0.0.1:0",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL,CLEAR:SASL_PLAINTEXT,BOTH:SASL_SSL",
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + writeFile(t, filepath.Join(dir, "node.pem"), a.issue(pkix.Name{CommonName: "node"})),
		"ssl.truststore.type=PEM", "ssl.truststore.location=" + writeFile(t, filepath.Join(dir, "ca.pem"), a.pem()),
		"listener.name.mutual.ssl.client.auth=required",
		"listener.name.mutual.ssl.principal.mapping.rules=RULE:^CN=([^,]+),OU=users.*$/$1/L,DEFAULT",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.clear.plain.sasl.jaas.config=" + plainUsersConfig,
		"listener.name.both.plain.sasl.jaas.config=" + plainUsersConfig,
		"kagami.bootstrap.scram=SCRAM-SHA-512=[name=admin,password=admin-4711]",
		"super.users=User:admin;User:root",
		adminACLs,
	}
}

func (n *node) at(listener string) string { return n.broker.Addr(listener).String() }

func dialAs(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.MetadataMinAge(10*time.Millisecond))...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func asPlain(user, password string) kgo.Opt {
	return kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())
}

// TestEveryListener: every protocol at once; who a client is shows in what it may do, and
// where it is sent to is the listener that it asked.
func TestEveryListener(t *testing.T) {
	a := newAuthority(t)
	n := startTestNode(t, t.TempDir(), allListeners(t, a)...)
	ctx := t.Context()
	admin := scram.Auth{User: "admin", Pass: "admin-4711"}
	root := a.issue(pkix.Name{CommonName: "ROOT", OrganizationalUnit: []string{"users"}})
	for _, tc := range []struct {
		name, listener string
		opts           []kgo.Opt
		may            bool
	}{
		{"nobody, in the clear", "PLAINTEXT", nil, false},
		{"nobody, over TLS", "TLS", []kgo.Opt{kgo.DialTLSConfig(a.client(""))}, false},
		{"a certificate, mapped", "MUTUAL", []kgo.Opt{kgo.DialTLSConfig(a.client(root))}, true},
		{"a certificate as it is", "MUTUAL", []kgo.Opt{kgo.DialTLSConfig(a.client(a.issue(pkix.Name{CommonName: "root"})))}, false},
		{"PLAIN", "CLEAR", []kgo.Opt{asPlain("admin", "admin-4711")}, true},
		{"PLAIN, no super user", "CLEAR", []kgo.Opt{asPlain("alice", "alice-4711")}, false},
		{"PLAIN over TLS", "BOTH", []kgo.Opt{asPlain("admin", "admin-4711"), kgo.DialTLSConfig(a.client(""))}, true},
		{"SCRAM over TLS", "BOTH", []kgo.Opt{kgo.SASL(admin.AsSha512Mechanism()), kgo.DialTLSConfig(a.client(""))}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cl := dialAs(t, n.at(tc.listener), tc.opts...)
			adm := kadm.NewClient(cl)
			meta, err := adm.BrokerMetadata(ctx)
			require.NoError(t, err)
			require.Len(t, meta.Brokers, 1)
			host, port, err := net.SplitHostPort(n.at(tc.listener))
			require.NoError(t, err)
			require.Equal(t, host, meta.Brokers[0].Host)
			require.Equal(t, port, fmt.Sprint(meta.Brokers[0].Port))
			_, err = adm.CreateTopic(ctx, 1, 1, nil, strings.Map(func(r rune) rune {
				if strings.ContainsRune(" ,", r) {
					return '-'
				}
				return r
			}, tc.name))
			if tc.may {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
			}
		})
	}
	for _, tc := range []struct {
		name, listener string
		opts           []kgo.Opt
	}{
		{"a wrong password", "CLEAR", []kgo.Opt{asPlain("admin", "wrong-0815")}},
		{"an unknown user", "CLEAR", []kgo.Opt{asPlain("nobody", "admin-4711")}},
		{"SCRAM, a wrong password", "CLEAR", []kgo.Opt{kgo.SASL(scram.Auth{User: "admin", Pass: "wrong-0815"}.AsSha512Mechanism())}},
		{"SCRAM, an unknown user", "CLEAR", []kgo.Opt{kgo.SASL(scram.Auth{User: "nobody", Pass: "wrong-0815"}.AsSha512Mechanism())}},
		{"SCRAM, no credentials of that kind", "CLEAR", []kgo.Opt{kgo.SASL(admin.AsSha256Mechanism())}},
		{"SCRAM, a delegation token", "CLEAR", []kgo.Opt{kgo.SASL(scram.Auth{User: "admin", Pass: "admin-4711", IsToken: true}.AsSha512Mechanism())}},
		{"a mechanism that isn't offered", "CLEAR", []kgo.Opt{kgo.SASL(oauth.Auth{Token: "t"}.AsMechanism())}},
		{"nothing where something is needed", "CLEAR", nil},
		{"no TLS where it is needed", "BOTH", []kgo.Opt{asPlain("admin", "admin-4711")}},
		{"no certificate where one is needed", "MUTUAL", []kgo.Opt{kgo.DialTLSConfig(a.client(""))}},
		{"a certificate of another authority", "MUTUAL", []kgo.Opt{kgo.DialTLSConfig(a.client(newAuthority(t).issue(pkix.Name{CommonName: "root"})))}},
	} {
		t.Run("not with "+tc.name, func(t *testing.T) {
			cl := dialAs(t, n.at(tc.listener), tc.opts...)
			asked, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			require.Error(t, cl.Ping(asked))
			require.NoError(t, asked.Err(), "the node has ended it, not the test")
		})
	}
}

// TestCertificatesChange: files that change are taken without a restart, those that can't
// be used are not (C44).
func TestCertificatesChange(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	pair, trust := filepath.Join(dir, "node.pem"), filepath.Join(dir, "ca.pem")
	writeFile(t, pair, a.issue(pkix.Name{CommonName: "node"}))
	writeFile(t, trust, a.pem())
	n := startTestNode(t, t.TempDir(), "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "listener.name.ssl.ssl.client.auth=required",
		"listener.name.ssl.ssl.keystore.type=PEM", "listener.name.ssl.ssl.keystore.location="+pair,
		"listener.name.ssl.ssl.truststore.type=PEM", "listener.name.ssl.ssl.truststore.location="+trust)
	user := a.issue(pkix.Name{CommonName: "user"})
	ping := func(c *tls.Config) error {
		return dialAs(t, n.at("SSL"), kgo.DialTLSConfig(c)).Ping(t.Context())
	}
	require.NoError(t, ping(a.client(user)))
	writeFile(t, pair, "half of a key")
	require.NoError(t, ping(a.client(user)), "what can't be used leaves the old in force")
	writeFile(t, pair, b.issue(pkix.Name{CommonName: "node"}))
	require.Error(t, ping(a.client(user)), "the old authority isn't that of the new certificate")
	require.NoError(t, ping(b.client(user)))
	writeFile(t, trust, b.pem()+"\n")
	require.Error(t, ping(b.client(user)), "clients of the old authority are out")
	require.NoError(t, ping(b.client(b.issue(pkix.Name{CommonName: "user"}))))
}

// TestOAuthBearer: tokens by the keys of a file.
func TestOAuthBearer(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
	require.NoError(t, err)
	file := writeFile(t, filepath.Join(t.TempDir(), "jwks.json"), string(keys))
	n := startTestNode(t, t.TempDir(), "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=OAUTHBEARER",
		"sasl.oauthbearer.jwks.endpoint.url=file://"+file, "sasl.oauthbearer.expected.audience=kagami,other", "sasl.oauthbearer.expected.issuer=https://issuer",
		adminACLs, "super.users=User:svc")
	sign := func(k *ecdsa.PrivateKey, id string, c jwt.Claims) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k, KeyID: id}}, nil)
		require.NoError(t, err)
		text, err := jwt.Signed(s).Claims(c).Serialize()
		require.NoError(t, err)
		return text
	}
	now := time.Now()
	good := jwt.Claims{Subject: "svc", Issuer: "https://issuer", Audience: jwt.Audience{"kagami"}, Expiry: jwt.NewNumericDate(now.Add(time.Hour)), IssuedAt: jwt.NewNumericDate(now)}
	with := func(f func(*jwt.Claims)) jwt.Claims {
		c := good
		f(&c)
		return c
	}
	for name, tc := range map[string]struct {
		token string
		ok    bool
	}{
		"good":           {sign(key, "k1", good), true},
		"no key id":      {sign(key, "", good), true},
		"within skew":    {sign(key, "k1", with(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(now.Add(-2 * time.Second)) })), true},
		"another key":    {sign(other, "k1", good), false},
		"unknown id":     {sign(key, "k2", good), false},
		"over":           {sign(key, "k1", with(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(now.Add(-time.Hour)) })), false},
		"without end":    {sign(key, "k1", with(func(c *jwt.Claims) { c.Expiry = nil })), false},
		"no user":        {sign(key, "k1", with(func(c *jwt.Claims) { c.Subject = "" })), false},
		"other issuer":   {sign(key, "k1", with(func(c *jwt.Claims) { c.Issuer = "https://else" })), false},
		"other audience": {sign(key, "k1", with(func(c *jwt.Claims) { c.Audience = jwt.Audience{"else"} })), false},
		"not signed":     {"eyJhbGciOiJub25lIn0.eyJzdWIiOiJzdmMifQ.", false},
		"no token":       {"x", false},
	} {
		t.Run(name, func(t *testing.T) {
			cl := dialAs(t, n.at("SASL_PLAINTEXT"), kgo.SASL(oauth.Auth{Token: tc.token}.AsMechanism()))
			_, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), cl)
			if tc.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
			}
		})
	}
}

// TestScramUsers: credentials are made, told of and taken away; the first user is made once.
func TestScramUsers(t *testing.T) {
	dir := t.TempDir()
	set := []string{"listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512", "kagami.bootstrap.scram=SCRAM-SHA-256=[name=admin,password=first-4711]"}
	n := startTestNode(t, dir, set...)
	as := func(user, password string, m func(scram.Auth) sasl.Mechanism) *kgo.Client {
		return dialAs(t, n.at("SASL_PLAINTEXT"), kgo.SASL(m(scram.Auth{User: user, Pass: password})))
	}
	sha256 := func(a scram.Auth) sasl.Mechanism { return a.AsSha256Mechanism() }
	sha512 := func(a scram.Auth) sasl.Mechanism { return a.AsSha512Mechanism() }
	adm := kadm.NewClient(as("admin", "first-4711", sha256))
	_, err := adm.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "bob", Mechanism: kadm.ScramSha512, Iterations: 8192, Password: "bob-4711"}})
	require.NoError(t, err)
	require.NoError(t, as("bob", "bob-4711", sha512).Ping(t.Context()))
	require.Error(t, as("bob", "bob-4712", sha512).Ping(t.Context()))
	told, err := adm.DescribeUserSCRAMs(t.Context())
	require.NoError(t, err)
	require.Equal(t, []kadm.CredInfo{{Mechanism: kadm.ScramSha512, Iterations: 8192}}, told["bob"].CredInfos)
	require.Equal(t, []kadm.CredInfo{{Mechanism: kadm.ScramSha256, Iterations: 4096}}, told["admin"].CredInfos)
	_, err = adm.AlterUserSCRAMs(t.Context(), []kadm.DeleteSCRAM{{User: "admin", Mechanism: kadm.ScramSha256}}, nil)
	require.NoError(t, err)
	require.Error(t, as("admin", "first-4711", sha256).Ping(t.Context()))
	stopTestNode(t, n)
	n = startTestNode(t, dir, set...)
	require.NoError(t, as("bob", "bob-4711", sha512).Ping(t.Context()), "credentials are durable")
	require.Error(t, as("admin", "first-4711", sha256).Ping(t.Context()), "there are credentials: the first user isn't made again")
}
