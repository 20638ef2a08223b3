package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
	"kagami/test/kafka"
)

// groupNode is a node with a topic of two partitions and a hundred records.
func groupNode(t *testing.T) (context.Context, *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	n := StartNode(t, NodeOptions{Properties: map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}})
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	resp, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, "g")
	require.NoError(t, err)
	require.NoError(t, resp.Err)
	for i := range 100 {
		require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: "g", Partition: int32(i % 2), Value: fmt.Appendf(nil, "v%03d", i)}).FirstErr())
	}
	return ctx, n
}

// Settings of nodes under which members of groups hear of changes soon.
func quickGroups(more map[string]string) map[string]string {
	out := map[string]string{
		"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5",
		"group.consumer.heartbeat.interval.ms": "200", "group.consumer.session.timeout.ms": "6000",
	}
	maps.Copy(out, more)
	return out
}

// TestGroupsJavaTools: Kafka's own tools, with nothing changed but the address.
func TestGroupsJavaTools(t *testing.T) {
	kafka.Require(t)
	ctx, n := groupNode(t)
	read := func(count int) []string {
		res, err := n.JavaTool(ctx, kafka.ConsoleConsumer, "--topic", "g", "--group", "java", "--from-beginning",
			"--max-messages", fmt.Sprint(count), "--timeout-ms", "60000")
		require.NoError(t, err)
		require.Len(t, res.Lines(), count, "%s", res.Stderr)
		return res.Lines()
	}
	groups := func(args ...string) string {
		res, err := n.JavaTool(ctx, kafka.ConsumerGroups, args...)
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
		return res.Stdout
	}
	lines := read(40)
	require.NoError(t, n.Restart(ctx))
	lines = append(lines, read(60)...)
	slices.Sort(lines)
	require.Len(t, slices.Compact(lines), 100, "each record once, across the restart")

	require.Contains(t, groups("--list"), "java")
	require.Contains(t, groups("--list", "--state", "empty"), "Empty")
	require.Equal(t, []string{"50 50 0", "50 50 0"}, described(groups("--describe", "--group", "java")))
	require.Contains(t, groups("--describe", "--group", "java", "--state"), "Empty")
	groups("--reset-offsets", "--to-offset", "10", "--topic", "g", "--group", "java", "--execute")
	require.Equal(t, []string{"10 50 40", "10 50 40"}, described(groups("--describe", "--group", "java")))
	groups("--delete-offsets", "--topic", "g:1", "--group", "java")
	require.Equal(t, []string{"10 50 40"}, described(groups("--describe", "--group", "java")))

	shard := messages.CoordinatorShard("java", 5)
	files := partitionFiles(t, n.DataDir(), fmt.Sprintf("%s-%d", messages.ConsumerOffsetsTopic, shard), ".log")
	require.NotEmpty(t, files)
	res, err := kafka.Tool(ctx, kafka.DumpLog, "--offsets-decoder", "--files", strings.Join(files, ","))
	require.NoError(t, err)
	require.Contains(t, res.Stdout, `"group":"java"`, filepath.Base(files[0]))
	require.Contains(t, res.Stdout, `"protocolType":"consumer"`)
	require.NotContains(t, strings.ToLower(res.Stdout+res.Stderr), "could not be decoded")

	require.Contains(t, groups("--delete", "--group", "java"), "successful")
	require.NotContains(t, groups("--list"), "java")
}

// TestGroupsConsumerProtocolTools: Kafka's tools on a group of the consumer protocol that
// its members have left, and its records in Kafka's own words.
func TestGroupsConsumerProtocolTools(t *testing.T) {
	kafka.Require(t)
	ctx, n := groupNode(t)
	member := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(n.Bootstrap()), kgo.ConsumerGroup("java"), kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		}, opts...)...)
		require.NoError(t, err)
		return cl
	}
	a := member(kgo.ConsumeRegex(), kgo.ConsumeTopics("^g$"))
	for got := 0; got < 100; {
		fetches := a.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		require.NoError(t, a.CommitRecords(ctx, fetches.Records()...))
		got += fetches.NumRecords()
	}
	groups := func(args ...string) string {
		res, err := n.JavaTool(ctx, kafka.ConsumerGroups, args...)
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
		return res.Stdout
	}
	members := groups("--describe", "--group", "java", "--members", "--verbose")
	require.Contains(t, members, "g:0,1")
	require.Contains(t, members, "CURRENT-EPOCH")
	a.CloseAllowingRebalance()
	require.Contains(t, groups("--list", "--state", "empty", "--type", "consumer"), "Empty")
	groups("--reset-offsets", "--to-offset", "10", "--topic", "g", "--group", "java", "--execute")
	require.Equal(t, []string{"10 50 40", "10 50 40"}, described(groups("--describe", "--group", "java")))
	groups("--delete-offsets", "--topic", "g:1", "--group", "java")
	require.Equal(t, []string{"10 50 40"}, described(groups("--describe", "--group", "java")))

	shard := messages.CoordinatorShard("java", 5)
	files := partitionFiles(t, n.DataDir(), fmt.Sprintf("%s-%d", messages.ConsumerOffsetsTopic, shard), ".log")
	res, err := kafka.Tool(ctx, kafka.DumpLog, "--offsets-decoder", "--files", strings.Join(files, ","))
	require.NoError(t, err)
	for _, field := range []string{"metadataHash", "subscribedTopicRegex", "assignmentEpoch", "partitionsPendingRevocation", "topicPartitions", "regularExpression", "assignmentEpochs"} {
		require.Contains(t, res.Stdout, `"`+field+`"`)
	}
	require.NotContains(t, strings.ToLower(res.Stdout+res.Stderr), "could not be decoded")

	require.Contains(t, groups("--delete", "--group", "java"), "successful")
	require.NotContains(t, groups("--list"), "java")
}

// described is the current offset, log end and lag of each partition of a
// description, in order.
func described(out string) []string {
	var rows []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) > 5 && f[0] == "java" {
			rows = append(rows, strings.Join(f[3:6], " "))
		}
	}
	slices.Sort(rows)
	return rows
}

// TestGroupsKcat: librdkafka's consumer goes on where it was.
func TestGroupsKcat(t *testing.T) {
	kafka.RequireProgram(t, "kcat")
	ctx, n := groupNode(t)
	read := func(count int) []string {
		res, err := kafka.Kcat(ctx, nil, "-b", n.Bootstrap(), "-q", "-c", fmt.Sprint(count), "-X", "auto.offset.reset=earliest", "-G", "kcat", "g")
		require.NoError(t, err)
		require.Len(t, res.Lines(), count, "%s", res.Stderr)
		return res.Lines()
	}
	lines := append(read(30), read(70)...)
	slices.Sort(lines)
	require.Len(t, slices.Compact(lines), 100)
}
