package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// keytool makes stores as an operator of Kafka has them.
func keytool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "keytool", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// keyStore holds a key, with a certificate that it has signed itself.
func keyStore(t *testing.T, typ, dname string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	keytool(t, "-genkeypair", "-keystore", file, "-storetype", typ, "-alias", "a", "-keyalg", "EC", "-dname", dname, "-ext", "SAN=ip:127.0.0.1", "-storepass", "store-4711", "-keypass", "store-4711")
	return file
}

// storePair is a key store, and a trust store of its certificate.
func storePair(t *testing.T, typ, dname string) (key, trust string) {
	t.Helper()
	key = keyStore(t, typ, dname)
	trust, cert := key+"-trust", key+"-cert"
	keytool(t, "-exportcert", "-rfc", "-keystore", key, "-alias", "a", "-file", cert, "-storepass", "store-4711")
	keytool(t, "-importcert", "-keystore", trust, "-storetype", typ, "-alias", "ca", "-file", cert, "-noprompt", "-storepass", "store-4711")
	return key, trust
}

// tokenEndpoint gives tokens of a few seconds to one client; count is how many it gave.
func tokenEndpoint(t *testing.T, token func() string) (url string, count *atomic.Int64) {
	t.Helper()
	count = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if user, password, _ := r.BasicAuth(); user != "mirror" || password != "mirror-4711" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
			return
		}
		count.Add(1)
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token(), tokenSeconds)
	}))
	t.Cleanup(server.Close)
	return server.URL, count
}

// tokenSeconds is long enough for a slow machine, and short enough to end within the test.
const tokenSeconds = 6

// securedKafka is a Kafka whose listeners want one kind of login each, of user mirror, who
// has the rights that docs/security.md names.
type securedKafka struct {
	*kafka.Cluster
	address map[string]string            // by listener
	right   map[string]map[string]string // configs of a mirror, by listener
	wrong   map[string]map[string]string // what makes them wrong
	tokens  *atomic.Int64
	kdc     *kafka.KDC
}

