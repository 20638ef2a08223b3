package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/messages"
	"kagami/test/e2e"
	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

const (
	mirror  = "m"
	pattern = "t-.*" // topics that discovery finds
	// settleWithin bounds the way back to health once every fault is gone: the
	// longest retry delay, some refreshes, and a machine with a race detector.
	settleWithin = 90 * time.Second
	stopWithin   = 10 * time.Second // from a stop to STOPPED, whatever the source does
	opWithin     = 8 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv("KAGAMI_CHAOS_NORACE") == "" {
		os.Setenv("KAGAMI_E2E_RACE", "1")
	}
	code := m.Run()
	if err := e2e.RemovePrograms(); err != nil {
		fmt.Fprintln(os.Stderr, "remove programs:", err)
		code = 1
	}
	os.Exit(code)
}

// cluster is one node with the proxy that its peer reaches it by.
type cluster struct {
	name   string
	node   *e2e.Node
	proxy  *Proxy
	side   *e2e.Side
	adm    *client.Client
	up     bool // the process runs
	frozen bool
}

// segmentBytes is small, so that logs roll; a client's batch must fit.
const segmentBytes = 64 << 10

// wholeInSegment makes a producer send no batch that is refused for its size.
var wholeInSegment = kgo.ProducerBatchMaxBytes(segmentBytes - 1024)

// startCluster starts a node whose clients come in directly and whose peers come
// in by the proxy, whatever the metadata tells them.
func startCluster(t *testing.T, name string, props map[string]string) *cluster {
	t.Helper()
	return startClusterIn(t, name, t.TempDir(), props)
}

func startClusterIn(t *testing.T, name, dir string, props map[string]string) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	all := map[string]string{
		"kagami.pprof.enable":                "true",
		"mirror.failed.retry.max.backoff.ms": "2000",
		"replica.socket.timeout.ms":          "3000",
		"log.segment.bytes":                  strconv.Itoa(segmentBytes),
		"log.retention.check.interval.ms":    "1000",
	}
	maps.Copy(all, props)
	n, err := e2e.NewNode(ctx, e2e.NodeOptions{Dir: dir, Properties: all})
	require.NoError(t, err)
	c := &cluster{name: name, node: n, up: true}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("--- %s:\n%s", name, quiet(n.Process().Tail(400), 60))
			c.stacks()
			keep(t, filepath.Join(dir, "kagami.log"), name)
		}
		_ = n.Close()
	})
	require.NoError(t, n.Stop())
	ports, err := proc.Ports(2)
	require.NoError(t, err)
	peers, front := proc.Addr(ports[0]), proc.Addr(ports[1])
	file := filepath.Join(dir, "server.properties")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := string(text)
	lines = strings.Replace(lines, "listeners=PLAINTEXT://"+n.Bootstrap(), "listeners=PLAINTEXT://"+n.Bootstrap()+",PEERS://"+peers, 1)
	lines += "advertised.listeners=PLAINTEXT://" + n.Bootstrap() + ",PEERS://" + front + "\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT\n"
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o644))
	require.NoError(t, n.Start(ctx))
	c.proxy, err = NewProxy(front, peers)
	require.NoError(t, err)
	t.Cleanup(c.proxy.Close)
	c.side, err = e2e.NewSide(name, n.Bootstrap())
	require.NoError(t, err)
	t.Cleanup(c.side.Close)
	c.adm, err = n.Admin()
	require.NoError(t, err)
	t.Cleanup(c.adm.Close)
	return c
}

// stacks makes a running node write its goroutines to its log, which ends it.
func (c *cluster) stacks() {
	p := c.node.Process()
	if os.Getenv("KAGAMI_CHAOS_KEEP") == "" || !p.Running() {
		return
	}
	_ = p.Signal(syscall.SIGCONT)
	_ = p.Signal(syscall.SIGQUIT)
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
	}
}

// quiet is the last lines of a log without what every start says fifty times.
func quiet(text string, most int) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.Contains(l, "coordinator is ready") })
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// keep copies a log to the folder of KAGAMI_CHAOS_KEEP, for a look at it.
func keep(t *testing.T, file, name string) {
	t.Helper()
	dir := os.Getenv("KAGAMI_CHAOS_KEEP")
	if dir == "" {
		return
	}
	if b, err := os.ReadFile(file); err == nil {
		_ = os.MkdirAll(dir, 0o755)
		_ = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_")+"-"+name+".log"), b, 0o644)
	}
}

func (c *cluster) usable() bool { return c.up && !c.frozen }

// world is two clusters, of which one is the source for now.
type world struct {
	t      *testing.T
	ctx    context.Context
	rng    *rand.Rand
	nodes  [2]*cluster
	src    int
	topics map[string]*topic
	made   int // topics so far, for new names
	begun  time.Time
	trace  []string
	usage  map[int]usage // by process id, of the last settled round
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newBareWorld(t, seed)
	for i, name := range []string{"A", "B"} {
		w.nodes[i] = startCluster(t, name, nil)
	}
	return w
}

// newBareWorld is a world without nodes.
func newBareWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		t: t, ctx: t.Context(), rng: rand.New(rand.NewPCG(seed, 1)), topics: map[string]*topic{},
		begun: time.Now(), usage: map[int]usage{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was done:\n%s", strings.Join(w.trace, "\n"))
		}
	})
	t.Cleanup(func() {
		for _, tp := range w.topics {
			tp.abandon()
		}
	})
	return w
}

