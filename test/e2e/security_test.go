package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// secureNode is a node whose clients come over SASL_SSL, with stores that keytool made.
type secureNode struct {
	*Node
	t       *testing.T
	ctx     context.Context
	dir     string
	address string // of the listener with SASL and TLS
}

func startSecure(ctx context.Context, t *testing.T, more map[string]string) *secureNode {
	t.Helper()
	n := &secureNode{t: t, ctx: ctx, dir: t.TempDir()}
	store, trust, cert := n.path("server.jks"), n.path("trust.jks"), n.path("server.pem")
	for _, args := range [][]string{
		{"-genkeypair", "-keystore", store, "-storetype", "JKS", "-alias", "a", "-keyalg", "EC", "-dname", "CN=node", "-ext", "SAN=ip:127.0.0.1", "-storepass", "store-4711", "-keypass", "key-4711"},
		{"-exportcert", "-rfc", "-keystore", store, "-alias", "a", "-file", cert, "-storepass", "store-4711"},
		{"-importcert", "-keystore", trust, "-storetype", "JKS", "-alias", "ca", "-file", cert, "-noprompt", "-storepass", "store-4711"},
	} {
		out, err := exec.CommandContext(ctx, "keytool", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	ports, err := proc.Ports(1)
	require.NoError(t, err)
	n.address = net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))
	set := map[string]string{
		"listener.security.protocol.map":               "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
		"listener.name.clients.ssl.keystore.location":  store,
		"listener.name.clients.ssl.keystore.password":  "store-4711",
		"listener.name.clients.ssl.key.password":       "key-4711",
		"sasl.enabled.mechanisms":                      "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.clients.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-4711" user_pat="pat-4711";`,
		"authorizer.class.name":                        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                  "User:admin;User:svc;User:ANONYMOUS", // the plain listener is the test's own
	}
	maps.Copy(set, more)
	n.Node = StartNode(t, NodeOptions{Properties: set, Listeners: []string{"CLIENTS://" + n.address}})
	return n
}

func (n *secureNode) path(name string) string { return filepath.Join(n.dir, name) }

// as writes the settings of a client.
func (n *secureNode) as(mechanism, module, user, password string) string {
	n.t.Helper()
	file := n.path(mechanism + "-" + user + "-" + password)
	text := fmt.Sprintf(`security.protocol=SASL_SSL
ssl.truststore.location=%s
ssl.truststore.password=store-4711
sasl.mechanism=%s
sasl.jaas.config=org.apache.kafka.common.security.%s required username="%s" password="%s";
`, n.path("trust.jks"), mechanism, module, user, password)
	require.NoError(n.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (n *secureNode) plain(user, password string) string {
	return n.as("PLAIN", "plain.PlainLoginModule", user, password)
}

func (n *secureNode) scram(user, password string) string {
	return n.as("SCRAM-SHA-512", "scram.ScramLoginModule", user, password)
}

func (n *secureNode) run(class string, args ...string) (kafka.Result, error) {
	n.t.Helper()
	return kafka.Tool(n.ctx, class, append([]string{"--bootstrap-server", n.address}, args...)...)
}

func (n *secureNode) says(class string, args ...string) string {
	n.t.Helper()
	res, err := n.run(class, args...)
	require.NoError(n.t, err)
	return res.Stdout
}

// signer is the file of a key set, and makes tokens of a user that a key of it has signed.
func signer(t *testing.T) (keys string, sign func(user string, life time.Duration) string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	keys = filepath.Join(t.TempDir(), "jwks.json")
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(keys, set, 0o600))
	jws, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	require.NoError(t, err)
	return keys, func(user string, life time.Duration) string {
		now := time.Now()
		text, err := jwt.Signed(jws).Claims(map[string]any{"sub": user, "iss": "idp", "aud": "kafka", "scope": "all", "iat": now.Unix(), "exp": now.Add(life).Unix()}).Serialize()
		if err != nil {
			t.Error(err)
		}
		return text
	}
}

// c44Env is how many seconds Java's producer writes, over sessions of 1.5 seconds.
const c44Env = "KAGAMI_C44_SECONDS"

// TestSecurityJavaTools: users, rights and data with Kafka's own tools over SASL_SSL.
func TestSecurityJavaTools(t *testing.T) {
	kafka.Require(t)
	kafka.RequireProgram(t, "keytool")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	keys, sign := signer(t)
	token := filepath.Join(t.TempDir(), "token.jwt")
	require.NoError(t, os.WriteFile(token, []byte(sign("svc", time.Hour)), 0o600))
	n := startSecure(ctx, t, map[string]string{
		"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "file://" + keys,
		"connections.max.reauth.ms": "1500", // shorter than what the producer takes (C44)
	})
	admin := n.plain("admin", "admin-4711")
	require.Contains(t, n.says(kafka.Configs, "--command-config", admin, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=sam-4711]", "--entity-type", "users", "--entity-name", "sam"), "Completed updating config for user sam")
	told := n.says(kafka.Configs, "--command-config", admin, "--describe", "--entity-type", "users", "--entity-name", "sam")
	require.Contains(t, told, "SCRAM-SHA-512=iterations=8192")
	sam, pat := n.scram("sam", "sam-4711"), n.plain("pat", "pat-4711")
	refused, err := n.run(kafka.Topics, "--command-config", sam, "--create", "--topic", "t", "--partitions", "1")
	require.Error(t, err)
	require.Contains(t, refused.Stdout+refused.Stderr, "TopicAuthorizationException")
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()))
	require.NoError(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "t")
	require.NoError(t, err)

	added := n.says(kafka.ACLs, "--command-config", admin, "--add", "--allow-principal", "User:sam", "--producer", "--topic", "t")
	require.Contains(t, added, "(principal=User:sam, host=*, operation=WRITE, permissionType=ALLOW)")
	n.says(kafka.ACLs, "--command-config", admin, "--add", "--allow-principal", "User:pat", "--consumer", "--topic", "t", "--group", "g", "--resource-pattern-type", "prefixed")
	records := 60
	if seconds, err := strconv.Atoi(os.Getenv(c44Env)); err == nil {
		records = 15 * seconds
	}
	produced := n.says(kafka.VerifiableProducer, "--command-config", sam, "--topic", "t", "--max-messages", strconv.Itoa(records), "--throughput", "15")
	require.Contains(t, produced, fmt.Sprintf(`"acked":%d`, records))
	read := n.says(kafka.ConsoleConsumer, "--command-config", pat, "--topic", "t", "--group", "g1", "--from-beginning", "--max-messages", strconv.Itoa(records), "--timeout-ms", "60000")
	want := make([]string, records)
	for i := range want {
		want[i] = strconv.Itoa(i)
	}
	require.Equal(t, want, strings.Fields(read), "every record once, over several sessions")

	t.Setenv("JAVA_TOOL_OPTIONS", "-Dorg.apache.kafka.sasl.oauthbearer.allowed.files="+token+" -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://"+token)
	svc := n.path("oauth")
	require.NoError(t, os.WriteFile(svc, []byte(fmt.Sprintf(`security.protocol=SASL_SSL
ssl.truststore.location=%s
ssl.truststore.password=store-4711
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url=file://%s
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
`, n.path("trust.jks"), token)), 0o600))
	n.says(kafka.Topics, "--command-config", svc, "--create", "--topic", "by-svc", "--partitions", "1")
	t.Setenv("JAVA_TOOL_OPTIONS", "")
	wrong, _ := n.run(kafka.ConsoleConsumer, "--command-config", sam, "--topic", "t", "--group", "g1", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
	require.Empty(t, wrong.Stdout, "sam may write, not read")
	require.Contains(t, wrong.Stderr, "GroupAuthorizationException")

	removed := n.says(kafka.ACLs, "--command-config", admin, "--remove", "--force", "--allow-principal", "User:sam", "--producer", "--topic", "t")
	require.NotContains(t, removed, "User:sam")
	listed := n.says(kafka.ACLs, "--command-config", admin, "--list")
	require.Contains(t, listed, "resourceType=GROUP, name=g, patternType=PREFIXED")
	require.NotContains(t, listed, "User:sam")
	bad, err := n.run(kafka.ACLs, "--command-config", n.scram("sam", "wrong-0815"), "--list")
	require.Error(t, err)
	require.Contains(t, bad.Stdout+bad.Stderr, "invalid credentials with SASL mechanism SCRAM-SHA-512")
	for _, secret := range []string{"4711", "0815"} {
		require.NotContains(t, n.Process().Log(), secret, "secrets never reach the log")
		require.NotContains(t, told+listed, secret)
	}
}
