package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/secrets"
	"kagami/test/kafka"
	"kagami/test/kafka/leak"
	"kagami/test/kafka/pki"
	"kagami/test/kafka/proc"
)

// leakMarker is meant to be seen everywhere: the name of a mirror.
const leakMarker = "marker-that-must-be-seen"

// leakWorld is two nodes with every kind of login, and everything they say.
type leakWorld struct {
	*recorder
	ctx      context.Context
	dir      string
	src, dst *Node
	clear    string // address of dst's listener with SASL in the clear
	secure   string // and over TLS
	srcClear string
	tls      *tls.Config
	sign     func(user string, life time.Duration) string
	secrets  map[string]string // what must never be said
	// misplaced are secrets that a client wrote where a name or a plain value belongs. Its
	// own answers tell it what is wrong with them, nothing else may.
	misplaced map[string]string
}

// secret is a fresh one, which is looked for from now on. It has what encodings change,
// and is ASCII, as settings files are Latin-1.
func (w *leakWorld) secret(name string) string {
	s := fmt.Sprintf("%s&s3cret/%d+x=~", strings.ReplaceAll(name, " ", "-"), 1000+len(w.secrets))
	w.secrets[name] = s
	return s
}

func (w *leakWorld) path(name string) string { return filepath.Join(w.dir, name) }

func (w *leakWorld) write(name, text string) string {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.path(name), []byte(text), 0o600))
	return w.path(name)
}

// hide has the key of a PEM text looked for, as bytes and as its lines.
func (w *leakWorld) hide(name string, text []byte) {
	block, _ := pem.Decode(text)
	require.NotNil(w.t, block)
	w.secrets[name] = string(block.Bytes[len(block.Bytes)-60:])
	for i, line := range strings.Split(string(pem.EncodeToMemory(block)), "\n")[2:] { // the first one says what kind of key it is
		if len(line) > 20 && !strings.HasPrefix(line, "-") {
			w.secrets[fmt.Sprint(name, ", line ", i)] = line
		}
	}
}

const plainModule, scramModule, oauthModule = "org.apache.kafka.common.security.plain.PlainLoginModule", "org.apache.kafka.common.security.scram.ScramLoginModule", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

func startLeakWorld(t *testing.T) *leakWorld {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w := &leakWorld{recorder: newRecorder(t), ctx: ctx, dir: t.TempDir(), secrets: map[string]string{}, misplaced: map[string]string{}}
	ports, err := proc.Ports(3)
	require.NoError(t, err)
	at := func(i int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[i])) }
	w.clear, w.secure, w.srcClear = at(0), at(1), at(2)
	ca := pki.NewAuthority(t)
	pair := ca.Issue(t, "node", time.Now().Add(time.Hour)).PEM(t)
	w.hide("key of the node", pair)
	w.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	w.tls.RootCAs.AddCert(ca.Cert)
	var keys string
	keys, w.sign = signer(t)
	for _, name := range []string{"key of dst", "key of src"} {
		w.secrets[name], err = secrets.NewKey()
		require.NoError(t, err)
	}
	users := func(module string) string {
		return fmt.Sprintf(`%s required user_admin="%s" user_mirror="%s";`, module, w.secrets["password of admin"], w.secrets["password of mirror"])
	}
	w.secret("password of admin")
	w.secret("password of mirror")
	all := map[string]string{
		"kagami.log.level": "debug", "kagami.pprof.enable": "true", "super.users": "User:admin;User:first;User:ANONYMOUS;User:svc;User:mirror",
		"authorizer.class.name":              "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"sasl.enabled.mechanisms":            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"sasl.oauthbearer.jwks.endpoint.url": "file://" + keys, "kagami.admin.user": "boss", "kagami.admin.password": w.secret("password of the admin port"),
		"kagami.bootstrap.scram":                     "SCRAM-SHA-512=[name=first,password=" + strings.ReplaceAll(w.secret("password of first"), "=", "") + "]",
		"connection.failed.authentication.delay.ms":  "1",
		"listener.name.clear.plain.sasl.jaas.config": users(plainModule),
	}
	w.secrets["password of first"] = strings.ReplaceAll(w.secrets["password of first"], "=", "")
	set := func(more map[string]string) map[string]string {
		out := maps.Clone(all)
		maps.Copy(out, more)
		return out
	}
	w.src = StartNode(t, NodeOptions{
		Properties: set(map[string]string{"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLEAR:SASL_PLAINTEXT"}),
		Listeners:  []string{"CLEAR://" + w.srcClear}, Env: []string{"KAGAMI_SECRETS_KEY=" + w.secrets["key of src"]},
	})
	w.dst = StartNode(t, NodeOptions{
		Properties: set(map[string]string{
			"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLEAR:SASL_PLAINTEXT,SECURE:SASL_SSL", "kagami.secrets.key.file": w.write("keys", w.secrets["key of dst"]+"\n"),
			"listener.name.secure.plain.sasl.jaas.config": users(plainModule),
			"listener.name.secure.ssl.keystore.type":      "PEM", "listener.name.secure.ssl.keystore.location": w.write("node.pem", string(pair)),
		}),
		Listeners: []string{"CLEAR://" + w.clear, "SECURE://" + w.secure},
	})
	return w
}

