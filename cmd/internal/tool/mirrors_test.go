package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/messages/wire/wiretest"
)

// fakeSource answers for the source cluster.
type fakeSource struct {
	topics map[string]fetch.SourceTopic
	err    error
}

func (s *fakeSource) Topics(context.Context, []string) (fetch.Cluster, error) {
	return fetch.Cluster{ID: "src", Topics: s.topics}, s.err
}

func (s *fakeSource) Close() error { return nil }

// bench is a scripted destination and the tool that talks to it.
type bench struct {
	*wiretest.Cluster
	source     *fakeSource
	connection map[string]string // the settings that the tool used for the source
}

func newBench(t *testing.T) *bench {
	t.Helper()
	c, err := wiretest.NewCluster(1)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &bench{Cluster: c, source: &fakeSource{}}
}

// tool runs kafka-cluster-mirrors.
func (b *bench) tool(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	m := newMirrorsTool(Streams{&out, &errs})
	m.every = time.Millisecond
	m.source = func(_ context.Context, _ string, configs map[string]string) (mirrorSource, error) {
		b.connection = configs
		return b.source, nil
	}
	code = m.main(t.Context(), append([]string{"--bootstrap-server", b.Addr(0)}, args...))
	return code, out.String(), errs.String()
}

// trimmed cuts the right end of every line: the last column is padded.
func trimmed(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// topicAnswer makes the handler of the five requests of one shape: every topic
// of the request gets its code.
func (b *bench) acceptTopics(codes map[string]int16, message *string) {
	b.Handle(wire.KeyStartMirrorTopics, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrStartMirrorTopicsResponse()
		resp.ErrorMessage = message
		for _, t := range req.(*wire.StartMirrorTopicsRequest).Topics {
			resp.Topics = append(resp.Topics, wire.StartMirrorTopicsResponseTopicResult{Name: t.TopicName, ErrorCode: codes[t.TopicName]})
		}
		return resp
	})
	b.Handle(wire.KeyStopMirrorTopics, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrStopMirrorTopicsResponse()
		resp.ErrorMessage = message
		for _, t := range req.(*wire.StopMirrorTopicsRequest).Topics {
			resp.Topics = append(resp.Topics, wire.StopMirrorTopicsResponseTopicResult{Name: t.TopicName, ErrorCode: codes[t.TopicName]})
		}
		return resp
	})
	b.Handle(wire.KeyPauseMirrorTopics, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrPauseMirrorTopicsResponse()
		for _, t := range req.(*wire.PauseMirrorTopicsRequest).Topics {
			resp.Topics = append(resp.Topics, wire.PauseMirrorTopicsResponseTopicResult{Name: t.TopicName, ErrorCode: codes[t.TopicName]})
		}
		return resp
	})
	b.Handle(wire.KeyResumeMirrorTopics, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrResumeMirrorTopicsResponse()
		for _, t := range req.(*wire.ResumeMirrorTopicsRequest).Topics {
			resp.Topics = append(resp.Topics, wire.ResumeMirrorTopicsResponseTopicResult{Name: t.TopicName, ErrorCode: codes[t.TopicName]})
		}
		return resp
	})
	b.Handle(wire.KeyRecoverMirrorTopics, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrRecoverMirrorTopicsResponse()
		for _, t := range req.(*wire.RecoverMirrorTopicsRequest).Topics {
			resp.Topics = append(resp.Topics, wire.RecoverMirrorTopicsResponseTopicResult{Name: t.TopicName, ErrorCode: codes[t.TopicName]})
		}
		return resp
	})
}

type part = wire.DescribeClusterMirrorsResponsePartitionDetail

func detail(partition int32, source, dest, lag int64, state string) part {
	p := wire.NewDescribeClusterMirrorsResponsePartitionDetail()
	p.PartitionIndex, p.SourceOffset, p.DestinationOffset, p.Lag, p.State = partition, source, dest, lag, state
	return p
}

