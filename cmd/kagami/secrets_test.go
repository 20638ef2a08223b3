package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kagami/messages"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
	"kagami/test/kafka/leak"
)

const (
	mirrorPassword = "mirror-pass/word+4711"
	storePassword  = "store pass:word=0815"
	userPassword   = "user-pass-word-1234"
)

// keyFile is a file of keys.
func keyFile(t *testing.T, lines ...string) string {
	t.Helper()
	return writeFile(t, filepath.Join(t.TempDir(), "keys"), strings.Join(lines, "\n")+"\n")
}

func newSecretsKey(t *testing.T) string {
	t.Helper()
	k, err := secrets.NewKey()
	require.NoError(t, err)
	return k
}

func secretsID(t *testing.T, key string) string {
	t.Helper()
	r, err := secrets.Parse(key)
	require.NoError(t, err)
	return r.Primary()
}

// securedClear is a node with a listener for SCRAM users beside the open one.
func securedClear(more ...string) []string {
	return append([]string{
		"listeners=PLAINTEXT://127.0.0.1:0,SCRAM://127.0.0.1:0", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SCRAM:SASL_PLAINTEXT",
		"sasl.enabled.mechanisms=SCRAM-SHA-512",
	}, more...)
}

// writeSecrets makes a mirror with passwords and a SCRAM user.
func writeSecrets(t *testing.T, addr, mirror string) {
	t.Helper()
	adm, cl, _ := connectTo(t, addr)
	require.NoError(t, adm.CreateClusterMirror(t.Context(), mirror, map[string]*string{
		"bootstrap.servers": new("127.0.0.1:1"), "security.protocol": new("SASL_SSL"), "sasl.mechanism": new("PLAIN"),
		"sasl.jaas.config":        new(`org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="` + mirrorPassword + `";`),
		"ssl.truststore.location": new("/nowhere.jks"), "ssl.truststore.password": new(storePassword),
	}))
	res, err := kadm.NewClient(cl).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "u", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: userPassword}})
	require.NoError(t, errors.Join(err, res.Error()))
}

// opened is what the metadata's secrets are, by the node's keys.
func (n *node) openSecrets(t *testing.T, mirror string) (map[string]string, messages.ScramCredential) {
	t.Helper()
	img := n.store.Image()
	values, err := metadata.OpenConfigs(n.settings.secrets, messages.ResourceClusterMirror, mirror, img.Mirror(mirror).Configs)
	require.NoError(t, err)
	u := metadata.ScramUser{Name: "u", Mechanism: messages.ScramSHA512}
	c, ok := img.ScramCredential(u)
	require.True(t, ok)
	c, err = metadata.OpenScram(n.settings.secrets, u, c)
	require.NoError(t, err)
	return values, c
}

// hunter looks for all that must not be read.
func secretsHunter(t *testing.T, n *node, more map[string]string) *leak.Hunter {
	t.Helper()
	values, c := n.openSecrets(t, "m")
	all := map[string]string{
		"password of the mirror": mirrorPassword, "password of the store": storePassword, "password of the user": userPassword,
		"login entry": values["sasl.jaas.config"], "stored key": string(c.StoredKey), "server key": string(c.ServerKey),
	}
	maps.Copy(all, more)
	return leak.New(t, all)
}

func requireLogin(t *testing.T, addr string, works bool) {
	t.Helper()
	cl := dialAs(t, addr, kgo.SASL(scram.Auth{User: "u", Pass: userPassword}.AsSha512Mechanism()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := cl.Ping(ctx)
	if works {
		require.NoError(t, err)
	} else {
		require.Error(t, err)
	}
}

// requirePrivate checks that nobody but the owner may read what is below dir, by its own
// mode or that of a folder on the way, whatever the mode of dir itself, which may be there
// before the node is.
func requirePrivate(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() && info.Mode().Perm()&0o077 == 0:
			return fs.SkipDir
		case !e.IsDir() && info.Mode().Perm()&0o077 != 0:
			return fmt.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	}))
}