// TestNoSecretIsTold: two nodes at log level debug, with every kind of login, right and
// wrong ones, mirrors with right and wrong secrets, changes of passwords and nonsense in
// their places, all tools and pages, a crash with all stacks: nothing that anybody says has
// a secret in any form.
func TestNoSecretIsTold(t *testing.T) {
	w := startLeakWorld(t)
	w.logins()
	w.mirrors()
	w.alterations()
	w.scramUsers()
	w.tools()
	w.pages()
	w.ends()
	for who, node := range map[string]*Node{"src": w.src, "dst": w.dst} {
		w.add("log of "+who, []byte(node.Process().Log()))
	}
	w.judge()
}

// judge looks through everything that was said.
func (w *leakWorld) judge() {
	w.t.Helper()
	everywhere := maps.Clone(w.secrets)
	maps.Copy(everywhere, w.misplaced)
	hunter, own := leak.New(w.t, everywhere), leak.New(w.t, w.secrets)
	said := w.all()
	require.Subset(w.t, slices.Collect(maps.Keys(said)), []string{"answers", "pages", "tools", "log of src", "log of dst"})
	for who, b := range said {
		h := hunter
		if who == "answers" {
			h = own
		}
		for _, found := range h.Find(b) {
			w.t.Errorf("%s: %s", who, found)
		}
		require.Contains(w.t, string(b), leakMarker, "%s: what is meant to be seen isn't, so that nothing is known of the rest", who)
		w.t.Logf("%s: %d bytes", who, len(b))
	}
	for path, found := range hunter.Folder(w.t, w.dst.DataDir()) {
		w.t.Errorf("%s: %s", path, found)
	}
	for path, found := range hunter.Folder(w.t, w.src.DataDir()) {
		w.t.Errorf("%s: %s", path, found)
	}
	require.NotEmpty(w.t, own.Folder(w.t, w.dir), "it finds nothing where secrets are")
}