// describes sets the answer of DescribeClusterMirrors: mirror -> topic -> partitions.
func (b *bench) describes(mirrors map[string]map[string][]part) {
	b.Handle(wire.KeyDescribeClusterMirrors, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := wire.NewPtrDescribeClusterMirrorsResponse()
		asked := req.(*wire.DescribeClusterMirrorsRequest).MirrorNames
		for _, name := range asked {
			if mirrors[name] == nil {
				resp.Mirrors = append(resp.Mirrors, wire.DescribeClusterMirrorsResponseDescribedMirror{MirrorName: name, ErrorCode: wire.CodeUnknownClusterMirror})
			}
		}
		for name, topics := range mirrors {
			if len(asked) > 0 && asked[0] != name {
				continue
			}
			m := wire.NewDescribeClusterMirrorsResponseDescribedMirror()
			m.MirrorName = name
			for topic, ps := range topics {
				m.Topics = append(m.Topics, wire.DescribeClusterMirrorsResponseTopicPartitions{TopicName: topic, Partitions: ps})
			}
			resp.Mirrors = append(resp.Mirrors, m)
		}
		return resp
	})
}

// hasConfigs sets the answer of DescribeConfigs for the mirror; nil values are
// passwords.
func (b *bench) hasConfigs(configs map[string]*string) {
	b.Handle(32, func(_ int32, req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrDescribeConfigsResponse()
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			res := kmsg.NewDescribeConfigsResponseResource()
			res.ResourceType, res.ResourceName = r.ResourceType, r.ResourceName
			if configs == nil {
				res.ErrorCode = wire.CodeUnknownClusterMirror
			}
			for name, value := range configs {
				cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
				cfg.Name, cfg.Value, cfg.IsSensitive = name, value, value == nil
				res.Configs = append(res.Configs, cfg)
			}
			resp.Resources = append(resp.Resources, res)
		}
		return resp
	})
}

//go:fix inline
func TestD40CommandLine(t *testing.T) {
	b := newBench(t)
	for name, tc := range map[string]struct {
		args  []string
		want  string
		usage bool
	}{
		"no action":          {nil, oneAction, true},
		"two actions":        {[]string{"--list", "--describe"}, oneAction, true},
		"mirror missing":     {[]string{"--delete"}, "--mirror must be specified", false},
		"config missing":     {[]string{"--create", "--mirror", "m"}, "--mirror-config must be specified when creating a mirror", false},
		"topics of start":    {[]string{"--start", "--mirror", "m"}, "--topics must be specified when starting mirror topic(s)", false},
		"topics of stop":     {[]string{"--stop", "--mirror", "m", "--topics", ""}, "--topics must be specified when stopping mirror topic(s)", false},
		"topics of pause":    {[]string{"--pause", "--mirror", "m"}, "--topics must be specified when pausing mirror topic(s)", false},
		"topics of resume":   {[]string{"--resume", "--mirror", "m"}, "--topics must be specified when resuming mirror topic(s)", false},
		"topics of recover":  {[]string{"--recover", "--mirror", "m"}, "--topics must be specified when recovering mirror topic(s)", false},
		"exclude misplaced":  {[]string{"--stop", "--mirror", "m", "--topics", "t", "--exclude", "x"}, "--exclude is only valid with --start", false},
		"json misplaced":     {[]string{"--list", "--json"}, "--json is only supported for describing mirrors", false},
		"failed misplaced":   {[]string{"--list", "--failed"}, "--failed is only supported for describing mirrors", false},
		"dry-run misplaced":  {[]string{"--list", "--dry-run"}, "--dry-run is only valid with --start and --stop", false},
		"wait misplaced":     {[]string{"--list", "--wait"}, "--wait is only valid with --start and --stop, without --dry-run", false},
		"wait for a dry run": {[]string{"--stop", "--mirror", "m", "--topics", "t", "--dry-run", "--wait"}, "--wait is only valid with --start and --stop, without --dry-run", false},
		"unknown option":     {[]string{"--colour"}, "colour is not a recognized option", true},
		"ambiguous":          {[]string{"--re", "--mirror", "m"}, "re is ambiguous: recover, resume", true},
		"no option":          {[]string{"--list", "what"}, "what is not an option", true},
		"bad pattern":        {[]string{"--pause", "--mirror", "m", "--topics", "("}, "", false},
		"no file":            {[]string{"--create", "--mirror", "m", "--mirror-config", "/no/such/file"}, "", false},
		"no command config":  {[]string{"--list", "--command-config", "/no/such/file"}, "", false},
		"argument is absent": {[]string{"--list", "--mirror"}, "flag needs an argument: --mirror", true},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := b.tool(t, tc.args...)
			require.Equal(t, 1, code)
			require.Empty(t, out)
			first, rest, _ := strings.Cut(errs, "\n")
			if tc.want != "" {
				require.Equal(t, tc.want, first)
			}
			require.NotEmpty(t, first)
			require.Equal(t, tc.usage, strings.Contains(rest, "Description"), errs)
		})
	}
}

