package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Namespaces are network namespaces of Linux, one per node, on a bridge of their own:
// the network of a cluster whose links can be cut. Unlike [Cuts] a node that is cut off
// is so for clients too, and packets are lost, not late. It needs root and ip(8).
type Namespaces struct {
	name   string // of the bridge, and what all names begin with
	prefix string // of addresses
	wrap   string // folder of scripts that start a program in a namespace
	ids    []int
}

const ipTimeout = 10 * time.Second

// NewNamespaces makes the namespaces of nodes. dir is an existing folder; the caller
// closes them.
func NewNamespaces(dir string, ids ...int) (*Namespaces, error) {
	n := &Namespaces{name: fmt.Sprintf("kg%04x", rand.IntN(1<<16)), prefix: fmt.Sprintf("10.%d.%d.", 100+rand.IntN(100), rand.IntN(250)), wrap: dir, ids: ids}
	commands := []string{
		"link add " + n.name + " type bridge",
		"addr add " + n.Host() + "/24 dev " + n.name,
		"link set " + n.name + " up",
	}
	for _, id := range ids {
		ns, end := n.of(id), n.link(id)
		commands = append(commands,
			"netns add "+ns,
			"link add "+end+" type veth peer name eth0 netns "+ns,
			"link set "+end+" master "+n.name+" up",
			"-n "+ns+" addr add "+n.Addr(id)+"/24 dev eth0",
			"-n "+ns+" link set eth0 up",
			"-n "+ns+" link set lo up",
		)
	}
	for _, c := range commands {
		if err := ip(c); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

func (n *Namespaces) of(id int) string   { return fmt.Sprintf("%s-%d", n.name, id) }
func (n *Namespaces) link(id int) string { return fmt.Sprintf("%sv%d", n.name, id) }

// Host is the address of this side, which nodes reach.
func (n *Namespaces) Host() string { return n.prefix + "254" }

// Addr is a node's address.
func (n *Namespaces) Addr(id int) string { return fmt.Sprintf("%s%d", n.prefix, id) }

// Program is a script that runs a program in the node's namespace, as the same process.
func (n *Namespaces) Program(id int, program string) (string, error) {
	path := filepath.Join(n.wrap, fmt.Sprintf("in-%d.sh", id))
	text := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s \"$@\"\n", n.of(id), program)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		return "", fmt.Errorf("write start script: %w", err)
	}
	return path, nil
}

// Cut takes a node's link away.
func (n *Namespaces) Cut(id int) error { return ip("link set " + n.link(id) + " down") }

// Heal gives it back.
func (n *Namespaces) Heal(id int) error { return ip("link set " + n.link(id) + " up") }

// Close removes everything. It may be called twice.
func (n *Namespaces) Close() error {
	var errs []error
	for _, id := range n.ids {
		if _, err := os.Stat("/run/netns/" + n.of(id)); err == nil {
			errs = append(errs, ip("netns del "+n.of(id)))
		}
	}
	if _, err := os.Stat("/sys/class/net/" + n.name); err == nil {
		errs = append(errs, ip("link del "+n.name))
	}
	return errors.Join(errs...)
}

func ip(command string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ipTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}