func startSecuredKafka(t *testing.T) *securedKafka {
	t.Helper()
	s := &securedKafka{address: map[string]string{}}
	names := []string{"PLAIN", "SCRAM", "MTLS", "OAUTH", "GSSAPI"}
	ports, err := proc.Ports(len(names))
	require.NoError(t, err)
	var listeners []string
	for i, name := range names {
		s.address[name] = proc.Addr(ports[i])
		listeners = append(listeners, name+"://"+s.address[name])
	}
	serverKey, serverTrust := storePair(t, "PKCS12", "CN=broker")
	clientKey, clientTrust := storePair(t, "JKS", "CN=mirror,OU=users")
	strangerKey := keyStore(t, "JKS", "CN=mirror,OU=users")
	keys, sign := signer(t)
	url, count := tokenEndpoint(t, func() string { return sign("mirror", tokenSeconds*time.Second) })
	s.tokens = count
	s.kdc = kafka.StartKDC(t, "mirror", "stranger", "kafka/127.0.0.1")
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djava.security.krb5.conf="+s.kdc.Config+" -Dorg.apache.kafka.sasl.oauthbearer.allowed.files="+keys+" -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://"+keys)
	s.Cluster = kafka.Start(t, kafka.Options{Listeners: listeners, Properties: map[string]string{
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAIN:SASL_PLAINTEXT,SCRAM:SASL_SSL,MTLS:SSL,OAUTH:SASL_PLAINTEXT,GSSAPI:SASL_PLAINTEXT",
		"ssl.keystore.type":              "PKCS12", "ssl.keystore.location": serverKey, "ssl.keystore.password": "store-4711",
		"ssl.truststore.type": "JKS", "ssl.truststore.location": clientTrust, "ssl.truststore.password": "store-4711",
		"listener.name.mtls.ssl.client.auth":                                 "required",
		"ssl.principal.mapping.rules":                                        "RULE:^CN=([^,]+).*$/$1/",
		"listener.name.plain.sasl.enabled.mechanisms":                        "PLAIN",
		"listener.name.plain.plain.sasl.jaas.config":                         `org.apache.kafka.common.security.plain.PlainLoginModule required user_mirror="mirror-4711";`,
		"listener.name.scram.sasl.enabled.mechanisms":                        "SCRAM-SHA-512",
		"listener.name.scram.scram-sha-512.sasl.jaas.config":                 `org.apache.kafka.common.security.scram.ScramLoginModule required;`,
		"listener.name.oauth.sasl.enabled.mechanisms":                        "OAUTHBEARER",
		"listener.name.oauth.oauthbearer.sasl.jaas.config":                   `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;`,
		"listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
		"listener.name.gssapi.sasl.enabled.mechanisms":                       "GSSAPI",
		"listener.name.gssapi.sasl.kerberos.service.name":                    "kafka",
		"listener.name.gssapi.gssapi.sasl.jaas.config":                       s.krb5("kafka/127.0.0.1", "kafka/127.0.0.1"),
		"sasl.oauthbearer.jwks.endpoint.url":                                 "file://" + keys,
		"sasl.oauthbearer.expected.audience":                                 "kafka", "sasl.oauthbearer.expected.issuer": "idp",
		"connections.max.reauth.ms": "4000",
		"authorizer.class.name":     "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":               "User:ANONYMOUS",
	}})
	t.Setenv("JAVA_TOOL_OPTIONS", "")
	login := func(module, options string) string {
		return "org.apache.kafka.common.security." + module + " required " + options + ";"
	}
	trust := map[string]string{"ssl.truststore.type": "PKCS12", "ssl.truststore.location": serverTrust, "ssl.truststore.password": "store-4711"}
	s.right = map[string]map[string]string{
		"PLAIN": {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": login("plain.PlainLoginModule", `username="mirror" password="mirror-4711"`)},
		"SCRAM": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login("scram.ScramLoginModule", `username="mirror" password="mirror-4711"`)},
		"MTLS":  {"security.protocol": "SSL", "ssl.keystore.location": clientKey, "ssl.keystore.password": "store-4711"},
		"OAUTH": {
			"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": url,
			"sasl.jaas.config": login("oauthbearer.OAuthBearerLoginModule", `clientId="mirror" clientSecret="mirror-4711" scope="all"`),
		},
		"GSSAPI": {
			"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka", "sasl.jaas.config": s.krb5("mirror", "mirror"),
		},
	}
	for name, configs := range s.right {
		configs["bootstrap.servers"] = s.address[name]
		if name == "SCRAM" || name == "MTLS" {
			maps.Copy(configs, trust)
		}
	}
	s.wrong = map[string]map[string]string{
		"PLAIN":  {"sasl.jaas.config": login("plain.PlainLoginModule", `username="mirror" password="wrong-0815"`)},
		"SCRAM":  {"sasl.jaas.config": login("scram.ScramLoginModule", `username="mirror" password="wrong-0815"`)},
		"MTLS":   {"ssl.keystore.location": strangerKey},
		"OAUTH":  {"sasl.jaas.config": login("oauthbearer.OAuthBearerLoginModule", `clientId="mirror" clientSecret="wrong-0815"`)},
		"GSSAPI": {"sasl.jaas.config": s.krb5("nobody", "stranger")},
	}
	return s
}

// krb5 is a login entry by the keytab of another, or the same, principal.
func (s *securedKafka) krb5(principal, keytabOf string) string {
	return `com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="` + s.kdc.Keytabs[keytabOf] + `" principal="` + principal + "@" + kafka.Realm + `";`
}

// allow gives the rights that docs/security.md names.
func (s *securedKafka) allow(ctx context.Context, t *testing.T) {
	t.Helper()
	cl, err := s.Client()
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	scrams, err := adm.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: "mirror", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "mirror-4711"}})
	require.NoError(t, errors.Join(err, scrams.Error()))
	for _, b := range []*kadm.ACLBuilder{
		kadm.NewACLs().Allow("User:mirror").Topics("k11-").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpRead, kadm.OpDescribeConfigs),
		kadm.NewACLs().Allow("User:mirror").Groups("*").Operations(kadm.OpDescribe),
		kadm.NewACLs().Allow("User:mirror").Clusters().Operations(kadm.OpDescribe),
	} {
		created, err := adm.CreateACLs(ctx, b.AllowHosts("*"))
		require.NoError(t, err)
		for _, c := range created {
			require.NoError(t, c.Err)
		}
	}
}

