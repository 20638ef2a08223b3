package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// toolCall is one call of one of Kafka's tools.
type toolCall struct {
	in, class string
	args      string // cut at spaces; DIR is a folder with the files of toolFiles
	sorted    bool   // the order of the lines means nothing
}

// toolFiles are what some calls read.
var toolFiles = map[string]string{
	"cut.json":    `{"version":1,"partitions":[{"topic":"t","partition":0,"offset":-1},{"topic":"t","partition":1,"offset":-1},{"topic":"t","partition":2,"offset":-1}]}`,
	"beyond.json": `{"version":1,"partitions":[{"topic":"t","partition":0,"offset":9999}]}`,
	"move.json":   `{"version":1,"topics":[{"topic":"t"}]}`,
	"plan.json":   `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"nope","partition":0,"replicas":[1]}]}`,
	"elect.json":  `{"partitions":[{"topic":"t","partition":0},{"topic":"nope","partition":0}]}`,
}

// toolScript is what an administrator does in a first hour, good calls and bad ones.
var toolScript = []toolCall{
	{class: kafka.Topics, args: "--create --topic t --partitions 2 --config retention.ms=3600000"},
	{class: kafka.Topics, args: "--create --topic c --config cleanup.policy=compact"},
	{class: kafka.Topics, args: "--create --topic my.topic"},
	{class: kafka.Topics, args: "--create --topic t"},
	{class: kafka.Topics, args: "--create --topic t --if-not-exists"},
	{class: kafka.Topics, args: "--create --topic my_topic"},
	{class: kafka.Topics, args: "--create --topic bad/name"},
	{class: kafka.Topics, args: "--create --topic x --replication-factor 3"},
	{class: kafka.Topics, args: "--create --topic x --config no.such=1"},
	{class: kafka.Topics, args: "--create --topic x --config retention.ms=abc"},
	{class: kafka.Topics, args: "--create --topic x --replica-assignment 1:2"},
	{class: kafka.Topics, args: "--list", sorted: true},
	{class: kafka.Topics, args: "--describe --topic t"},
	{class: kafka.Topics, args: "--describe --topic nope"},
	{class: kafka.Topics, args: "--describe --topics-with-overrides --topic t"},
	{class: kafka.Topics, args: "--describe --under-replicated-partitions"},
	{class: kafka.Topics, args: "--describe --at-min-isr-partitions --topic t"},
	{class: kafka.Topics, args: "--describe --unavailable-partitions"},
	{class: kafka.Topics, args: "--alter --topic t --partitions 1"},
	{class: kafka.Topics, args: "--alter --topic nope --partitions 3"},
	{class: kafka.Topics, args: "--alter --topic t --partitions 3"},
	{class: kafka.Topics, args: "--delete --topic nope"},
	{class: kafka.Topics, args: "--delete --topic my.topic"},
	{class: kafka.Topics, args: "--describe --topic t"},

	{class: kafka.Configs, args: "--describe --entity-type topics --entity-name t"},
	{class: kafka.Configs, args: "--describe --entity-type topics --entity-name t --all", sorted: true},
	{class: kafka.Configs, args: "--describe --entity-type topics --entity-name nope"},
	{class: kafka.Configs, args: "--alter --entity-type topics --entity-name t --add-config segment.bytes=1048576,retention.ms=7200000"},
	{class: kafka.Configs, args: "--alter --entity-type topics --entity-name t --add-config retention.ms=abc"},
	{class: kafka.Configs, args: "--alter --entity-type topics --entity-name t --add-config no.such=1"},
	{class: kafka.Configs, args: "--alter --entity-type topics --entity-name t --delete-config segment.bytes"},
	{class: kafka.Configs, args: "--alter --entity-type topics --entity-name t --delete-config flush.ms"},
	{class: kafka.Configs, args: "--describe --entity-type topics"},
	{class: kafka.Configs, args: "--describe --entity-type brokers --entity-name 1"},
	{class: kafka.Configs, args: "--describe --entity-type brokers --entity-name 7"},
	{class: kafka.Configs, args: "--describe --entity-type brokers --entity-default"},
	{class: kafka.Configs, args: "--alter --entity-type brokers --entity-default --add-config log.retention.ms=604800000"},
	{class: kafka.Configs, args: "--describe --entity-type brokers --entity-default"},
	{class: kafka.Configs, args: "--alter --entity-type brokers --entity-default --delete-config log.retention.ms"},
	{class: kafka.Configs, args: "--alter --entity-type users --entity-name u --add-config producer_byte_rate=1000000"},
	{class: kafka.Configs, args: "--alter --entity-type users --entity-name u --add-config no_such=1"},
	{class: kafka.Configs, args: "--describe --entity-type users"},
	{class: kafka.Configs, args: "--describe --entity-type users --entity-name u"},
	{class: kafka.Configs, args: "--alter --entity-type users --entity-name u --delete-config producer_byte_rate"},
	{class: kafka.Configs, args: "--describe --entity-type users"},
	{class: kafka.Configs, args: "--describe --entity-type clients"},
	{class: kafka.Configs, args: "--describe --entity-type groups --entity-name g"},

	{class: kafka.ConsoleProducer, args: "--topic t --reader-property parse.key=true --reader-property key.separator=:", in: "a:1\nb:2\nc:3\na:4\nb:5\nc:6\na:7\nd:8\n"},
	{class: kafka.ConsoleConsumer, args: "--topic t --group g --from-beginning --max-messages 8 --timeout-ms 30000", sorted: true},
	{class: kafka.ConsoleConsumer, args: "--topic nope --max-messages 1 --timeout-ms 2000"},
	{class: kafka.ConsoleConsumer, args: "--topic t --partition 1 --offset earliest --max-messages 1 --timeout-ms 20000 --formatter-property print.offset=true --formatter-property print.key=true"},
	{class: kafka.GetOffsets, args: "--topic t"},
	{class: kafka.GetOffsets, args: "--topic t --time earliest"},
	{class: kafka.GetOffsets, args: "--topic nope"},
	{class: kafka.GetOffsets, args: "--exclude-internal-topics"},

	{class: kafka.ConsumerGroups, args: "--list", sorted: true},
	{class: kafka.ConsumerGroups, args: "--list --state --type", sorted: true},
	{class: kafka.ConsumerGroups, args: "--describe --group g"},
	{class: kafka.ConsumerGroups, args: "--describe --group g --verbose"},
	{class: kafka.ConsumerGroups, args: "--describe --all-groups", sorted: true},
	{class: kafka.ConsumerGroups, args: "--describe --all-groups --state", sorted: true},
	{class: kafka.ConsumerGroups, args: "--describe --all-groups --members", sorted: true},
	{class: kafka.ConsumerGroups, args: "--describe --group nope"},
	{class: kafka.ConsumerGroups, args: "--describe --group nope --state"},
	{class: kafka.ConsumerGroups, args: "--reset-offsets --group g --topic t --to-earliest --dry-run"},
	{class: kafka.ConsumerGroups, args: "--reset-offsets --group g --topic t --shift-by -1 --execute"},
	{class: kafka.ConsumerGroups, args: "--reset-offsets --group g --topic nope --to-earliest --execute"},
	{class: kafka.ConsumerGroups, args: "--delete-offsets --group g --topic t:1"},
	{class: kafka.ConsumerGroups, args: "--delete-offsets --group g --topic nope"},
	{class: kafka.ConsumerGroups, args: "--describe --group g --offsets"},
	{class: kafka.GroupsCommand, args: "--list", sorted: true},
	{class: kafka.GroupsCommand, args: "--list --consumer", sorted: true},
	{class: kafka.ConsumerGroups, args: "--delete --group nope"},
	{class: kafka.ConsumerGroups, args: "--delete --group g"},

	{class: kafka.DeleteRecords, args: "--offset-json-file DIR/cut.json"},
	{class: kafka.DeleteRecords, args: "--offset-json-file DIR/beyond.json"},
	{class: kafka.GetOffsets, args: "--topic-partitions t:0 --time earliest"},
	{class: kafka.LogDirs, args: "--describe --topic-list t", sorted: true},
	{class: kafka.LogDirs, args: "--describe --broker-list 9"},
	{class: kafka.LeaderElection, args: "--election-type preferred --topic t --partition 0"},
	{class: kafka.LeaderElection, args: "--election-type unclean --topic t --partition 0"},
	{class: kafka.LeaderElection, args: "--election-type preferred --path-to-json-file DIR/elect.json"},
	{class: kafka.ReassignPartitions, args: "--generate --topics-to-move-json-file DIR/move.json --broker-list 1"},
	{class: kafka.ReassignPartitions, args: "--execute --reassignment-json-file DIR/plan.json"},
	{class: kafka.ReassignPartitions, args: "--verify --reassignment-json-file DIR/plan.json"},
	{class: kafka.ReassignPartitions, args: "--list"},

	{class: kafka.TransactionsCommand, args: "list"},
	{class: kafka.TransactionsCommand, args: "describe --transactional-id nope"},
	{class: kafka.TransactionsCommand, args: "describe-producers --topic t --partition 0"},
	{class: kafka.TransactionsCommand, args: "find-hanging --broker-id 1"},
	{class: kafka.TransactionsCommand, args: "abort --topic t --partition 0 --start-offset 3"},
	{class: kafka.FeatureCommand, args: "upgrade --feature no.such=1"},
	{class: kafka.ClusterTool, args: "cluster-id"},
	{class: kafka.ClusterTool, args: "list-endpoints"},
	{class: kafka.ClusterTool, args: "list-endpoints --include-fenced-brokers"},
	{class: kafka.ClusterTool, args: "unregister --id 77"},
	{class: kafka.ACLs, args: "--list"},
	{class: kafka.ACLs, args: "--add --allow-principal User:u --operation Read --topic t"},
	{class: kafka.ClientMetrics, args: "--list"},
	{class: kafka.ClientMetrics, args: "--describe"},
	{class: kafka.Topics, args: "--delete --topic t"},
	{class: kafka.Topics, args: "--delete --topic c"},
	{class: kafka.Topics, args: "--list --exclude-internal"},
}

