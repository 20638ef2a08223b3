package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// clientFolder is a folder of clients that aren't ours.
func clientFolder(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "clients", name))
	require.NoError(t, err)
	return dir
}

// allCodecs are Kafka's.
var allCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// classicOnly is why a client has no group of the consumer protocol.
const classicOnly = "the client has the classic protocol only"

// goClients builds the Go ones, a module of their own.
func goClients(t *testing.T, dir string) []matrixClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	file := filepath.Join(dir, "clients")
	runIn(ctx, t, clientFolder(t, "golang"), "go", "build", "-o", file, ".")
	versions := map[string]string{}
	for _, line := range lines(runIn(ctx, t, ".", file, "versions")) {
		name, version, _ := strings.Cut(line, " ")
		versions[name] = version
	}
	make := func(name, shown string, survives []int16, lacks map[string]string) matrixClient {
		require.NotEmpty(t, versions[name], name)
		return matrixClient{
			name: shown, version: versions[name], codecs: allCodecs, lacks: lacks, survives: survives, job: program(file, name),
			members: func(t *testing.T, args ...string) *membership {
				t.Helper()
				return programMembers(t, append([]string{file, name, "members"}, args...)...)
			},
		}
	}
	franz := make("franz-go", "franz-go", transactKeys, nil)
	franz.gives = "it gives up when an answer to InitProducerId is lost"
	return []matrixClient{
		franz,
		make("sarama", "sarama", transactAllKeys, map[string]string{featConsumer: classicOnly}),
		make("segmentio", "segmentio/kafka-go", nil, map[string]string{
			featIdempotent: "its Writer has no idempotence",
			featTransact:   "its Writer has no transactions (only single requests)",
			featConsumer:   classicOnly,
		}),
	}
}

