package main

import (
	"crypto/x509/pkix"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/internal/clock"
)

// laterClock says another time than it is.
type laterClock struct {
	clock.Wall
	by time.Duration
}

func (c laterClock) Now() time.Time { return c.Wall.Now().Add(c.by) }

// TestUnfitIsTold: what clients will stumble over, and what lets in more than it seems to, is told at start.
func TestUnfitIsTold(t *testing.T) {
	a := newAuthority(t)
	pair := writeFile(t, filepath.Join(t.TempDir(), "node.pem"), a.issue(pkix.Name{CommonName: "node"}))
	trust := writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), a.pem())
	base := []string{"log.dirs=/data", "listeners=SSL://127.0.0.1:7001", "ssl.keystore.type=PEM", "ssl.keystore.location=" + pair}
	for name, tc := range map[string]struct {
		set  []string
		by   time.Duration
		want []string
	}{
		"nothing":             {nil, 0, nil},
		"certificate ended":   {nil, 100 * 365 * 24 * time.Hour, []string{"isn't valid now"}},
		"not valid yet":       {nil, -100 * 365 * 24 * time.Hour, []string{"isn't valid now"}},
		"another host":        {[]string{"advertised.listeners=SSL://node9.example.com:7001"}, 0, []string{"doesn't name the host"}},
		"any CA":              {[]string{"ssl.client.auth=required"}, 0, []string{"every CA that the system trusts"}},
		"one CA":              {[]string{"ssl.client.auth=required", "ssl.truststore.type=PEM", "ssl.truststore.location=" + trust}, 0, nil},
		"no authorizer":       {[]string{"super.users=User:admin"}, 0, []string{"super.users has no effect"}},
		"authorizer":          {[]string{"super.users=User:admin", adminACLs}, 0, nil},
		"mechanism not there": {[]string{"kagami.bootstrap.scram=SCRAM-SHA-256=[name=admin,password=4711]"}, 0, []string{"no listener offers the mechanism"}},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			s, err := loadSettings("", append(base, tc.set...))
			require.NoError(t, err)
			n := &node{settings: s, log: zap.New(core), clock: laterClock{by: tc.by}}
			listeners, err := secured{static: s.static, now: n.clock.Now, log: zap.NewNop()}.secure(s.listeners)
			require.NoError(t, err)
			n.warnUnfit(listeners)
			require.Equal(t, len(tc.want), logs.Len(), "%v", logs.All())
			for i, want := range tc.want {
				require.Contains(t, logs.All()[i].Message, want)
			}
		})
	}
}
