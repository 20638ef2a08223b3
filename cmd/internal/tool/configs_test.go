package tool

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire/wiretest"
	"kagami/test/kafka"
)

func configs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return run(t, func(s Streams) int { return Configs(t.Context(), args, s) })
}

func TestConfigsCommandLine(t *testing.T) {
	const server = "--bootstrap-server=localhost:1"
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no action":            {[]string{server}, "Command must include exactly one action: --describe, --alter"},
		"no server":            {[]string{"--describe", "--topic", "t"}, "--bootstrap-server must be specified"},
		"no entity":            {[]string{server, "--describe"}, "At least one entity type must be specified"},
		"bad entity":           {[]string{server, "--describe", "--entity-type", "users"}, "Invalid entity type users, the entity type must be one of topics, brokers, cluster-mirrors, groups, clients with the --bootstrap-server argument"},
		"two entities":         {[]string{server, "--describe", "--topic", "t", "--broker", "1"}, "Only one entity may be specified"},
		"broker name":          {[]string{server, "--describe", "--entity-type", "brokers", "--entity-name", "x"}, "The entity name for brokers must be a valid integer broker id, found: x"},
		"mirror without name":  {[]string{server, "--describe", "--entity-type", "cluster-mirrors"}, "an entity name must be specified with --describe of cluster-mirrors"},
		"alter without name":   {[]string{server, "--alter", "--entity-type", "topics", "--add-config", "a=b"}, "an entity name must be specified with --alter of topics"},
		"alter without change": {[]string{server, "--alter", "--topic", "t"}, "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"},
		"not key=val":          {[]string{server, "--alter", "--topic", "t", "--add-config", "a"}, `Invalid entity config: all configs to be added must be in the format "key=val".`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := configs(t, tc.args...)
			require.Equal(t, 1, code)
			require.Empty(t, out)
			first, _, _ := strings.Cut(errs, "\n")
			require.Equal(t, tc.want, first)
		})
	}
}

func TestAddConfigForms(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want map[string]string
	}{
		"one":       {"a=b", map[string]string{"a": "b"}},
		"blanks":    {"a = b, c=d", map[string]string{"a": "b", "c": "d"}},
		"equals":    {"a=b=c", map[string]string{"a": "b=c"}},
		"brackets":  {"k1=v1,k2=[0:4,1:5],k3=v3", map[string]string{"k1": "v1", "k2": "0:4,1:5", "k3": "v3"}},
		"no value":  {"a=", map[string]string{"a": ""}},
		"last list": {"bootstrap.servers=[a:1,b:2]", map[string]string{"bootstrap.servers": "a:1,b:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			empty := ""
			got, err := (&configsTool{addConfig: &tc.in, addConfigFile: &empty}).additions()
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

// fakeConfigs is a destination with one mirror, one topic and one broker.
func fakeConfigs(t *testing.T) *wiretest.Cluster {
	t.Helper()
	c, err := wiretest.NewCluster(1)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	c.Handle(44, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, r := range req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			res := kmsg.NewIncrementalAlterConfigsResponseResource()
			res.ResourceType, res.ResourceName = r.ResourceType, r.ResourceName
			if r.Configs[0].Name == "mirror.name" {
				res.ErrorCode, res.ErrorMessage = 40, new("mirror.name is set by the controller only")
			}
			resp.Resources = append(resp.Resources, res)
		}
		return resp
	})
	c.Handle(32, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrDescribeConfigsResponse()
		r := req.(*kmsg.DescribeConfigsRequest).Resources[0]
		res := kmsg.NewDescribeConfigsResponseResource()
		res.ResourceType, res.ResourceName = r.ResourceType, r.ResourceName
		set := kmsg.NewDescribeConfigsResponseResourceConfig()
		set.Name, set.Value, set.Source = "bootstrap.servers", new("localhost:9092"), 0
		syn := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		syn.Name, syn.Value, syn.Source = set.Name, set.Value, kmsg.ConfigSourceDynamicTopicConfig
		set.ConfigSynonyms = append(set.ConfigSynonyms, syn)
		secret := kmsg.NewDescribeConfigsResponseResourceConfig()
		secret.Name, secret.IsSensitive = "sasl.jaas.config", true
		def := kmsg.NewDescribeConfigsResponseResourceConfig()
		def.Name, def.Value, def.Source = "a.default", new("x"), kmsg.ConfigSourceDefaultConfig
		res.Configs = append(res.Configs, secret, set, def)
		resp.Resources = append(resp.Resources, res)
		return resp
	})
	return c
}

