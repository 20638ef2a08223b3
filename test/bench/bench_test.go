package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/e2e"
	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

const (
	recordBytes = 1024

	// childTopic makes the test binary a process that only fetches, so that its
	// processor time can be told from the test's own.
	childTopic, childBootstrap = "KAGAMI_BENCH_FETCH_TOPIC", "KAGAMI_BENCH_FETCH_BOOTSTRAP"
	childDir                   = "KAGAMI_BENCH_FETCH_DIR"
)

func TestMain(m *testing.M) {
	if topic := os.Getenv(childTopic); topic != "" {
		n, err := FetchAll(context.Background(), os.Getenv(childBootstrap), topic, os.Getenv(childDir))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(n)
		return
	}
	code := m.Run()
	if err := e2e.RemovePrograms(); err != nil {
		code = 1
	}
	os.Exit(code)
}

// number reads a setting from the environment.
func number(t *testing.T, key string, def int) int {
	t.Helper()
	text := os.Getenv(key)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, key)
	return n
}

func list(t *testing.T, key, def string) []int {
	t.Helper()
	text := os.Getenv(key)
	if text == "" {
		text = def
	}
	var out []int
	for item := range strings.SplitSeq(text, ",") {
		if item == "" || item == "none" {
			continue
		}
		n, err := strconv.Atoi(item)
		require.NoError(t, err, key)
		out = append(out, n)
	}
	return out
}

// bench is the state of one whole run.
type bench struct {
	t      *testing.T
	ctx    context.Context
	source *kafka.Cluster
	a      *e2e.Side
	report Report
}

// TestBench measures everything. Settings: KAGAMI_BENCH_MB (per topic, default
// 1024), KAGAMI_BENCH_PARTITIONS (default 1,16,64), KAGAMI_BENCH_IDLE (default
// 1000,10000; "none"), KAGAMI_BENCH_WHO (of Kagami and MirrorMaker 2, by name;
// default both), KAGAMI_BENCH_PROFILE (an existing folder for CPU profiles).
func TestBench(t *testing.T) {
	if os.Getenv("KAGAMI_BENCH") == "" {
		t.Skip("KAGAMI_BENCH=1 measures; it takes minutes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
	defer cancel()
	t.Setenv(javaOptions, "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC")
	b := &bench{t: t, ctx: ctx}
	defer func() { b.report.Write(os.Stdout) }()
	sizes, idle := list(t, "KAGAMI_BENCH_PARTITIONS", "1,16,64"), list(t, "KAGAMI_BENCH_IDLE", "1000,10000")
	if len(sizes) > 0 {
		t.Run("throughput", func(t *testing.T) { b.in(t).throughput(sizes, number(t, "KAGAMI_BENCH_MB", 1024)) })
	}
	for _, n := range idle {
		t.Run(fmt.Sprintf("idle %d", n), func(t *testing.T) { b.in(t).idle(n) })
	}
}

// in makes the subtest the one that fails and cleans up.
func (b *bench) in(t *testing.T) *bench {
	t.Helper()
	b.t = t
	return b
}

func (b *bench) startSource(opts kafka.Options) {
	b.source = kafka.Start(b.t, opts)
	a, err := e2e.NewSide("A", b.source.Bootstrap())
	require.NoError(b.t, err)
	b.t.Cleanup(a.Close)
	b.a = a
}

func (b *bench) throughput(sizes []int, megabytes int) {
	b.startSource(kafka.Options{HeapMB: 1024, Properties: map[string]string{"log.retention.ms": "-1"}})
	who := os.Getenv("KAGAMI_BENCH_WHO")
	for _, n := range sizes {
		topic := fmt.Sprintf("bench-%d", n)
		_, err := b.a.Admin.CreateTopic(b.ctx, int32(n), 1, nil, topic)
		require.NoError(b.t, err)
		b.fill(topic, megabytes)
		bytes := b.fetchOnly(topic, n)
		b.fetchAndWrite(topic, n, bytes)
		if who == "" || strings.Contains(who, kagami) {
			b.kagami(topic, n, bytes)
		}
		if who == "" || strings.Contains(who, mirrorMaker) {
			b.mirrorMaker(topic, n, bytes)
		}
		_, err = b.a.Admin.DeleteTopic(b.ctx, topic)
		require.NoError(b.t, err)
	}
}

// fill writes random letters: nothing to gain by compression on the way.
func (b *bench) fill(topic string, megabytes int) {
	b.t.Helper()
	records := e2e.Records{Count: megabytes << 20 / recordBytes, Size: recordBytes, PerFlush: 20_000}
	require.NoError(b.t, e2e.Produce(b.ctx, b.source.Bootstrap(), topic, records,
		kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(5*time.Millisecond)))
}

// fetchOnly measures twice: the first run warms the page cache and is dropped.
func (b *bench) fetchOnly(topic string, partitions int) int64 {
	b.t.Helper()
	b.fetch(topic, partitions, fetchOnly, "")
	run := b.fetch(topic, partitions, fetchOnly, "")
	b.add(run)
	return run.Bytes
}

// fetchAndWrite is what the machine has to give for a copy without any checks,
// indexes or syncs: new pages for files cost far more than the fetch on some.
func (b *bench) fetchAndWrite(topic string, partitions int, bytes int64) {
	b.t.Helper()
	dir, err := os.MkdirTemp("", "kagami-bench-")
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, os.RemoveAll(dir)) }()
	b.warm(bytes)
	b.add(b.fetch(topic, partitions, fetchAndWrite, dir))
}

