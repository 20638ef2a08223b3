package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

const (
	// nodeStartTimeout: a node is up in well under a second; the rest is for a busy
	// machine and for recovery after a kill.
	nodeStartTimeout = time.Minute
	nodeStopGrace    = 20 * time.Second
)

// NodeOptions of one Kagami node. The zero value is a good one.
type NodeOptions struct {
	Properties map[string]string // added to the file, and stronger than the harness' own
	Dir        string            // existing folder for settings, data and log; default a temporary one
	Program    string            // path of the server; default the one that Program builds
	Env        []string          // KEY=VALUE for the first process, see Node.SetEnv
	Host       string            // address of the listeners; default 127.0.0.1
	Listeners  []string          // NAME://host:port, beside the plain one
	AdminTLS   *tls.Config       // of clients of the admin port, if the properties make that https
}

// Node is one `kagami server` process and its folder. Its methods may be called
// from any goroutine, the life-cycle ones one at a time.
type Node struct {
	dir, host   string
	port, admin int
	program     string
	env         []string
	settings    map[string]string
	adminTLS    *tls.Config
	process     *proc.Process
}

// StartNode starts a node that ends with the test, waits until it answers, and
// shows the end of its log if the test fails.
func StartNode(tb testing.TB, opts NodeOptions) *Node {
	tb.Helper()
	if opts.Dir == "" {
		opts.Dir = tb.TempDir()
	}
	ctx, cancel := context.WithTimeout(context.Background(), nodeStartTimeout)
	defer cancel()
	n, err := NewNode(ctx, opts)
	if err != nil {
		tb.Fatalf("start Kagami: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("--- kagami:\n%s", n.process.Tail(60))
		}
		if err := n.Close(); err != nil {
			tb.Errorf("end Kagami: %v", err)
		}
	})
	return n
}

// NewNode starts a node for a caller who calls Close. opts.Dir is required.
func NewNode(ctx context.Context, opts NodeOptions) (*Node, error) {
	n, err := PrepareNode(opts)
	if err != nil {
		return nil, err
	}
	if err := n.Start(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// PrepareNode is NewNode without the start.
func PrepareNode(opts NodeOptions) (*Node, error) {
	ports, err := proc.Ports(2)
	if err != nil {
		return nil, err
	}
	n := &Node{dir: opts.Dir, host: opts.Host, port: ports[0], admin: ports[1], program: opts.Program, env: opts.Env, adminTLS: opts.AdminTLS}
	if n.host == "" {
		n.host = "127.0.0.1"
	}
	all := map[string]string{
		"node.id":                                "1",
		"listeners":                              strings.Join(append([]string{"PLAINTEXT://" + n.Bootstrap()}, opts.Listeners...), ","),
		"log.dirs":                               n.DataDir(),
		"kagami.admin.listen":                    n.AdminAddr(),
		"mirror.metadata.refresh.interval.ms":    "1000",
		"mirror.fetch.backoff.ms":                "200",
		"mirror.failed.retry.initial.backoff.ms": "250",
	}
	maps.Copy(all, opts.Properties)
	n.settings = all
	return n, n.Configure(nil)
}

// Configure adds settings to the file, for the next start.
func (n *Node) Configure(more map[string]string) error {
	maps.Copy(n.settings, more)
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(n.settings)) {
		fmt.Fprintf(&text, "%s=%s\n", k, n.settings[k])
	}
	if err := os.WriteFile(n.file(), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write settings of the node: %w", err)
	}
	return nil
}

func (n *Node) file() string { return filepath.Join(n.dir, "server.properties") }

// DataDir is the node's log.dirs.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "data") }

// Bootstrap is the Kafka address.
func (n *Node) Bootstrap() string { return net.JoinHostPort(n.host, strconv.Itoa(n.port)) }

// AdminAddr is the address of the admin listener.
func (n *Node) AdminAddr() string { return net.JoinHostPort(n.host, strconv.Itoa(n.admin)) }

// Process is the running or last process.
func (n *Node) Process() *proc.Process { return n.process }

// Start starts a stopped or killed node on the same data and waits until it answers.
func (n *Node) Start(ctx context.Context) error {
	path := n.program
	if path == "" {
		var err error
		if path, err = Program("kagami"); err != nil {
			return err
		}
	}
	var err error
	n.process, err = proc.Start(proc.Spec{
		Name: "kagami", Path: path, Args: []string{"server", "--config", n.file()}, Env: n.env,
		Log: filepath.Join(n.dir, "kagami.log"),
	})
	if err != nil {
		return err
	}
	return n.Ready(ctx)
}

// SetEnv sets the environment of the processes that Start starts from now on,
// KEY=VALUE added to the test's own.
func (n *Node) SetEnv(env ...string) { n.env = env }

// Ready waits until the node is alive and serves Kafka clients.
func (n *Node) Ready(ctx context.Context) error {
	err := kafka.Poll(ctx, func() error {
		if !n.process.Running() {
			return nil // told apart below
		}
		if _, err := n.Get(ctx, "/healthz"); err != nil {
			return err
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()), kgo.RequestRetries(0))
		if err != nil {
			return err
		}
		defer cl.Close()
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err = kadm.NewClient(cl).BrokerMetadata(one)
		return err
	})
	if err == nil && !n.process.Running() {
		err = fmt.Errorf("it has ended: %w\n%s", errors.Join(n.process.Err(), errors.New("see its log")), n.process.Tail(30))
	}
	if err != nil {
		return fmt.Errorf("wait for node: %w", err)
	}
	return nil
}

// Kill9 ends the node as a crash would and waits for its end.
func (n *Node) Kill9() error { return n.process.Kill() }

// Stop shuts the node down cleanly and waits for its end.
func (n *Node) Stop() error {
	if err := n.process.Stop(nodeStopGrace); err != nil {
		return err
	}
	if err := n.process.Err(); err != nil {
		return fmt.Errorf("clean stop: %w", err)
	}
	return nil
}

// Restart is Stop and Start.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Close ends the process. It may be called twice.
func (n *Node) Close() error {
	if n.process == nil {
		return nil
	}
	return n.process.Kill()
}

// Get asks the admin listener.
func (n *Node) Get(ctx context.Context, path string) ([]byte, error) {
	scheme, client := "http", http.DefaultClient
	if n.adminTLS != nil {
		scheme, client = "https", &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: n.adminTLS}}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+n.AdminAddr()+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer to %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// Query is `kagami query`: partitions, mirrors or actors, as rows of named fields.
func (n *Node) Query(ctx context.Context, what string) ([]map[string]any, error) {
	body, err := n.Get(ctx, "/api/"+what)
	if err != nil {
		return nil, err
	}
	var rows []map[string]any
	if err := json.Unmarshal(body, &rows); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return rows, nil
}

// Admin is a client for the KIP's requests; the caller closes it.
func (n *Node) Admin() (*client.Client, error) { return client.New(kgo.SeedBrokers(n.Bootstrap())) }

// Side is the node as the comparison sees it.
func (n *Node) Side() (*Side, error) { return NewSide("B", n.Bootstrap()) }
