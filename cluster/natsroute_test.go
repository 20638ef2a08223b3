package cluster

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
)

// silentProxy passes connections on until it is told to silence those that it has: they
// stay open, and what is sent on them is lost, as on a link whose packets are lost for
// long. New ones pass.
type silentProxy struct {
	net.Listener
	mu      sync.Mutex
	silence chan struct{} // closed: for connections that were accepted under it
	open    []net.Conn
	work    sync.WaitGroup
}

func newSilentProxy(t *testing.T, target string) *silentProxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	p := &silentProxy{Listener: l, silence: make(chan struct{})}
	p.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp4", target)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			silence := p.silence
			p.open = append(p.open, in, out)
			p.mu.Unlock()
			p.work.Go(func() { pumpUntil(silence, in, out) })
			p.work.Go(func() { pumpUntil(silence, out, in) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func pumpUntil(silence <-chan struct{}, to io.WriteCloser, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-silence:
			if err != nil {
				return // the other end isn't told
			}
			continue
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

func (p *silentProxy) silenceAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.silence)
	p.silence = make(chan struct{})
}

// TestSilentRouteIsReplaced: connections between servers that lost their packets are
// replaced within seconds, and not after the minute and a half that the server takes by
// itself.
func TestSilentRouteIsReplaced(t *testing.T) {
	proxies := map[messages.NodeID]*silentProxy{}
	peers := map[messages.NodeID]string{}
	c := newTestCluster(t, 2, func(o *ServerOptions) {
		o.Cluster.Peers, o.Cluster.Advertise = peers, peers[o.Node]
		o.Cluster.DeadAfter = time.Second
	})
	for id, target := range c.peers {
		proxies[id] = newSilentProxy(t, target)
		peers[id] = proxies[id].Addr().String()
	}
	c.start(1)
	c.start(2)
	one, err := c.servers[1].connect("one", zap.NewNop())
	require.NoError(t, err)
	defer one.Close()
	two, err := c.servers[2].connect("two", zap.NewNop())
	require.NoError(t, err)
	defer two.Close()
	_, err = one.Subscribe("ask", func(m *nats.Msg) { _ = m.Respond(nil) })
	require.NoError(t, err)
	reaches := func() bool {
		_, err := two.Request("ask", nil, 200*time.Millisecond)
		return err == nil
	}
	require.Eventually(t, reaches, 20*time.Second, 10*time.Millisecond)
	for _, p := range proxies {
		p.silenceAll()
	}
	require.False(t, reaches())
	require.Eventually(t, reaches, 20*time.Second, 10*time.Millisecond)
}
