package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"kagami/client"
	"kagami/messages"
	"kagami/persistence"
)

// childEnv makes the test program the command itself.
const childEnv = "KAGAMI_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const patience = 30 * time.Second

func options(dir string, more ...string) []string {
	return append([]string{
		"log.dirs=" + dir, "listeners=PLAINTEXT://127.0.0.1:0", "kagami.admin.listen=127.0.0.1:0",
		"mirror.state.topic.num.partitions=3", "mirror.metadata.refresh.interval.ms=1000", "offsets.topic.num.partitions=3",
	}, more...)
}

// startTestNode starts a node in this process; it ends with the test at the latest.
func startTestNode(t *testing.T, dir string, more ...string) *node {
	t.Helper()
	n, err := tryNode(t, dir, more...)
	require.NoError(t, err)
	t.Cleanup(func() { stopTestNode(t, n) })
	return n
}

func tryNode(t *testing.T, dir string, more ...string) (*node, error) {
	t.Helper()
	s, err := loadSettings("", options(dir, more...))
	require.NoError(t, err)
	return startNode(t.Context(), s, zap.NewNop(), zap.NewAtomicLevel())
}

func stopTestNode(t *testing.T, n *node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, n.close(ctx))
}

func (n *node) kafka() string { return n.broker.Addr("PLAINTEXT").String() }

// connectTo is an admin client with the KIP's requests.
func connectTo(t *testing.T, addr string) (*client.Client, *kgo.Client, *kadm.Client) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), client.MaxVersions(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return client.Wrap(cl), cl, kadm.NewClient(cl)
}

// topic makes a topic and fills its partition 0.
func topic(t *testing.T, cl *kgo.Client, name string, partitions int32, records int, configs map[string]*string) {
	t.Helper()
	resp, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, configs, name)
	require.NoError(t, err)
	require.NoError(t, resp.Err)
	produce(t, cl, name, records)
}

func produce(t *testing.T, cl *kgo.Client, topic string, records int) {
	t.Helper()
	for i := range records {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i%5), Value: fmt.Appendf(nil, "v%d", i)}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
}

// end is where a partition ends; a leadership may be on its way.
func end(t *testing.T, adm *kadm.Client, topic string) (offset int64) {
	t.Helper()
	await(t, "the end of "+topic, func() error {
		offsets, err := adm.ListEndOffsets(t.Context(), topic)
		if err != nil {
			return err
		}
		o, ok := offsets.Lookup(topic, 0)
		if !ok {
			return errors.New("it isn't in the answer")
		}
		offset = o.Offset
		return o.Err
	})
	return offset
}

func await(t *testing.T, what string, f func() error) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestNodeTwiceInOneFolder(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
	dir := t.TempDir()
	n := startTestNode(t, dir)
	_, cl, _ := connectTo(t, n.kafka())
	topic(t, cl, "t", 1, 10, nil)
	cluster := n.clusterID
	cl.Close()
	stopTestNode(t, n)
	stopTestNode(t, n)
	again := startTestNode(t, dir)
	require.Equal(t, cluster, again.clusterID)
	_, cl, adm := connectTo(t, again.kafka())
	require.Equal(t, int64(10), end(t, adm, "t"))
	produce(t, cl, "t", 1)
	cl.Close()
	stopTestNode(t, again)
}

func TestFolderInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	n := startTestNode(t, dir)
	_, err := tryNode(t, dir)
	require.ErrorIs(t, err, persistence.ErrLocked)
	require.ErrorContains(t, err, dir)
	var out, errs bytes.Buffer
	args := []string{"server"}
	for _, o := range options(dir) {
		args = append(args, "--set", o)
	}
	require.Equal(t, exitFailed, run(t.Context(), args, &out, &errs))
	require.Contains(t, errs.String(), "in use by another process")
	_, cl, _ := connectTo(t, n.kafka())
	topic(t, cl, "t", 1, 1, nil) // the first one isn't harmed
}

func TestFolderOfAnotherNodeIsRefused(t *testing.T) {
	dir := t.TempDir()
	stopTestNode(t, startTestNode(t, dir))
	_, err := tryNode(t, dir, "node.id=2")
	require.ErrorIs(t, err, persistence.ErrForeignFolder)
	require.ErrorContains(t, err, dir)
}

