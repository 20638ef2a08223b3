package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kagami/client"
	"kagami/test/kafka/proc"
)

// ClusterOptions of a Kagami cluster. The zero value is three nodes.
type ClusterOptions struct {
	Nodes      int               // default 3
	Properties map[string]string // of every node
	Dir        string            // folder of all; required
	Program    string            // path of the server; default the one that Program builds
	// Net has the nodes in namespaces of their own; nil: proxies between them.
	Net *Namespaces
	// Env of the nodes' processes, given the node's own folder; may be nil.
	Env func(dir string) []string
	// Alone makes nodes that have no peers yet, see Cluster.Join.
	Alone bool
}

// Cluster is several Kagami nodes on 127.0.0.1, with ids from one on. Connections
// between them pass a proxy in front of each, so that a node can be cut off from
// the others; clients reach it all the same, as they do in the worst of cases.
type Cluster struct {
	nodes  map[int]*Node
	routes map[int]int // node -> port of its own listener for other nodes
	cuts   *Cuts       // nil with net
	net    *Namespaces // of ClusterOptions
}

// clusterSettings are those of a cluster in tests: all topics have three replicas.
// Losses of journal leaders take long enough without a long node timeout.
var clusterSettings = map[string]string{"default.replication.factor": "3"}

// PrepareCluster makes nodes without starting them. The caller closes the cluster.
func PrepareCluster(opts ClusterOptions) (*Cluster, error) {
	if opts.Nodes == 0 {
		opts.Nodes = 3
	}
	c := &Cluster{nodes: map[int]*Node{}, routes: map[int]int{}, net: opts.Net}
	ports, err := proc.Ports(opts.Nodes)
	if err != nil {
		return nil, err
	}
	targets := map[int]string{}
	for i, port := range ports {
		c.routes[i+1], targets[i+1] = port, proc.Addr(port)
	}
	if c.net == nil {
		if c.cuts, err = NewCuts(targets); err != nil {
			return nil, err
		}
	}
	for id := range targets {
		dir := filepath.Join(opts.Dir, fmt.Sprintf("node-%d", id))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make folder of node %d: %w", id, err)
		}
		props := map[string]string{"node.id": fmt.Sprint(id)}
		maps.Copy(props, clusterSettings)
		maps.Copy(props, opts.Properties)
		maps.Copy(props, propertiesByHand())
		if !opts.Alone {
			maps.Copy(props, c.peers(id))
		}
		node := NodeOptions{Dir: dir, Properties: props, Program: opts.Program}
		if opts.Env != nil {
			node.Env = opts.Env(dir)
		}
		if err := c.placeIn(&node, id); err != nil {
			return nil, err
		}
		if c.nodes[id], err = PrepareNode(node); err != nil {
			c.closeCuts()
			return nil, err
		}
	}
	return c, nil
}

// propertiesByHand are settings that a run by hand gives to every node of every
// cluster, KAGAMI_CLUSTER_PROPERTIES=key=value,key=value.
func propertiesByHand() map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(os.Getenv("KAGAMI_CLUSTER_PROPERTIES"), ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			out[key] = value
		}
	}
	return out
}

// placeIn puts a node into its namespace, if it has one.
func (c *Cluster) placeIn(node *NodeOptions, id int) (err error) {
	if c.net == nil {
		return nil
	}
	if node.Program == "" {
		if node.Program, err = Program("kagami"); err != nil {
			return err
		}
	}
	node.Host = c.net.Addr(id)
	// Whoever is to be reached from elsewhere needs a password, and leave to do without TLS.
	maps.Copy(node.Properties, map[string]string{
		"cluster.user": "nodes", "cluster.password": "secret-of-the-nodes", "cluster.allow.clear": "true",
		"kagami.admin.allow.clear": "true", "kagami.admin.allow.anonymous": "true",
	})
	node.Program, err = c.net.Program(id, node.Program)
	return err
}

// Cut cuts a node off from the others, and with namespaces from clients too.
func (c *Cluster) Cut(id int) error {
	if c.net != nil {
		return c.net.Cut(id)
	}
	c.cuts.Cut(id)
	return nil
}

// Heal ends the cut.
func (c *Cluster) Heal(id int) error {
	if c.net != nil {
		return c.net.Heal(id)
	}
	c.cuts.Heal(id)
	return nil
}

func (c *Cluster) closeCuts() {
	if c.cuts != nil {
		c.cuts.Close()
	}
}

// route is where a node listens for others, and what they are told of that.
func (c *Cluster) route(id int) (listen, advertised string) {
	if c.net != nil {
		at := net.JoinHostPort(c.net.Addr(id), strconv.Itoa(c.routes[id]))
		return at, at
	}
	return proc.Addr(c.routes[id]), c.cuts.Addr(id)
}

