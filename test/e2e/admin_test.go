package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// TestAdminJavaTools: Kafka's own administration tools, with nothing changed but the
// address.
func TestAdminJavaTools(t *testing.T) {
	kafka.Require(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n := StartNode(t, NodeOptions{})
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()))
	require.NoError(t, err)
	defer cl.Close()
	made, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, "t")
	require.NoError(t, err)
	require.NoError(t, made.Err)
	require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr())
	says := func(class string, args ...string) string {
		t.Helper()
		res, err := n.JavaTool(ctx, class, args...)
		require.NoError(t, err)
		return res.Stdout
	}

	says(kafka.Configs, "--alter", "--add-config", "producer_byte_rate=1000000,request_percentage=150.5", "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default")
	require.Contains(t, says(kafka.Configs, "--describe", "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default"), "producer_byte_rate=1000000.0")
	says(kafka.Configs, "--alter", "--add-config", "consumer.session.timeout.ms=50000", "--entity-type", "groups", "--entity-name", "g")
	require.Contains(t, says(kafka.Configs, "--describe", "--entity-type", "groups", "--entity-name", "g"), "consumer.session.timeout.ms=50000")
	require.Contains(t, says(kafka.Configs, "--describe", "--entity-type", "broker-loggers", "--entity-name", "1"), "root=INFO")
	says(kafka.Configs, "--alter", "--add-config", "interval.ms=10000,match=[client_id=a.*]", "--entity-type", "client-metrics", "--entity-name", "m")
	require.Contains(t, says(kafka.ClientMetrics, "--list"), "m")

	features := says(kafka.FeatureCommand, "describe")
	require.Regexp(t, `group\.version.*FinalizedVersionLevel: 1`, features)
	require.Regexp(t, `transaction\.version.*FinalizedVersionLevel: 2`, features)
	require.Regexp(t, `metadata\.version.*FinalizedVersionLevel: 4\.4`, features)
	require.Regexp(t, `mirror\.version.*FinalizedVersionLevel: 1`, features)

	dirs := says(kafka.LogDirs, "--describe", "--topic-list", "t")
	require.Contains(t, dirs, `"partition":"t-0"`)
	require.Contains(t, dirs, n.DataDir())
	election, err := n.JavaTool(ctx, kafka.LeaderElection, "--election-type", "preferred", "--all-topic-partitions")
	require.NoError(t, err, "%s%s", election.Stdout, election.Stderr)

	plan := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, os.WriteFile(plan, []byte(`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}`), 0o600))
	require.Contains(t, says(kafka.ReassignPartitions, "--execute", "--reassignment-json-file", plan), "Successfully started partition reassignment for t-0")
	require.Contains(t, says(kafka.ReassignPartitions, "--verify", "--reassignment-json-file", plan), "Reassignment of partition t-0 is completed.")
	require.Contains(t, says(kafka.ReassignPartitions, "--list"), "No partition reassignments found.")
}
