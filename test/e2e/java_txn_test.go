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

// TestTxnJavaTools: kafka-transactions lists, describes, finds and aborts.
func TestTxnJavaTools(t *testing.T) {
	kafka.RequireJava(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n := StartNode(t, NodeOptions{Properties: map[string]string{"transaction.state.log.num.partitions": "5"}})
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()))
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	created, err := adm.CreateTopic(ctx, 1, 1, nil, "x")
	require.NoError(t, err)
	require.NoError(t, created.Err)
	j, err := kafka.StartJava(ctx, t.TempDir(), kafka.JavaJob{
		Kind: kafka.JavaTransact, Name: "open", Bootstrap: n.Bootstrap(), Topic: "x",
		Settings: settings("steps=commit:1,open:2"), Client: settings("transactional.id=one", "transaction.timeout.ms=600000"),
	})
	require.NoError(t, err)
	_, err = j.Await(ctx, "open", "open", 1)
	require.NoError(t, err)
	require.NoError(t, j.Kill())
	tool := func(args ...string) string {
		t.Helper()
		res, err := n.JavaTool(ctx, kafka.TransactionsCommand, args...)
		require.NoError(t, err)
		require.Zero(t, res.Code, "%v: %s%s", args, res.Stdout, res.Stderr)
		return res.Stdout
	}
	list := tool("list")
	require.Regexp(t, `one\s+\d+\s+\d+\s+Ongoing`, list)
	describe := tool("describe", "--transactional-id", "one")
	require.Regexp(t, `one\s+\d+\s+1\s+Ongoing\s+600000\s+\S+\s+\d+\s+x-0`, describe, "epoch 1: one transaction has ended")
	producers := tool("describe-producers", "--topic", "x", "--partition", "0")
	require.Regexp(t, `\d+\s+1\s+\d+\s+1\s+\d+\s+2`, producers, "epoch 1, coordinator epoch, sequence 1, open since offset 2")
	require.NotContains(t, tool("find-hanging", "--broker-id", "1"), "x ", "its coordinator knows of it")
	tool("abort", "--topic", "x", "--partition", "0", "--start-offset", "2")
	require.NoError(t, kafka.Poll(ctx, func() error {
		stable, err := adm.ListCommittedOffsets(ctx, "x")
		if err != nil {
			return err
		}
		if o, _ := stable.Lookup("x", 0); o.Offset != 5 {
			return fmt.Errorf("last stable offset %d", o.Offset)
		}
		return nil
	}))
}
