package main

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/internal/clock"
)

// hosts are ways to write where to listen, and whether others can reach that.
var hosts = map[string]bool{
	"": true, "0.0.0.0": true, "::": true, "0:0:0:0:0:0:0:0": true, "10.0.0.1": true, "192.168.1.2": true, "fe80::1": true, "2001:db8::1": true, "::ffff:10.0.0.1": true,
	"node1": true, "node1.example.com": true, "localhost.example.com": true,
	"localhost": false, "127.0.0.1": false, "127.4.5.6": false, "::1": false, "::ffff:127.0.0.1": false,
}

// TestNothingInTheClear: every listener of a node, on every kind of address. What others
// could reach in the clear, or without saying who they are, is refused, and the error names
// the setting that allows it. A Kafka listener is allowed by being written down.
func TestNothingInTheClear(t *testing.T) {
	f := newAdminFiles(t)
	adminTLS := []string{"kagami.admin.security.protocol=SSL", "kagami.admin.ssl.keystore.type=PEM", "kagami.admin.ssl.keystore.location=" + f.node}
	adminLogin := []string{"kagami.admin.user=ops", "kagami.admin.password=ops-4711"}
	adminCert := []string{"kagami.admin.ssl.client.auth=required", "kagami.admin.ssl.truststore.type=PEM", "kagami.admin.ssl.truststore.location=" + f.caFile}
	clusterTLS := []string{"cluster.tls.certificate.file=c", "cluster.tls.key.file=k", "cluster.tls.ca.file=ca"}
	clusterLogin := []string{"cluster.user=u", "cluster.password=p"}
	for _, tc := range []struct {
		name, listener string // setting, host:port to come
		set            [][]string
		allowed        []string // named by the error when others can reach it; nil: it starts
	}{
		{"admin", "kagami.admin.listen=", nil, []string{"kagami.admin.allow.clear=true", "kagami.admin.allow.anonymous=true"}},
		{"admin and profiles", "kagami.admin.listen=", [][]string{{"kagami.pprof.enable=true"}}, []string{"kagami.admin.allow.clear=true", "kagami.admin.allow.anonymous=true"}},
		{"admin with a login", "kagami.admin.listen=", [][]string{adminLogin}, []string{"kagami.admin.allow.clear=true"}},
		{"admin with TLS", "kagami.admin.listen=", [][]string{adminTLS}, []string{"kagami.admin.allow.anonymous=true"}},
		{"admin with TLS and a login", "kagami.admin.listen=", [][]string{adminTLS, adminLogin}, nil},
		{"admin with TLS and certificates", "kagami.admin.listen=", [][]string{adminTLS, adminCert}, nil},
		{"admin, as it is meant", "kagami.admin.listen=", [][]string{{"kagami.admin.allow.clear=true", "kagami.admin.allow.anonymous=true"}}, nil},
		{"nodes", "cluster.listen=", nil, []string{"cluster.allow.clear=true", "neither TLS nor credentials"}},
		{"nodes with a password", "cluster.listen=", [][]string{clusterLogin}, []string{"cluster.allow.clear=true"}},
		{"nodes that only may", "cluster.listen=", [][]string{{"cluster.allow.clear=true"}}, []string{"neither TLS nor credentials"}},
		{"nodes with TLS", "cluster.listen=", [][]string{clusterTLS}, nil},
		{"nodes with a password, as it is meant", "cluster.listen=", [][]string{clusterLogin, {"cluster.allow.clear=true"}}, nil},
		{"clients", "listeners=PLAINTEXT://", [][]string{{"advertised.listeners=PLAINTEXT://node1:9094"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for host, reachable := range hosts {
				set := []string{"log.dirs=/data", tc.listener + net.JoinHostPort(host, "7001")}
				if tc.listener == "cluster.listen=" {
					if host == "" {
						continue // isn't an address there
					}
					set = append(set, "node.id=1", "cluster.peers=2@127.0.0.1:7002,3@127.0.0.1:7003")
				}
				for _, more := range tc.set {
					set = append(set, more...)
				}
				_, err := loadSettings("", set)
				if !reachable || tc.allowed == nil {
					require.NoError(t, err, "%q", host)
					continue
				}
				require.ErrorIs(t, err, errConfigValue, "%q", host)
				for _, name := range tc.allowed {
					require.ErrorContains(t, err, name, "%q", host)
				}
			}
		})
	}
}

// TestClearIsTold: what is in the clear by the operator's wish is told at start.
func TestClearIsTold(t *testing.T) {
	for host, reachable := range hosts {
		core, logs := observer.New(zap.WarnLevel)
		s, err := loadSettings("", []string{
			"log.dirs=/data", "listeners=PLAINTEXT://" + net.JoinHostPort(host, "7001"), "advertised.listeners=PLAINTEXT://node1:9094",
			"kagami.admin.listen=" + net.JoinHostPort(host, "7002"), "kagami.admin.allow.clear=true", "kagami.admin.allow.anonymous=true",
		})
		require.NoError(t, err)
		n := &node{settings: s, log: zap.New(core), clock: clock.Wall{}}
		n.warnClear()
		want := 0
		if reachable {
			want = 3
		}
		require.Equal(t, want, logs.Len(), "%q: %v", host, logs.All())
	}
}
