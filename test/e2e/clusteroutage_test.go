package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/test/kafka"
)

// TestD45ClusterOutage: the source is away while all three nodes restart, one after the
// other, and one is killed. Every partition gives up, and goes on by itself, without a cut,
// when the source is back.
func TestD45ClusterOutage(t *testing.T) {
	t.Parallel() // has a world of its own
	const limit = 10
	source := kafka.Start(t, kafka.Options{Version: kafka.V44})
	nodes := StartCluster(t, ClusterOptions{Properties: map[string]string{
		"mirror.failed.retry.max.attempts": fmt.Sprint(limit), "mirror.failed.retry.initial.backoff.ms": "10", "mirror.metadata.refresh.interval.ms": "1000",
	}})
	w := clusterWorldOf(t, source, nodes)
	w.topic("outage", 6, 1)
	w.load("outage", Records{Count: 600, Size: 100, Seed: 1})
	w.create("m")
	w.start("m", "outage")
	w.equal("outage")

	require.NoError(t, source.Stop(1))
	for _, id := range nodes.IDs() {
		if id == 2 {
			require.NoError(t, nodes.Node(id).Kill9())
		} else {
			require.NoError(t, nodes.Node(id).Stop())
		}
		require.NoError(t, nodes.Start(w.ctx, id))
		w.inSync([]string{"outage"}, nodes.IDs()...)
	}
	every := func(what string, is func(p client.DescribedPartition) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
		defer cancel()
		require.NoError(t, kafka.Poll(ctx, func() error {
			ps, err := w.partitionsOf(ctx, "m")
			if err != nil {
				return err
			}
			for _, p := range ps {
				if !is(p) {
					return fmt.Errorf("%s-%d isn't %s: %s, attempt %d, %d records cut (%s)", p.Topic, p.Partition, what, p.State, p.RetryAttempt, p.CutRecords, p.ErrorText)
				}
			}
			if len(ps) != 6 {
				return fmt.Errorf("%d partitions are shown", len(ps))
			}
			return nil
		}))
	}
	every("given up", func(p client.DescribedPartition) bool { return p.State == "FAILED" && p.RetryAttempt == limit })

	require.NoError(t, source.Restart(w.ctx, 1))
	w.load("outage", Records{Count: 600, Size: 100, From: 600, Seed: 2})
	every("mirrored again", func(p client.DescribedPartition) bool {
		return p.State == "MIRRORING" && p.RetryAttempt == 0 && p.CutRecords == 0
	})
	w.equal("outage")
	w.replicas(3, "outage")
	w.owners()
}