// logins are right and wrong ones, by every mechanism.
func (w *leakWorld) logins() {
	w.t.Helper()
	wrong := w.secret("a wrong password")
	good, ended := w.sign("svc", time.Hour), w.sign("svc", -time.Hour)
	forged := good[:len(good)-12] + "AAAAAAAAAAAA"
	w.secrets["token"], w.secrets["token that has ended"] = good[len(good)-40:], ended[len(ended)-40:]
	w.secrets["forged token"] = forged[len(forged)-40:]
	junk := w.secret("text that is no token")
	admin, first := w.secrets["password of admin"], w.secrets["password of first"]
	token := func(t string) kgo.Opt { return kgo.SASL(oauth.Auth{Token: t}.AsMechanism()) }
	for name, c := range map[string]struct {
		opt kgo.Opt
		ok  bool
	}{
		"plain":       {kgo.SASL(plain.Auth{User: "admin", Pass: admin}.AsMechanism()), true},
		"wrong plain": {kgo.SASL(plain.Auth{User: "admin", Pass: wrong}.AsMechanism()), false},
		"nobody":      {kgo.SASL(plain.Auth{User: "nobody", Pass: wrong}.AsMechanism()), false},
		"as another":  {kgo.SASL(plain.Auth{Zid: "root", User: "admin", Pass: admin}.AsMechanism()), false},
		"scram":       {kgo.SASL(scram.Auth{User: "first", Pass: first}.AsSha512Mechanism()), true},
		"wrong scram": {kgo.SASL(scram.Auth{User: "first", Pass: wrong}.AsSha512Mechanism()), false},
		"other scram": {kgo.SASL(scram.Auth{User: "first", Pass: first}.AsSha256Mechanism()), false},
		"token":       {token(good), true}, "ended": {token(ended), false}, "forged": {token(forged), false}, "junk": {token(junk), false},
		"with extensions": {kgo.SASL(oauth.Auth{Token: good, Extensions: map[string]string{"auth": "x"}}.AsMechanism()), false},
	} {
		for address, config := range map[string]*tls.Config{w.clear: nil, w.secure: w.tls} {
			ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
			err := w.client(address, config, c.opt).Ping(ctx)
			cancel()
			require.Equal(w.t, c.ok, err == nil, "%s: %v", name, err)
		}
	}
	w.strays(wrong)
}

// strays speak to listeners in other languages, with secrets.
func (w *leakWorld) strays(wrong string) {
	w.t.Helper()
	for _, text := range []string{
		"GET /?password=" + url.QueryEscape(wrong) + " HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+wrong)) + "\r\n\r\n",
		"\x00\x00\x00\x40" + wrong, "\x00\x11\x00\x00\x00\x00\x00\x01" + wrong,
	} {
		for _, address := range []string{w.dst.Bootstrap(), w.clear, w.secure} {
			c, err := w.dial("answers", nil)(w.ctx, "tcp", address)
			require.NoError(w.t, err)
			_, err = io.WriteString(c, text)
			require.NoError(w.t, errors.Join(err, c.SetReadDeadline(time.Now().Add(300*time.Millisecond))))
			_, _ = io.ReadAll(c) // the end of the connection or of the patience
			require.NoError(w.t, c.Close())
		}
	}
}

