package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// oneNATS is a server of somebody else's, alone.
func oneNATS(t *testing.T, config string) (url string) {
	t.Helper()
	return "nats://" + startNATS(t, t.TempDir(), "127.0.0.1:-1", config).Addr().String()
}

func startNATS(t *testing.T, dir, listen, config string) *server.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "listen: %q, max_payload: 32MB\njetstream { store_dir: %q, max_file_store: 1TB }\n%s", listen, dir, config), 0o600))
	o, err := server.ProcessConfigFile(file)
	require.NoError(t, err)
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(10*time.Second))
	return s
}

// A running node outlives that its credentials are refused for a while: it says so, and
// serves again when they are accepted.
func TestExternalNATSRefusesForAWhile(t *testing.T) {
	dir, right := t.TempDir(), `authorization { token: "right-4711" }`
	s := startNATS(t, dir, "127.0.0.1:-1", right)
	address := s.Addr().String()
	c := newTestNodes(t, nil, "nats.url=nats://"+address, "nats.token=right-4711", "nats.journal.replicas=1", "default.replication.factor=1",
		"mirror.state.topic.replication.factor=1", "kagami.journal.max.bytes=67108864")
	c.start(1)
	_, cl, _ := c.connect(1)
	topic(t, cl, "t", 1, 10, nil)
	s.Shutdown()
	s.WaitForShutdown()
	s = startNATS(t, dir, address, `authorization { token: "another" }`)
	await(t, "refusals in the log", func() error {
		for _, e := range c.logs.FilterMessage("connection to NATS is lost, tried again").All() {
			if text := fmt.Sprint(e.ContextMap()); strings.Contains(text, "authorization violation") {
				require.NotContains(t, text, "-4711")
				return nil
			}
		}
		return errors.New("none")
	})
	s.Shutdown()
	s.WaitForShutdown()
	startNATS(t, dir, address, right)
	produce(t, cl, "t", 10)
	c.stop(1) // while there is a server
}

// natsJWT is a server's configuration with an operator, and credentials files of an
// account of it and of an account that it doesn't know.
func natsJWT(t *testing.T) (config, right, wrong string) {
	t.Helper()
	key := func(kp nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		t.Helper()
		require.NoError(t, err)
		public, err := kp.PublicKey()
		require.NoError(t, err)
		return kp, public
	}
	operator, operatorID := key(nkeys.CreateOperator())
	_, sysID := key(nkeys.CreateAccount())
	account, accountID := key(nkeys.CreateAccount())
	strange, strangeID := key(nkeys.CreateAccount())
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		t.Helper()
		text, err := c.Encode(by)
		require.NoError(t, err)
		return text
	}
	oc := jwt.NewOperatorClaims(operatorID)
	oc.SystemAccount = sysID
	ac := jwt.NewAccountClaims(accountID)
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	config = fmt.Sprintf("operator: %q\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n %s: %q\n %s: %q\n}\n", encode(oc, operator),
		sysID, sysID, encode(jwt.NewAccountClaims(sysID), operator), accountID, encode(ac, operator))
	credentials := func(name string, of nkeys.KeyPair, issuer string) string {
		t.Helper()
		user, userID := key(nkeys.CreateUser())
		uc := jwt.NewUserClaims(userID)
		uc.IssuerAccount = issuer
		seed, err := user.Seed()
		require.NoError(t, err)
		text, err := jwt.FormatUserConfig(encode(uc, of), seed)
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	return config, credentials("right.creds", account, accountID), credentials("wrong.creds", strange, strangeID)
}

// Each way into an external NATS: a node founds, serves and starts again; what is wrong
// is refused with the server's address, its reason, and what to check.
func TestExternalNATSWaysIn(t *testing.T) {
	certificates, strangers := testCertificates(t, 1, 2), testCertificates(t, 3)
	file := func(of func(messages.NodeID) []string, id messages.NodeID, n int) string {
		_, path, _ := strings.Cut(of(id)[n], "=")
		return path
	}
	const ca, cert, key = 0, 1, 2
	jwtConfig, right, wrong := natsJWT(t)
	for name, tc := range map[string]struct {
		config       string
		right, wrong []string
		want         string
	}{
		"token": {
			`authorization { token: "right-4711" }`, []string{"nats.token=right-4711"}, []string{"nats.token=wrong-0815"}, "Authorization Violation",
		},
		"credentials": {jwtConfig, []string{"nats.credentials.file=" + right}, []string{"nats.credentials.file=" + wrong}, "Authorization Violation"},
		"no credentials file": {
			jwtConfig, []string{"nats.credentials.file=" + right}, []string{"nats.credentials.file=" + filepath.Join(t.TempDir(), "none.creds")}, "none.creds",
		},
		"client certificate": {
			fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true, timeout: 5 }", file(certificates, 1, cert), file(certificates, 1, key), file(certificates, 1, ca)),
			[]string{
				"nats.tls.ca.file=" + file(certificates, 2, ca), "nats.tls.certificate.file=" + file(certificates, 2, cert), "nats.tls.key.file=" + file(certificates, 2, key),
			},
			[]string{
				"nats.tls.ca.file=" + file(certificates, 2, ca), "nats.tls.certificate.file=" + file(strangers, 3, cert), "nats.tls.key.file=" + file(strangers, 3, key),
			},
			"nats.tls.certificate.file",
		},
		"no client certificate": {
			fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true, timeout: 5 }", file(certificates, 1, cert), file(certificates, 1, key), file(certificates, 1, ca)),
			[]string{
				"nats.tls.ca.file=" + file(certificates, 2, ca), "nats.tls.certificate.file=" + file(certificates, 2, cert), "nats.tls.key.file=" + file(certificates, 2, key),
			},
			[]string{"nats.tls.ca.file=" + file(certificates, 2, ca)}, "nats.tls.certificate.file",
		},
		"user by certificate": {
			fmt.Sprintf(`tls { cert_file: %q, key_file: %q, ca_file: %q, verify_and_map: true, timeout: 5 }
authorization { users: [{user: "CN=node-2"}] }`, file(certificates, 1, cert), file(certificates, 1, key), file(certificates, 1, ca)),
			[]string{
				"nats.tls.ca.file=" + file(certificates, 2, ca), "nats.tls.certificate.file=" + file(certificates, 2, cert), "nats.tls.key.file=" + file(certificates, 2, key),
			},
			[]string{
				"nats.tls.ca.file=" + file(certificates, 2, ca), "nats.tls.certificate.file=" + file(certificates, 1, cert), "nats.tls.key.file=" + file(certificates, 1, key),
			},
			"Authorization Violation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := oneNATS(t, tc.config)
			c := newTestNodes(t, nil, "nats.url="+url, "nats.journal.replicas=1", "default.replication.factor=1", "mirror.state.topic.replication.factor=1", "kagami.journal.max.bytes=67108864")
			err := c.try(2, tc.wrong...)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, strings.TrimPrefix(url, "nats://"))
			require.NotContains(t, err.Error(), "-0815")
			c.options = append(c.options, tc.right...)
			c.start(1)
			id := c.nodes[1].clusterID
			_, cl, _ := c.connect(1)
			topic(t, cl, "t", 1, 10, nil)
			c.stop(1)
			c.start(1)
			require.Equal(t, id, c.nodes[1].clusterID)
			for _, e := range c.logs.All() {
				require.NotContains(t, fmt.Sprint(e.Message, e.ContextMap()), "-4711")
			}
		})
	}
}