// unlike are parts of a text that differ by themselves: addresses, folders, ids, times.
var unlike = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`(127\.0\.0\.1|localhost)(:| +)\d+`), "HOST$2PORT"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`(TopicId: |Cluster ID: )[A-Za-z0-9_-]{22}`), "${1}ID"},
	{regexp.MustCompile(`"/[^"]*"`), `"FOLDER"`},
	{regexp.MustCompile(`\b1\d{12}\b`), "MILLIS"},
	{regexp.MustCompile(` +`), " "},
	{regexp.MustCompile(`^\[[^\]]*\d\d:\d\d:\d\d,\d+\] `), "[TIME] "},
	{regexp.MustCompile(`correlation id \d+`), "correlation id N"},
	{regexp.MustCompile(`console-consumer-\d+`), "console-consumer-N"},
	{regexp.MustCompile(`adminclient-\d+`), "adminclient-N"},
	{regexp.MustCompile(`(ProducerId\s.*\n)\d+`), "${1}PID"},
	// The text of an error is in our own words; the class says what it is.
	{regexp.MustCompile(`(\w+Exception: |Error while executing topic command : )[^\n]*`), "${1}WORDS"},
	{regexp.MustCompile(`(Could not upgrade no.such to 1\.|for broker ID 77 failed:).*`), "${1} WORDS"},
	// A producer cuts its batches by the clock.
	{regexp.MustCompile(`"size":[1-9]\d*`), `"size":SIZE`},
	// A setting of the fixture's brokers.
	{regexp.MustCompile(`,?file\.delete\.delay\.ms=60000\n`), "\n"},
	{regexp.MustCompile(`STATIC_BROKER_CONFIG:log\.segment\.delete\.delay\.ms=60000, `), ""},
	// What Kafka sets for the whole cluster when it turns eligible leader replicas on.
	{regexp.MustCompile(`Configs: min\.insync\.replicas=1,?`), "Configs: "},
	{regexp.MustCompile(`DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, `), ""},
	{regexp.MustCompile(`(?m)^ min\.insync\.replicas=1 sensitive=false synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG.*\n`), ""},
	// See docs/compatibility.md: configs that only one of both has, or that have another default.
	{regexp.MustCompile(`(?m)^ (mirror\.|flush\.ms=).*\n`), ""},
}

