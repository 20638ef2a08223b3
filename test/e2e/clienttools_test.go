package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// toolsUse is Kafka's command line tools of one release at work on one topic.
type toolsUse struct {
	matrixUse
	host         *kafka.Host
	topic, group string
}

// features are the tools' rows, in the order in which they need one another.
func (u matrixUse) toolFeatures() []clientFeature {
	if u.c.host == nil {
		return nil
	}
	x := toolsUse{u, u.c.host, u.prefix + "-tools", u.prefix + "-tools-group"}
	return []clientFeature{
		{"kafka-topics", x.topics}, {"kafka-configs", x.configs}, {"kafka-console-producer", x.consoleProducer}, {"kafka-console-consumer", x.consoleConsumer},
		{"kafka-consumer-groups", x.consumerGroups}, {"kafka-verifiable-producer", x.verifiableProducer}, {"kafka-verifiable-consumer", x.verifiableConsumer},
		{"kafka-producer-perf-test", x.producerPerf}, {"kafka-transactions", x.transactions},
	}
}

// complaints are lines of a tool's log that a user would wonder about.
var complaints = regexp.MustCompile(`(?m)^(\[[^\]]*\] )?(WARN|ERROR)\b.*$`)

// run runs a tool, which must end well and complain of nothing.
func (x toolsUse) run(t *testing.T, in, class string, args ...string) string {
	t.Helper()
	res, err := x.host.Run(x.ctx, in, class, args...)
	require.NoError(t, err)
	require.Zero(t, res.Code, "%s %v: %s%s", class, args, res.Stdout, res.Stderr)
	require.Empty(t, complaints.FindAllString(res.Stderr, -1), "%s %v complains", class, args)
	return res.Stdout
}

// tool is run with the address of the node.
func (x toolsUse) tool(t *testing.T, in, class string, args ...string) string {
	t.Helper()
	return x.run(t, in, class, append([]string{"--bootstrap-server", x.address()}, args...)...)
}