func TestD40BootstrapMissing(t *testing.T) {
	code, out, errs := run(t, func(s Streams) int { return ClusterMirrors(t.Context(), []string{"--list"}, s) })
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "--bootstrap-server must be specified\n", errs)
}

func TestD40HelpAndVersion(t *testing.T) {
	code, out, errs := run(t, func(s Streams) int { return ClusterMirrors(t.Context(), []string{"--help"}, s) })
	require.Zero(t, code)
	require.Empty(t, errs)
	require.Contains(t, out, "creates cluster mirrors and manages mirrored topics")
	for _, option := range []string{"--bootstrap-server <server to connect to>", "--topics <names or regex>", "--failed", "--dry-run", "--recover"} {
		require.Contains(t, out, option)
	}
	code, out, _ = run(t, func(s Streams) int { return ClusterMirrors(t.Context(), []string{"--version"}, s) })
	require.Zero(t, code)
	require.Equal(t, Version()+"\n", out)
}

func TestD40Create(t *testing.T) {
	b := newBench(t)
	code16 := int16(0)
	b.Handle(wire.KeyCreateClusterMirror, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrCreateClusterMirrorResponse()
		if resp.ErrorCode = code16; code16 != 0 {
			resp.ErrorMessage = new("Mirror 'my-mirror' already exists.")
		}
		return resp
	})
	file := filepath.Join(t.TempDir(), "m.properties")
	require.NoError(t, os.WriteFile(file, []byte("# source\nbootstrap.servers = localhost:9091\nsasl.jaas.config=a required password\\=\"${x}\\u0041\" \\\n   b;\n"), 0o600))
	code, out, errs := b.tool(t, "--create", "--mirror", "my-mirror", "--mirror-config", file)
	require.Zero(t, code, errs)
	require.Equal(t, "Created mirror my-mirror\n", out)
	req := b.Requests(wire.KeyCreateClusterMirror)[0].(*wire.CreateClusterMirrorRequest)
	require.Equal(t, "my-mirror", req.MirrorName)
	require.Equal(t, "localhost:9091", *req.Config[0].Value)
	require.Equal(t, `a required password="${x}A" b;`, *req.Config[1].Value)

	code16 = wire.CodeClusterMirrorAlreadyExists
	code, out, errs = b.tool(t, "--create", "--mirror", "my-mirror", "--mirror-config", file)
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "Mirror 'my-mirror' already exists.\n", errs)
}

func TestD40Delete(t *testing.T) {
	b := newBench(t)
	b.Handle(wire.KeyDeleteClusterMirror, func(int32, kmsg.Request) kmsg.Response { return wire.NewPtrDeleteClusterMirrorResponse() })
	code, out, errs := b.tool(t, "--delete", "--mirror", "my-mirror")
	require.Zero(t, code, errs)
	require.Equal(t, "Deleted mirror my-mirror\n", out)
}

