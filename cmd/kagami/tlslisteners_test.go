package main

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTLSSettingsOfListeners: client certificates that are asked for or demanded, versions
// and suites of TLS, each of one listener only.
func TestTLSSettingsOfListeners(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	pair := writeFile(t, filepath.Join(dir, "node.pem"), a.issue(pkix.Name{CommonName: "node"}))
	trust := writeFile(t, filepath.Join(dir, "ca.pem"), a.pem())
	const suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	n := startTestNode(t, t.TempDir(),
		"listeners=PLAINTEXT://127.0.0.1:0,WANTED://[::1]:0,SUITE://127.0.0.1:0,NEWEST://127.0.0.1:0,OLDER://127.0.0.1:0,USERS://127.0.0.1:0,BOTH://127.0.0.1:0",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,WANTED:SSL,SUITE:SSL,NEWEST:SSL,OLDER:SSL,USERS:SASL_SSL,BOTH:SASL_SSL",
		"ssl.keystore.type=PEM", "ssl.keystore.location="+pair, "ssl.truststore.type=PEM", "ssl.truststore.location="+trust,
		"ssl.client.auth=required", // of SASL_SSL only with the prefix
		"listener.name.wanted.ssl.client.auth=requested", "listener.name.wanted.ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/",
		"listener.name.suite.ssl.cipher.suites="+suite, "listener.name.newest.ssl.enabled.protocols=TLSv1.3", "listener.name.older.ssl.protocol=TLSv1.2",
		"listener.name.both.ssl.client.auth=required",
		"sasl.enabled.mechanisms=PLAIN", "listener.name.users.plain.sasl.jaas.config="+plainUsersConfig, "listener.name.both.plain.sasl.jaas.config="+plainUsersConfig,
		adminACLs, "super.users=User:admin")
	known, stranger := a.issue(pkix.Name{CommonName: "admin"}), newAuthority(t).issue(pkix.Name{CommonName: "admin"})
	client := func(certificate string, change func(*tls.Config)) kgo.Opt {
		c := a.client("")
		if certificate != "" {
			pair, err := tls.X509KeyPair([]byte(certificate), []byte(certificate))
			require.NoError(t, err)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		if change != nil {
			change(c)
		}
		return kgo.DialTLSConfig(c)
	}
	only := func(version uint16, suites ...uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MinVersion, c.MaxVersion, c.CipherSuites = version, version, suites }
	}
	const refused, anonymous, admin = 0, 1, 2
	for i, tc := range []struct {
		name, listener string
		opts           []kgo.Opt
		want           int
	}{
		{"asked for, and none", "WANTED", []kgo.Opt{client("", nil)}, anonymous},
		{"asked for, and shown", "WANTED", []kgo.Opt{client(known, nil)}, admin},
		{"asked for, and a stranger's", "WANTED", []kgo.Opt{client(stranger, nil)}, refused},
		{"demanded, and none", "NEWEST", []kgo.Opt{client("", nil)}, refused},
		{"demanded, and a stranger's", "NEWEST", []kgo.Opt{client(stranger, nil)}, refused},
		{"TLS 1.3", "NEWEST", []kgo.Opt{client(known, only(tls.VersionTLS13))}, anonymous}, // its user is CN=admin
		{"TLS 1.3 only", "NEWEST", []kgo.Opt{client(known, only(tls.VersionTLS12))}, refused},
		{"TLS 1.2 at most", "OLDER", []kgo.Opt{client(known, only(tls.VersionTLS13))}, refused},
		{"TLS 1.2", "OLDER", []kgo.Opt{client(known, only(tls.VersionTLS12))}, anonymous},
		{"the suite", "SUITE", []kgo.Opt{client(known, only(tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384))}, anonymous},
		{"another suite", "SUITE", []kgo.Opt{client(known, only(tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))}, refused},
		{"a version that no suite is of", "SUITE", []kgo.Opt{client(known, only(tls.VersionTLS13))}, refused},
		{"SASL, no certificate", "USERS", []kgo.Opt{client("", nil), asPlain("admin", "admin-4711")}, admin},
		{"SASL and a certificate", "BOTH", []kgo.Opt{client(stranger, nil), asPlain("admin", "admin-4711")}, refused},
		{"SASL and no certificate", "BOTH", []kgo.Opt{client("", nil), asPlain("admin", "admin-4711")}, refused},
		{"the user is that of SASL", "BOTH", []kgo.Opt{client(known, nil), asPlain("alice", "alice-4711")}, anonymous},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cl := dialAs(t, n.at(tc.listener), tc.opts...)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := cl.Ping(ctx)
			if tc.want == refused {
				require.Error(t, err)
				require.NoError(t, ctx.Err(), "the node has ended it, not the test")
				return
			}
			require.NoError(t, err)
			_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, string(rune('a'+i)))
			if tc.want == admin {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
			}
		})
	}
}

// TestDelegationTokensRefused: each request about them says why.
func TestDelegationTokensRefused(t *testing.T) {
	n := startTestNode(t, t.TempDir(), "listeners=PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
		"sasl.enabled.mechanisms=PLAIN", "listener.name.users.plain.sasl.jaas.config="+plainUsersConfig)
	code := func(resp kmsg.Response) int16 {
		switch resp := resp.(type) {
		case *kmsg.CreateDelegationTokenResponse:
			return resp.ErrorCode
		case *kmsg.RenewDelegationTokenResponse:
			return resp.ErrorCode
		case *kmsg.ExpireDelegationTokenResponse:
			return resp.ErrorCode
		default:
			return resp.(*kmsg.DescribeDelegationTokenResponse).ErrorCode
		}
	}
	for listener, want := range map[string]*kerr.Error{"PLAINTEXT": kerr.DelegationTokenRequestNotAllowed, "USERS": kerr.DelegationTokenAuthDisabled} {
		opts := []kgo.Opt{}
		if listener == "USERS" {
			opts = append(opts, asPlain("admin", "admin-4711"))
		}
		cl := dialAs(t, n.at(listener), opts...)
		for _, req := range []kmsg.Request{
			kmsg.NewPtrCreateDelegationTokenRequest(), kmsg.NewPtrRenewDelegationTokenRequest(), kmsg.NewPtrExpireDelegationTokenRequest(), kmsg.NewPtrDescribeDelegationTokenRequest(),
		} {
			resp, err := cl.Broker(1).Request(t.Context(), req)
			require.NoError(t, err, "%s %s", listener, kmsg.NameForKey(req.Key()))
			require.Equal(t, want.Code, code(resp), "%s %s", listener, kmsg.NameForKey(req.Key()))
		}
	}
}
