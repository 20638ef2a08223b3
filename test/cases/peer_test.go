package cases

import (
	"bufio"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tlsPeer is a server's certificate for 127.0.0.1, and whom to trust, in PEM.
func tlsPeer(t *testing.T) (settings *tls.Config, trust string) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// fullBacklog listens at addr, accepts nothing, and fills the queue of those who
// wait, so that the system drops whatever else comes.
func fullBacklog(t *testing.T, addr string) {
	t.Helper()
	to, err := net.ResolveTCPAddr("tcp4", addr)
	require.NoError(t, err)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Close(fd)) })
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}))
	require.NoError(t, syscall.Listen(fd, 0))
	for range 8 {
		c, err := net.DialTimeout("tcp4", addr, 100*time.Millisecond)
		if err != nil {
			var late net.Error
			require.True(t, errors.As(err, &late) && late.Timeout(), "%v", err)
			return
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	require.Fail(t, "the queue takes everybody")
}

// links are the states of the connections that the node's process has to the
// proxy, nil where the system doesn't tell.
func (c *stopCell) links() []string {
	c.t.Helper()
	own, err := sockets(c.node.Process().Pid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(c.t, err)
	to, err := net.ResolveTCPAddr("tcp4", c.proxy.Addr())
	require.NoError(c.t, err)
	f, err := os.Open("/proc/net/tcp")
	require.NoError(c.t, err)
	defer f.Close()
	out := map[string]string{} // by our end: the list may name one twice while it changes
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || !own[fields[9]] {
			continue
		}
		_, port, _ := strings.Cut(fields[2], ":")
		if b, err := hex.DecodeString(port); err == nil && int(b[0])<<8|int(b[1]) == to.Port {
			out[fields[1]] = fmt.Sprintf("%s to %s in state %s", fields[1], fields[2], fields[3])
		}
	}
	return slices.Collect(maps.Values(out))
}

// sockets are the inodes of a process' sockets.
func sockets(pid int) (map[string]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, f := range files {
		to, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			out[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return out, nil
}