func TestD40List(t *testing.T) {
	b := newBench(t)
	var mirrors []wire.ListClusterMirrorsResponseListedMirror
	b.Handle(wire.KeyListClusterMirrors, func(int32, kmsg.Request) kmsg.Response {
		resp := wire.NewPtrListClusterMirrorsResponse()
		resp.Mirrors = mirrors
		return resp
	})
	_, out, _ := b.tool(t, "--list")
	require.Equal(t, "No mirrors found\n", out)

	servers := "localhost:9091,localhost:9092"
	mirrors = []wire.ListClusterMirrorsResponseListedMirror{
		{MirrorName: "new-mirror", TopicCount: 1, SourceClusterID: "lBq12jYZRp-9wF3M9MPopg", SourceBootstrap: servers},
		{MirrorName: "my-mirror", TopicCount: 2, SourceClusterID: "lBq12jYZRp-9wF3M9MPopg", SourceBootstrap: servers},
		{MirrorName: "zz-mirror-with-a-name-of-more-than-30", SourceBootstrap: servers + "," + servers},
	}
	code, out, errs := b.tool(t, "--list")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`MIRROR                         TOPICS     CLUSTER-ID                 BOOTSTRAP-SERVER
my-mirror                      2          lBq12jYZRp-9wF3M9MPopg     localhost:9091,localhost:9092
new-mirror                     1          lBq12jYZRp-9wF3M9MPopg     localhost:9091,localhost:9092
...with-a-name-of-more-than-30 0          -                          ...91,localhost:9092,localhost:9091,localhost:9092
`, trimmed(out)), "widths")
}

var sampleMirrors = map[string]map[string][]part{
	"my-mirror": {
		"foo": {detail(2, 94, 90, 4, "MIRRORING"), detail(0, 69, 66, 3, "MIRRORING"), detail(1, 94, 84, 10, "MIRRORING")},
		"bar": {detail(0, -1, -1, -1, "STOPPED")},
	},
	"new-mirror": {"baz": {detail(0, -1, -1, -1, "PAUSED"), detail(1, -1, -1, -1, "PAUSED")}},
}

func TestD40Describe(t *testing.T) {
	b := newBench(t)
	b.describes(nil)
	_, out, _ := b.tool(t, "--describe")
	require.Equal(t, "No mirror partitions found\n", out)
	_, out, _ = b.tool(t, "--describe", "--json")
	require.Equal(t, "[]\n", out)
	_, out, _ = b.tool(t, "--describe", "--failed")
	require.Equal(t, "No failed mirror partitions found\n", out)

	b.describes(sampleMirrors)
	code, out, errs := b.tool(t, "--describe")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`MIRROR                         TOPIC                                    PARTITION  SOURCE-OFFSET   DESTINATION-OFFSET LAG      STATE
my-mirror                      bar                                      0          -               -                  -        STOPPED
my-mirror                      foo                                      0          69              66                 3        MIRRORING
my-mirror                      foo                                      1          94              84                 10       MIRRORING
my-mirror                      foo                                      2          94              90                 4        MIRRORING
new-mirror                     baz                                      0          -               -                  -        PAUSED
new-mirror                     baz                                      1          -               -                  -        PAUSED
`, trimmed(out)))
	require.Equal(t, 139, len(strings.SplitN(out, "\n", 2)[0]), "the last column is padded")

	_, out, _ = b.tool(t, "--describe", "--mirror", "new-mirror")
	require.Equal(t, 3, strings.Count(out, "\n"))
	code, out, errs = b.tool(t, "--describe", "--mirror", "nobody")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Contains(t, errs, "does not exist")
}