func TestPortInUseIsRefused(t *testing.T) {
	n := startTestNode(t, t.TempDir())
	dir := t.TempDir()
	_, err := tryNode(t, dir, "listeners=PLAINTEXT://"+n.kafka())
	require.ErrorContains(t, err, n.kafka())
	_, err = tryNode(t, dir, "kagami.admin.listen="+n.admin.Addr())
	require.ErrorContains(t, err, n.admin.Addr())
	startTestNode(t, dir) // what was started has been stopped
}

// child is a node in a process of its own.
type child struct {
	cmd          *exec.Cmd
	kafka, admin string
	ended        chan error
	errs         *bytes.Buffer // stderr; whole when it has ended
}

func startChild(t *testing.T, dir string, more ...string) *child {
	t.Helper()
	args := []string{"server"}
	for _, o := range options(dir, more...) {
		args = append(args, "--set", o)
	}
	c := &child{cmd: exec.Command(os.Args[0], args...), ended: make(chan error, 1), errs: &bytes.Buffer{}}
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	c.cmd.SysProcAttr = childAttr()
	c.cmd.Stderr = c.errs
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	lines := bufio.NewScanner(out)
	for c.admin == "" && lines.Scan() {
		if _, addr, ok := strings.Cut(lines.Text(), "PLAINTEXT at "); ok {
			c.kafka = addr
		}
		if _, rest, ok := strings.Cut(lines.Text(), "admin at http://"); ok {
			c.admin, _, _ = strings.Cut(rest, ",")
		}
	}
	go func() { c.ended <- c.cmd.Wait() }()
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); c.ended <- <-c.ended })
	if c.admin == "" {
		c.ended <- <-c.ended
		t.Fatalf("the child didn't start: %s", c.errs)
	}
	return c
}

// kill -9, again and again: what was acknowledged is there, and the folder opens.
func TestKilledNodeComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	want := int64(0)
	for round := range 3 {
		c := startChild(t, dir)
		_, cl, adm := connectTo(t, c.kafka)
		if round == 0 {
			topic(t, cl, "t", 1, 0, nil)
		}
		require.Equal(t, want, end(t, adm, "t"))
		produce(t, cl, "t", 20)
		want += 20
		require.NoError(t, c.cmd.Process.Kill())
		c.ended <- <-c.ended
		cl.Close()
	}
	c := startChild(t, dir)
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	err := <-c.ended
	c.ended <- err
	require.NoError(t, err, "SIGTERM ends a node with exit code 0")
}

// pair is a source and a destination in this process, with topics t and c (compacted)
// mirrored from one to the other.
type pair struct {
	t        *testing.T
	src, dst *node
	srcCl    *kgo.Client
	dstCl    *kgo.Client
	adm      *client.Client
}

func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, src: startTestNode(t, t.TempDir()), dst: startTestNode(t, t.TempDir())}
	_, p.srcCl, _ = connectTo(t, p.src.kafka())
	p.adm, p.dstCl, _ = connectTo(t, p.dst.kafka())
	compact := "compact"
	topic(t, p.srcCl, "t", 2, 30, nil)
	topic(t, p.srcCl, "c", 1, 30, map[string]*string{"cleanup.policy": &compact})
	bootstrap := p.src.kafka()
	require.NoError(t, p.adm.CreateClusterMirror(t.Context(), "m", map[string]*string{"bootstrap.servers": &bootstrap}))
	opts := client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{}}
	details, err := kadm.NewClient(p.srcCl).ListTopics(t.Context(), "t", "c")
	require.NoError(t, err)
	for name, d := range details {
		opts.TopicMetadata[name] = client.TopicMetadata{ID: messages.TopicID(d.ID), Partitions: int32(len(d.Partitions))}
	}
	res, err := p.adm.StartMirrorTopics(t.Context(), "m", []string{"t", "c"}, opts)
	require.NoError(t, errors.Join(err, res.Err()))
	p.awaitEnd("t")
	p.awaitEnd("c")
	return p
}

