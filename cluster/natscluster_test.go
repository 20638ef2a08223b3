package cluster

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/internal/ports"
	"kagami/messages"
)

// testCluster is servers on loopback with folders that outlive them.
type testCluster struct {
	tb      testing.TB
	dir     string
	peers   map[messages.NodeID]string
	change  func(*ServerOptions)
	servers map[messages.NodeID]*Server
}

// testClusterWait bounds every wait for something that must happen; the machine
// of a CI run may be slow and elections take seconds.
const testClusterWait = 90 * time.Second

func freeAddress(tb testing.TB) string {
	tb.Helper()
	a, err := ports.FreeAddr()
	require.NoError(tb, err)
	return a
}

// newTestCluster prepares n nodes from 1 on and starts none. Its test runs beside
// others: what such tests wait for is timers of elections.
func newTestCluster(tb testing.TB, n int, change func(*ServerOptions)) *testCluster {
	tb.Helper()
	if t, ok := tb.(*testing.T); ok {
		t.Parallel()
	}
	c := &testCluster{tb: tb, dir: tb.TempDir(), peers: map[messages.NodeID]string{}, change: change, servers: map[messages.NodeID]*Server{}}
	for i := range n {
		c.peers[messages.NodeID(i+1)] = freeAddress(tb)
	}
	tb.Cleanup(func() {
		var closing sync.WaitGroup
		for _, s := range c.servers {
			closing.Go(s.Close)
		}
		closing.Wait()
	})
	return c
}

func startTestCluster(tb testing.TB, n int, change func(*ServerOptions)) *testCluster {
	tb.Helper()
	c := newTestCluster(tb, n, change)
	for id := range c.peers {
		c.start(id)
	}
	return c
}

func (c *testCluster) options(id messages.NodeID) ServerOptions {
	o := ServerOptions{Node: id, Logger: zap.NewNop(), Cluster: &Options{
		Listen: c.peers[id], Peers: c.peers, StoreDir: c.store(id), SyncInterval: time.Minute,
		BeatInterval: 50 * time.Millisecond, DeadAfter: 5 * time.Second, ElectionTimeout: electionOfTest(c.tb),
	}}
	if c.change != nil {
		c.change(&o)
	}
	return o
}

func (c *testCluster) store(id messages.NodeID) string {
	return filepath.Join(c.dir, natsName(id))
}

func (c *testCluster) start(id messages.NodeID) *Server {
	c.tb.Helper()
	s, err := OpenServer(c.tb.Context(), c.options(id))
	require.NoError(c.tb, err)
	c.servers[id] = s
	return s
}

func (c *testCluster) stop(id messages.NodeID) {
	c.servers[id].Close()
	delete(c.servers, id)
}

// bus opens a bus of a node and closes it before the servers.
func (c *testCluster) bus(id messages.NodeID) *Bus {
	return openTestBus(c.tb, func(o *BusOptions) { o.Node, o.Server = id, c.servers[id] })
}

// copyFolder puts a copy of a folder in the place of another.
func copyFolder(tb testing.TB, from, to string) {
	tb.Helper()
	require.NoError(tb, os.RemoveAll(to))
	require.NoError(tb, os.CopyFS(to, os.DirFS(from)))
}

// eventually repeats f until it reports true. f may end the test.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(testClusterWait); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("never came: %s", what)
		}
	}
}

// testContext ends with the wait of the test, not with its cleanup.
func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(tb.Context()), testClusterWait, messages.ErrTimedOut)
	tb.Cleanup(cancel)
	return ctx
}