// alterMirror changes configs of a mirror while it runs.
func (w *world) alterMirror(mirror string, configs map[string]string) {
	w.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.node.Bootstrap()), client.MaxVersions())
	require.NoError(w.t, err)
	defer cl.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), mirror
	for k, v := range configs {
		res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: k, Value: &v})
	}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(w.ctx, cl)
	require.NoError(w.t, err)
	require.NoError(w.t, kerr.ErrorForCode(resp.Resources[0].ErrorCode), "%v", resp.Resources[0].ErrorMessage)
}

// errorOf is what is told of the mirror's only partition.
func (w *world) errorOf(mirror string) (string, error) {
	ps, err := Partitions(w.ctx, w.adm, mirror)
	if err != nil {
		return "", err
	}
	if len(ps) != 1 {
		return "", fmt.Errorf("%d partitions", len(ps))
	}
	return ps[0].ErrorText, nil
}

// copied is how many records a topic of one partition has here, 0 if it isn't here yet.
func (w *world) copied(topic string) int64 {
	w.t.Helper()
	ends, err := w.b.TopicEnds(w.ctx, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return 0
	}
	require.NoError(w.t, err)
	return ends[0].End
}

// TestK11SecuredSources: one mirror for each kind of login, to a Kafka with rights. Then each
// (D32) gets wrong credentials while it runs, stands still with a reason, and goes on with
// the right ones; the others don't notice.
func TestK11SecuredSources(t *testing.T) {
	kafka.Require(t)
	kafka.RequireProgram(t, "keytool")
	source := startSecuredKafka(t)
	w := newWorldOf(t, source.Cluster, NodeOptions{Env: []string{"KRB5_CONFIG=" + source.kdc.Config}})
	source.allow(w.ctx, t)
	wants := map[string]string{
		"PLAIN": "SASL_AUTHENTICATION_FAILED", "SCRAM": "SASL_AUTHENTICATION_FAILED", "MTLS": "certificate",
		"OAUTH": "HTTP status 401, invalid_client", "GSSAPI": "KRB",
	}
	topicOf := func(name string) string { return "k11-" + strings.ToLower(name) }
	loaded := 0
	loadAll := func() {
		for name := range source.right {
			w.load(topicOf(name), Records{Count: 20, From: loaded})
		}
		loaded += 20
	}
	pointers := func(all ...map[string]string) map[string]*string {
		out := map[string]*string{}
		for _, m := range all {
			for k, v := range m {
				out[k] = &v
			}
		}
		return out
	}
	for name, configs := range source.right {
		w.topic(topicOf(name), 1, 1)
		all := pointers(configs)
		if name == "SCRAM" {
			all = pointers(configs, source.wrong[name]) // wrong from the first
		}
		require.NoError(t, w.adm.CreateClusterMirror(w.ctx, name, all))
		startByAPI(w, name, topicOf(name))
	}
	loadAll()
	for _, broken := range []string{"SCRAM", "PLAIN", "MTLS", "OAUTH", "GSSAPI"} {
		w.alterMirror(broken, source.wrong[broken])
		var told string
		require.NoError(t, kafka.Poll(w.ctx, func() (err error) {
			if told, err = w.errorOf(broken); err == nil && !strings.Contains(strings.ToUpper(told), strings.ToUpper(wants[broken])) {
				err = fmt.Errorf("%s tells %q, want %q", broken, told, wants[broken])
			}
			return err
		}))
		before := w.copied(topicOf(broken))
		loadAll()
		for name := range source.right {
			if name != broken {
				w.equal(topicOf(name))
			}
		}
		require.Equal(t, before, w.copied(topicOf(broken)), "no data of %s by wrong credentials", broken)
		w.alterMirror(broken, source.right[broken])
		w.equal(topicOf(broken))
		t.Logf("%s: %s", broken, told)
	}
	// Tokens end, and what they were good for goes on.
	for given, until := source.tokens.Load(), time.Now().Add(time.Minute); source.tokens.Load() == given; {
		require.True(t, time.Now().Before(until), "tokens are renewed")
		w.load(topicOf("OAUTH"), Records{Count: 1, From: loaded})
		loaded++
		w.equal(topicOf("OAUTH"))
	}
	loadAll() // over sessions that have ended meanwhile
	for name := range source.right {
		w.equal(topicOf(name))
	}
	require.Less(t, source.tokens.Load(), int64(100), "one token serves all connections for a while")
	for _, secret := range []string{"4711", "0815"} {
		require.NotContains(t, w.node.Process().Log(), secret)
	}
}
