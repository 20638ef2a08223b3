package e2e

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka/proc"
)

// listening are the TCP addresses that a process listens on, as the kernel tells it.
func listening(t *testing.T, pid int) []string {
	t.Helper()
	own := map[string]bool{} // inodes of its sockets
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var out []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
			const local, state, listen, inode = 1, 3, "0A", 9
			if f := strings.Fields(line); f[state] == listen && own[f[inode]] {
				out = append(out, socketAddress(t, f[local]))
			}
		}
	}
	slices.Sort(out)
	return out
}

// socketAddress reads 0100007F:1F90: words of four bytes in the machine's order.
func socketAddress(t *testing.T, text string) string {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	require.NoError(t, err)
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	n, err := strconv.ParseUint(port, 16, 16)
	require.NoError(t, err)
	return net.JoinHostPort(net.IP(raw).String(), fmt.Sprint(n))
}

// TestListeningSockets: a node listens where its settings say, and nowhere else, not for
// profiles either.
func TestListeningSockets(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc of Linux")
	}
	ports, err := proc.Ports(1)
	require.NoError(t, err)
	clients := fmt.Sprint("127.0.0.1:", ports[0])
	more := map[string]string{"kagami.pprof.enable": "true", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT"}
	alone := StartNode(t, NodeOptions{Properties: more, Listeners: []string{"CLIENTS://" + clients}})
	want := []string{alone.Bootstrap(), alone.AdminAddr(), clients}
	slices.Sort(want)
	require.Equal(t, want, listening(t, alone.Process().Pid()))
}

// listensOnly is the same for the nodes of a cluster: no ports for NATS clients nor for
// NATS' monitoring.
func listensOnly(t *testing.T, c *Cluster) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	for _, id := range c.IDs() {
		n := c.Node(id)
		listen, _ := c.route(id)
		want := []string{n.Bootstrap(), n.AdminAddr(), listen}
		slices.Sort(want)
		require.Equal(t, want, listening(t, n.Process().Pid()), "node %d", id)
	}
}
