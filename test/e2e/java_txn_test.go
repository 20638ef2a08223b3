package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
	"kagami/test/kafka"
)

// TestTxnJavaProducer: a transactional producer of Java and the console consumer of
// committed records, on one node, with a kill -9 in between; then Kafka's own tools
// read our files.
func TestTxnJavaProducer(t *testing.T) {
	kafka.RequireJava(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n := StartNode(t, NodeOptions{Properties: map[string]string{"transaction.state.log.num.partitions": "5"}})
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()))
	require.NoError(t, err)
	defer cl.Close()
	created, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, "x")
	require.NoError(t, err)
	require.NoError(t, created.Err)
	transact := func(name, steps string) {
		t.Helper()
		j, err := kafka.StartJava(ctx, t.TempDir(), kafka.JavaJob{
			Kind: kafka.JavaTransact, Name: name, Bootstrap: n.Bootstrap(), Topic: "x",
			Settings: settings("steps=" + steps), Client: settings("transactional.id=one"),
		})
		require.NoError(t, err)
		_, err = j.Await(ctx, name, "done", 1)
		require.NoError(t, err)
	}
	committedLines := func(count int) []string {
		t.Helper()
		res, err := n.JavaTool(ctx, kafka.ConsoleConsumer, "--topic", "x", "--from-beginning", "--isolation-level", "read_committed",
			"--max-messages", fmt.Sprint(count), "--timeout-ms", "30000")
		require.NoError(t, err)
		lines := res.Lines()
		slices.Sort(lines)
		return lines
	}
	transact("first", "commit:3,abort:2,commit:1,abort:1,commit:2")
	want := []string{"commit-0-0", "commit-0-1", "commit-0-2", "commit-2-0", "commit-4-0", "commit-4-1"}
	require.Equal(t, want, committedLines(len(want)))
	require.NoError(t, n.Kill9())
	require.NoError(t, n.Start(ctx))
	transact("second", "abort:2,commit:2")
	want = append(want, "commit-1-0", "commit-1-1")
	slices.Sort(want)
	require.Equal(t, want, committedLines(len(want)))

	shard := messages.CoordinatorShard("one", 5)
	files := partitionFiles(t, n.DataDir(), fmt.Sprintf("%s-%d", messages.TransactionStateTopic, shard), ".log")
	require.NotEmpty(t, files)
	res, err := kafka.Tool(ctx, kafka.DumpLog, "--transaction-log-decoder", "--files", strings.Join(files, ","))
	require.NoError(t, err)
	for _, text := range []string{`"transactionalId":"one"`, `"clientTransactionVersion":2`, `"transactionStatus":"CompleteCommit"`} {
		require.Contains(t, res.Stdout, text, res.Stderr)
	}
	require.NotContains(t, strings.ToLower(res.Stdout+res.Stderr), "could not be decoded")
}
