package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupClient is a consumer of a group that commits by hand.
func groupClient(t *testing.T, addr, group, topic string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond),
	}, more...)...)
	require.NoError(t, err)
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

// take polls until n records have come.
func take(t *testing.T, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []*kgo.Record
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		out = append(out, fetches.Records()...)
	}
	return out
}

const noDelay = "group.initial.rebalance.delay.ms=0"

// TestGroupGoesOnAfterRestart: join, sync, commit, leave; the node starts again and
// the group goes on where it had committed.
func TestGroupGoesOnAfterRestart(t *testing.T) {
	dir := t.TempDir()
	n := startTestNode(t, dir, noDelay)
	_, cl, _ := connectTo(t, n.kafka())
	topic(t, cl, "t", 1, 10, nil)
	c := groupClient(t, n.kafka(), "g", "t")
	first := take(t, c, 10)
	require.Len(t, first, 10)
	require.NoError(t, c.CommitRecords(t.Context(), first[:7]...))
	c.CloseAllowingRebalance()
	stopTestNode(t, n)

	n = startTestNode(t, dir, noDelay)
	again := take(t, groupClient(t, n.kafka(), "g", "t"), 3)
	require.Equal(t, int64(7), again[0].Offset)
}
