package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// TestAutoCreate: with auto.create.topics.enable a client's first write makes the topic, at
// once and without a warning.
func TestAutoCreate(t *testing.T) {
	kafka.RequireProgram(t, "kcat")
	kafka.RequireProgram(t, "javac")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	host := toolHost(t, kafka.V44)
	n := StartNode(t, NodeOptions{Properties: map[string]string{"auto.create.topics.enable": "true", "num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}})
	side, err := n.Side()
	require.NoError(t, err)
	defer side.Close()
	java := func(in, class string, args ...string) []string {
		t.Helper()
		res, err := host.Run(ctx, in, class, append([]string{"--bootstrap-server", n.Bootstrap()}, args...)...)
		require.NoError(t, err)
		require.Zero(t, res.Code, "%s%s", res.Stdout, res.Stderr)
		require.Empty(t, complaints.FindAllString(res.Stderr, -1))
		return res.Lines()
	}
	java("one\ntwo\n", kafka.ConsoleProducer, "--topic", "by-java")
	res, err := kafka.Kcat(ctx, strings.NewReader("one\ntwo\n"), "-P", "-b", n.Bootstrap(), "-t", "by-kcat")
	require.NoError(t, err)
	require.NotContains(t, res.Stderr, "ERROR")
	for _, topic := range []string{"by-java", "by-kcat"} {
		detail, err := side.Topic(ctx, topic)
		require.NoError(t, err)
		require.Len(t, detail.Partitions, 3)
		require.ElementsMatch(t, []string{"one", "two"}, java("", kafka.ConsoleConsumer, "--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"))
	}
	// Who says that it only looks makes nothing, and no name makes what can't be.
	_, err = side.Topic(ctx, "looked-at")
	require.ErrorContains(t, err, "UNKNOWN_TOPIC_OR_PARTITION")
	_, err = kafka.Kcat(ctx, strings.NewReader("x\n"), "-P", "-b", n.Bootstrap(), "-t", "no/name", "-X", "message.timeout.ms=3000")
	require.Error(t, err)
	topics, err := side.Admin.ListTopics(ctx)
	require.NoError(t, err)
	for _, name := range topics.Names() {
		require.Contains(t, []string{"by-java", "by-kcat"}, name, fmt.Sprint(topics.Names()))
	}
}
