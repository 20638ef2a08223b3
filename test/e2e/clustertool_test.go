package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// TestKafkaClusterTool: kafka-cluster as docs/cluster.md has it. A node that was
// never there and one that is alive are refused; taking a dead one out needs several
// nodes and is shown with the plain request in cmd/kagami.
func TestKafkaClusterTool(t *testing.T) {
	kafka.Require(t)
	ctx, n := groupNode(t)
	res, err := kafka.Tool(ctx, kafka.ClusterTool, "cluster-id", "--bootstrap-server", n.Bootstrap())
	require.NoError(t, err)
	require.Contains(t, res.Stdout, "Cluster ID: ")
	for id, why := range map[string]string{"99": "node 99 isn't in this cluster", "1": "node 1 is alive"} {
		_, err := kafka.Tool(ctx, kafka.ClusterTool, "unregister", "--id", id, "--bootstrap-server", n.Bootstrap())
		require.ErrorContains(t, err, why)
	}
}