func TestD40DescribeJSON(t *testing.T) {
	b := newBench(t)
	p := detail(0, 10, 4, 6, "MIRRORING")
	p.LastMirrorEpoch = 5
	p.CutRecords, p.CutBytes, p.CutFrom, p.CutTo = 3, 200, 7, 10
	p.GapFrom, p.GapTo, p.GapAtMs = 0, 4, 1771239071191
	b.describes(map[string]map[string][]part{"m": {"a": {p}, "b": {detail(0, -1, -1, -1, "PAUSED")}}})
	code, out, errs := b.tool(t, "--describe", "--json")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`[{"mirror":"m","topic":"a","partition":0,"sourceOffset":10,"destinationOffset":4,"lag":6,"state":"MIRRORING","lastMirrorEpoch":5,`+
		`"cutRecords":3,"cutBytes":200,"cutFrom":7,"cutTo":10,"gapFrom":0,"gapTo":4,"gapTime":"2026-02-16T10:51:11Z"},`+
		`{"mirror":"m","topic":"b","partition":0,"sourceOffset":-1,"destinationOffset":-1,"lag":-1,"state":"PAUSED","lastMirrorEpoch":-1}]`+"\n", out))
}

// D48 at the tool: failed partitions only, with RETRY and ERROR.
func TestD48DescribeFailed(t *testing.T) {
	b := newBench(t)
	p := detail(1, 10, 4, 6, "FAILED")
	p.RetryAttempt, p.ErrorText = 3, "connect to source: refused\nagain"
	b.describes(map[string]map[string][]part{"m": {"a": {p, detail(0, 5, 5, 0, "MIRRORING")}}})
	code, out, errs := b.tool(t, "--describe", "--failed")
	require.Zero(t, code, errs)
	require.Empty(t, cmp.Diff(`MIRROR                         TOPIC                                    PARTITION  SOURCE-OFFSET   DESTINATION-OFFSET LAG      STATE        RETRY    ERROR
m                              a                                        1          10              4                  6        FAILED       3        connect to source: refused again
`, trimmed(out)))
	_, out, _ = b.tool(t, "--describe", "--failed", "--json")
	var rows []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Len(t, rows, 1)
	require.Equal(t, float64(3), rows[0]["retry"])
	require.Equal(t, p.ErrorText, rows[0]["error"])
}

func TestD40StateIsNeverCut(t *testing.T) {
	b := newBench(t)
	b.describes(map[string]map[string][]part{"m": {"a": {detail(0, 1234567890, -1, 123456789, "LOG_TRUNCATION")}}})
	_, out, _ := b.tool(t, "--describe")
	require.Contains(t, out, "1234567890      -                  ...56789 LOG_TRUNCATION\n")
}

func TestD40Steer(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--stop", "--topics", "ba.,foo"}, "Stopped mirroring for 2 topic(s) in mirror my-mirror: [bar, foo]\n"},
		{[]string{"--stop", "--topic", "bar"}, "Stopped mirroring for 1 topic(s) in mirror my-mirror: [bar]\n"},
		{[]string{"--stop", "--topics", "nothing"}, "No matching topics found in mirror my-mirror. Patterns moved to its exclude list.\n"},
		{[]string{"--pause", "--topics", ".*"}, "Paused mirroring for 2 topic(s) in mirror my-mirror: [bar, foo]\n"},
		{[]string{"--resume", "--topics", "foo"}, "Resumed mirroring for 1 topic(s) in mirror my-mirror: [foo]\n"},
		{[]string{"--recover", "--topics", "foo"}, "Recovered mirroring for 1 topic(s) in mirror my-mirror: [foo]\n"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			b := newBench(t)
			b.describes(sampleMirrors)
			b.acceptTopics(nil, nil)
			code, out, errs := b.tool(t, append(tc.args, "--mirror", "my-mirror")...)
			require.Zero(t, code, errs)
			require.Equal(t, tc.want, out)
			require.Empty(t, errs)
			for _, r := range b.Requests(wire.KeyStopMirrorTopics) {
				require.Equal(t, messages.ParseList(tc.args[2]), r.(*wire.StopMirrorTopicsRequest).Patterns, "patterns are sent, matched or not")
			}
		})
	}
	for _, a := range []string{"--pause", "--resume", "--recover"} {
		b := newBench(t)
		b.describes(sampleMirrors)
		code, out, errs := b.tool(t, a, "--topics", "nothing", "--mirror", "my-mirror")
		require.Equal(t, 1, code)
		require.Empty(t, out)
		require.Equal(t, "No matching topics found in mirror my-mirror\n", errs)
	}
}