func alike(c toolCall, r kafka.Result) string {
	text := fmt.Sprintf("exit %d\n%s--- errors\n%s", r.Code, r.Stdout, r.Stderr)
	for _, u := range unlike {
		text = u.re.ReplaceAllString(text, u.by)
	}
	var out []string
	for line := range strings.Lines(text) {
		// Of a stack trace; and a first connection fails now and then on a busy machine.
		if strings.HasPrefix(line, "\tat ") || strings.Contains(line, "could not be established. Node may not be available") {
			continue
		}
		out = append(out, strings.TrimRight(line, " \t\n"))
	}
	if c.sorted {
		slices.Sort(out)
	}
	return strings.Join(slices.Compact(out), "\n") // how often a client tries again means nothing
}

// TestToolsAsKafka: Kafka's own tools say the same of a Kagami node as of Kafka, also
// when they are given nonsense, warnings included.
func TestToolsAsKafka(t *testing.T) {
	kafka.RequireProgram(t, "javac")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	real := kafka.Start(t, kafka.Options{Properties: map[string]string{"log.segment.delete.delay.ms": "60000"}})
	n := StartNode(t, NodeOptions{Properties: map[string]string{"group.initial.rebalance.delay.ms": "0", "transaction.state.log.num.partitions": "4"}})
	host := toolHost(t, kafka.V44)
	dir := t.TempDir()
	for name, text := range toolFiles {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	say := func(bootstrap string, c toolCall) string {
		t.Helper()
		args := append(strings.Fields(strings.ReplaceAll(c.args, "DIR", dir)), "--bootstrap-server", bootstrap)
		if !strings.HasPrefix(c.args, "--") { // a subcommand comes first, the server before it where the tool wants it so
			args = append([]string{"--bootstrap-server", bootstrap}, strings.Fields(c.args)...)
			if c.class == kafka.ClusterTool {
				args = append(strings.Fields(c.args), "--bootstrap-server", bootstrap)
			}
		}
		res, err := host.Run(ctx, c.in, c.class, args...)
		require.NoError(t, err)
		return alike(c, res)
	}
	for _, c := range toolScript {
		name := c.class[strings.LastIndex(c.class, ".")+1:] + " " + c.args
		theirs, ours := say(real.Bootstrap(), c), say(n.Bootstrap(), c)
		if theirs != ours {
			t.Errorf("%s: Kafka (-), Kagami (+):\n%s\n--- Kafka:\n%s\n--- Kagami:\n%s", name, cmp.Diff(strings.Split(theirs, "\n"), strings.Split(ours, "\n")), theirs, ours)
		}
	}
}
