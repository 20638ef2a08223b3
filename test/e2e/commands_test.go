package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// TestVerifyAndQuery: kagami verify agrees with the judge, and finds a record that
// only one side has; kagami query shows what runs.
func TestVerifyAndQuery(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("verified", 3, 1)
	w.load("verified", Records{Count: 300, Headers: 1})
	w.create("m")
	w.start("m", "verified")
	w.equal("verified")
	for _, extra := range [][]string{nil, {"--deep"}} {
		res, err := Run(w.ctx, "kagami", append([]string{"verify", "--bootstrap-server", w.node.Bootstrap(), "--mirror", "m"}, extra...)...)
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
		require.Contains(t, res.Stdout, "verified")
	}
	for what, want := range map[string]string{"partitions": "MIRRORING", "mirrors": "m", "actors": "partition"} {
		res, err := Run(w.ctx, "kagami", "query", what, "--admin", w.node.AdminAddr())
		require.NoError(t, err)
		require.Zero(t, res.Code, res.Stderr)
		require.Contains(t, res.Stdout, want, what)
	}
	w.run("--stop", "--mirror", "m", "--topics", "verified")
	w.await("m", "STOPPED", "verified")
	require.NoError(t, Produce(w.ctx, w.node.Bootstrap(), "verified", Records{Count: 30, From: 1000}))
	w.load("verified", Records{Count: 60, From: 2000})
	res, err := Run(w.ctx, "kagami", "verify", "--bootstrap-server", w.node.Bootstrap(), "--mirror", "m")
	require.NoError(t, err)
	require.Equal(t, 1, res.Code, "%s%s", res.Stdout, res.Stderr)
}

// TestDemo: the demo ends well by itself, with Kagami and with real Kafka as the source.
func TestDemo(t *testing.T) {
	t.Parallel() // has a world of its own
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	t.Run("kagami", func(t *testing.T) {
		res, err := Run(ctx, "kagami", "demo", "--phase", "2s")
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
	})
	t.Run("three nodes", func(t *testing.T) {
		res, err := Run(ctx, "kagami", "demo", "--phase", "2s", "--nodes", "3")
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
		require.Contains(t, res.Stdout, "The files of all 12 replicas on B hold the same batches")
		require.Contains(t, res.Stdout, "6. Every batch on A equals the one on B")
	})
	t.Run("kafka", func(t *testing.T) {
		kafka.Require(t)
		res, err := Run(ctx, "kagami", "demo", "--phase", "2s", "--source-bootstrap", kafka.Start(t, kafka.Options{}).Bootstrap())
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
	})
}
