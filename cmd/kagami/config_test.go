package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/broker"
	"kagami/messages"
)

func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		name       string
		set        []string
		listeners  []broker.Listener
		advertised []messages.Endpoint
		faults     []string // parts of the error, all of them; none = good
	}{
		{
			name: "one listener", set: []string{"listeners=PLAINTEXT://127.0.0.1:9094"},
			listeners:  []broker.Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Address: "127.0.0.1:9094"}},
			advertised: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "127.0.0.1", Port: 9094}},
		},
		{
			name:       "two listeners, one advertised elsewhere, IPv6",
			set:        []string{"listeners=in://0.0.0.0:9094,out://[::1]:9095", "advertised.listeners=IN://node.example:19094", "listener.security.protocol.map=IN:PLAINTEXT,out:plaintext"},
			listeners:  []broker.Listener{{Name: "IN", Protocol: "PLAINTEXT", Address: "0.0.0.0:9094"}, {Name: "OUT", Protocol: "PLAINTEXT", Address: "[::1]:9095"}},
			advertised: []messages.Endpoint{{Listener: "IN", Protocol: "PLAINTEXT", Host: "node.example", Port: 19094}, {Listener: "OUT", Protocol: "PLAINTEXT", Host: "::1", Port: 9095}},
		},
		{name: "every address and nothing advertised", set: []string{"listeners=PLAINTEXT://:9094"}, faults: []string{"takes every address"}},
		{name: "every address, written in full", set: []string{"listeners=PLAINTEXT://[0:0:0:0:0:0:0:0]:9094"}, faults: []string{"takes every address"}},
		{name: "IPv6 without brackets", set: []string{"listeners=PLAINTEXT://::1:9094"}, faults: []string{"NAME://host:port"}},
		{
			name: "IPv6, advertised as such", set: []string{"listeners=PLAINTEXT://[::]:9094", "advertised.listeners=PLAINTEXT://[2001:db8::1]:9094"},
			listeners:  []broker.Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Address: "[::]:9094"}},
			advertised: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "2001:db8::1", Port: 9094}},
		},
		{name: "advertised without a host", set: []string{"advertised.listeners=PLAINTEXT://:9094"}, faults: []string{"has no host"}},
		{name: "advertised but not there", set: []string{"advertised.listeners=X://h:1"}, faults: []string{"there is no listener X"}},
		{name: "twice", set: []string{"listeners=PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"}, faults: []string{"stands there twice"}},
		{name: "a protocol that there isn't", set: []string{"listeners=QUIC://127.0.0.1:9094"}, faults: []string{"QUIC", "none of PLAINTEXT, SSL"}},
		{name: "no port", set: []string{"listeners=PLAINTEXT://127.0.0.1"}, faults: []string{"PLAINTEXT://127.0.0.1", "NAME://host:port"}},
		{name: "port too high", set: []string{"listeners=PLAINTEXT://127.0.0.1:99999"}, faults: []string{"99999"}},
		{name: "no listener", set: []string{"listeners="}, faults: []string{"listeners"}},
		{name: "two folders", set: []string{"log.dirs=/a,/b"}, faults: []string{"exactly one folder"}},
		{name: "log level", set: []string{"kagami.log.level=loud"}, faults: []string{"kagami.log.level"}},
		{name: "admin address", set: []string{"kagami.admin.listen=9644"}, faults: []string{"kagami.admin.listen"}},
		{name: "not key=value", set: []string{"nonsense"}, faults: []string{"not key=value"}},
		{name: "loopback unless told otherwise", listeners: []broker.Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Address: "localhost:9094"}}, advertised: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "localhost", Port: 9094}}},
		{name: "TLS without a key", set: []string{"listeners=SSL://127.0.0.1:9094"}, faults: []string{"SSL", "ssl.keystore.location"}},
		{name: "SASL without a mechanism", set: []string{"listeners=SASL_PLAINTEXT://127.0.0.1:9094"}, faults: []string{"sasl.enabled.mechanisms"}},
		{name: "a mechanism that there isn't", set: []string{"listeners=SASL_PLAINTEXT://127.0.0.1:9094", "sasl.enabled.mechanisms=GSSAPI"}, faults: []string{"GSSAPI"}},
		{name: "PLAIN without users", set: []string{"listeners=SASL_PLAINTEXT://127.0.0.1:9094", "sasl.enabled.mechanisms=PLAIN"}, faults: []string{"PLAIN", "sasl.jaas.config", "user_<name>"}},
		{name: "tokens without keys", set: []string{"listeners=SASL_PLAINTEXT://127.0.0.1:9094", "sasl.enabled.mechanisms=OAUTHBEARER"}, faults: []string{"sasl.oauthbearer.jwks.endpoint.url"}},
		{name: "keys that aren't there", set: []string{"listeners=SASL_PLAINTEXT://127.0.0.1:9094", "sasl.enabled.mechanisms=OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url=file:///not/there"}, faults: []string{"sasl.oauthbearer.jwks.endpoint.url", "/not/there"}},
		{name: "keys in the clear", set: []string{"listeners=SASL_PLAINTEXT://127.0.0.1:9094", "sasl.enabled.mechanisms=OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url=http://idp.example/keys"}, faults: []string{"https://"}},
		{name: "settings of no listener", set: []string{"listener.name.other.ssl.client.auth=none"}, faults: []string{"there is no listener other"}},
		{name: "a Java class", set: []string{"principal.builder.class=x.Y"}, faults: []string{"principal.builder.class", "Java"}},
		{name: "another authorizer", set: []string{"authorizer.class.name=x.Y"}, faults: []string{"authorizer.class.name"}},
		{name: "super users", set: []string{"super.users=admin"}, faults: []string{"super.users", "User:name"}},
		{name: "half a login", set: []string{"kagami.admin.user=ops"}, faults: []string{"kagami.admin.user", "kagami.admin.password"}},
		{name: "no first user", set: []string{"kagami.bootstrap.scram=SCRAM-SHA-1=[name=a,password=b]"}, faults: []string{"kagami.bootstrap.scram"}},
		{
			name:   "all faults at once",
			set:    []string{"listeners=X://h", "log.dirs=", "kagami.admin.listen=x", "node.id=one", "mirror.num.replica.fetchers=0"},
			faults: []string{"listeners", "log.dirs", "kagami.admin.listen", "node.id", "mirror.num.replica.fetchers"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := loadSettings("", append([]string{"log.dirs=/data"}, tc.set...))
			if (err == nil) != (len(tc.faults) == 0) {
				t.Fatalf("error %v, want %q", err, tc.faults)
			}
			if err != nil {
				if !errors.Is(err, errConfigValue) {
					t.Errorf("error %v isn't %v", err, errConfigValue)
				}
				for _, f := range tc.faults {
					if !strings.Contains(err.Error(), f) {
						t.Errorf("error doesn't name %q:\n%v", f, err)
					}
				}
				return
			}
			if d := cmp.Diff(tc.listeners, s.listeners); d != "" {
				t.Errorf("listeners (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.advertised, s.advertised); d != "" {
				t.Errorf("advertised (-want +got):\n%s", d)
			}
		})
	}
}

func TestSettingsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.properties")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join([]string{
		"# comment", "node.id=7", "log.dirs = /data", "broker.rack=r\\u00e9", "kagami.log.format=json", "something.else=1", "kagami.log.level=debug", "password=${HOME}", "",
	}, "\n")), 0o600))
	s, err := loadSettings(file, []string{"node.id=8"})
	require.NoError(t, err)
	require.Equal(t, messages.NodeID(8), s.nodeID, "an override wins")
	require.Equal(t, "/data", s.dataDir)
	require.Equal(t, "ré", s.rack)
	require.True(t, s.logJSON)
	require.Equal(t, []string{"password", "something.else"}, s.unknown)
	require.Equal(t, "${HOME}", s.static["password"], "nothing is expanded")
	_, err = loadSettings(filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, errConfigFile)
}
