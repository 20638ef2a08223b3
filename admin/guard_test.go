package admin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// TestGuardNoWayAround: whatever a path, a method or the head of a request looks like, only
// the two probes are answered without a password.
func TestGuardNoWayAround(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "THE METRICS") })
	s, err := Start(Config{Listen: "127.0.0.1:0", User: "u", Password: "p", Metrics: metrics, Pprof: true}, fakeQueries{}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	for _, head := range []string{
		"GET //healthz", "GET /healthz/../metrics", "GET /healthz%2f..%2fmetrics", "GET /healthz/..%2fmetrics", "GET /./metrics", "GET /healthz/", "GET /%2e/metrics",
		"GET /healthz;/../metrics", "GET /healthz%00/../metrics", "GET http://x/metrics", "GET http://x/healthz/../metrics", "CONNECT /metrics", "CONNECT /healthz/../metrics",
		"GET /metrics?/healthz", "GET /metrics#/healthz", "GET /metrics%23/healthz", "GET \\healthz", "GET /healthz\\..\\metrics", "POST /metrics", "HEAD /metrics",
		"GET /debug/pprof/cmdline", "PUT /loglevel", "GET //metrics", "GET /api/mirrors", "GET /",
	} {
		nc, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = io.WriteString(nc, head+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: strings.Fields(head)[0]})
		require.NoError(t, err, head)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err, head)
		require.NotContains(t, string(b), "THE METRICS", head)
		require.GreaterOrEqual(t, resp.StatusCode, 300, head)
		_ = nc.Close()
	}
	// requests behind a probe's, by lengths that contradict each other
	for _, smuggled := range []string{
		"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		nc, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = io.WriteString(nc, smuggled)
		require.NoError(t, err)
		require.NoError(t, nc.(*net.TCPConn).CloseWrite())
		b, _ := io.ReadAll(nc)
		require.NotContains(t, string(b), "THE METRICS")
		_ = nc.Close()
	}
}