// TestSecretsAtRest: with a key nothing in the data folder is a secret, from the first
// record on; what was written before it goes when it comes, and when it changes; without it
// the node doesn't start.
func TestSecretsAtRest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := startTestNode(t, dir, securedClear()...)
	writeSecrets(t, n.kafka(), "m")
	hunter := secretsHunter(t, n, nil)
	require.NotEmpty(t, hunter.Folder(t, dir), "it looks for nothing")
	requireLogin(t, n.at("SCRAM"), true)
	stopTestNode(t, n)

	first, second := newSecretsKey(t), newSecretsKey(t)
	awaitClean := func(n *node, hunter *leak.Hunter) {
		t.Helper()
		await(t, "the secrets to go", func() error {
			if found := hunter.Folder(t, dir); len(found) > 0 {
				return errors.New(leak.Describe(found))
			}
			return nil
		})
		values, _ := n.openSecrets(t, "m")
		require.Contains(t, values["sasl.jaas.config"], mirrorPassword)
		require.Equal(t, storePassword, values["ssl.truststore.password"])
		requireLogin(t, n.at("SCRAM"), true)
	}
	n = startTestNode(t, dir, securedClear("kagami.secrets.key.file="+keyFile(t, first))...)
	require.Equal(t, map[string]int{secretsID(t, first): 4}, n.store.Image().SecretCounts())
	hunter = secretsHunter(t, n, map[string]string{"the key": first})
	awaitClean(n, hunter)
	requirePrivate(t, dir)
	writeSecrets(t, n.kafka(), "m2")
	require.Equal(t, map[string]int{secretsID(t, first): 6}, n.store.Image().SecretCounts())
	require.Empty(t, hunter.Folder(t, dir))
	_, cl, _ := connectTo(t, n.kafka())
	alter := alterMirror(t, cl, "m2", map[string]*string{"ssl.truststore.password": new("another word 99")})
	require.Zero(t, alter.ErrorCode, alter.ErrorMessage)
	stopTestNode(t, n)

	_, err := tryNode(t, dir, securedClear()...)
	require.ErrorIs(t, err, errSecretsKey)
	require.ErrorContains(t, err, secretsID(t, first))
	require.ErrorContains(t, err, "kagami.secrets.key.file")
	_, err = tryNode(t, dir, securedClear("kagami.secrets.key.file="+keyFile(t, second))...)
	require.ErrorIs(t, err, errSecretsKey)

	// the second key encrypts, the first one opens what there is
	old := leak.New(t, map[string]string{"id of the first key": secretsID(t, first)})
	require.NotEmpty(t, old.Folder(t, dir))
	n = startTestNode(t, dir, securedClear("kagami.secrets.key.file="+keyFile(t, "# of May", second, first))...)
	awaitClean(n, old)
	awaitClean(n, hunter)
	stopTestNode(t, n)
	n = startTestNode(t, dir, securedClear("kagami.secrets.key.file="+keyFile(t, second))...)
	awaitClean(n, hunter)
	values, _ := n.openSecrets(t, "m2")
	require.Equal(t, "another word 99", values["ssl.truststore.password"])
	stopTestNode(t, n)

	// and back to clear text
	n = startTestNode(t, dir, securedClear("kagami.secrets.key.file="+keyFile(t, "clear", second))...)
	require.Equal(t, map[string]int{"": 6}, n.store.Image().SecretCounts())
	requireLogin(t, n.at("SCRAM"), true)
	stopTestNode(t, n)
	n = startTestNode(t, dir, securedClear()...)
	requireLogin(t, n.at("SCRAM"), true)
}

func alterMirror(t *testing.T, cl *kgo.Client, mirror string, values map[string]*string) kmsg.IncrementalAlterConfigsResponseResource {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), mirror
	for k, v := range values {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = k, v
		if v == nil {
			c.Op = kmsg.IncrementalAlterConfigOpDelete
		}
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.Len(t, resp.Resources, 1)
	return resp.Resources[0]
}