func (p *pair) awaitEnd(topic string) {
	p.t.Helper()
	want := end(p.t, kadm.NewClient(p.srcCl), topic)
	await(p.t, topic+" is copied", func() error {
		if got := end(p.t, kadm.NewClient(p.dstCl), topic); got != want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// kagami runs the command in this process.
func (p *pair) kagami(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	var out, errs bytes.Buffer
	code = run(p.t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestQuery(t *testing.T) {
	p := startPair(t)
	admin := p.dst.admin.Addr()
	await(t, "the mirror's first refresh", func() error {
		if _, out, _ := p.kagami("query", "mirrors", "--admin", admin); !strings.Contains(out, p.src.clusterID) {
			return errors.New(out)
		}
		return nil
	})
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string // in the output
		not  []string
	}{
		{name: "partitions", args: []string{"partitions", "--admin", admin}, want: []string{"MIRROR", "SOURCE-OFFSET", "MIRRORING", "t", "c"}},
		{name: "of a topic", args: []string{"partitions", "--admin", admin, "--topic", "c"}, want: []string{"c"}, not: []string{"t      "}},
		{name: "mirrors", args: []string{"mirrors", "--admin", admin}, want: []string{p.src.clusterID, p.src.kafka()}},
		{name: "actors", args: []string{"actors", "--admin", admin}, want: []string{"controller", "mirror/m", "fetcher/m/", "partition/"}},
		{name: "actors by name", args: []string{"actors", "--admin", admin, "--prefix", "mirror/"}, want: []string{"mirror/m"}, not: []string{"controller", "fetcher"}},
		{name: "actors of a mirror", args: []string{"actors", "--admin", admin, "--mirror", "m"}, want: []string{"mirror/m", "partition/"}, not: []string{"controller"}},
		{name: "unknown mirror", args: []string{"partitions", "--admin", admin, "--mirror", "x"}, code: exitFailed, want: []string{"unknown cluster mirror: x"}},
		{name: "no such query", args: []string{"nothing", "--admin", admin}, code: exitFailed, want: []string{"usage"}},
		{name: "nobody there", args: []string{"mirrors", "--admin", "127.0.0.1:1"}, code: exitFailed, want: []string{"is the node running"}},
		{name: "help", args: []string{"--help"}, want: []string{"usage", "--admin"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := p.kagami(append([]string{"query"}, tc.args...)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, errs)
			}
			for _, w := range tc.want {
				if !strings.Contains(out+errs, w) {
					t.Errorf("%q isn't in:\n%s%s", w, out, errs)
				}
			}
			for _, w := range tc.not {
				if strings.Contains(out, w) {
					t.Errorf("%q is in:\n%s", w, out)
				}
			}
		})
	}
	asks, err := newAdminClient(adminOptions{address: admin})
	require.NoError(t, err)
	body, err := asks.get(t.Context(), "/metrics")
	require.NoError(t, err)
	require.Contains(t, string(body), "kafka_server_mirror_metadata_manager_mirroring_partition_state 3\n")
	require.Contains(t, string(body), `kafka_server_fetcher_lag_metrics_consumer_lag{mirror="m",partition="0",topic="t"} 0`)
	code, out, _ := p.kagami("query", "partitions", "--admin", admin, "--json")
	require.Zero(t, code)
	var rows []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Len(t, rows, 3)
}

func TestVerify(t *testing.T) {
	p := startPair(t)
	verify := func(more ...string) (int, string, string) {
		return p.kagami(append([]string{"verify", "--bootstrap-server", p.dst.kafka(), "--mirror", "m"}, more...)...)
	}
	for _, more := range [][]string{nil, {"--deep"}, {"--topics", "t"}} {
		code, out, errs := verify(more...)
		require.Equal(t, exitOK, code, out+errs)
		require.NotContains(t, out, "DIFFERENT")
		require.Contains(t, out, "equal")
	}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no such mirror", []string{"--mirror", "x"}, `unknown cluster mirror: "x"`},
		{"no topic matches", []string{"--topics", "nothing"}, "has no topics that this user may describe and that match nothing"},
		{"bad pattern", []string{"--topics", "("}, "("},
		{"nobody there", []string{"--bootstrap-server", "127.0.0.1:1", "--timeout", "2s"}, "destination 127.0.0.1:1"},
		{"no source settings", []string{"--source-config", "/nowhere"}, "/nowhere"},
		{"unknown option", []string{"--x"}, "unknown flag: --x"},
		{"argument", []string{"m"}, `unexpected argument "m"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := verify(tc.args...)
			require.Equal(t, exitNoVerdict, code, out+errs)
			require.Contains(t, errs, tc.want)
		})
	}
	res, err := p.adm.StopMirrorTopics(t.Context(), "m", []string{"t"})
	require.NoError(t, errors.Join(err, res.Err()))
	await(t, "t is writable", func() error {
		r := &kgo.Record{Topic: "t", Value: []byte("of the destination")}
		return p.dstCl.ProduceSync(t.Context(), r).FirstErr()
	})
	produce(t, p.srcCl, "t", 4)
	code, out, _ := verify()
	require.Equal(t, exitDifferent, code, out)
	require.Contains(t, out, "DIFFERENT")
}