// warm has the machine hand out memory before the run and not during it: on a
// virtual machine a page that nobody used of late costs the host more than
// everything else that is done to its bytes. What was written last is what the
// next files get.
func (b *bench) warm(bytes int64) {
	b.t.Helper()
	f, err := os.CreateTemp("", "kagami-bench-")
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, os.Remove(f.Name())) }()
	defer f.Close()
	piece := make([]byte, 1<<20)
	for n := int64(0); n < bytes+bytes/4; n += int64(len(piece)) {
		_, err := f.Write(piece)
		require.NoError(b.t, err)
	}
}

func (b *bench) fetch(topic string, partitions int, who, dir string) Run {
	b.t.Helper()
	start := time.Now()
	p, err := proc.Start(proc.Spec{Name: "fetch", Path: os.Args[0], Log: b.t.TempDir() + "/fetch.log",
		Env: []string{childTopic + "=" + topic, childBootstrap + "=" + b.source.Bootstrap(), childDir + "=" + dir}})
	require.NoError(b.t, err)
	<-p.Done()
	require.NoError(b.t, p.Err(), p.Log())
	run := Run{Who: who, Partitions: partitions, Time: time.Since(start)}
	run.Bytes, err = strconv.ParseInt(strings.TrimSpace(p.Log()), 10, 64)
	require.NoError(b.t, err)
	run.CPU, err = p.CPU()
	require.NoError(b.t, err)
	return run
}

func (b *bench) add(run Run) {
	b.report.Runs = append(b.report.Runs, run)
	b.t.Logf("%d partitions, %s: %.0f MB/s, %.1f CPU s/GB %s", run.Partitions, run.Who, run.MBps(), run.CPUPerGB(), run.Note)
}

func (b *bench) kagami(topic string, partitions int, bytes int64) {
	b.t.Helper()
	node := e2e.StartNode(b.t, e2e.NodeOptions{Properties: map[string]string{"kagami.pprof.enable": strconv.FormatBool(os.Getenv("KAGAMI_BENCH_PROFILE") != "")}})
	defer func() { require.NoError(b.t, node.Kill9()) }()
	defer b.profile(node, fmt.Sprintf("kagami-%d", partitions))()
	side, err := node.Side()
	require.NoError(b.t, err)
	defer side.Close()
	b.createMirror(node)
	cpu, err := node.Process().CPU()
	require.NoError(b.t, err)
	b.warm(bytes)
	start := time.Now()
	res, err := node.Mirrors(b.ctx, "--start", "--mirror", "m", "--topics", topic)
	require.NoError(b.t, err)
	require.Zero(b.t, res.Code, res.Stderr)
	require.NoError(b.t, e2e.AwaitEnds(b.ctx, b.a, side, topic))
	run := Run{Who: kagami, Partitions: partitions, Bytes: bytes, Time: time.Since(start), Note: "from the start command on"}
	after, err := node.Process().CPU()
	require.NoError(b.t, err)
	run.CPU = after - cpu
	if peak, err := node.Process().MemoryPeak(); err == nil {
		run.Note += fmt.Sprintf("; peak %d MiB", peak>>20)
	}
	b.add(run)
}

// profile writes a CPU profile of the node's first seconds into the folder
// KAGAMI_BENCH_PROFILE, if that is set. The result waits for them.
func (b *bench) profile(node *e2e.Node, name string) (wait func()) {
	dir := os.Getenv("KAGAMI_BENCH_PROFILE")
	if dir == "" {
		return func() {}
	}
	var all sync.WaitGroup
	all.Go(func() {
		body, err := node.Get(b.ctx, "/debug/pprof/profile?seconds=4")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".cpu"), body, 0o644)
		}
		if err != nil {
			b.t.Errorf("profile %s: %v", name, err)
		}
	})
	return all.Wait
}

func (b *bench) createMirror(node *e2e.Node) {
	b.t.Helper()
	file := b.t.TempDir() + "/mirror.properties"
	require.NoError(b.t, os.WriteFile(file, []byte("bootstrap.servers="+b.source.Bootstrap()+"\n"), 0o644))
	res, err := node.Mirrors(b.ctx, "--create", "--mirror", "m", "--mirror-config", file)
	require.NoError(b.t, err)
	require.Zero(b.t, res.Code, res.Stderr)
}

