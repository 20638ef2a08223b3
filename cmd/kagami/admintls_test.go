package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"software.sslmate.com/src/go-pkcs12"

	"kagami/client"
	"kagami/test/kafka/pki"
)

// adminFiles are the certificates of a test of the admin port.
type adminFiles struct {
	ca, strangers               pki.Authority
	dir, node, caFile, ops, not string
}

func newAdminFiles(t *testing.T) adminFiles {
	t.Helper()
	f := adminFiles{ca: pki.NewAuthority(t), strangers: pki.NewAuthority(t), dir: t.TempDir()}
	put := func(name string, content []byte) string {
		path := filepath.Join(f.dir, name)
		pki.Put(t, path, content)
		return path
	}
	inADay := time.Now().Add(20 * time.Hour)
	f.caFile = put("ca.pem", f.ca.CA())
	f.node = put("node.pem", f.ca.Issue(t, "node", inADay).PEM(t))
	f.ops = put("ops.pem", f.ca.Issue(t, "ops", inADay).PEM(t))
	f.not = put("not.pem", f.strangers.Issue(t, "not", inADay).PEM(t))
	return f
}

// runs is one call of the command.
func runs(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	code = run(ctx, args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// TestAdminOverTLS: kagami query speaks https with a CA file, a client's certificate and
// credentials; whoever lacks one of them is told what to say. Probes need none of them.
func TestAdminOverTLS(t *testing.T) {
	f := newAdminFiles(t)
	n := startTestNode(t, t.TempDir(), "kagami.admin.security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.location=/not/this/one", "kagami.admin.ssl.keystore.location="+f.node,
		"kagami.admin.ssl.client.auth=required", "kagami.admin.ssl.truststore.type=PEM", "kagami.admin.ssl.truststore.location="+f.caFile,
		"kagami.admin.user=ops", "kagami.admin.password=ops-4711")
	login := writeFile(t, filepath.Join(f.dir, "login"), "ops:ops-4711\n")
	wrong := writeFile(t, filepath.Join(f.dir, "wrong"), "ops:wrong-0815\n")
	at := n.admin.Addr()
	require.Equal(t, "https://"+at, n.adminURL())
	for _, tc := range []struct {
		name string
		args []string
		want string // of the error; "": it works
	}{
		{"all that is needed", []string{"--admin", "https://" + at, "--ca", f.caFile, "--certificate", f.ops, "--credentials", login}, ""},
		{"a CA file says https", []string{"--admin", at, "--ca", f.caFile, "--certificate", f.ops, "--key", f.ops, "--credentials", login}, ""},
		{"no TLS", []string{"--admin", at, "--credentials", login}, "speaks https: say --admin https://"},
		{"no CA", []string{"--admin", "https://" + at, "--certificate", f.ops, "--credentials", login}, "say --ca FILE"},
		{"another CA", []string{"--admin", "https://" + at, "--ca", f.not, "--certificate", f.ops, "--credentials", login}, "of another CA than those in the file of --ca"},
		{"no certificate", []string{"--admin", "https://" + at, "--ca", f.caFile, "--credentials", login}, "say --certificate FILE"},
		{"a stranger's certificate", []string{"--admin", "https://" + at, "--ca", f.caFile, "--certificate", f.not, "--credentials", login}, "tls:"},
		{"no login", []string{"--admin", "https://" + at, "--ca", f.caFile, "--certificate", f.ops}, "say --credentials FILE"},
		{"wrong login", []string{"--admin", "https://" + at, "--ca", f.caFile, "--certificate", f.ops, "--credentials", wrong}, "401 Unauthorized: it has another user or password than the file of --credentials"},
		{"options that contradict", []string{"--admin", "http://" + at, "--ca", f.caFile}, "go with https://"},
		{"a key alone", []string{"--admin", "https://" + at, "--ca", f.caFile, "--key", f.ops}, "go with --certificate"},
		{"no such scheme", []string{"--admin", "ftp://" + at}, "neither host:port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := runs(t, append([]string{"query", "nodes"}, tc.args...)...)
			require.NotContains(t, out+errs, "-4711")
			require.NotContains(t, out+errs, "-0815")
			if tc.want == "" {
				require.Equal(t, exitOK, code, errs)
				require.Contains(t, out, "CONTROLLER")
				return
			}
			require.Equal(t, exitFailed, code)
			require.Contains(t, errs, tc.want)
		})
	}
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool(f.ca)}}}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusForbidden, "/": http.StatusForbidden, "/loglevel": http.StatusForbidden} {
		resp, err := probe.Get("https://" + at + path)
		require.NoError(t, err, path)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode, path)
	}
}

