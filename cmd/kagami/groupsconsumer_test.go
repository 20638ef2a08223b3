package main

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
)

const (
	soonBeat = "group.consumer.heartbeat.interval.ms=100"
	soonGone = "group.consumer.session.timeout.ms=1500"
)

// serverSide is a member of the consumer protocol.
func serverSide(t *testing.T, addr, topic string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	return groupClient(t, addr, "g", topic, append([]kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())}, more...)...)
}

// polled polls clients until the test's end, or stop is called.
func polled(t *testing.T, clients ...*kgo.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var polls sync.WaitGroup
	for _, cl := range clients {
		polls.Go(func() {
			for ctx.Err() == nil {
				cl.PollFetches(ctx)
			}
		})
	}
	return func() { cancel(); polls.Wait() }
}

// shared waits until a consumer group is stable, with so many members that have all
// partitions, none without.
func shared(t *testing.T, adm *kadm.Client, members, partitions int) kadm.DescribedConsumerGroup {
	t.Helper()
	var g kadm.DescribedConsumerGroup
	await(t, "partitions shared", func() error {
		groups, err := adm.DescribeConsumerGroups(t.Context(), "g")
		if err != nil {
			return err
		}
		g = groups["g"]
		n := 0
		for _, m := range g.Members {
			has := 0
			for _, ps := range m.Assignment {
				has += len(ps)
			}
			if n += has; has == 0 {
				return fmt.Errorf("member %s has nothing", m.MemberID)
			}
		}
		if g.Err != nil || g.State != "Stable" || len(g.Members) != members || n != partitions {
			return fmt.Errorf("group is %s (%w) with %d members and %d partitions", g.State, g.Err, len(g.Members), n)
		}
		return nil
	})
	return g
}

// TestConsumerGroup: the consumer protocol with franz-go: members come, one is cut off
// without a word, the node starts again, and members leave.
func TestConsumerGroup(t *testing.T) {
	dir := t.TempDir()
	n := startTestNode(t, dir, noDelay, soonBeat, soonGone)
	_, cl, adm := connectTo(t, n.kafka())
	topic(t, cl, "t", 6, 6, nil)
	a := serverSide(t, n.kafka(), "t")
	require.NoError(t, a.CommitRecords(t.Context(), take(t, a, 6)...))
	b := serverSide(t, n.kafka(), "t")
	stopB := polled(t, b)
	stopA := polled(t, a)
	g := shared(t, adm, 2, 6)
	require.Equal(t, "uniform", g.AssignorName)
	rows, err := n.queries().Query(t.Context(), "groups", url.Values{"group": {"g"}})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	r := rows.([]row)[0]
	require.Equal(t, []any{"g", "consumer", "Stable", int32(2), g.Epoch}, []any{r["group"], r["type"], r["state"], r["members"], r["epoch"]})
	none, err := n.queries().Query(t.Context(), "groups", url.Values{"group": {"other"}})
	require.NoError(t, err)
	require.Empty(t, none)
	samples := n.sample().Groups
	require.Len(t, samples, 1)
	require.Equal(t, 2, samples[0].Members)
	dead := newCut(t)
	c := serverSide(t, n.kafka(), "t", kgo.Dialer(dead.dial))
	stopC := polled(t, c)
	shared(t, adm, 3, 6)
	dead.cut(true)
	shared(t, adm, 2, 6)
	stopA()
	stopB()
	stopC()
	epoch := g.Epoch
	stopB = polled(t, b)
	b.LeaveGroup()
	stopB()
	stopA = polled(t, a)
	require.Greater(t, shared(t, adm, 1, 6).Epoch, epoch)
	stopA()
	a.CloseAllowingRebalance()
	dead.cut(false)
	c.CloseAllowingRebalance()
	await(t, "empty group", func() error {
		groups, err := adm.DescribeConsumerGroups(t.Context(), "g")
		if err != nil || groups["g"].State != "Empty" {
			return fmt.Errorf("%w: %s", errNotYet, groups["g"].State)
		}
		return nil
	})
	stopTestNode(t, n)
	n = startTestNode(t, dir, noDelay, soonBeat, soonGone)
	_, _, adm = connectTo(t, n.kafka())
	listed, err := adm.ListGroupsByType(t.Context(), []string{"consumer"})
	require.NoError(t, err)
	require.Equal(t, "Empty", listed["g"].State, "it is in the log")
	committed, err := adm.FetchOffsets(t.Context(), "g")
	require.NoError(t, err)
	require.NotEmpty(t, committed["t"])
}

// TestConsumerGroupOverNodes: on three nodes members go on when the node that
// coordinates their group ends, with the epochs that they had.
func TestConsumerGroupOverNodes(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, noDelay, soonBeat, "group.consumer.session.timeout.ms=15000")
	c.start(1, 2, 3)
	_, cl, adm := c.connect(1)
	c.create(adm, "t", 4)
	produce(t, cl, "t", 8)
	var seeds []string
	for _, n := range c.nodes {
		seeds = append(seeds, n.kafka())
	}
	a, b := serverSide(t, seeds[0], "t", kgo.SeedBrokers(seeds...)), serverSide(t, seeds[0], "t", kgo.SeedBrokers(seeds...))
	stop := polled(t, a, b)
	defer func() { stop() }()
	before := shared(t, adm, 2, 4)
	coordinator := messages.NodeID(before.Coordinator.NodeID)
	c.stop(coordinator)
	for id := range c.nodes {
		_, _, adm = c.connect(id)
		break
	}
	after := shared(t, adm, 2, 4)
	require.NotEqual(t, before.Coordinator.NodeID, after.Coordinator.NodeID)
	require.Equal(t, before.Epoch, after.Epoch, "nobody noticed")
	for i := range before.Members {
		require.Equal(t, before.Members[i].MemberEpoch, after.Members[i].MemberEpoch)
	}
	third := serverSide(t, seeds[0], "t", kgo.SeedBrokers(seeds...), kgo.ClientID("third"))
	stopThird := polled(t, third)
	defer stopThird()
	await(t, "the third one's share", func() error {
		// franz-go asks for a dead coordinator's successor by chance only: a or b may be
		// out, or be given up when their session ends.
		groups, err := adm.DescribeConsumerGroups(t.Context(), "g")
		if err != nil {
			return err
		}
		for _, m := range groups["g"].Members {
			if m.ClientID == "third" && len(m.Assignment["t"]) > 0 {
				return nil
			}
		}
		return errNotYet
	})
}
