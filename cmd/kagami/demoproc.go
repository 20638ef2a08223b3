package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"kagami/internal/ports"
)

var errNodeEnded = errors.New("the process is gone")

// demoNode is a node of the demo: this very program as a child process.
type demoNode struct {
	name  string
	dir   string
	kafka string // host:port
	admin string
	more  []string // settings, key=value
	cmd   *exec.Cmd
	ended chan error
}

func newDemoNode(name, base string) (*demoNode, error) {
	n := &demoNode{name: name, dir: filepath.Join(base, name)}
	var err error
	if n.kafka, err = ports.FreeAddr(); err != nil {
		return nil, err
	}
	if n.admin, err = ports.FreeAddr(); err != nil {
		return nil, err
	}
	return n, os.MkdirAll(n.dir, 0o755)
}

func (n *demoNode) data() string { return filepath.Join(n.dir, "data") }

// start runs the node and waits until it is ready.
func (n *demoNode) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(n.dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of node %s: %w", n.name, err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	args := []string{"server"}
	for _, setting := range append([]string{
		"log.dirs=" + n.data(), "listeners=PLAINTEXT://" + n.kafka, "kagami.admin.listen=" + n.admin, "mirror.metadata.refresh.interval.ms=2000",
	}, n.more...) {
		args = append(args, "--set", setting)
	}
	n.cmd = exec.Command(self, args...)
	n.cmd.Stdout, n.cmd.Stderr = out, out
	n.cmd.SysProcAttr = childAttr()
	if err := n.cmd.Start(); err != nil {
		return fmt.Errorf("start node %s: %w", n.name, err)
	}
	n.ended = make(chan error, 1)
	go func() { n.ended <- n.cmd.Wait() }()
	return n.waitUp(ctx)
}

func (n *demoNode) waitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("node %s isn't up after 30 s, see %s", n.name, filepath.Join(n.dir, "node.log")))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	admin, err := newAdminClient(adminOptions{address: n.admin})
	if err != nil {
		return err
	}
	for {
		if _, err := admin.get(ctx, "/healthz"); err == nil {
			return nil
		}
		select {
		case err := <-n.ended:
			n.ended <- err
			return fmt.Errorf("node %s ended, see %s: %w", n.name, filepath.Join(n.dir, "node.log"), errors.Join(errNodeEnded, err))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// kill is kill -9: no goodbye, no flush.
func (n *demoNode) kill() {
	if n.cmd == nil || n.cmd.Process == nil {
		return
	}
	_ = n.cmd.Process.Signal(syscall.SIGKILL) // already gone is fine
	n.ended <- <-n.ended
}
