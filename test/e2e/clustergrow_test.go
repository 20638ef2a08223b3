package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestD51ClusterGrows: one node, replication factor 3 configured, with an active
// mirror and a STOPPED topic that clients write; it goes on as one of three, and two
// empty nodes join. Nothing is lost and everything has three replicas then. A node
// whose folder is wiped copies everything; one with another cluster's data is refused
// and changes nothing.
func TestD51ClusterGrows(t *testing.T) {
	nodes := StartCluster(t, ClusterOptions{Alone: true, Properties: map[string]string{"segment.bytes": "1048576"}})
	require.NoError(t, nodes.Start(t.Context(), 1))
	w := clusterWorldOf(t, sourceOf(t), nodes)
	topics := []string{"grow-active", "grow-stopped"}
	for _, topic := range topics {
		w.topic(topic, 3, 1)
		w.load(topic, Records{Count: 200})
	}
	w.create("m")
	w.start("m", topics...)
	w.equal(topics...)
	w.run("--stop", "--mirror", "m", "--topics", topics[1])
	w.await("m", "STOPPED", topics[1])
	require.NoError(t, Produce(w.ctx, nodes.Node(1).Bootstrap(), topics[1], Records{Count: 100, Seed: 1}))
	before := w.allEnds(topics)

	require.NoError(t, nodes.Node(1).Stop())
	for _, id := range nodes.IDs() {
		require.NoError(t, nodes.Join(id))
	}
	require.NoError(t, nodes.Start(w.ctx, nodes.IDs()...))
	w.await("m", "MIRRORING", topics[0])
	w.await("m", "STOPPED", topics[1])
	require.Equal(t, before, w.allEnds(topics), "nothing is lost, nothing is new")
	w.load(topics[0], Records{Count: 100, From: 200, Seed: 2})
	w.equal(topics[0])
	require.NoError(t, Produce(w.ctx, nodes.Bootstrap(), topics[1], Records{Count: 100, Seed: 3}))
	all := append([]string{messages.MirrorStateTopic}, topics...)
	w.replicas(3, all...)
	w.owners()

	t.Run("wiped", func(t *testing.T) {
		const id = 3
		require.NoError(t, nodes.Node(id).Kill9())
		require.NoError(t, os.RemoveAll(nodes.Node(id).DataDir()))
		require.NoError(t, Produce(w.ctx, nodes.BootstrapOf(nodes.Others(id)...), topics[1], Records{Count: 50, Seed: 4}))
		require.NoError(t, nodes.Start(w.ctx, id))
		w.replicas(3, all...)
	})
	t.Run("another cluster's", func(t *testing.T) {
		const id = 2
		other := StartNode(t, NodeOptions{Properties: map[string]string{"node.id": "2"}})
		require.NoError(t, other.Stop())
		require.NoError(t, nodes.Node(id).Stop())
		data, kept := nodes.Node(id).DataDir(), filepath.Join(t.TempDir(), "kept")
		require.NoError(t, os.Rename(data, kept))
		require.NoError(t, os.Rename(other.DataDir(), data))
		began := time.Now()
		err := nodes.Start(w.ctx, id)
		require.ErrorContains(t, err, "cluster")
		t.Logf("refused after %v: %v", time.Since(began), err)
		require.NoError(t, os.RemoveAll(data))
		require.NoError(t, os.Rename(kept, data))
		require.NoError(t, nodes.Start(w.ctx, id))
		w.replicas(3, all...)
	})
	w.owners()
}
