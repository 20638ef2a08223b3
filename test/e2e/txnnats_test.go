package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"kagami/internal/ports"
)

// natsOf starts three servers of somebody else's NATS cluster in this process.
func natsOf(t *testing.T) (urls []string) {
	t.Helper()
	dir := t.TempDir()
	addresses := make([]string, 3)
	for i := range addresses {
		var err error
		addresses[i], err = ports.FreeAddr()
		require.NoError(t, err)
	}
	for i, address := range addresses {
		file := filepath.Join(dir, fmt.Sprint(i, ".conf"))
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
server_name: theirs-%d, listen: "127.0.0.1:-1", max_payload: 32MB
cluster { name: theirs, listen: "%s", routes: ["nats-route://%s"] }
jetstream { store_dir: "%s", max_file_store: 1TB }
`, i, address, strings.Join(addresses, `", "nats-route://`), filepath.Join(dir, fmt.Sprint("js", i))), 0o600))
		o, err := server.ProcessConfigFile(file)
		require.NoError(t, err)
		o.NoSigs, o.NoLog = true, true
		s, err := server.NewServer(o)
		require.NoError(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		require.True(t, s.ReadyForConnections(10*time.Second))
		urls = append(urls, "nats://"+s.Addr().String())
	}
	return urls
}

func externalNATS() bool { return os.Getenv("KAGAMI_TXN_NATS") == "external" }

// startTxnNodes starts three nodes with fault points; KAGAMI_TXN_NATS=external: on NATS
// servers of somebody else.
func startTxnNodes(t *testing.T, props map[string]string) *Cluster {
	t.Helper()
	program, err := FaultServer()
	require.NoError(t, err)
	opts := ClusterOptions{Program: program, Properties: props}
	if !externalNATS() {
		return StartCluster(t, opts)
	}
	opts.Alone = true
	props["nats.url"] = strings.Join(natsOf(t), ",")
	props["kagami.journal.max.bytes"] = "67108864"
	nodes := StartCluster(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), nodeStartTimeout)
	defer cancel()
	require.NoError(t, nodes.Start(ctx, nodes.IDs()...))
	return nodes
}
