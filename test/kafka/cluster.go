package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kagami/test/kafka/proc"
)

const (
	// startTimeout is how long brokers may take until they answer: JVMs on two
	// busy cores are slow.
	startTimeout = 2 * time.Minute
	// stopGrace is the time for a clean shutdown before the process is killed.
	stopGrace = 30 * time.Second
)

// Options say what cluster to start. The zero value is one broker of [Latest].
type Options struct {
	Version    Version
	Brokers    int               // default 1; ids are 1, 2, ...
	Properties map[string]string // added to every broker's file, and stronger than the fixture's own
	// Listeners are added to the plain one, of a cluster of one broker: NAME://host:port.
	Listeners []string
	// Advertised are addresses (host:port) that clients are sent to instead of a listener's
	// own, by its name.
	Advertised map[string]string
	ClusterID  string // default the same for all; with ZooKeeper a random one
	// BrokerProperties are added for one broker; may be nil.
	BrokerProperties func(id int) map[string]string
	HeapMB           int    // largest heap of a broker; default 384
	Dir              string // existing folder for data and logs; default a temporary one, removed at Close
}

func (o Options) withDefaults() Options {
	if o.Version == "" {
		o.Version = Latest
	}
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.ClusterID == "" {
		o.ClusterID = "kagamiTestCluster0000w"
	}
	if o.HeapMB == 0 {
		o.HeapMB = 384
	}
	return o
}

// Cluster is a running cluster of real Kafka. Its methods may be called from any
// goroutine, but not two at a time for the same broker.
type Cluster struct {
	opts      Options
	dir       string
	ownDir    bool
	classPath string

	zkPort int
	zk     *proc.Process

	mu      sync.Mutex
	brokers map[int]*broker
}

type broker struct {
	id             int
	port           int
	controllerPort int // 0 = no controller on this node
	process        *proc.Process
}

// Start starts a cluster and ends it with the test. The end of every broker's log
// is shown if the test fails.
func Start(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	Require(tb, opts.withDefaults().Version)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := New(ctx, opts)
	if err != nil {
		tb.Fatalf("start Kafka: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(c.LogTail(40))
		}
		if err := c.Close(); err != nil {
			tb.Errorf("end Kafka: %v", err)
		}
	})
	return c
}

// New starts a cluster for a caller who calls [Cluster.Close]. It returns when
// every broker answers and knows all others.
func New(ctx context.Context, opts Options) (_ *Cluster, err error) {
	opts = opts.withDefaults()
	c := &Cluster{opts: opts, dir: opts.Dir, brokers: map[int]*broker{}}
	if c.classPath, err = ClassPath(ctx, opts.Version); err != nil {
		return nil, err
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "kagami-kafka-"); err != nil {
			return nil, fmt.Errorf("make folder of the cluster: %w", err)
		}
		c.ownDir = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w\n%s", err, c.LogTail(30)), c.Close())
		}
	}()
	if err := c.layout(); err != nil {
		return nil, err
	}
	if opts.Version.zookeeper() {
		if err := c.startZooKeeper(); err != nil {
			return nil, err
		}
	} else if err := c.format(ctx); err != nil {
		return nil, err
	}
	for _, id := range c.IDs() {
		if err := c.launch(id); err != nil {
			return nil, err
		}
	}
	return c, c.ready(ctx, c.IDs(), opts.Brokers)
}

// layout chooses ports and writes the files.
func (c *Cluster) layout() error {
	ports, err := proc.Ports(2*c.opts.Brokers + 1)
	if err != nil {
		return err
	}
	c.zkPort = ports[0]
	for i := range c.opts.Brokers {
		b := &broker{id: i + 1, port: ports[1+2*i]}
		// With two nodes a quorum of both would die with either: then the first alone has it.
		if !c.opts.Version.zookeeper() && (i == 0 || c.opts.Brokers >= 3) {
			b.controllerPort = ports[2+2*i]
		}
		c.brokers[b.id] = b
	}
	if err := os.WriteFile(c.path("log4j.properties"), []byte(log4jProperties), 0o644); err != nil {
		return fmt.Errorf("write log settings: %w", err)
	}
	for _, id := range c.IDs() {
		if err := os.WriteFile(c.path(fmt.Sprintf("broker-%d.properties", id)), []byte(c.properties(id)), 0o644); err != nil {
			return fmt.Errorf("write settings of broker %d: %w", id, err)
		}
	}
	return nil
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) java(name, class string, heapMB int, args ...string) (*proc.Process, error) {
	all := []string{
		fmt.Sprintf("-Xmx%dm", heapMB), "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dlog4j.configuration=file:" + c.path("log4j.properties"), "-Dzookeeper.admin.enableServer=false",
		"-cp", c.classPath, class,
	}
	return proc.Start(proc.Spec{Name: name, Path: "java", Args: append(all, args...), Log: c.path(name + ".log")})
}