// peers are the settings that make a node one of several.
func (c *Cluster) peers(id int) map[string]string {
	var peers []string
	for _, other := range slices.Sorted(maps.Keys(c.routes)) {
		_, at := c.route(other)
		peers = append(peers, fmt.Sprintf("%d@%s", other, at))
	}
	listen, advertised := c.route(id)
	return map[string]string{
		"cluster.peers": strings.Join(peers, ","), "cluster.listen": listen, "cluster.advertised.listen": advertised,
	}
}

// Join gives a node that was alone, or is new, its peers from the next start on.
func (c *Cluster) Join(id int) error { return c.nodes[id].Configure(c.peers(id)) }

// StartCluster starts a cluster that ends with the test, waits until every node
// answers, and shows the ends of their logs if the test fails.
func StartCluster(tb testing.TB, opts ClusterOptions) *Cluster {
	tb.Helper()
	if opts.Dir == "" {
		opts.Dir = tb.TempDir()
	}
	c, err := PrepareCluster(opts)
	if err != nil {
		tb.Fatalf("prepare cluster: %v", err)
	}
	tb.Cleanup(func() {
		c.showLogs(tb)
		if err := c.Close(); err != nil {
			tb.Errorf("end cluster: %v", err)
		}
	})
	if opts.Alone {
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), nodeStartTimeout)
	defer cancel()
	if err := c.Start(ctx, c.IDs()...); err != nil {
		tb.Fatalf("start cluster: %v", err)
	}
	return c
}

// showLogs prints the ends of the nodes' logs if the test has failed.
// KAGAMI_CLUSTER_LOGS names a folder that gets them whole in any case.
func (c *Cluster) showLogs(tb testing.TB) {
	tb.Helper()
	for _, id := range c.IDs() {
		if c.nodes[id].process == nil {
			continue
		}
		if tb.Failed() {
			tb.Logf("--- node %d:\n%s", id, c.nodes[id].process.Tail(40))
		}
		if dir := os.Getenv("KAGAMI_CLUSTER_LOGS"); dir != "" {
			name := filepath.Join(dir, fmt.Sprintf("%s-node-%d.log", strings.ReplaceAll(tb.Name(), "/", "_"), id))
			if err := os.WriteFile(name, []byte(c.nodes[id].process.Log()), 0o644); err != nil {
				tb.Logf("keep log: %v", err)
			}
		}
	}
}

// IDs are the nodes' ids, sorted.
func (c *Cluster) IDs() []int { return slices.Sorted(maps.Keys(c.nodes)) }

// Others are all ids but one.
func (c *Cluster) Others(id int) []int {
	return slices.DeleteFunc(c.IDs(), func(other int) bool { return other == id })
}

// Node is one of the nodes.
func (c *Cluster) Node(id int) *Node { return c.nodes[id] }

// Bootstrap names the Kafka addresses of all nodes, dead ones too.
func (c *Cluster) Bootstrap() string { return c.BootstrapOf(c.IDs()...) }

// BootstrapOf names the Kafka addresses of some nodes.
func (c *Cluster) BootstrapOf(ids ...int) string {
	var all []string
	for _, id := range ids {
		all = append(all, c.nodes[id].Bootstrap())
	}
	return strings.Join(all, ",")
}

// Start starts nodes side by side and waits until each of them answers.
func (c *Cluster) Start(ctx context.Context, ids ...int) error {
	var g errgroup.Group
	for _, id := range ids {
		g.Go(func() error {
			if err := c.nodes[id].Start(ctx); err != nil {
				return fmt.Errorf("node %d: %w", id, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Pause stops a node's process in its tracks (SIGSTOP).
func (c *Cluster) Pause(id int) error { return c.nodes[id].process.Signal(syscall.SIGSTOP) }

// Continue lets a paused node go on (SIGCONT).
func (c *Cluster) Continue(id int) error { return c.nodes[id].process.Signal(syscall.SIGCONT) }

// Close ends every node. It may be called twice.
func (c *Cluster) Close() error {
	var errs []error
	for _, id := range c.IDs() {
		errs = append(errs, c.nodes[id].Close())
	}
	c.closeCuts()
	return errors.Join(errs...)
}

// Running are the nodes whose process runs, paused ones too.
func (c *Cluster) Running() []int {
	return slices.DeleteFunc(c.IDs(), func(id int) bool { p := c.nodes[id].process; return p == nil || !p.Running() })
}

// Admin is a client for the KIP's requests at any node; the caller closes it.
func (c *Cluster) Admin() (*client.Client, error) { return c.AdminOf(c.IDs()...) }

// AdminOf is a client that knows only some nodes at first.
func (c *Cluster) AdminOf(ids ...int) (*client.Client, error) {
	return client.New(kgo.SeedBrokers(strings.Split(c.BootstrapOf(ids...), ",")...))
}

// Side is the cluster as the comparison sees it.
func (c *Cluster) Side() (*Side, error) { return NewSide("B", c.Bootstrap()) }