// A member topic without any state can be stopped: its config names the mirror.
func TestStopTopicWithoutState(t *testing.T) {
	b := newBench(t)
	b.describes(map[string]map[string][]part{"my-mirror": {}})
	b.SetTopic("orphan", wiretest.Topic{Leaders: []int32{0}})
	b.hasConfigs(map[string]*string{"mirror.name": new("my-mirror.paused")})
	b.acceptTopics(nil, nil)
	code, out, errs := b.tool(t, "--stop", "--topics", ".*", "--mirror", "my-mirror")
	require.Zero(t, code, errs)
	require.Equal(t, "Stopped mirroring for 1 topic(s) in mirror my-mirror: [orphan]\n", out)
}

func TestD40SomeTopicsFail(t *testing.T) {
	b := newBench(t)
	b.describes(sampleMirrors)
	b.acceptTopics(map[string]int16{"bar": wire.CodeMirrorTopicAlreadyPaused}, nil)
	code, out, errs := b.tool(t, "--pause", "--topics", ".*", "--mirror", "my-mirror")
	require.Equal(t, 1, code)
	require.Equal(t, "Paused mirroring for 1 topic(s) in mirror my-mirror: [foo]\n", out)
	require.Equal(t, "bar: The mirror topic is already paused.\n", errs)
}

func sourceTopics(names ...string) map[string]fetch.SourceTopic {
	out := map[string]fetch.SourceTopic{}
	for i, n := range names {
		out[n] = fetch.SourceTopic{Name: n, ID: messages.TopicID{byte(i + 1)}, Partitions: make([]fetch.SourcePartition, i+1)}
	}
	return out
}

// D38 and D40: start sends what the source has, by the patterns as they will be.
func TestD40Start(t *testing.T) {
	b := newBench(t)
	b.hasConfigs(map[string]*string{"bootstrap.servers": new("a:1"), "mirror.topics.exclude": new("__.*,orders-old,orders-eu")})
	b.acceptTopics(nil, nil)
	b.source.topics = sourceTopics("orders-us", "orders-eu", "orders-old", "orders-internal", "payments", "__consumer_offsets")
	code, out, errs := b.tool(t, "--start", "--mirror", "my-mirror", "--topics", "orders-.*,orders-eu,__.*", "--exclude", "orders-internal")
	require.Zero(t, code, errs)
	require.Equal(t, "Started 2 mirror topic(s) in mirror my-mirror: [orders-eu, orders-us]\n", out)
	req := b.Requests(wire.KeyStartMirrorTopics)[0].(*wire.StartMirrorTopicsRequest)
	require.Equal(t, []string{"orders-.*", "orders-eu", "__.*"}, req.IncludePatterns)
	require.Equal(t, []string{"orders-internal"}, req.ExcludePatterns)
	require.Equal(t, "orders-eu", req.Topics[0].TopicName)
	require.Equal(t, int32(2), req.Topics[0].NumPartitions)
	require.Equal(t, messages.TopicID{2}, req.Topics[0].TopicID)
	require.Equal(t, "a:1", b.connection["bootstrap.servers"])

	code, out, errs = b.tool(t, "--start", "--mirror", "my-mirror", "--topics", "later-.*")
	require.Zero(t, code, errs)
	require.Equal(t, "No matching topics found yet. Patterns saved to mirror my-mirror for auto-discovery.\n", out)
	req = b.Requests(wire.KeyStartMirrorTopics)[1].(*wire.StartMirrorTopicsRequest)
	require.Empty(t, req.Topics)
	require.Equal(t, []string{"later-.*"}, req.IncludePatterns)
	require.Empty(t, errs)

	// What a stop has put among the excludes is named: it stays there until the same pattern is started.
	b.hasConfigs(map[string]*string{"bootstrap.servers": new("a:1"), "mirror.topics.exclude": new("__.*,.*")})
	code, out, errs = b.tool(t, "--start", "--mirror", "my-mirror", "--topics", "orders-us")
	require.Zero(t, code, errs)
	require.Contains(t, out, "No matching topics found yet.")
	require.Contains(t, errs, "1 topic(s) match, such as orders-us, but mirror.topics.exclude of the mirror leaves them out: __.*,.*.")
}