func (x toolsUse) topics(t *testing.T) string {
	t.Helper()
	other := x.topic + "-gone"
	for _, topic := range []string{x.topic, other} {
		require.Contains(t, x.tool(t, "", kafka.Topics, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000"), "Created topic "+topic)
	}
	x.tool(t, "", kafka.Topics, "--alter", "--topic", x.topic, "--partitions", "3")
	require.Regexp(t, `PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: retention.ms=3600000`, x.tool(t, "", kafka.Topics, "--describe", "--topic", x.topic))
	x.tool(t, "", kafka.Topics, "--delete", "--topic", other)
	list := lines(x.tool(t, "", kafka.Topics, "--list"))
	require.Contains(t, list, x.topic)
	require.NotContains(t, list, other)
	detail, err := x.side.Topic(x.ctx, x.topic)
	require.NoError(t, err)
	require.Len(t, detail.Partitions, 3)
	return works
}

func (x toolsUse) configs(t *testing.T) string {
	t.Helper()
	entity := []string{"--entity-type", "topics", "--entity-name", x.topic}
	x.tool(t, "", kafka.Configs, append(entity, "--alter", "--add-config", "retention.ms=7200000,segment.bytes=2097152")...)
	x.tool(t, "", kafka.Configs, append(entity, "--alter", "--delete-config", "segment.bytes")...)
	require.Contains(t, x.tool(t, "", kafka.Configs, append(entity, "--describe")...), "retention.ms=7200000")
	w := &world{t: t, ctx: x.ctx}
	retention, _ := w.config(x.side, x.topic, "retention.ms")
	require.Equal(t, "7200000", retention)
	segment, _ := w.config(x.side, x.topic, "segment.bytes")
	require.Equal(t, "1073741824", segment)
	client := []string{"--entity-type", "clients", "--entity-name", x.prefix + "-nobody"}
	x.tool(t, "", kafka.Configs, append(client, "--alter", "--add-config", "consumer_byte_rate=100000")...)
	require.Contains(t, x.tool(t, "", kafka.Configs, append(client, "--describe")...), "consumer_byte_rate=100000")
	return works
}

// consoleRecords is how many records the console producer writes.
const consoleRecords = 30

func (x toolsUse) consoleProducer(t *testing.T) string {
	t.Helper()
	property := "--reader-property"
	if x.c.version < "4" {
		property = "--property"
	}
	var in strings.Builder
	want := map[string][]string{}
	for i := range consoleRecords {
		key, value := fmt.Sprint("k", i%7), fmt.Sprint("line ", i)
		fmt.Fprintf(&in, "%s:%s\n", key, value)
		want[key] = append(want[key], value)
	}
	x.tool(t, in.String(), kafka.ConsoleProducer, "--topic", x.topic, property, "parse.key=true", property, "key.separator=:")
	got, partitions := map[string][]string{}, map[string]int32{}
	for _, r := range x.readBack(t, x.topic, uncommitted) {
		got[r.key] = append(got[r.key], r.value)
		if p, ok := partitions[r.key]; ok {
			require.Equal(t, p, r.partition)
		}
		partitions[r.key] = r.partition
	}
	require.Equal(t, want, got, "each line once, those of a key in order")
	return works
}

func (x toolsUse) consoleConsumer(t *testing.T) string {
	t.Helper()
	out := x.tool(t, "", kafka.ConsoleConsumer, "--topic", x.topic, "--group", x.group, "--from-beginning", "--max-messages", fmt.Sprint(consoleRecords), "--timeout-ms", "60000")
	var want []string
	for i := range consoleRecords {
		want = append(want, fmt.Sprint("line ", i))
	}
	require.ElementsMatch(t, want, lines(out))
	x.emptied(t, x.group)
	require.Equal(t, int64(consoleRecords), sum(x.committed(x.ctx, t, x.group, x.topic)), "it has committed what it read")
	return works
}

func sum(offsets map[int32]int64) int64 {
	var all int64
	for _, o := range offsets {
		all += o
	}
	return all
}

func (x toolsUse) consumerGroups(t *testing.T) string {
	t.Helper()
	groups := func(args ...string) string {
		t.Helper()
		return x.tool(t, "", kafka.ConsumerGroups, args...)
	}
	require.Contains(t, groups("--list"), x.group)
	lag := func() int64 {
		t.Helper()
		var all int64
		for _, line := range lines(groups("--describe", "--group", x.group)) {
			if f := strings.Fields(line); len(f) > 5 && f[0] == x.group {
				var n int64
				_, err := fmt.Sscan(f[5], &n)
				require.NoError(t, err, line)
				all += n
			}
		}
		return all
	}
	require.Zero(t, lag())
	groups("--reset-offsets", "--group", x.group, "--topic", x.topic, "--to-earliest", "--execute")
	require.Equal(t, int64(consoleRecords), lag())
	require.Zero(t, sum(x.committed(x.ctx, t, x.group, x.topic)))
	require.Regexp(t, `Empty\s+0`, groups("--describe", "--group", x.group, "--state"))
	require.Contains(t, groups("--delete", "--group", x.group), "successful")
	require.NotContains(t, groups("--list"), x.group)
	return works
}

// verified is a line of the verifiable clients.
type verified struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Count     int64  `json:"count"`
	Success   bool   `json:"success"`
}

func verifiedLines(t *testing.T, out, name string) []verified {
	t.Helper()
	var all []verified
	for _, line := range lines(out) {
		var v verified
		require.NoError(t, json.Unmarshal([]byte(line), &v), line)
		if v.Name == name {
			all = append(all, v)
		}
	}
	return all
}

// verifiableRecords is how many records the verifiable clients move.
const verifiableRecords = 100

func (x toolsUse) verifiableProducer(t *testing.T) string {
	t.Helper()
	topic := x.topic + "-verifiable"
	x.clientMatrix.topic(x.ctx, t, topic, 2)
	out := x.tool(t, "", kafka.VerifiableProducer, "--topic", topic, "--max-messages", fmt.Sprint(verifiableRecords), "--acks", "-1")
	var told, stored []verified
	for _, v := range verifiedLines(t, out, "producer_send_success") {
		told = append(told, verified{Value: v.Value, Partition: v.Partition, Offset: v.Offset})
	}
	require.Len(t, told, verifiableRecords)
	for _, r := range x.readBack(t, topic, uncommitted) {
		stored = append(stored, verified{Value: r.value, Partition: r.partition, Offset: r.offset})
	}
	require.ElementsMatch(t, told, stored)
	return works
}

func (x toolsUse) verifiableConsumer(t *testing.T) string {
	t.Helper()
	topic := x.topic + "-verifiable"
	out := x.tool(t, "", kafka.VerifiableConsumer, "--topic", topic, "--group-id", x.group+"-v", "--max-messages", fmt.Sprint(verifiableRecords), "--reset-policy", "earliest")
	var read int64
	for _, v := range verifiedLines(t, out, "records_consumed") {
		read += v.Count
	}
	require.Equal(t, int64(verifiableRecords), read)
	require.False(t, slices.ContainsFunc(verifiedLines(t, out, "offsets_committed"), func(v verified) bool { return !v.Success }), out)
	require.Equal(t, int64(verifiableRecords), sum(x.committed(x.ctx, t, x.group+"-v", topic)))
	return works
}

func (x toolsUse) producerPerf(t *testing.T) string {
	t.Helper()
	topic := x.topic + "-perf"
	x.clientMatrix.topic(x.ctx, t, topic, 2)
	server := []string{"--bootstrap-server", x.address()}
	if x.c.version < "4" {
		server = []string{"--producer-props", "bootstrap.servers=" + x.address()}
	}
	perf := func(more ...string) string {
		t.Helper()
		return x.run(t, "", kafka.ProducerPerf, append(append([]string{"--topic", topic, "--num-records", "1000", "--record-size", "100", "--throughput", "-1"}, more...), server...)...)
	}
	require.Contains(t, perf(), "1000 records sent")
	require.Len(t, x.readBack(t, topic, uncommitted), 1000)
	require.Contains(t, perf("--transactional-id", x.topic, "--transaction-duration-ms", "100"), "1000 records sent")
	require.Len(t, x.readBack(t, topic, committed), 2000, "its transactions are committed")
	return works
}

func (x toolsUse) transactions(t *testing.T) string {
	t.Helper()
	require.Regexp(t, regexp.QuoteMeta(x.topic)+`\s+\d+\s+\d+\s+CompleteCommit`, x.tool(t, "", kafka.TransactionsCommand, "list"))
	require.Regexp(t, regexp.QuoteMeta(x.topic)+`\s+\d+\s+\d+\s+CompleteCommit\s+\d+`, x.tool(t, "", kafka.TransactionsCommand, "describe", "--transactional-id", x.topic))
	require.NotContains(t, x.tool(t, "", kafka.TransactionsCommand, "find-hanging", "--broker-id", "1"), x.topic)
	return works
}
