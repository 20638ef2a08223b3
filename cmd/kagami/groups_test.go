package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/messages"
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

// take polls until n records have come. That the client couldn't reach its
// coordinator for a moment isn't an end: it tries again by itself.
func take(t *testing.T, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []*kgo.Record
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); !errors.As(err, new(*kgo.ErrGroupSession)) {
			require.NoError(t, err)
		}
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

// TestGroupOverNodes: on three nodes a member goes on when the node that coordinates
// its group ends, and another node has what it had committed.
func TestGroupOverNodes(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, noDelay)
	c.start(1, 2, 3)
	_, cl, adm := c.connect(1)
	c.create(adm, "t", 1)
	produce(t, cl, "t", 10)
	seeds := make([]string, 0, 3)
	for _, n := range c.nodes {
		seeds = append(seeds, n.kafka())
	}
	member := groupClient(t, seeds[0], "g", "t", kgo.SeedBrokers(seeds...))
	first := take(t, member, 10)
	require.NoError(t, member.CommitRecords(t.Context(), first[:7]...))

	coordinator := func() messages.NodeID {
		found := adm.FindGroupCoordinators(t.Context(), "g")["g"]
		if found.Err != nil {
			return messages.NoNode
		}
		return messages.NodeID(found.NodeID)
	}
	before := coordinator()
	require.NotEqual(t, messages.NoNode, before)
	replicas := c.nodes[before].store.Image().Topic(messages.ConsumerOffsetsTopic).Partitions[0].Replicas
	require.Len(t, replicas, 3)
	c.stop(before)
	for id := range c.nodes {
		_, cl, adm = c.connect(id)
		break
	}
	await(t, "another coordinator", func() error {
		if now := coordinator(); now == messages.NoNode || now == before {
			return fmt.Errorf("it is %d", now)
		}
		return nil
	})
	await(t, "a commit there", func() error { return member.CommitRecords(t.Context(), first[7]) })
	produce(t, cl, "t", 5)
	require.Equal(t, int64(10), take(t, member, 5)[0].Offset, "the member goes on")
	member.CloseAllowingRebalance()
	again := take(t, groupClient(t, seeds[0], "g", "t", kgo.SeedBrokers(seeds...)), 7)
	require.Equal(t, int64(8), again[0].Offset, "what was committed on both nodes counts")
}

// spread polls every client until each has a partition and nobody has one twice.
func spread(t *testing.T, partitions int, clients ...*kgo.Client) {
	t.Helper()
	polling, stop := context.WithCancel(t.Context())
	var polls sync.WaitGroup
	for _, cl := range clients {
		polls.Go(func() {
			for polling.Err() == nil {
				cl.PollFetches(polling)
			}
		})
	}
	defer polls.Wait()
	defer stop()
	await(t, "partitions spread over the members", func() error {
		_, generation := clients[0].GroupMetadata()
		n := 0
		for _, cl := range clients {
			_, other := cl.GroupMetadata()
			if other != generation {
				return fmt.Errorf("generations %d and %d", generation, other)
			}
		}
		adm := kadm.NewClient(clients[0])
		groups, err := adm.DescribeGroups(t.Context(), "g")
		if err != nil {
			return err
		}
		g := groups["g"]
		for _, m := range g.Members {
			c, ok := m.Assigned.AsConsumer()
			if !ok || len(c.Topics) == 0 || len(c.Topics[0].Partitions) == 0 {
				return fmt.Errorf("member %s has nothing", m.MemberID)
			}
			n += len(c.Topics[0].Partitions)
		}
		if g.State != "Stable" || len(g.Members) != len(clients) || n != partitions {
			return fmt.Errorf("group is %s with %d members and %d partitions", g.State, len(g.Members), n)
		}
		return nil
	})
}

// TestGroupRebalances: a second member comes, a third is cut off without a word,
// all with cooperative rebalancing; then the members leave.
func TestGroupRebalances(t *testing.T) {
	n := startTestNode(t, t.TempDir(), noDelay, "group.min.session.timeout.ms=1000")
	_, cl, adm := connectTo(t, n.kafka())
	topic(t, cl, "t", 4, 4, nil)
	opts := []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(1500 * time.Millisecond), kgo.RebalanceTimeout(3 * time.Second)}
	a, b := groupClient(t, n.kafka(), "g", "t", opts...), groupClient(t, n.kafka(), "g", "t", opts...)
	spread(t, 4, a, b)
	dead := newCut(t)
	c := groupClient(t, n.kafka(), "g", "t", append(opts, kgo.Dialer(dead.dial))...)
	spread(t, 4, a, b, c)
	dead.cut(true)
	spread(t, 4, a, b)
	b.LeaveGroup()
	spread(t, 4, a)
	a.LeaveGroup()
	await(t, "empty group", func() error {
		groups, err := adm.DescribeGroups(t.Context(), "g")
		if err != nil || groups["g"].State != "Empty" {
			return fmt.Errorf("%w: %s", errors.Join(err, errNotYet), groups["g"].State)
		}
		return nil
	})
	dead.cut(false) // its client says goodbye, and would try to for half a minute
}