// mirrors are some with right and with wrong secrets.
func (w *leakWorld) mirrors() {
	w.t.Helper()
	source := kadm.NewClient(w.client(w.src.Bootstrap(), nil))
	_, err := source.CreateTopic(w.ctx, 1, 1, nil, leakMarker)
	require.NoError(w.t, err)
	adm := client.Wrap(w.client(w.dst.Bootstrap(), nil))
	clientSecret := w.secret("client secret")
	endpoint := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { // says what it was asked
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		if user == "talkative" {
			rw.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(rw, `{"error":"invalid_client","error_description":"no %s %s %s %s","access_token":%q,"expires_in":60}`, user, password, r.Header.Get("Authorization"), body, w.secrets["forged token"])
	}))
	defer endpoint.Close()
	base := map[string]string{"bootstrap.servers": w.srcClear, "security.protocol": "SASL_PLAINTEXT"}
	login := func(module, options string) string { return module + " required " + options + ";" }
	keyPair := pki.SelfSigned(w.t, pki.NewAuthority(w.t).Cert.Subject).PEM(w.t)
	w.hide("key of the mirror", keyPair)
	key, chain, _ := strings.Cut(string(keyPair), "-----BEGIN CERTIFICATE")
	storePassword := w.secret("password of a store")
	store := w.write("broken.jks", "this is no store")
	for name, more := range map[string]map[string]string{
		leakMarker:    {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(plainModule, `username="mirror" password="`+w.secrets["password of mirror"]+`"`)},
		"wrong":       {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(plainModule, `username="mirror" password="`+w.secret("wrong password of a mirror")+`"`)},
		"scram":       {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login(scramModule, `username="mirror" password="`+w.secret("wrong scram of a mirror")+`"`)},
		"oauth":       {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": endpoint.URL, "sasl.jaas.config": login(oauthModule, `clientId="quiet" clientSecret="`+clientSecret+`"`)},
		"talkative":   {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": endpoint.URL, "sasl.jaas.config": login(oauthModule, `clientId="talkative" clientSecret="`+clientSecret+`"`)},
		"no login":    {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token", "sasl.jaas.config": login(oauthModule, `clientId="c" clientSecret="`+clientSecret+`"`)},
		"store":       {"security.protocol": "SSL", "ssl.truststore.location": store, "ssl.truststore.password": storePassword},
		"certificate": {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.key": strings.TrimSpace(key), "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE" + chain},
	} {
		configs := map[string]*string{}
		for k, v := range base {
			configs[k] = &v
		}
		for k, v := range more {
			configs[k] = &v
		}
		require.NoError(w.t, adm.CreateClusterMirror(w.ctx, strings.ReplaceAll(name, " ", "-"), configs), name)
	}
	// what is refused says why without it
	bad := w.secret("password of a bad login")
	for name, more := range map[string]map[string]string{
		"unfinished": {"sasl.mechanism": "PLAIN", "sasl.jaas.config": plainModule + ` required username="u" password="` + bad},
		"no module":  {"sasl.mechanism": "PLAIN", "sasl.jaas.config": bad},
		"no user":    {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(plainModule, `password="`+bad+`"`)},
		"flag":       {"sasl.mechanism": "PLAIN", "sasl.jaas.config": plainModule + ` "` + bad + `" username="u" password="x";`},
		"url":        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://u:" + url.QueryEscape(bad) + "@idp/token", "sasl.jaas.config": login(oauthModule, `clientId="c" clientSecret="`+bad+`"`)},
		"unknown":    {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(plainModule, `username="u" password="`+bad+`"`), "no.such.setting": "x"},
		"bad number": {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login(plainModule, `username="u" password="`+bad+`"`), "metadata.max.age.ms": "x"},
		"key":        {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.key": bad, "ssl.keystore.certificate.chain": bad},
		"trust":      {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": bad},
		"pem":        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": store, "ssl.truststore.password": bad},
	} {
		configs := map[string]*string{}
		for k, v := range base {
			configs[k] = &v
		}
		for k, v := range more {
			configs[k] = &v
		}
		require.Error(w.t, adm.CreateClusterMirror(w.ctx, "bad", configs), name)
	}
	details, err := source.ListTopics(w.ctx, leakMarker)
	require.NoError(w.t, err)
	opts := client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{leakMarker: {ID: messages.TopicID(details[leakMarker].ID), Partitions: 1}}}
	res, err := adm.StartMirrorTopics(w.ctx, leakMarker, []string{leakMarker}, opts)
	require.NoError(w.t, errors.Join(err, res.Err()))
	require.NoError(w.t, kafka.Poll(w.ctx, func() error { // the right one works, the wrong ones have failed
		log := w.dst.Process().Log()
		for _, mirror := range []string{"wrong", "scram", "oauth", "talkative", "no-login", "store", "certificate"} {
			if !slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
				return strings.Contains(line, `"mirror": "`+mirror+`"`) && strings.Contains(line, "error")
			}) {
				return fmt.Errorf("mirror %s hasn't failed yet", mirror)
			}
		}
		d, err := adm.DescribeClusterMirrors(w.ctx, []string{leakMarker}, client.DescribeOptions{})
		if err == nil && (len(d.Mirrors[leakMarker].Partitions) != 1 || d.Mirrors[leakMarker].Partitions[0].State != messages.StateMirroring.String()) {
			err = fmt.Errorf("%+v", d.Mirrors)
		}
		return err
	}))
}

// alterations are changes with passwords, good ones and nonsense.
func (w *leakWorld) alterations() {
	w.t.Helper()
	cl := w.client(w.secure, w.tls, kgo.SASL(plain.Auth{User: "admin", Pass: w.secrets["password of admin"]}.AsMechanism()))
	secret, misplaced := w.secret("password of a change"), "misplaced-s3cret/4711"
	w.misplaced["misplaced secret"] = misplaced
	mirror := kmsg.ConfigResourceType(messages.ResourceClusterMirror)
	for _, c := range []struct {
		kind       kmsg.ConfigResourceType
		name       string
		key, value string
	}{
		{mirror, "store", "ssl.truststore.password", secret}, {mirror, "store", "ssl.key.password", secret}, {mirror, leakMarker, "sasl.jaas.config", secret},
		{mirror, "nowhere", "ssl.key.password", secret}, {mirror, "store", "ssl.truststore.passwort", misplaced}, {mirror, "store", misplaced, "x"}, {mirror, misplaced, "ssl.key.password", secret},
		{mirror, "store", "metadata.max.age.ms", misplaced},
		{kmsg.ConfigResourceTypeBroker, "1", "ssl.keystore.password", secret}, {kmsg.ConfigResourceTypeBroker, "", "ssl.key.password", secret},
		{kmsg.ConfigResourceTypeBroker, "1", "listener.name.secure.ssl.keystore.password", secret}, {kmsg.ConfigResourceTypeBroker, "1", "sasl.jaas.config", secret},
		{kmsg.ConfigResourceTypeBroker, "1", "kagami.admin.password", secret}, {kmsg.ConfigResourceTypeBroker, "1", "background.threads", misplaced},
		{kmsg.ConfigResourceTypeTopic, leakMarker, "sasl.jaas.config", secret}, {kmsg.ConfigResourceTypeTopic, leakMarker, "retention.ms", misplaced},
		{kmsg.ConfigResourceType(16), "c", "interval.ms", misplaced}, {kmsg.ConfigResourceType(32), "g", "consumer.session.timeout.ms", misplaced}, {kmsg.ConfigResourceType(32), "g", misplaced, "x"},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", misplaced, "DEBUG"},
	} {
		one := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = c.kind, c.name
		for op := range kmsg.IncrementalAlterConfigOp(4) { // set, delete, append, subtract
			r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: c.key, Op: op, Value: &c.value}}
			one.Resources = []kmsg.IncrementalAlterConfigsRequestResource{r}
			_, err := one.RequestWith(w.ctx, cl)
			require.NoError(w.t, err)
		}
		whole := kmsg.NewPtrAlterConfigsRequest()
		whole.ValidateOnly = c.name == leakMarker
		whole.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: c.kind, ResourceName: c.name, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: c.key, Value: &c.value}}}}
		_, err := whole.RequestWith(w.ctx, cl)
		require.NoError(w.t, err)
	}
	for _, kind := range []kmsg.ConfigResourceType{mirror, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic} {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		for _, name := range []string{leakMarker, "store", "certificate", "oauth", "1", ""} {
			req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kind, ResourceName: name})
		}
		_, err := req.RequestWith(w.ctx, cl)
		require.NoError(w.t, err)
	}
}

