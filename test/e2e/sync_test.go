package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// alterTopic sets topic configs on one side; a nil value removes a key.
func (w *world) alterTopic(side *Side, topic string, configs map[string]*string) {
	w.t.Helper()
	var changes []kadm.AlterConfig
	for k, v := range configs {
		op := kadm.SetConfig
		if v == nil {
			op = kadm.DeleteConfig
		}
		changes = append(changes, kadm.AlterConfig{Op: op, Name: k, Value: v})
	}
	res, err := side.Admin.AlterTopicConfigs(w.ctx, changes, topic)
	require.NoError(w.t, err)
	for _, r := range res {
		require.NoError(w.t, r.Err)
	}
}

// overrides are the configs set on a topic.
func overrides(ctx context.Context, side *Side, topic string) (map[string]string, error) {
	rc, err := side.Admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	r, err := rc.On(topic, nil)
	if err = errors.Join(err, r.Err); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, c := range r.Configs {
		if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" && c.Value != nil && c.Key != "mirror.name" {
			out[c.Key] = *c.Value
		}
	}
	return out, nil
}

func (w *world) awaitOverrides(topic string, want map[string]string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		got, err := overrides(ctx, w.b, topic)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("%s has %v, want %v", topic, got, want)
		}
		return err
	}))
}

// TestK3TopicConfigs: configs of real Kafka's topic appear on B; excluded ones don't
// (D31); one that A drops goes, and B's own stay (D52); a paused topic keeps what it has.
func TestK3D31D52TopicConfigs(t *testing.T) {
	w := newWorld(t, NodeOptions{Properties: map[string]string{"mirror.metadata.refresh.interval.ms": "1000"}})
	w.topic("k3", 1, 1, "retention.ms=3600000000", "cleanup.policy=compact", "min.insync.replicas=2", "compression.type=zstd")
	w.load("k3", Records{Count: 20})
	w.create("m")
	w.start("m", "k3")
	w.awaitOverrides("k3", map[string]string{"retention.ms": "3600000000", "cleanup.policy": "compact", "compression.type": "zstd"})
	w.alterTopic(w.b, "k3", map[string]*string{"segment.bytes": new("2097152")})
	w.alterTopic(w.a, "k3", map[string]*string{"retention.ms": new("7200000000"), "min.insync.replicas": new("1"), "compression.type": nil, "max.message.bytes": new("2000000")})
	w.awaitOverrides("k3", map[string]string{"retention.ms": "7200000000", "cleanup.policy": "compact", "segment.bytes": "2097152", "max.message.bytes": "2000000"})
	w.equal("k3")
	w.run("--pause", "--mirror", "m", "--topics", "k3")
	w.await("m", "PAUSED", "k3")
	w.alterTopic(w.a, "k3", map[string]*string{"retention.ms": new("1")})
	w.topic("k3-later", 1, 1, "retention.ms=5000000000")
	w.start("m", "k3-later")
	w.awaitOverrides("k3-later", map[string]string{"retention.ms": "5000000000"}) // a cycle has passed
	w.awaitOverrides("k3", map[string]string{"retention.ms": "7200000000", "cleanup.policy": "compact", "segment.bytes": "2097152", "max.message.bytes": "2000000"})
}

// consumeGroup reads n records of a topic as a member of a group, commits each poll, and
// leaves. The values come back.
func consumeGroup(ctx context.Context, bootstrap, group, topic string, n int, opts ...kgo.Opt) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, convergeTimeout)
	defer cancel()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(50 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	defer cl.CloseAllowingRebalance()
	var out []string
	for len(out) < n {
		fetches := cl.PollRecords(ctx, n-len(out))
		if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
			return out, fmt.Errorf("group %s read %d of %d: %w", group, len(out), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, string(r.Value)) })
		if err := cl.CommitRecords(ctx, fetches.Records()...); err != nil {
			return out, fmt.Errorf("group %s commits: %w", group, err)
		}
	}
	return out, nil
}