func (w *world) source() *cluster { return w.nodes[w.src] }
func (w *world) dest() *cluster   { return w.nodes[1-w.src] }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%7.2fs %s", time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...)))
}

// short is a context for one request.
func (w *world) short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ctx, opWithin)
}

// pause lets things go on for a random time. It is input, not a way to wait.
func (w *world) pause(least, most int) {
	time.Sleep(time.Duration(least+w.rng.IntN(most-least+1)) * time.Millisecond)
}

// poll repeats f until it is nil; the error of the last try tells what it waited for.
func (w *world) poll(within time.Duration, what string, f func(ctx context.Context) error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, within)
	defer cancel()
	var last error // of a try that had its time
	if err := kafka.Poll(ctx, func() error {
		one, cancel := context.WithTimeout(ctx, opWithin)
		defer cancel()
		err := f(one)
		if ctx.Err() == nil || last == nil {
			last = err
		}
		return err
	}); err != nil {
		w.note("FAILED: %s: %v", what, last)
		w.t.Fatalf("%s, within %s: %v", what, within, last)
	}
}

func (w *world) names(prefix string) []string {
	var out []string
	for name := range w.topics {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) some(prefix string) string {
	names := w.names(prefix)
	if len(names) == 0 {
		return ""
	}
	return names[w.rng.IntN(len(names))]
}

// newTopic makes a topic on the source, and its writer.
func (w *world) newTopic(prefix string, partitions int32) error {
	name := fmt.Sprintf("%s-%d", prefix, w.made)
	w.made++
	ctx, cancel := w.short()
	defer cancel()
	if _, err := w.source().side.Admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		w.note("create %s: %v", name, err)
		if errors.Is(err, context.DeadlineExceeded) {
			_, _ = w.source().side.Admin.DeleteTopic(w.ctx, name)
		}
		return err
	}
	w.topics[name] = newTopic(name)
	w.note("created %s with %d partitions on %s", name, partitions, w.source().name)
	return nil
}

// start starts every topic on the destination, by pattern and by name.
func (w *world) start(ctx context.Context, topics []string) error {
	list, err := w.source().side.Admin.ListTopics(ctx, topics...)
	if err != nil {
		return err
	}
	opts := client.StartOptions{IncludePatterns: []string{pattern}, TopicMetadata: map[string]client.TopicMetadata{}}
	for _, name := range topics {
		d := list[name]
		if d.Err != nil {
			return fmt.Errorf("look up %s: %w", name, d.Err)
		}
		opts.TopicMetadata[name] = client.TopicMetadata{ID: messages.TopicID(d.ID), Partitions: int32(len(d.Partitions))}
	}
	res, err := w.dest().adm.StartMirrorTopics(ctx, mirror, topics, opts)
	if err != nil {
		return err
	}
	return res.Err()
}

func (w *world) bootstrap(direct bool) string {
	if direct {
		return w.source().node.Bootstrap()
	}
	return w.source().proxy.Addr()
}

// create makes the mirror on the destination if it isn't there.
func (w *world) create(ctx context.Context) error {
	have, err := w.dest().adm.ListClusterMirrors(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(have, func(m client.ListedMirror) bool { return m.Name == mirror }) {
		return nil
	}
	b := w.bootstrap(false)
	return w.dest().adm.CreateClusterMirror(ctx, mirror, map[string]*string{"bootstrap.servers": &b})
}

func (w *world) kill(c *cluster) {
	w.t.Helper()
	w.note("kill -9 %s", c.name)
	require.NoError(w.t, c.node.Kill9())
	c.up, c.frozen = false, false
	w.judgeLog(c)
}

func (w *world) terminate(c *cluster) {
	w.t.Helper()
	w.note("stop %s", c.name)
	require.NoError(w.t, c.node.Stop())
	c.up = false
	w.judgeLog(c)
}

func (w *world) revive(c *cluster) {
	w.t.Helper()
	if c.frozen {
		w.note("thaw %s", c.name)
		require.NoError(w.t, c.node.Process().Signal(syscall.SIGCONT))
		c.frozen = false
	}
	if !c.up {
		w.note("start %s", c.name)
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		require.NoError(w.t, c.node.Start(ctx), c.name)
		c.up = true
	}
}

func (w *world) freeze(c *cluster) {
	w.t.Helper()
	w.note("freeze %s", c.name)
	require.NoError(w.t, c.node.Process().Signal(syscall.SIGSTOP))
	c.frozen = true
}

func (w *world) heal() {
	w.t.Helper()
	for _, c := range w.nodes {
		w.revive(c)
		c.proxy.Set(Open)
	}
	w.note("healed")
}

// partitions of the mirror on the destination, by topic and number.
func (w *world) partitions(ctx context.Context) (map[string]map[int32]client.DescribedPartition, error) {
	ps, err := e2e.Partitions(ctx, w.dest().adm, mirror)
	if err != nil {
		return nil, err
	}
	out := map[string]map[int32]client.DescribedPartition{}
	for _, p := range ps {
		if out[p.Topic] == nil {
			out[p.Topic] = map[int32]client.DescribedPartition{}
		}
		out[p.Topic][p.Partition] = p
	}
	return out, nil
}

// writer options of every client that is to survive a node's crash.
func patient(bootstrap string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordRetries(1 << 20), kgo.UnknownTopicRetries(1 << 20), kgo.RetryTimeout(2 * time.Minute),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(500 * time.Millisecond), wholeInSegment,
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	}
}
