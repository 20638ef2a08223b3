package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
)

// recorder keeps everything that nodes and tools say, by who said it.
type recorder struct {
	t    *testing.T
	mu   sync.Mutex
	said map[string]*bytes.Buffer
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	return &recorder{t: t, said: map[string]*bytes.Buffer{}}
}

// add keeps what one said.
func (r *recorder) add(who string, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[who] == nil {
		r.said[who] = &bytes.Buffer{}
	}
	r.said[who].Write(b)
}

// all is a copy of what was kept.
func (r *recorder) all() map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]byte, len(r.said))
	for who, b := range r.said {
		out[who] = bytes.Clone(b.Bytes())
	}
	return out
}

// heard is a connection whose answers are kept, as they are behind TLS.
type heard struct {
	net.Conn
	keep func([]byte)
}

func (h heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	h.keep(b[:n])
	return n, err
}

// dial connects to a node; TLS is undone before the answers are kept.
func (r *recorder) dial(who string, config *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var c net.Conn
		var err error
		if config == nil {
			c, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
		} else {
			c, err = (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
		}
		if err != nil {
			return nil, err
		}
		return heard{c, func(b []byte) { r.add(who, b) }}, nil
	}
}

// client is one whose answers are kept.
func (r *recorder) client(address string, config *tls.Config, opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(address), client.MaxVersions(), kgo.RequestRetries(0), kgo.Dialer(r.dial("answers", config)), kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
	require.NoError(r.t, err)
	r.t.Cleanup(cl.Close)
	return cl
}

// tool runs a tool, whatever comes of it.
func (r *recorder) tool(ctx context.Context, name string, args ...string) string {
	r.t.Helper()
	path, err := Program(name)
	require.NoError(r.t, err)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	text := fmt.Sprintf("%s: %v\n%s", strings.Join(append([]string{name}, args[:min(1, len(args))]...), " "), err, out)
	r.add("tools", []byte(text))
	return text
}

// page asks the admin server, as somebody or nobody.
func (r *recorder) page(ctx context.Context, method, url, user, password string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	require.NoError(r.t, err)
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	var head bytes.Buffer
	require.NoError(r.t, resp.Header.Write(&head))
	r.add("pages", append(head.Bytes(), body...))
}