func TestD40StartRefused(t *testing.T) {
	b := newBench(t)
	b.hasConfigs(nil)
	code, out, errs := b.tool(t, "--start", "--mirror", "my-mirror", "--topics", "a")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "Mirror 'my-mirror' not found or has no configuration\n", errs)

	b.hasConfigs(map[string]*string{"bootstrap.servers": new("a:1")})
	b.source.err = errors.New("no route")
	code, _, errs = b.tool(t, "--start", "--mirror", "my-mirror", "--topics", "a")
	require.Equal(t, 1, code)
	require.Equal(t, "list topics of the source: no route\n", errs)

	b.source.err = nil
	b.source.topics = sourceTopics("a", "b")
	b.acceptTopics(map[string]int16{"b": 42}, new("b: matches the exclude entry b"))
	code, out, errs = b.tool(t, "--start", "--mirror", "my-mirror", "--topics", "a,b")
	require.Equal(t, 1, code)
	require.Equal(t, "Started 1 mirror topic(s) in mirror my-mirror: [a]\n", out)
	require.Equal(t, "b: matches the exclude entry b\n", errs)
}

// The cluster gives out no passwords: the tool says so, and takes them from a file.
func TestStartNeedsSecretsFromFile(t *testing.T) {
	b := newBench(t)
	b.hasConfigs(map[string]*string{"bootstrap.servers": new("a:1"), "sasl.jaas.config": nil})
	b.acceptTopics(nil, nil)
	b.source.topics = sourceTopics("a")
	code, _, errs := b.tool(t, "--start", "--mirror", "m", "--topics", "a")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "sasl.jaas.config")
	require.Contains(t, errs, "--mirror-config")
	file := filepath.Join(t.TempDir(), "m.properties")
	require.NoError(t, os.WriteFile(file, []byte("sasl.jaas.config=secret\n"), 0o600))
	code, out, errs := b.tool(t, "--start", "--mirror", "m", "--topics", "a", "--mirror-config", file)
	require.Zero(t, code, errs)
	require.NotContains(t, out+errs, "secret")
	require.Equal(t, map[string]string{"bootstrap.servers": "a:1", "sasl.jaas.config": "secret"}, b.connection)
}

// OP-38: a node that doesn't answer is named, its partitions are shown, exit 0.
func TestDescribeWithDeadNode(t *testing.T) {
	c, err := wiretest.NewCluster(2)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b := &bench{Cluster: c}
	b.describes(map[string]map[string][]part{"m": {"t": {detail(0, 5, 5, 0, "MIRRORING")}}})
	b.SetTopic("t", wiretest.Topic{Leaders: []int32{0, 1}})
	b.hasConfigs(map[string]*string{"mirror.name": new("m")})
	b.Down(1)
	code, out, errs := b.tool(t, "--describe")
	require.Zero(t, code)
	require.Contains(t, errs, "Warning: node 1 (")
	require.Equal(t, []string{"m", "t", "1", "-", "-", "-", "-"}, strings.Fields(strings.Split(out, "\n")[2]))
}