// TestSecretsKeyLost: a node that is told to start without the key serves all but what
// needs it, writes no clear text, and takes the secrets anew with a new key.
func TestSecretsKeyLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := startTestNode(t, dir, securedClear("kagami.secrets.key.file="+keyFile(t, newSecretsKey(t)))...)
	writeSecrets(t, n.kafka(), "m")
	hunter := secretsHunter(t, n, nil)
	stopTestNode(t, n)

	n = startTestNode(t, dir, securedClear("kagami.secrets.unreadable.allow=true")...)
	requireLogin(t, n.at("SCRAM"), false)
	await(t, "the mirror's error", func() error {
		answer, err := n.queries().Query(t.Context(), "mirrors", url.Values{})
		if text := fmt.Sprint(answer); err != nil || !strings.Contains(text, secrets.ErrNoKey.Error()) || !strings.Contains(text, "sasl.jaas.config") {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	})
	_, cl, _ := connectTo(t, n.kafka())
	refused := alterMirror(t, cl, "m", map[string]*string{"ssl.truststore.password": new(storePassword), "sasl.jaas.config": nil, "security.protocol": new("SSL")})
	require.Equal(t, int16(44), refused.ErrorCode)
	require.Contains(t, *refused.ErrorMessage, "kagami.secrets.key.file")
	require.Empty(t, hunter.Folder(t, dir))
	stopTestNode(t, n)

	n = startTestNode(t, dir, securedClear("kagami.secrets.unreadable.allow=true", "kagami.secrets.key.file="+keyFile(t, newSecretsKey(t)))...)
	_, cl, _ = connectTo(t, n.kafka())
	refused = alterMirror(t, cl, "m", map[string]*string{"mirror.topics.include": new("a.*")})
	require.Equal(t, int16(44), refused.ErrorCode)
	require.Contains(t, *refused.ErrorMessage, "sasl.jaas.config")
	require.Contains(t, *refused.ErrorMessage, "set or delete")
	done := alterMirror(t, cl, "m", map[string]*string{
		"ssl.truststore.password": new(storePassword),
		"sasl.jaas.config":        new(`org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="` + mirrorPassword + `";`),
	})
	require.Zero(t, done.ErrorCode, done.ErrorMessage)
	res, err := kadm.NewClient(cl).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "u", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: userPassword}})
	require.NoError(t, errors.Join(err, res.Error()))
	requireLogin(t, n.at("SCRAM"), true)
	require.Empty(t, n.store.Image().Unopened(n.settings.secrets))
	require.Empty(t, secretsHunter(t, n, nil).Folder(t, dir))
}

// TestSecretsKeyFile: where keys may come from, and what is wrong with them.
func TestSecretsKeyFile(t *testing.T) {
	key := newSecretsKey(t)
	file := keyFile(t, key)
	none := func(string) (string, bool) { return "", false }
	set := func(name string) (string, bool) { return key, name == secretsKeyEnv }
	r, err := loadSecrets("", none)
	require.NoError(t, err)
	require.Nil(t, r)
	for _, got := range []struct {
		file string
		env  func(string) (string, bool)
	}{{file, none}, {"", set}} {
		r, err := loadSecrets(got.file, got.env)
		require.NoError(t, err)
		require.Equal(t, secretsID(t, key), r.Primary())
	}
	_, err = loadSecrets(file, set)
	require.ErrorContains(t, err, "both")
	_, err = loadSecrets("", func(string) (string, bool) { return "", true })
	require.ErrorIs(t, err, secrets.ErrKeys)
	_, err = loadSecrets(t.TempDir(), none)
	require.Error(t, err)
	require.NoError(t, os.Chmod(file, 0o640))
	_, err = loadSecrets(file, none)
	require.ErrorContains(t, err, "chmod 600")
	require.NotContains(t, fmt.Sprint(err), key)
	bad := keyFile(t, key+"x")
	_, err = loadSettings("", options(t.TempDir(), "kagami.secrets.key.file="+bad))
	require.ErrorContains(t, err, "line 1")
	require.NotContains(t, err.Error(), key)

}
