package fetch_test

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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"kagami/fetch"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

const plainJAAS = `org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret \"quoted\"";`

func TestParseConfig(t *testing.T) {
	base := func(more ...string) map[string]string {
		m := map[string]string{"bootstrap.servers": "a:1"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for name, row := range map[string]struct {
		configs map[string]string
		want    string   // Config.String
		faults  []string // texts, all of which must be in the error
	}{
		"plain":                   {base(), "PLAINTEXT a:1", nil},
		"several brokers":         {base("bootstrap.servers", " a:1, b:2 ,,a:1"), "PLAINTEXT a:1,b:2", nil},
		"C46 IPv6":                {base("bootstrap.servers", "[::1]:9092"), "PLAINTEXT [::1]:9092", nil},
		"C46 IPv6 with a zone":    {base("bootstrap.servers", "[fe80::1%lo]:9092"), "PLAINTEXT [fe80::1%lo]:9092", nil},
		"C46 IPv6 without port":   {base("bootstrap.servers", "::1"), "", []string{"bootstrap.servers", `"::1"`, "[address]:port"}},
		"C46 port too large":      {base("bootstrap.servers", "host:99999"), "", []string{`"host:99999"`, "1 to 65535"}},
		"port zero":               {base("bootstrap.servers", "host:0"), "", []string{"1 to 65535"}},
		"no port":                 {base("bootstrap.servers", "host"), "", []string{"host:port"}},
		"no host":                 {base("bootstrap.servers", ":9092"), "", []string{"no host"}},
		"brackets without a port": {base("bootstrap.servers", "[::1]"), "", []string{"host:port"}},
		"listener form":           {base("bootstrap.servers", "PLAINTEXT://a:1"), "PLAINTEXT a:1", nil},
		"no brokers":              {map[string]string{}, "", []string{"bootstrap.servers", "required"}},
		"unknown protocol":        {base("security.protocol", "SASL"), "", []string{"security.protocol", `"SASL"`}},
		"SASL PLAIN":              {base("security.protocol", "SASL_PLAINTEXT", "sasl.jaas.config", plainJAAS), "SASL_PLAINTEXT a:1 as alice by PLAIN", nil},
		"SCRAM": {
			base("security.protocol", "SASL_SSL", "sasl.mechanism", "SCRAM-SHA-512", "sasl.jaas.config", `x.ScramLoginModule required username=bob password='p';`),
			"SASL_SSL a:1 as bob by SCRAM-SHA-512", nil,
		},
		"unknown mechanism": {base("sasl.mechanism", "DIGEST-MD5"), "", []string{`"DIGEST-MD5" is not supported`}},
		"GSSAPI": {
			base("security.protocol", "SASL_SSL", "sasl.mechanism", "GSSAPI", "sasl.kerberos.service.name", "kafka",
				"sasl.jaas.config", `com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="/x.keytab" principal="mirror/host@REALM";`),
			"SASL_SSL a:1 as mirror/host@REALM by GSSAPI", nil,
		},
		"GSSAPI of a session":          {base("security.protocol", "SASL_SSL", "sasl.mechanism", "GSSAPI", "sasl.jaas.config", `Krb5LoginModule required useTicketCache=true;`), "", []string{"sasl.kerberos.service.name", "keyTab and principal", "useKeyTab=true"}},
		"GSSAPI of two names":          {base("security.protocol", "SASL_SSL", "sasl.mechanism", "GSSAPI", "sasl.kerberos.service.name", "kafka", "sasl.jaas.config", `Krb5LoginModule required useKeyTab=true keyTab="/x" principal="m" serviceName="other";`), "", []string{"serviceName"}},
		"OAUTHBEARER without endpoint": {base("security.protocol", "SASL_SSL", "sasl.mechanism", "OAUTHBEARER", "sasl.jaas.config", `x.OAuthBearerLoginModule required clientId="app";`), "", []string{"sasl.oauthbearer.token.endpoint.url: is required", "clientId and clientSecret"}},
		"OAUTHBEARER": {
			base("security.protocol", "SASL_SSL", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url", "https://idp/token",
				"sasl.login.callback.handler.class", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
				"sasl.jaas.config", `x.OAuthBearerLoginModule required clientId="app" clientSecret="s3cret" scope="a b" extension_logicalCluster="lc";`),
			"SASL_SSL a:1 as app by OAUTHBEARER", nil,
		},
		"endpoint with a password": {base("sasl.oauthbearer.token.endpoint.url", "https://app:s3cret@idp/token"), "", []string{"sasl.oauthbearer.token.endpoint.url", "clientSecret"}},
		"endpoint in a file":       {base("sasl.oauthbearer.token.endpoint.url", "file:///s3cret"), "", []string{"sasl.oauthbearer.token.endpoint.url", "https://"}},
		"options of OAUTHBEARER":   {base("security.protocol", "SASL_SSL", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url", "https://idp/token", "sasl.jaas.config", `x.OAuthBearerLoginModule required clientId="app" clientSecret="s3cret" extension_auth="x" ssl.truststore.type="BKS";`), "", []string{"extension", "ssl.truststore.type"}},
		"SASL without a login":     {base("security.protocol", "SASL_SSL"), "", []string{"sasl.jaas.config", "required"}},
		"module of another":        {base("security.protocol", "SASL_SSL", "sasl.mechanism", "SCRAM-SHA-256", "sasl.jaas.config", plainJAAS), "", []string{"must be ScramLoginModule"}},
		"no semicolon":             {base("security.protocol", "SASL_SSL", "sasl.jaas.config", plainJAAS[:len(plainJAAS)-1]), "", []string{"end with ';'"}},
		"two entries":              {base("security.protocol", "SASL_SSL", "sasl.jaas.config", plainJAAS+plainJAAS), "", []string{"one login entry"}},
		"open quote":               {base("security.protocol", "SASL_SSL", "sasl.jaas.config", `m required password="s3cret;`), "", []string{"quoted value"}},
		"no password":              {base("security.protocol", "SASL_SSL", "sasl.jaas.config", `PlainLoginModule required username="alice";`), "", []string{"username and password"}},
		"delegation token":         {base("security.protocol", "SASL_SSL", "sasl.mechanism", "SCRAM-SHA-256", "sasl.jaas.config", `ScramLoginModule required username="a" password="s3cret" tokenauth="true";`), "", []string{"tokenauth"}},
		"JKS trust store":          {base("security.protocol", "SSL", "ssl.truststore.location", "/x", "ssl.truststore.password", "s3cret"), "SSL a:1", nil},
		"PKCS12 key store":         {base("security.protocol", "SSL", "ssl.keystore.type", "PKCS12", "ssl.keystore.location", "/x", "ssl.keystore.password", "s3cret", "ssl.key.password", "s3cret"), "SSL a:1", nil},
		"unknown store type":       {base("ssl.truststore.type", "BKS", "ssl.keystore.type", "DKS"), "", []string{`ssl.truststore.type: "BKS" is not supported`, `ssl.keystore.type: "DKS" is not supported`}},
		"text in a JKS store":      {base("ssl.keystore.key", "s3cret", "ssl.keystore.certificate.chain", "x", "ssl.truststore.certificates", "x"), "", []string{"ssl.keystore.type: JKS: set it to PEM", "ssl.truststore.type: JKS: set it to PEM"}},
		"PEM with a password":      {base("ssl.keystore.type", "PEM", "ssl.keystore.location", "/x", "ssl.keystore.password", "s3cret", "ssl.truststore.type", "PEM", "ssl.truststore.location", "/x", "ssl.truststore.password", "s3cret"), "", []string{"ssl.keystore.password", "ssl.truststore.password"}},
		"no certificate":           {base("ssl.truststore.type", "PEM", "ssl.truststore.certificates", "nonsense s3cret"), "", []string{"ssl.truststore.certificates"}},
		"bad key":                  {base("ssl.keystore.type", "PEM", "ssl.keystore.key", "s3cret", "ssl.keystore.certificate.chain", "x"), "", []string{"ssl.keystore.key"}},
		"key without chain":        {base("ssl.keystore.type", "PEM", "ssl.keystore.key", "s3cret"), "", []string{"ssl.keystore.certificate.chain"}},
		"key password":             {base("ssl.keystore.type", "PEM", "ssl.keystore.location", "/x", "ssl.key.password", "s3cret", "security.protocol", "SSL"), "SSL a:1", nil},
		"old TLS":                  {base("ssl.enabled.protocols", "TLSv1.1"), "", []string{"TLSv1.1"}},
		"unknown cipher":           {base("ssl.cipher.suites", "TLS_NOTHING"), "", []string{"TLS_NOTHING"}},
		"identification":           {base("ssl.endpoint.identification.algorithm", "ldaps"), "", []string{"ldaps"}},
		"all faults together":      {base("bootstrap.servers", "x", "security.protocol", "y", "ssl.protocol", "z"), "", []string{`"x"`, `"y"`, `"z"`}},
		"other keys are others":    {base("mirror.topics.include", "("), "PLAINTEXT a:1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fetch.ParseConfig(row.configs)
			if row.faults == nil {
				require.NoError(t, err)
				require.Equal(t, row.want, got.String())
				require.NotContains(t, fmt.Sprintf("%v %+v %#v", got, got, got), "s3cret")
				return
			}
			require.ErrorIs(t, err, messages.ErrInvalidConfig)
			for _, text := range row.faults {
				require.ErrorContains(t, err, text)
			}
			require.NotContains(t, err.Error(), "s3cret")
			require.False(t, fetch.Retriable(err))
		})
	}
}

// Java callback classes may be stored; using them is refused at connect time.
func TestCallbackClassesRefusedAtConnect(t *testing.T) {
	cfg, err := fetch.ParseConfig(map[string]string{
		"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.client.callback.handler.class": "com.example.Handler",
	})
	require.NoError(t, err)
	_, err = fetch.NewSource(fetch.SourceConfig{Source: cfg, Mirror: "m", Log: zaptest.NewLogger(t)})
	require.ErrorIs(t, err, messages.ErrInvalidConfig)
	require.ErrorContains(t, err, "sasl.client.callback.handler.class")
}

// authority makes PEM texts of a CA and of a leaf that it signed.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

func (a *authority) leaf(t *testing.T, names ...string) (key, chain string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, DNSNames: names,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	require.NoError(t, err)
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func tlsStub(t *testing.T, ca *authority, clients bool, names ...string) *stub.Cluster {
	t.Helper()
	key, chain := ca.leaf(t, names...)
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	require.NoError(t, err)
	settings := &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients {
		settings.ClientAuth, settings.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		settings.ClientCAs.AddCert(ca.cert)
	}
	c, err := stub.Start(stub.Options{TLS: settings})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func clusterIDWith(t *testing.T, configs map[string]string) error {
	t.Helper()
	cfg, err := fetch.ParseConfig(configs)
	require.NoError(t, err)
	s, err := fetch.NewSource(fetch.SourceConfig{Source: cfg, Mirror: "m", RequestTimeout: 3 * time.Second, Log: zaptest.NewLogger(t)})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.ClusterID(t.Context())
	return err
}

func TestTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	right := tlsStub(t, ca, false, "127.0.0.1")
	misnamed := tlsStub(t, ca, false, "other.example")
	mutual := tlsStub(t, ca, true, "127.0.0.1")
	key, chain := ca.leaf(t, "client")
	with := func(c *stub.Cluster, trust string, more ...string) map[string]string {
		m := map[string]string{"bootstrap.servers": c.Address(), "security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": trust}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	keyConfigs := []string{"ssl.keystore.type", "PEM", "ssl.keystore.key", key, "ssl.keystore.certificate.chain", chain}
	for name, row := range map[string]struct {
		configs map[string]string
		ok      bool
	}{
		"trusted":                       {with(right, ca.pem), true},
		"unknown authority":             {with(right, stranger.pem), false},
		"another name":                  {with(misnamed, ca.pem), false},
		"another name, unchecked":       {with(misnamed, ca.pem, "ssl.endpoint.identification.algorithm", ""), true},
		"unchecked name is still a CA":  {with(misnamed, stranger.pem, "ssl.endpoint.identification.algorithm", ""), false},
		"client certificate":            {with(mutual, ca.pem, keyConfigs...), true},
		"client certificate is missing": {with(mutual, ca.pem), false},
		"older TLS only":                {with(right, ca.pem, "ssl.enabled.protocols", "TLSv1.2"), true},
	} {
		t.Run(name, func(t *testing.T) {
			err := clusterIDWith(t, row.configs)
			if row.ok {
				require.NoError(t, err)
				return
			}
			require.True(t, fetch.IsConnection(err), "%v", err)
			require.NotContains(t, err.Error(), "PRIVATE")
		})
	}
}

// C44c: certificates that are renewed on disk are used by the next connection.
func TestC44RenewedFiles(t *testing.T) {
	old, renewed := newAuthority(t), newAuthority(t)
	c := tlsStub(t, renewed, false, "127.0.0.1")
	file := filepath.Join(t.TempDir(), "trust.pem")
	cfg, err := fetch.ParseConfig(map[string]string{
		"bootstrap.servers": c.Address(), "security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": file,
	})
	require.NoError(t, err)
	s, err := fetch.NewSource(fetch.SourceConfig{Source: cfg, Mirror: "m", RequestTimeout: 3 * time.Second, Log: zaptest.NewLogger(t)})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.ClusterID(t.Context())
	require.ErrorContains(t, err, file)
	require.NoError(t, os.WriteFile(file, []byte(old.pem), 0o600))
	_, err = s.ClusterID(t.Context())
	require.Error(t, err)
	require.NoError(t, os.WriteFile(file, []byte(renewed.pem), 0o600))
	_, err = s.ClusterID(t.Context())
	require.NoError(t, err)
}