func pool(a pki.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// TestAdminCertificateReplaced: files that change are used at once; half a file and a key
// without its certificate leave the old ones; a trust store that is replaced lets the new
// clients in and the old ones no more.
func TestAdminCertificateReplaced(t *testing.T) {
	f := newAdminFiles(t)
	store := filepath.Join(f.dir, "node.p12")
	asPKCS12 := func(name string) []byte {
		p := f.ca.Issue(t, name, time.Now().Add(time.Hour))
		b, err := pkcs12.Modern.Encode(p.Key, p.Cert, nil, "storepass")
		require.NoError(t, err)
		return b
	}
	pki.Put(t, store, asPKCS12("first"))
	n := startTestNode(t, t.TempDir(), "kagami.admin.security.protocol=SSL", "kagami.admin.ssl.keystore.type=PKCS12", "kagami.admin.ssl.keystore.location="+store, "kagami.admin.ssl.keystore.password=storepass",
		"kagami.admin.ssl.enabled.protocols=TLSv1.2", "kagami.admin.ssl.client.auth=requested", "kagami.admin.ssl.truststore.type=PEM", "kagami.admin.ssl.truststore.location="+f.caFile)
	shown := func(with string) (string, error) {
		c := &tls.Config{RootCAs: pool(f.ca)}
		if with != "" {
			pair, err := tls.LoadX509KeyPair(with, with)
			require.NoError(t, err)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c}}
		resp, err := client.Get("https://" + n.admin.Addr() + "/healthz")
		if err != nil {
			return "", err
		}
		require.NoError(t, resp.Body.Close())
		require.Equal(t, uint16(tls.VersionTLS12), resp.TLS.Version)
		return resp.TLS.PeerCertificates[0].Subject.CommonName, nil
	}
	is := func(want, with string) {
		t.Helper()
		got, err := shown(with)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	is("first", "")
	next := asPKCS12("second")
	require.NoError(t, os.WriteFile(store, next[:len(next)/2], 0o600))
	is("first", "")
	require.NoError(t, os.WriteFile(store, next, 0o600))
	is("second", "")
	require.NoError(t, os.Remove(store))
	is("second", "")
	pki.Put(t, store, asPKCS12("third"))
	is("third", f.ops)
	_, err := shown(f.not)
	require.Error(t, err)
	pki.Put(t, f.caFile, f.strangers.CA())
	is("third", f.not)
	_, err = shown(f.ops)
	require.Error(t, err)
}

// TestEncryptedKeys: keys with a password, as text and as files, of listeners, of the admin
// port, of kagami query, and of a mirror.
func TestEncryptedKeys(t *testing.T) {
	f := newAdminFiles(t)
	key, chain := f.ca.Issue(t, "node", time.Now().Add(time.Hour)).EncryptedPEM(t, "key-4711")
	both := writeFile(t, filepath.Join(f.dir, "encrypted.pem"), string(chain)+string(key))
	n := startTestNode(t, t.TempDir(), "listeners=PLAINTEXT://127.0.0.1:0,TEXT://127.0.0.1:0,FILE://127.0.0.1:0", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TEXT:SSL,FILE:SSL",
		"ssl.keystore.type=PEM", "ssl.key.password=key-4711", "ssl.truststore.type=PEM", "ssl.truststore.location="+f.caFile, "ssl.client.auth=required",
		"listener.name.text.ssl.keystore.key="+string(key), "listener.name.text.ssl.keystore.certificate.chain="+string(chain), "listener.name.file.ssl.keystore.location="+both,
		"kagami.admin.security.protocol=SSL", "kagami.admin.ssl.keystore.location="+both, "kagami.admin.ssl.client.auth=required")
	password := writeFile(t, filepath.Join(f.dir, "password"), "key-4711\n")
	code, out, errs := runs(t, "query", "nodes", "--admin", "https://"+n.admin.Addr(), "--ca", f.caFile, "--certificate", both, "--key-password", password)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "CONTROLLER")
	code, _, errs = runs(t, "query", "nodes", "--admin", "https://"+n.admin.Addr(), "--ca", f.caFile, "--certificate", both)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "set the password of the key")

	dst := startTestNode(t, t.TempDir())
	mirrors, _, _ := connectTo(t, dst.kafka())
	for i, listener := range []string{"TEXT", "FILE"} {
		name := "m" + listener
		settings := map[string]*string{
			"bootstrap.servers": new(n.broker.Addr(listener).String()), "security.protocol": new("SSL"), "ssl.truststore.type": new("PEM"), "ssl.truststore.location": &f.caFile,
			"ssl.keystore.type": new("PEM"), "ssl.key.password": new("key-4711"),
		}
		if i == 0 {
			settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"] = new(string(key)), new(string(chain))
		} else {
			settings["ssl.keystore.location"] = &both
		}
		require.NoError(t, mirrors.CreateClusterMirror(t.Context(), name, settings))
		require.Eventually(t, func() bool {
			all, err := mirrors.ListClusterMirrors(t.Context())
			i := slices.IndexFunc(all, func(m client.ListedMirror) bool { return m.Name == name })
			return err == nil && i >= 0 && all[i].SourceClusterID == n.clusterID
		}, patience, 50*time.Millisecond, listener)
	}
	wrong := map[string]*string{
		"bootstrap.servers": new(n.broker.Addr("TEXT").String()), "security.protocol": new("SSL"), "ssl.keystore.type": new("PEM"), "ssl.key.password": new("wrong-0815"),
		"ssl.keystore.key": new(string(key)), "ssl.keystore.certificate.chain": new(string(chain)),
	}
	err := mirrors.CreateClusterMirror(t.Context(), "wrong", wrong)
	require.ErrorContains(t, err, "can't be opened with the password")
	require.NotContains(t, err.Error(), "-0815")
}