// scramUsers are some whose keys are known here, so that they can be looked for.
func (w *leakWorld) scramUsers() {
	w.t.Helper()
	cl := w.client(w.clear, nil, kgo.SASL(scram.Auth{User: "first", Pass: w.secrets["password of first"]}.AsSha512Mechanism()))
	password, salt := w.secret("password of a scram user"), []byte("salt-for-the-test")
	for mechanism, h := range map[int8]func() hash.Hash{1: sha256.New, 2: sha512.New} {
		salted, err := pbkdf2.Key(h, password, salt, 4096, h().Size())
		require.NoError(w.t, err)
		mac := func(text string) []byte {
			m := hmac.New(h, salted)
			m.Write([]byte(text))
			return m.Sum(nil)
		}
		stored := h()
		stored.Write(mac("Client Key"))
		for name, b := range map[string][]byte{"salted password": salted, "client key": mac("Client Key"), "stored key": stored.Sum(nil), "server key": mac("Server Key")} {
			w.secrets[fmt.Sprint(name, " ", mechanism)] = string(b)
		}
		for _, iterations := range []int32{4096, 1, 99999} {
			req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
			req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{
				{Name: leakMarker, Mechanism: mechanism, Iterations: iterations, Salt: salt, SaltedPassword: salted},
				{Name: "", Mechanism: mechanism, Iterations: iterations, Salt: salt, SaltedPassword: salted},
				{Name: "short", Mechanism: 9, Iterations: iterations, Salt: salt, SaltedPassword: salted},
			}
			_, err := req.RequestWith(w.ctx, cl)
			require.NoError(w.t, err)
		}
	}
	user := w.client(w.secure, w.tls, kgo.SASL(scram.Auth{User: leakMarker, Pass: password}.AsSha256Mechanism()))
	require.NoError(w.t, user.Ping(w.ctx))
	_, err := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest().RequestWith(w.ctx, cl)
	require.NoError(w.t, err)
	acl := kadm.NewACLs().Allow("User:" + leakMarker).AllowHosts("*").Topics(leakMarker).Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	_, err = kadm.NewClient(cl).CreateACLs(w.ctx, acl)
	require.NoError(w.t, err)
}