// mirrorMaker measures from the first record on the destination to the last, so
// that starting the JVM and Connect's rebalances cost it nothing.
func (b *bench) mirrorMaker(topic string, partitions int, bytes int64) {
	b.t.Helper()
	b.t.Run(fmt.Sprintf("mirrormaker %d", partitions), func(t *testing.T) {
		dest := kafka.Start(t, kafka.Options{HeapMB: 1024})
		side, err := e2e.NewSide("B", dest.Bootstrap())
		require.NoError(t, err)
		defer side.Close()
		want := b.records(t, b.a, topic)
		b.warm(bytes)
		mm := kafka.MirrorMaker(t, kafka.MirrorMakerOptions{Source: b.source.Bootstrap(), Destination: dest.Bootstrap(), Topics: topic,
			Tasks: min(partitions, 4), HeapMB: 1024,
			Properties: map[string]string{"consumer.max.partition.fetch.bytes": "1048576", "consumer.fetch.max.bytes": "10485760"}})
		cpuOf := func() time.Duration {
			var sum time.Duration
			for _, p := range []*proc.Process{mm, dest.Process(1)} {
				cpu, err := p.CPU()
				require.NoError(t, err)
				sum += cpu
			}
			return sum
		}
		var first int64
		require.NoError(t, kafka.Poll(b.ctx, func() error {
			if first = b.records(t, side, topic); first == 0 {
				return errors.New("nothing yet")
			}
			return nil
		}))
		start, cpu := time.Now(), cpuOf()
		require.NoError(t, kafka.Poll(b.ctx, func() error {
			if n := b.records(t, side, topic); n < want {
				return fmt.Errorf("%d of %d records", n, want)
			}
			return nil
		}))
		copied := int64(float64(bytes) * float64(want-first) / float64(want))
		b.add(Run{Who: mirrorMaker, Partitions: partitions, Bytes: copied, Time: time.Since(start), CPU: cpuOf() - cpu,
			Note: "from its first record on; CPU with the destination broker"})
	})
}

// records counts the records of a topic; 0 while it isn't there.
func (b *bench) records(t *testing.T, side *e2e.Side, topic string) int64 {
	t.Helper()
	ends, err := side.TopicEnds(b.ctx, topic)
	if err != nil {
		return 0
	}
	var n int64
	for _, e := range ends {
		n += e.End - e.Start
	}
	return n
}

// idle measures the memory of n mirrored partitions that hold one record each.
func (b *bench) idle(n int) {
	const perTopic = 500
	b.startSource(kafka.Options{HeapMB: 3072, Dir: b.memoryDir(), Properties: map[string]string{
		"log.index.size.max.bytes": "4096", "log.cleaner.enable": "false",
	}})
	node := e2e.StartNode(b.t, e2e.NodeOptions{Properties: map[string]string{"mirror.metadata.refresh.interval.ms": "30000"}})
	adm, err := node.Admin()
	require.NoError(b.t, err)
	defer adm.Close()
	b.createMirror(node)
	before := b.settled(node)
	var topics []string
	for made := 0; made < n; made += perTopic {
		topic := fmt.Sprintf("idle-%03d", made/perTopic)
		topics = append(topics, topic)
		partitions := min(perTopic, n-made)
		_, err := b.a.Admin.CreateTopic(b.ctx, int32(partitions), 1, nil, topic)
		require.NoError(b.t, err)
		require.NoError(b.t, e2e.Produce(b.ctx, b.source.Bootstrap(), topic, e2e.Records{Count: partitions, PerFlush: partitions},
			kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.UnknownTopicRetries(1000)))
	}
	start := time.Now()
	res, err := node.Mirrors(b.ctx, "--start", "--mirror", "m", "--topics", "idle-.*")
	require.NoError(b.t, err)
	require.Zero(b.t, res.Code, res.Stderr)
	require.NoError(b.t, e2e.AwaitStates(b.ctx, adm, "m", topics, n, "MIRRORING"))
	idle := Idle{Partitions: n, Before: before, Ready: time.Since(start)}
	side, err := node.Side()
	require.NoError(b.t, err)
	defer side.Close()
	require.NoError(b.t, e2e.AwaitEnds(b.ctx, b.a, side, topics...))
	idle.After = b.settled(node)
	b.report.Idle = append(b.report.Idle, idle)
	b.t.Logf("%d partitions: %.1f KiB each", n, float64(idle.After-idle.Before)/1024/float64(n))
}

// memoryDir is a folder in memory where there is one: Kafka syncs the disk several
// times per new partition, and the source isn't what is measured here.
func (b *bench) memoryDir() string {
	b.t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kagami-bench-")
	if err != nil {
		return b.t.TempDir()
	}
	b.t.Cleanup(func() { require.NoError(b.t, os.RemoveAll(dir)) })
	return dir
}

// settled is the least resident memory within a while: the garbage of the start
// is no memory of an idle partition.
func (b *bench) settled(node *e2e.Node) int64 {
	b.t.Helper()
	const while = 45 * time.Second
	least := int64(1) << 62
	ctx, cancel := context.WithTimeout(b.ctx, while)
	defer cancel()
	_ = kafka.Poll(ctx, func() error { // ends by the time-out, as it should
		if m, err := node.Process().Memory(); err == nil {
			least = min(least, m)
		}
		return errors.New("go on")
	})
	require.NoError(b.t, b.ctx.Err())
	return least
}
