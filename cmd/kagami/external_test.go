package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"kagami/cluster"
	"kagami/messages"
)

// natsServers are three servers of somebody else's NATS cluster: with TLS, a user for
// us and one for whoever else there is.
func natsServers(t *testing.T, cert, key string) (urls []string, servers []*server.Server) {
	t.Helper()
	dir := t.TempDir()
	addresses := []string{testAddress(t), testAddress(t), testAddress(t)}
	for i, address := range addresses {
		file := filepath.Join(dir, fmt.Sprint(i, ".conf"))
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
server_name: theirs-%d, listen: "127.0.0.1:-1", max_payload: 32MB
cluster { name: theirs, listen: "%s", routes: ["nats-route://%s"] }
jetstream { store_dir: "%s", max_file_store: 1TB }
tls { cert_file: "%s", key_file: "%s", timeout: 5 }
accounts {
  KAGAMI { jetstream: enabled, users: [{user: kagami, password: "right-4711"}] }
  OTHERS { jetstream: enabled, users: [{user: else, password: "x"}] }
  SYS { users: [{user: sys, password: "y"}] }
}
system_account: SYS
`, i, address, strings.Join(addresses, `", "nats-route://`), filepath.Join(dir, fmt.Sprint("js", i)), cert, key), 0o600))
		o, err := server.ProcessConfigFile(file)
		require.NoError(t, err)
		o.NoSigs, o.NoLog = true, true
		s, err := server.NewServer(o)
		require.NoError(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		require.True(t, s.ReadyForConnections(10*time.Second))
		servers = append(servers, s)
		urls = append(urls, "tls://"+s.Addr().String())
	}
	return urls, servers
}

// Three nodes without servers of their own form on an existing NATS cluster, replicate,
// and go on when one of its servers and one of theirs is gone.
func TestSeveralNodesOnExternalNATS(t *testing.T) {
	files := testCertificates(t, 9)(9)
	path := func(i int) string { _, p, _ := strings.Cut(files[i], "="); return p }
	urls, servers := natsServers(t, path(1), path(2))

	c := newTestNodes(t, nil, "nats.url="+strings.Join(urls, ","), "nats.user=kagami", "nats.password=right-4711", "nats.tls.ca.file="+path(0), "kagami.journal.max.bytes=67108864")
	c.start(1, 2, 3)
	id := c.nodes[1].clusterID
	require.Equal(t, id, c.nodes[3].clusterID)
	_, cl, adm := c.connect(1)
	c.create(adm, "t", 6)
	produce(t, cl, "t", 20)
	c.equal("t", 6, 1, 2)
	c.equal("t", 6, 1, 3)
	require.NoDirExists(t, c.folder(1)+"/"+journalFolder)

	servers[0].Shutdown()
	c.stop(2)
	await(t, "appends with one server and one node less", func() error {
		for p := range int32(6) {
			if part := c.nodes[1].store.Image().Topic("t").Partitions[p]; part.Leader == 2 {
				return fmt.Errorf("partition %d is led by node 2", p)
			}
		}
		return nil
	})
	produce(t, cl, "t", 20)
	c.start(2)
	require.Equal(t, id, c.nodes[2].clusterID)
	c.equal("t", 6, 1, 2)

	// A folder of another cluster, wrong credentials and an unknown CA are refused.
	alone, err := tryNode(t, c.folder(4), "node.id=4")
	require.NoError(t, err)
	stopTestNode(t, alone)
	err = c.try(4)
	require.ErrorIs(t, err, cluster.ErrForeignCluster)
	require.ErrorContains(t, err, id)
	require.ErrorContains(t, err, alone.clusterID)
	err = c.try(5, "nats.password=wrong-0815")
	for i, url := range urls { // each server is named with what it says, whichever was asked last
		want := "Authorization Violation (check nats.user"
		if i == 0 {
			want = "connection refused"
		}
		require.Regexp(t, regexp.QuoteMeta(url)+": [^;]*"+regexp.QuoteMeta(want), err.Error())
	}
	require.NotContains(t, err.Error(), "wrong-0815")
	err = c.try(5, "nats.tls.ca.file=")
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	require.ErrorContains(t, err, "check nats.tls.ca.file")
	for _, e := range c.logs.All() {
		require.NotContains(t, fmt.Sprint(e.Message, e.ContextMap()), "right-4711")
	}
}

func TestExternalNATSRefused(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		set  []string
		want string
	}{
		{[]string{"nats.url=nats://a:secret@h:1"}, "has a user"},
		{[]string{"nats.url=http://h:1"}, "isn't nats://"},
		{[]string{"nats.url=nats://h:1", "nats.user=u"}, "set together"},
		{[]string{"nats.url=nats://h:1", "nats.token=t", "nats.credentials.file=f"}, "more than one"},
		{[]string{"nats.url=nats://h:1", "cluster.peers=1@127.0.0.1:1,2@127.0.0.1:2"}, "nats.url"},
	} {
		_, err := loadSettings("", options(dir, tc.set...))
		require.ErrorContains(t, err, tc.want)
		require.NotContains(t, err.Error(), "secret")
	}
	for name, tc := range map[string]struct {
		change func(*server.Options)
		want   string
	}{
		"small messages": {func(o *server.Options) { o.MaxPayload = 1 << 20 }, "set max_payload"},
		"no JetStream":   {func(o *server.Options) { o.JetStream = false }, "JetStream isn't enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 32 << 20}
			tc.change(o)
			s, err := server.NewServer(o)
			require.NoError(t, err)
			s.Start()
			defer s.Shutdown()
			require.True(t, s.ReadyForConnections(10*time.Second))
			c := newTestNodes(t, []messages.NodeID{}, "nats.url=nats://"+s.Addr().String())
			require.ErrorContains(t, c.try(1), tc.want)
		})
	}
	require.NoError(t, os.RemoveAll(dir))
}