// tools are all of ours that look.
func (w *leakWorld) tools() {
	w.t.Helper()
	plainConfig := func(name, password string) string {
		return w.write(name, "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="+plainModule+` required username="admin" password="`+password+"\";\n")
	}
	config, wrong := plainConfig("admin.properties", w.secrets["password of admin"]), plainConfig("wrong.properties", w.secrets["a wrong password"])
	broken := w.write("broken.properties", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="+w.secrets["a wrong password"]+"\n")
	for _, c := range []string{config, wrong, broken} {
		at := []string{"--bootstrap-server", w.clear, "--command-config", c}
		for _, args := range [][]string{
			{"--describe", "--entity-type", "cluster-mirrors", "--entity-name", leakMarker}, {"--describe", "--entity-type", "cluster-mirrors", "--entity-name", "certificate", "--all"},
			{"--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"}, {"--describe", "--entity-type", "topics", "--entity-name", leakMarker}, {"--describe", "--entity-type", "users"},
			{"--alter", "--entity-type", "cluster-mirrors", "--entity-name", "store", "--add-config", "ssl.truststore.password=" + w.secrets["a wrong password"]},
			{"--alter", "--entity-type", "cluster-mirrors", "--entity-name", "store", "--add-config", "sasl.jaas.config=[" + w.secrets["a wrong password"] + "]"},
			{"--alter", "--entity-type", "users", "--entity-name", leakMarker, "--add-config", "SCRAM-SHA-512=[iterations=1,password=" + strings.ReplaceAll(w.secrets["a wrong password"], "=", "") + "]"},
		} {
			w.tool(w.ctx, "kafka-configs", append(slices.Clone(at), args...)...)
		}
		w.tool(w.ctx, "kafka-acls", append(slices.Clone(at), "--list")...)
		for _, args := range [][]string{{"--list"}, {"--describe"}, {"--describe", "--json"}, {"--create", "--mirror", "by-tool", "--mirror-config", c}} {
			w.tool(w.ctx, "kafka-cluster-mirrors", append(slices.Clone(at), args...)...)
		}
		w.tool(w.ctx, "kagami", append([]string{"audit", "--mirror", leakMarker}, at...)...)
		w.tool(w.ctx, "kagami", "verify", "--bootstrap-server", w.dst.Bootstrap(), "--mirror", leakMarker, "--source-config", c, "--timeout", "20s")
	}
	for name, password := range map[string]string{"right": w.secrets["password of the admin port"], "wrong": w.secrets["a wrong password"]} {
		login := w.write(name+".login", "boss:"+password)
		for _, what := range []string{"mirrors", "partitions", "actors", "nodes", "groups", "journal"} {
			w.tool(w.ctx, "kagami", "query", what, "--admin", w.dst.AdminAddr(), "--credentials", login)
		}
	}
	w.tool(w.ctx, "kagami", "query", "mirrors", "--admin", w.dst.AdminAddr(), "--credentials", w.write("no.login", w.secrets["a wrong password"]))
}

// pages are those of the admin port, with and without a password.
func (w *leakWorld) pages() {
	w.t.Helper()
	for _, login := range [][2]string{{"boss", w.secrets["password of the admin port"]}, {"boss", w.secrets["a wrong password"]}, {"", ""}} {
		for _, path := range []string{
			"/", "/metrics", "/loglevel", "/healthz", "/readyz", "/api/mirrors", "/api/partitions", "/api/actors", "/api/nodes", "/api/groups", "/api/journal", "/api/nothing",
			"/debug/pprof/", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/pprof/trace?seconds=0.1", "/debug/vars",
		} {
			w.page(w.ctx, http.MethodGet, "http://"+w.dst.AdminAddr()+path, login[0], login[1])
		}
	}
}

// ends are a start without the key, with nonsense in the settings, a crash with all stacks,
// and what is in the folder then.
func (w *leakWorld) ends() {
	w.t.Helper()
	require.NoError(w.t, w.dst.Restart(w.ctx))
	require.NoError(w.t, w.dst.Process().Signal(syscall.SIGQUIT))
	<-w.dst.Process().Done()
	require.Contains(w.t, w.dst.Process().Log(), "goroutine 1 ", "it tells all stacks")
	wrong := w.secrets["a wrong password"]
	for _, more := range [][]string{
		{"kagami.secrets.key.file="}, {"kagami.secrets.key.file=" + w.write("other keys", wrong)}, {"kagami.bootstrap.scram=" + wrong}, {"kagami.bootstrap.scram=SCRAM-SHA-512=[name=x,pass=" + wrong + "]"},
		{"listener.name.clear.plain.sasl.jaas.config=" + wrong}, {"ssl.keystore.location=/nowhere", "ssl.keystore.password=" + wrong}, {"listener.name.secure.ssl.keystore.key=" + wrong},
		{"nats.password=" + wrong, "nats.url=nats://u:" + url.QueryEscape(wrong) + "@127.0.0.1:1"}, {"cluster.password=" + wrong, "cluster.peers=1@127.0.0.1:1"}, {"kagami.admin.user=", "kagami.admin.password=" + wrong},
	} {
		args := []string{"server", "--config", w.dst.file()}
		for _, m := range more {
			args = append(args, "--set", m)
		}
		require.Contains(w.t, w.tool(w.ctx, "kagami", args...), "exit status", "%s", strings.SplitN(more[0], "=", 2)[0])
	}
	w.tool(w.ctx, "kagami", "audit", "--mirror", leakMarker, "--data", w.dst.DataDir())
	logs, err := filepath.Glob(filepath.Join(w.dst.DataDir(), "__cluster_metadata-0", "*.log"))
	require.NoError(w.t, err)
	w.tool(w.ctx, "kafka-dump-log", "--files", strings.Join(logs, ","), "--print-data-log")
}