// TestAdminTLSSettings: what can't be honoured stops the node, and says so.
func TestAdminTLSSettings(t *testing.T) {
	f := newAdminFiles(t)
	for name, tc := range map[string]struct {
		set  []string
		want string
	}{
		"keys without TLS":        {[]string{"kagami.admin.ssl.keystore.location=" + f.node}, "set kagami.admin.security.protocol=SSL"},
		"no key":                  {[]string{"kagami.admin.security.protocol=SSL"}, "ssl.keystore.location"},
		"wrong password":          {[]string{"kagami.admin.security.protocol=SSL", "ssl.keystore.location=" + f.node, "kagami.admin.ssl.keystore.type=JKS"}, "set the type of the store to PEM"},
		"certificates of anybody": {[]string{"kagami.admin.security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.location=" + f.node, "kagami.admin.ssl.client.auth=required"}, "needs kagami.admin.ssl.truststore.location"},
		"no such protocol":        {[]string{"kagami.admin.security.protocol=SASL_SSL"}, "kagami.admin.security.protocol"},
		"bad value":               {[]string{"kagami.admin.security.protocol=SSL", "kagami.admin.ssl.client.auth=maybe"}, "kagami.admin.ssl.client.auth"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadSettings("", append([]string{"log.dirs=/data"}, tc.set...))
			require.ErrorIs(t, err, errConfigValue)
			require.ErrorContains(t, err, tc.want)
		})
	}
	s, err := loadSettings("", []string{"log.dirs=/data", "kagami.admin.security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.location=" + f.node, "kagami.admin.ssl.principal.mapping.rules=DEFAULT"})
	require.NoError(t, err)
	require.Equal(t, []string{"kagami.admin.ssl.principal.mapping.rules"}, s.unknown)
}

// TestAdminGarbage: what isn't TLS costs its own connection.
func TestAdminGarbage(t *testing.T) {
	f := newAdminFiles(t)
	n := startTestNode(t, t.TempDir(), "kagami.admin.security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.location="+f.node)
	resp, err := http.Get("http://" + n.admin.Addr() + "/healthz")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.True(t, strings.Contains(string(body), "HTTP request to an HTTPS server"))
	code, _, errs := runs(t, "query", "nodes", "--admin", "https://"+n.admin.Addr(), "--ca", f.caFile)
	require.Equal(t, exitOK, code, errs)
	plain := startTestNode(t, t.TempDir())
	code, _, errs = runs(t, "query", "nodes", "--admin", "https://"+plain.admin.Addr(), "--ca", f.caFile)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "it speaks http, not https")
}