// committedOn is what a group has committed.
func committedOn(ctx context.Context, side *Side, group string) (map[string]kadm.Offset, error) {
	fetched, err := side.Admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	out := map[string]kadm.Offset{}
	fetched.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			o.TopicID = kadm.TopicID{} // old sources have none
			out[fmt.Sprintf("%s-%d", o.Topic, o.Partition)] = o.Offset
		}
	})
	return out, nil
}

// awaitGroup waits until B has A's offsets of a group.
func (w *world) awaitGroup(group string) map[string]kadm.Offset {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, convergeTimeout)
	defer cancel()
	var want map[string]kadm.Offset
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		var err error
		want, err = committedOn(ctx, w.a, group)
		if err != nil {
			return err
		}
		got, err := committedOn(ctx, w.b, group)
		if err == nil && (!maps.Equal(got, want) || len(want) == 0) {
			err = fmt.Errorf("group %s: %v, want %v", group, got, want)
		}
		return err
	}))
	return want
}

// TestK5D27D29Groups: offsets of groups of both protocols follow those of real Kafka, and
// a consumer of either protocol goes on on B; groups by pattern; a group that works on B
// is left alone.
func TestK5D27D29Groups(t *testing.T) {
	w := newWorld(t, NodeOptions{Properties: quickGroups(map[string]string{"mirror.metadata.refresh.interval.ms": "1000"})})
	w.topic("k5", 2, 1)
	w.load("k5", Records{Count: 100})
	w.create("m", "mirror.groups.include=k5-.*", "mirror.groups.exclude=k5-not.*")
	w.start("m", "k5")
	w.equal("k5")
	byServer := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())}
	seen := map[string][]string{}
	for _, g := range []struct {
		name string
		opts []kgo.Opt
	}{{name: "k5-classic"}, {name: "k5-consumer", opts: byServer}, {name: "k5-not"}, {name: "other-k5"}} {
		values, err := consumeGroup(w.ctx, w.source.Bootstrap(), g.name, "k5", 40, g.opts...)
		require.NoError(t, err)
		seen[g.name] = values
	}
	for group, opts := range map[string][]kgo.Opt{"k5-classic": byServer, "k5-consumer": nil} {
		w.awaitGroup(group)
		rest, err := consumeGroup(w.ctx, w.node.Bootstrap(), group, "k5", 60, opts...)
		require.NoError(t, err, "of the other protocol, which a group without members allows")
		all := map[string]bool{}
		for _, v := range append(seen[group], rest...) {
			require.False(t, all[v], "%s was read twice", v)
			all[v] = true
		}
		require.Len(t, all, 100)
	}
	for _, group := range []string{"k5-not", "other-k5"} {
		got, err := committedOn(w.ctx, w.b, group)
		require.NoError(t, err)
		require.Empty(t, got)
	}

	// A member on B, and the source's group moves: B's offsets stay.
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.node.Bootstrap()), kgo.ConsumerGroup("k5-live"), kgo.ConsumeTopics("k5"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer cl.CloseAllowingRebalance()
	var some []*kgo.Record
	for len(some) < 100 {
		f := cl.PollFetches(w.ctx)
		require.NoError(t, errors.Join(w.ctx.Err(), f.Err()))
		some = append(some, f.Records()...)
	}
	require.NoError(t, cl.CommitRecords(w.ctx, some...))
	before, err := committedOn(w.ctx, w.b, "k5-live")
	require.NoError(t, err)
	for _, group := range []string{"k5-live", "k5-marker"} {
		var offsets kadm.Offsets
		offsets.AddOffset("k5", 0, 7, -1)
		require.NoError(t, w.a.Admin.CommitAllOffsets(w.ctx, group, offsets))
	}
	w.awaitGroup("k5-marker") // a cycle has passed
	after, err := committedOn(w.ctx, w.b, "k5-live")
	require.NoError(t, err)
	require.Equal(t, before, after)
}