// D40: the lines of cli.md, kafka-configs.sh.
func TestD40ConfigsOutput(t *testing.T) {
	c := fakeConfigs(t)
	server := []string{"--bootstrap-server", c.Addr(0)}
	for name, tc := range map[string]struct {
		args []string
		code int
		out  string
		errs string
	}{
		"mirror": {
			[]string{"--entity-type", "cluster-mirrors", "--entity-name", "my-mirror", "--alter", "--add-config", "bootstrap.servers=localhost:9092"},
			0, "Completed updating config for mirror my-mirror.\n", "",
		},
		"broker": {
			[]string{"--entity-type", "brokers", "--entity-name", "0", "--alter", "--add-config", "mirror.replication.throttled.rate=100000000"},
			0, "Completed updating config for broker 0.\n", "",
		},
		"all brokers": {
			[]string{"--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "mirror.replication.throttled.rate=1"},
			0, "Completed updating default config for brokers in the cluster.\n", "",
		},
		"topic": {
			[]string{"--entity-type", "topics", "--entity-name", "my-topic", "--alter", "--add-config", "mirror.replication.throttled.replicas=[0:4]"},
			0, "Completed updating config for topic my-topic.\n", "",
		},
		"refused": {
			[]string{"--topic", "my-topic", "--alter", "--add-config", "mirror.name=m"},
			1, "", "mirror.name is set by the controller only\n",
		},
		"delete": {
			[]string{"--cluster-mirror", "my-mirror", "--alter", "--delete-config", "bootstrap.servers"},
			0, "Completed updating config for mirror my-mirror.\n", "",
		},
		"describe": {
			[]string{"--entity-type", "cluster-mirrors", "--entity-name", "my-mirror", "--describe"},
			0, "Dynamic configs for mirror my-mirror are:\n" +
				"  bootstrap.servers=localhost:9092 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:bootstrap.servers=localhost:9092}\n" +
				"  sasl.jaas.config=null sensitive=true synonyms={}\n", "",
		},
		"describe all": {
			[]string{"--entity-type", "cluster-mirrors", "--entity-name", "my-mirror", "--describe", "--all"},
			0, "All configs for mirror my-mirror are:\n" +
				"  a.default=x sensitive=false synonyms={}\n" +
				"  bootstrap.servers=localhost:9092 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:bootstrap.servers=localhost:9092}\n" +
				"  sasl.jaas.config=null sensitive=true synonyms={}\n", "",
		},
		"clients": {
			[]string{"--alter", "--add-config", "consumer_byte_rate=1024", "--entity-type", "clients", "--entity-name", "broker-4-fetcher-0-mirror-my-mirror"},
			1, "", "the server doesn't know client quotas (AlterClientQuotas): run this against a cluster that does, such as the source of a mirror\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := configs(t, append(tc.args, server...)...)
			require.Equal(t, tc.out, out)
			require.Equal(t, tc.errs, errs)
			require.Equal(t, tc.code, code)
		})
	}
	last := c.Requests(44)[0].(*kmsg.IncrementalAlterConfigsRequest)
	require.NotEmpty(t, last.Resources)
}

// realKafka is a broker with a topic that has transactions, compressed batches
// and a key that is deleted.
func realKafka(t *testing.T) *kafka.Cluster {
	t.Helper()
	c := kafka.Start(t, kafka.Options{Properties: map[string]string{
		"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
		"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.Tool(ctx, kafka.Topics, "--create", "--topic", "t", "--partitions", "1")
	require.NoError(t, err)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...), kgo.TransactionalID("x"), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	require.NoError(t, err)
	defer cl.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(ctx, kgo.StringRecord(strings.Repeat("abc", 100)), kgo.KeyStringRecord("k", "v")).FirstErr())
		require.NoError(t, cl.EndTransaction(ctx, end))
	}
	return c
}

// The same calls of Kafka's tool and ours against a real broker print the same.
func TestConfigsAsKafkas(t *testing.T) {
	c := realKafka(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	id := strconv.Itoa(c.IDs()[0])
	for _, args := range [][]string{
		{"--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "retention.ms=1234567,cleanup.policy=[compact,delete]"},
		{"--describe", "--entity-type", "topics", "--entity-name", "t"},
		{"--describe", "--topic", "t", "--all"},
		{"--describe", "--entity-type", "topics"},
		{"--alter", "--entity-type", "topics", "--entity-name", "t", "--delete-config", "retention.ms"},
		{"--describe", "--topic", "t"},
		{"--alter", "--broker", id, "--add-config", "log.cleaner.threads=2"},
		{"--describe", "--broker", id},
		{"--describe", "--broker", id, "--all"},
		{"--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.cleaner.threads=1"},
		{"--describe", "--broker-defaults"},
		{"--describe", "--entity-type", "brokers"},
		{"--alter", "--entity-type", "clients", "--entity-name", "c", "--add-config", "consumer_byte_rate=1024,request_percentage=12.5"},
		{"--describe", "--entity-type", "clients", "--entity-name", "c"},
		{"--describe", "--entity-type", "clients"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			want, err := c.Tool(ctx, kafka.Configs, args...)
			require.NoError(t, err)
			code, out, errs := configs(t, append(args, "--bootstrap-server", c.Bootstrap())...)
			require.Zero(t, code, errs)
			require.Empty(t, cmp.Diff(byTopic(want.Stdout), byTopic(out)))
		})
	}
}

// byTopic sorts the paragraphs: Kafka's tool lists entities in the order of a
// hash table, ours by name.
func byTopic(out string) string {
	parts := strings.Split(out, "\nDynamic configs")
	for i := range parts {
		parts[i] = strings.Trim(strings.TrimPrefix(parts[i], "Dynamic configs"), "\n")
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}

// Every file of a partition that a real broker wrote.
func TestDumpLogOfARealBroker(t *testing.T) {
	c := realKafka(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, c.Stop(c.IDs()[0])) // a clean shutdown writes the snapshot
	folder := filepath.Join(c.LogDir(c.IDs()[0]), "t-0")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".log", ".index", ".timeindex", ".txnindex", ".snapshot":
		default:
			continue
		}
		n++
		t.Run(e.Name(), func(t *testing.T) {
			args := []string{"--files", filepath.Join(folder, e.Name()), "--print-data-log"}
			want, err := kafka.Tool(ctx, kafka.DumpLog, args...)
			require.NoError(t, err)
			code, out, errs := dump(t, args...)
			require.Zero(t, code, errs)
			require.Empty(t, cmp.Diff(want.Stdout, out))
		})
	}
	require.GreaterOrEqual(t, n, 5)
}