func (c *Cluster) startZooKeeper() (err error) {
	const heapMB = 128
	c.zk, err = c.java("zookeeper", "org.apache.zookeeper.server.ZooKeeperServerMain", heapMB, fmt.Sprint(c.zkPort), c.path("zookeeper"))
	return err
}

// format prepares the KRaft storage of every node with Kafka's own tool.
func (c *Cluster) format(ctx context.Context) error {
	for _, id := range c.IDs() {
		const heapMB = 128
		p, err := c.java(fmt.Sprintf("format-%d", id), "kafka.tools.StorageTool", heapMB,
			"format", "-t", c.opts.ClusterID, "-c", c.path(fmt.Sprintf("broker-%d.properties", id)))
		if err != nil {
			return err
		}
		select {
		case <-p.Done():
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("format storage of broker %d: %w", id, context.Cause(ctx)), p.Kill())
		}
		if err := p.Err(); err != nil {
			return fmt.Errorf("format storage of broker %d: %w\n%s", id, err, p.Tail(20))
		}
	}
	return nil
}

func (c *Cluster) launch(id int) error {
	p, err := c.java(fmt.Sprintf("broker-%d", id), "kafka.Kafka", c.opts.HeapMB, c.path(fmt.Sprintf("broker-%d.properties", id)))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[id].process = p
	return nil
}

// Version is the release that runs.
func (c *Cluster) Version() Version { return c.opts.Version }

// IDs are the broker ids, running or not.
func (c *Cluster) IDs() []int { return slices.Sorted(maps.Keys(c.brokers)) }

// Addr is host:port of one broker.
func (c *Cluster) Addr(id int) string { return proc.Addr(c.brokers[id].port) }

// Bootstrap is the comma separated list of all brokers' addresses.
func (c *Cluster) Bootstrap() string { return strings.Join(c.Seeds(), ",") }

// Seeds is Bootstrap as a list, for kgo.SeedBrokers.
func (c *Cluster) Seeds() []string {
	var seeds []string
	for _, id := range c.IDs() {
		seeds = append(seeds, c.Addr(id))
	}
	return seeds
}

// LogDir is the folder that holds the partition folders of a broker.
func (c *Cluster) LogDir(id int) string { return c.path(fmt.Sprintf("data-%d", id)) }

// Process is the JVM of a broker, for its processor time and memory.
func (c *Cluster) Process(id int) *proc.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokers[id].process
}

// Stop shuts a broker down cleanly and waits for its end.
func (c *Cluster) Stop(id int) error { return c.Process(id).Stop(stopGrace) }

// Kill ends a broker as a crash would (kill -9) and waits for its end.
func (c *Cluster) Kill(id int) error { return c.Process(id).Kill() }

// Restart starts a stopped or killed broker again, on the same port and data, and
// waits until it answers. A running one is stopped first.
func (c *Cluster) Restart(ctx context.Context, id int) error {
	if c.Process(id).Running() {
		if err := c.Stop(id); err != nil {
			return err
		}
	}
	if err := c.launch(id); err != nil {
		return err
	}
	return c.ready(ctx, []int{id}, 1)
}

// LogTail is the end of every process's log.
func (c *Cluster) LogTail(lines int) string {
	var out strings.Builder
	for _, id := range c.IDs() {
		if p := c.Process(id); p != nil {
			fmt.Fprintf(&out, "--- %s (Kafka %s):\n%s\n", p.Name(), c.opts.Version, p.Tail(lines))
		}
	}
	return out.String()
}

// Close ends all processes and removes the cluster's folder. It may be called twice.
func (c *Cluster) Close() error {
	var errs []error
	for _, id := range c.IDs() {
		if p := c.Process(id); p != nil {
			errs = append(errs, p.Kill())
		}
	}
	if c.zk != nil {
		errs = append(errs, c.zk.Kill())
	}
	if c.ownDir {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