var errNotYet = errors.New("not yet")

// cut is a network that can be taken from one client.
type cut struct {
	mu    sync.Mutex
	gone  bool
	conns []net.Conn
}

func newCut(t *testing.T) *cut {
	t.Helper()
	c := &cut{}
	t.Cleanup(func() { c.cut(true) })
	return c
}

func (c *cut) dial(ctx context.Context, network, host string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil, net.ErrClosed
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, host)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cut) cut(gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = gone
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// TestGroupStaticMember: a static member that comes back within its session keeps
// what it had, in the same generation.
func TestGroupStaticMember(t *testing.T) {
	n := startTestNode(t, t.TempDir(), noDelay)
	_, cl, adm := connectTo(t, n.kafka())
	topic(t, cl, "t", 1, 10, nil)
	first := groupClient(t, n.kafka(), "g", "t", kgo.InstanceID("one"))
	require.NoError(t, first.CommitRecords(t.Context(), take(t, first, 10)[:4]...))
	_, before := first.GroupMetadata()
	first.CloseAllowingRebalance() // a static member doesn't leave
	again := groupClient(t, n.kafka(), "g", "t", kgo.InstanceID("one"))
	require.Equal(t, int64(4), take(t, again, 6)[0].Offset)
	_, after := again.GroupMetadata()
	require.Equal(t, before, after)
	left, err := adm.LeaveGroup(t.Context(), kadm.LeaveGroup("g").InstanceIDs("one"))
	require.NoError(t, err)
	require.NoError(t, left.Error())
}

// TestGroupAdmin: offsets from outside, deletions, and an offset of a topic that is
// deleted.
func TestGroupAdmin(t *testing.T) {
	dir := t.TempDir()
	n := startTestNode(t, dir, noDelay)
	_, cl, adm := connectTo(t, n.kafka())
	for _, name := range []string{"t", "u", "v"} {
		topic(t, cl, name, 1, 1, nil)
	}
	var offsets kadm.Offsets
	for _, name := range []string{"t", "u", "v"} {
		offsets.Add(kadm.Offset{Topic: name, At: 1, LeaderEpoch: -1, Metadata: "m"})
	}
	require.NoError(t, adm.CommitAllOffsets(t.Context(), "g", offsets))
	gone, err := adm.DeleteOffsets(t.Context(), "g", kadm.TopicsSet{"u": {0: {}}})
	require.NoError(t, err)
	require.NoError(t, gone.Error())
	_, err = adm.DeleteTopic(t.Context(), "v")
	require.NoError(t, err)
	await(t, "offsets of the deleted topic are gone", func() error {
		got, err := adm.FetchOffsets(t.Context(), "g")
		if err != nil || len(got) != 1 {
			return fmt.Errorf("%w: %v", errors.Join(err, errNotYet), got)
		}
		require.Equal(t, "m", got["t"][0].Metadata)
		return nil
	})
	stopTestNode(t, n)
	n = startTestNode(t, dir, noDelay)
	_, _, adm = connectTo(t, n.kafka())
	got, err := adm.FetchOffsets(t.Context(), "g")
	require.NoError(t, err)
	require.Len(t, got, 1)
	deleted, err := adm.DeleteGroup(t.Context(), "g")
	require.NoError(t, err)
	require.NoError(t, deleted.Err)
	listed, err := adm.ListGroups(t.Context())
	require.NoError(t, err)
	require.Empty(t, listed)
	_, err = adm.DeleteGroup(t.Context(), "g")
	require.ErrorIs(t, err, kerr.GroupIDNotFound)
}

// TestGroupOfMirrorTopic: a group reads and commits in a mirror topic, and goes on
// there after the stop, in the same generation, with what is written here (C33).
func TestGroupOfMirrorTopic(t *testing.T) {
	for name, protocol := range map[string][]kgo.Opt{
		"classic":  nil,
		"consumer": {kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for beats
			p := startPair(t)
			member := groupClient(t, p.dst.kafka(), "g", "t", protocol...)
			mirrored := take(t, member, 30)
			require.NoError(t, member.CommitRecords(t.Context(), mirrored...))
			_, generation := member.GroupMetadata()
			ask(t, func(ctx context.Context, m string, topics []string) (client.TopicResults, error) {
				return p.adm.StopMirrorTopics(ctx, m, topics)
			}, "t")
			await(t, "a stopped topic", func() error {
				return p.dstCl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("ours")}).FirstErr()
			})
			ours := take(t, member, 1)
			require.Len(t, ours, 1)
			require.Equal(t, "ours", string(ours[0].Value))
			require.NoError(t, member.CommitRecords(t.Context(), ours...))
			_, now := member.GroupMetadata()
			require.Equal(t, generation, now)
			committed, err := kadm.NewClient(p.dstCl).FetchOffsets(t.Context(), "g")
			require.NoError(t, err)
			at, ok := committed.Lookup("t", ours[0].Partition)
			require.True(t, ok)
			require.Equal(t, ours[0].Offset+1, at.At)
		})
	}
}
