package broker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

func kcat(t *testing.T, w *world, stdin string, args ...string) string {
	t.Helper()
	kafka.RequireProgram(t, "kcat")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := kafka.Kcat(ctx, strings.NewReader(stdin), append([]string{"-b", w.addr, "-m", "10"}, args...)...)
	require.NoError(t, err)
	return res.Stdout
}

// TestKcat: librdkafka lists, produces with every codec and reads back, without
// a consumer group.
func TestKcat(t *testing.T) {
	w := newWorld(t, onDisk)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			topic := "words-" + codec
			w.topic(topic, 1, nil)
			lines := strings.Repeat("key:the same words again and again\n", 500)
			kcat(t, w, lines, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec, "-X", "enable.idempotence=true")
			require.Equal(t, int64(500), w.part(topic, 0).log.End())
			require.Equal(t, lines, kcat(t, w, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-K", ":", "-q"))
			if codec != "none" {
				require.Less(t, w.part(topic, 0).log.SizeBytes(), int64(len(lines)/2), "compressed as asked")
			}
			require.Contains(t, kcat(t, w, "", "-Q", "-t", topic+":0:0"), "[0] offset 0")
		})
	}
	for _, codec := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
		topic := "to-" + codec
		w.topic(topic, 1, map[string]string{"compression.type": codec})
		lines := strings.Repeat("our own compression\n", 500)
		kcat(t, w, lines, "-P", "-t", topic, "-p", "0", "-z", "gzip")
		require.Equal(t, lines, kcat(t, w, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"))
	}
	require.Contains(t, kcat(t, w, "", "-L"), `topic "words-gzip" with 1 partitions`)
}

// TestJavaTools: Apache Kafka's own tools against the server.
func TestJavaTools(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM per step")
	}
	kafka.Require(t)
	w := newWorld(t, onDisk)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	tool := func(class, stdin string, args ...string) string {
		t.Helper()
		res, err := kafka.ToolInput(ctx, strings.NewReader(stdin), class, append([]string{"--bootstrap-server", w.addr}, args...)...)
		require.NoError(t, err)
		return res.Stdout
	}
	tool(kafka.Topics, "", "--create", "--topic", "orders", "--partitions", "2", "--config", "retention.ms=3600000")
	described := tool(kafka.Topics, "", "--describe", "--topic", "orders")
	require.Contains(t, described, "PartitionCount: 2")
	require.Contains(t, described, "retention.ms=3600000")
	tool(kafka.ConsoleProducer, "a\nb\nc\n", "--topic", "orders", "--compression-codec", "zstd")
	require.Equal(t, int64(3), w.part("orders", 0).log.End()+w.part("orders", 1).log.End())
	partition := "0"
	if w.part("orders", 0).log.End() == 0 {
		partition = "1"
	}
	require.Equal(t, "a\nb\nc\n", tool(kafka.ConsoleConsumer, "", "--topic", "orders", "--partition", partition, "--offset", "0", "--max-messages", "3", "--timeout-ms", "60000"))
	require.Contains(t, tool(kafka.GetOffsets, "", "--topic", "orders"), "orders:"+partition+":3")
	tool(kafka.Configs, "", "--entity-type", "topics", "--entity-name", "orders", "--alter", "--add-config", "max.message.bytes=2000000")
	require.Contains(t, tool(kafka.Configs, "", "--entity-type", "topics", "--entity-name", "orders", "--describe"), "max.message.bytes=2000000")
	require.Contains(t, tool(kafka.Configs, "", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"), "node.id=")
	require.Contains(t, tool(kafka.BrokerAPIVersions, ""), "Fetch(1): 4 to 18")
	for _, codec := range []string{"snappy", "lz4", "zstd", "gzip"} {
		w.topic("to-"+codec, 1, map[string]string{"compression.type": codec})
		tool(kafka.ConsoleProducer, "a\nb\n", "--topic", "to-"+codec)
		require.Equal(t, "a\nb\n", tool(kafka.ConsoleConsumer, "", "--topic", "to-"+codec, "--partition", "0", "--offset", "0", "--max-messages", "2", "--timeout-ms", "60000"))
	}
	tool(kafka.Topics, "", "--alter", "--topic", "orders", "--partitions", "3")
	require.Len(t, w.Image().Topic("orders").Partitions, 3)
	tool(kafka.Topics, "", "--delete", "--topic", "orders")
	require.Nil(t, w.Image().Topic("orders"))
}