// nodeClients installs kafkajs beside a copy of the program.
func nodeClients(t *testing.T, dir string) []matrixClient {
	t.Helper()
	kafka.RequireProgram(t, "node")
	kafka.RequireProgram(t, "npm")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for _, name := range []string{"package.json", "package-lock.json", "main.js"} {
		b, err := os.ReadFile(filepath.Join(clientFolder(t, "js"), name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	runIn(ctx, t, dir, "npm", "ci", "--no-audit", "--no-fund")
	file := filepath.Join(dir, "main.js")
	_, version, _ := strings.Cut(strings.TrimSpace(runIn(ctx, t, ".", "node", file, "versions")), " ")
	return []matrixClient{{
		name: "kafkajs", version: version, codecs: []string{"none", "gzip"}, lacks: map[string]string{featConsumer: classicOnly},
		survives: []int16{produceKey}, gives: "it gives up when an answer to anything but Produce is lost", job: program("node", file),
		members: func(t *testing.T, args ...string) *membership {
			t.Helper()
			return programMembers(t, append([]string{"node", file, "members"}, args...)...)
		},
	}}
}

// javaClients are Kafka's own, of the newest release and of an old 3.x, a JVM each.
func javaClients(t *testing.T, _ string) []matrixClient {
	t.Helper()
	kafka.RequireProgram(t, "javac")
	kafka.Require(t, kafka.V44, kafka.V39)
	var out []matrixClient
	for _, v := range []kafka.Version{kafka.V44, kafka.V39} {
		host := toolHost(t, v)
		out = append(out, matrixClient{
			name: "Java kafka-clients", version: string(v), codecs: allCodecs, host: host, throttled: true, survives: transactAllKeys,
			job: func(ctx context.Context, t *testing.T, job string, args ...string) []string {
				t.Helper()
				res, err := host.Run(ctx, "", kafka.Matrix, append([]string{job}, args...)...)
				require.NoError(t, err)
				require.Zero(t, res.Code, "%s %v: %s%s", job, args, res.Stdout, res.Stderr)
				return res.Lines()
			},
			members: func(t *testing.T, args ...string) *membership {
				t.Helper()
				command, err := kafka.MatrixCommand(t.Context(), v, append([]string{"members"}, args...)...)
				require.NoError(t, err)
				return programMembers(t, command...)
			},
		})
	}
	return out
}

// toolHost is a JVM with a release's tools. TestMain ends it.
func toolHost(t *testing.T, v kafka.Version) *kafka.Host {
	t.Helper()
	if toolHosts[v] == nil {
		h, err := kafka.StartHost(t.Context(), v)
		require.NoError(t, err)
		toolHosts[v] = h
	}
	return toolHosts[v]
}

var toolHosts = map[kafka.Version]*kafka.Host{}

// endToolHosts is for TestMain.
func endToolHosts() {
	for _, h := range toolHosts {
		h.Close()
	}
}

// kcatClients is librdkafka by kcat, which has its own command line.
func kcatClients(t *testing.T, _ string) []matrixClient {
	t.Helper()
	res, err := kafka.Kcat(t.Context(), nil, "-V")
	require.NoError(t, err)
	_, version, _ := strings.Cut(res.Stdout, "Version ")
	version, rest, _ := strings.Cut(version, " ")
	_, library, _ := strings.Cut(rest, "librdkafka ")
	library, _, _ = strings.Cut(library, " ")
	codecs := allCodecs
	return []matrixClient{{
		name: "kcat", version: fmt.Sprintf("%s (librdkafka %s)", version, library), codecs: codecs,
		lacks: map[string]string{
			featTransact: "kcat has no transactional producer (librdkafka has)",
			featConsumer: "classic protocol before librdkafka 2.4",
			featAdmin:    "kcat shows metadata and offsets only",
		},
		job: kcatJob, members: kcatMembers,
	}}
}

// kcatHeader is the one header that kcat can give the records of a call.
const kcatHeader = "n=all"

// kcatJob writes what the job produce says.
func kcatJob(ctx context.Context, t *testing.T, job string, args ...string) []string {
	t.Helper()
	require.Equal(t, "produce", job)
	s := settings(args...)
	from, count := 0, 0
	_, err := fmt.Sscan(s["count"], &count)
	require.NoError(t, err)
	_, _ = fmt.Sscan(s["from"], &from) // or 0
	var in strings.Builder
	for i := from; i < from+count; i++ {
		fmt.Fprintf(&in, "k%d:v%d\n", i%7, i)
	}
	// -E: without it kcat ends when it has lost its connections to all brokers for a moment.
	_, err = kafka.Kcat(ctx, strings.NewReader(in.String()), "-P", "-E", "-b", s["bootstrap"], "-t", s["topic"], "-K", ":", "-H", kcatHeader, "-z", s["codec"],
		"-X", "client.id="+s["name"], "-X", fmt.Sprintf("enable.idempotence=%v", s["mode"] == "idempotent"), "-X", "partitioner=murmur2")
	require.NoError(t, err)
	return nil
}

// kcatMembers is a process for each member. kcat commits by itself, and when it leaves.
func kcatMembers(t *testing.T, args ...string) *membership {
	t.Helper()
	s := settings(args...)
	m := &membership{left: map[string]bool{}}
	running := map[string]*exec.Cmd{}
	var all sync.WaitGroup
	m.join = func(name string) error {
		cmd := exec.Command("kcat", "-b", s["bootstrap"], "-q", "-u", "-f", "record "+name+` %p %o %s\n`, "-X", "client.id="+s["name"]+"-"+name,
			"-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200", "-G", s["group"], s["topic"])
		cmd.Stdout = &lineWriter{each: m.told}
		if err := cmd.Start(); err != nil {
			return err
		}
		running[name] = cmd
		all.Go(func() {
			_ = cmd.Wait() // its exit code after a signal tells nothing
			m.told("left " + name)
		})
		return nil
	}
	m.leave = func(name string) error { return running[name].Process.Signal(syscall.SIGTERM) }
	m.close = func() error { all.Wait(); return nil }
	t.Cleanup(func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
		}
		all.Wait()
	})
	return m
}
