package kafka

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) {
	code := m.Run()
	PrintSkipped(os.Stderr)
	os.Exit(code)
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// roundTrip writes three records by kgo and reads them back.
func roundTrip(ctx context.Context, t *testing.T, c *Cluster, topic string) {
	t.Helper()
	cl, err := c.Client(kgo.ConsumeTopics(topic))
	require.NoError(t, err)
	defer cl.Close()
	for i := range 3 {
		require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)}).FirstErr())
	}
	var got []string
	for len(got) < 3 {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	require.Equal(t, []string{"0", "1", "2"}, got)
}

func create(ctx context.Context, t *testing.T, c *Cluster, partitions int32, replicas int16, topic string) {
	t.Helper()
	cl, err := c.Client()
	require.NoError(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, partitions, replicas, nil, topic)
	require.NoError(t, err)
}

func TestEveryVersionServesClients(t *testing.T) {
	for _, v := range Versions() {
		t.Run(string(v), func(t *testing.T) {
			if testing.Short() && v != Latest {
				t.Skip("only the latest release with -short")
			}
			ctx := deadline(t)
			c := Start(t, Options{Version: v})
			create(ctx, t, c, 1, 1, "t")
			roundTrip(ctx, t, c, "t")
			files, err := filepath.Glob(filepath.Join(c.LogDir(1), "t-0", "*.log"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			require.NoError(t, c.Close())
			require.NoError(t, c.Close(), "twice")
		})
	}
}

func TestToolsOfLatest(t *testing.T) {
	ctx := deadline(t)
	c := Start(t, Options{Properties: map[string]string{"message.max.bytes": "2000000"}})

	res, err := c.Tool(ctx, Topics, "--create", "--topic", "t", "--partitions", "2")
	require.NoError(t, err)
	require.Contains(t, res.Stdout, "Created topic t")

	_, err = ToolInput(ctx, strings.NewReader("a:1\nb:2\n"), ConsoleProducer,
		"--bootstrap-server", c.Bootstrap(), "--topic", "t", "--property", "parse.key=true", "--property", "key.separator=:")
	require.NoError(t, err)

	res, err = c.Tool(ctx, GetOffsets, "--topic", "t")
	require.NoError(t, err)
	require.Len(t, res.Lines(), 2)

	res, err = c.Tool(ctx, ConsoleConsumer, "--topic", "t", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"1", "2"}, res.Lines())

	_, err = c.Tool(ctx, Topics, "--describe", "--topic", "missing")
	require.Error(t, err, "a tool that fails says so")

	RequireProgram(t, "kcat")
	res, err = Kcat(ctx, nil, "-C", "-b", c.Bootstrap(), "-t", "t", "-e", "-q")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"1", "2"}, res.Lines())

	logs, err := filepath.Glob(filepath.Join(c.LogDir(1), "t-*", "*.log"))
	require.NoError(t, err)
	res, err = Tool(ctx, DumpLog, "--deep-iteration", "--files", strings.Join(logs, ","))
	require.NoError(t, err)
	require.Contains(t, res.Stdout, "baseOffset: 0")
}

func TestKillRestartAndElection(t *testing.T) {
	ctx := deadline(t)
	c := Start(t, Options{Brokers: 2})
	create(ctx, t, c, 1, 2, "t")
	require.NoError(t, c.ElectLeader(ctx, "t", 0, 2))
	require.NoError(t, c.ElectLeader(ctx, "t", 0, 1))
	_, before, err := c.Leader(ctx, "t", 0)
	require.NoError(t, err)
	require.NoError(t, c.ElectLeader(ctx, "t", 0, 2))
	require.NoError(t, Poll(ctx, func() error { // the other broker may hear of it later
		id, epoch, err := c.Leader(ctx, "t", 0)
		if err == nil && (id != 2 || epoch <= before) {
			err = fmt.Errorf("leader is %d in epoch %d, was 1 in %d", id, epoch, before)
		}
		return err
	}))
	require.Error(t, c.ElectLeader(ctx, "t", 0, 3), "no such replica")

	require.NoError(t, c.Kill(2))
	require.NoError(t, Poll(ctx, func() error {
		id, _, err := c.Leader(ctx, "t", 0)
		if err == nil && id != 1 {
			err = fmt.Errorf("leader is %d", id)
		}
		return err
	}))
	require.NoError(t, c.Restart(ctx, 2))
	require.NoError(t, c.ElectLeader(ctx, "t", 0, 2))
	roundTrip(ctx, t, c, "t")
}

func TestMirrorMakerCopies(t *testing.T) {
	if testing.Short() {
		t.Skip("three JVMs")
	}
	ctx := deadline(t)
	a, b := Start(t, Options{}), Start(t, Options{})
	create(ctx, t, a, 1, 1, "orders")
	roundTrip(ctx, t, a, "orders")
	MirrorMaker(t, MirrorMakerOptions{Source: a.Bootstrap(), Destination: b.Bootstrap(), Topics: "orders"})
	cl, err := b.Client()
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	require.NoError(t, Poll(ctx, func() error {
		ends, err := adm.ListEndOffsets(ctx, "orders")
		if end, ok := ends.Lookup("orders", 0); err == nil && (!ok || end.Offset != 3) {
			err = fmt.Errorf("end offset %+v", end)
		}
		return err
	}))
}

func TestClassPathAtOnce(t *testing.T) {
	Require(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	pom, err := Latest.pom()
	require.NoError(t, err)
	dir, err := cacheDir()
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cp, err := resolve(deadlineOf(t), dir, filepath.Join(dir, "x.classpath"), Latest, pom)
			if err != nil || !strings.Contains(cp, "kafka_2.13-4.4.0.jar") {
				t.Errorf("class path %q, error %v", cp, err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.classpath"), []byte("/gone.jar"), 0o644))
	_, ok := readClassPath(filepath.Join(dir, "x.classpath"))
	require.False(t, ok, "a class path with a missing jar is resolved again")
}

func deadlineOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestUnknownVersion(t *testing.T) {
	_, err := ClassPath(deadlineOf(t), "1.0.0")
	require.ErrorContains(t, err, "find Kafka 1.0.0")
}
