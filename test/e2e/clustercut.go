package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// Cuts is a network between nodes that can be cut: one proxy in front of each
// node's listener for others. It knows both ends of a connection: whoever connects
// says its name at once, in clear (these clusters have no TLS between nodes).
//
// A cut node hears nothing and isn't heard. Its connections stay open and keep what
// was sent, as long routes do that lose their packets for a while: after the cut
// all of it arrives, late.
type Cuts struct {
	proxies map[int]*cutProxy

	mu      sync.Mutex
	cut     map[int]bool
	changed chan struct{} // closed at the next change
	closed  bool
	conns   map[net.Conn]struct{}
	wg      sync.WaitGroup
}

type cutProxy struct {
	node     int
	listener net.Listener
	target   string
}

// serverName is how a node introduces itself to another: kagami-<id>.
var serverName = regexp.MustCompile(`"server_name":"kagami-(\d+)"`)

const helloMax = 64 << 10

var errNoName = errors.New("the other side doesn't say its name")

// NewCuts listens once per node, for the given targets. The caller closes it.
func NewCuts(targets map[int]string) (*Cuts, error) {
	c := &Cuts{proxies: map[int]*cutProxy{}, cut: map[int]bool{}, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	for id, target := range targets {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("listen for node %d: %w", id, err)
		}
		p := &cutProxy{node: id, listener: l, target: target}
		c.proxies[id] = p
		c.wg.Go(func() { c.accept(p) })
	}
	return c, nil
}

// Addr is where other nodes connect to.
func (c *Cuts) Addr(node int) string { return c.proxies[node].listener.Addr().String() }

// Cut cuts a node off from the others.
func (c *Cuts) Cut(node int) { c.set(node, true) }

// Heal ends the cut.
func (c *Cuts) Heal(node int) { c.set(node, false) }

func (c *Cuts) set(node int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[node] = cut
	close(c.changed)
	c.changed = make(chan struct{})
}

// Close ends everything and waits. It may be called twice.
func (c *Cuts) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, p := range c.proxies {
			p.listener.Close()
		}
		for conn := range c.conns {
			conn.Close()
		}
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *Cuts) track(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return false
	}
	c.conns[conn] = struct{}{}
	return true
}

func (c *Cuts) forget(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
	conn.Close()
}

func (c *Cuts) accept(p *cutProxy) {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		c.wg.Go(func() { c.serve(p, conn) })
	}
}

// open waits until none of the nodes is cut off; false if all ends.
func (c *Cuts) open(a, b int) bool {
	for {
		c.mu.Lock()
		held, closed, changed := c.cut[a] || c.cut[b], c.closed, c.changed
		c.mu.Unlock()
		if closed {
			return false
		}
		if !held {
			return true
		}
		<-changed
	}
}

func (c *Cuts) serve(p *cutProxy, in net.Conn) {
	if !c.track(in) {
		return
	}
	defer c.forget(in)
	if !c.open(p.node, p.node) {
		return
	}
	out, err := net.DialTimeout("tcp4", p.target, 5*time.Second)
	if err != nil {
		return
	}
	if !c.track(out) {
		return
	}
	defer c.forget(out)
	from := make(chan int, 1) // the other end, once it has said its name
	var both sync.WaitGroup
	both.Go(func() { // the target speaks first, and tells only its own name
		defer in.Close()
		defer out.Close()
		buf := make([]byte, 64<<10)
		n, err := out.Read(buf)
		if err != nil || !c.open(p.node, p.node) {
			return
		}
		if _, err := in.Write(buf[:n]); err != nil {
			return
		}
		if other, ok := <-from; ok {
			c.pump(in, out, buf, p.node, other)
		}
	})
	both.Go(func() {
		defer in.Close()
		defer out.Close()
		defer close(from)
		said, other, err := hello(in)
		if err != nil {
			return
		}
		from <- other
		if !c.open(p.node, other) {
			return
		}
		if _, err := out.Write(said); err != nil {
			return
		}
		c.pump(out, in, make([]byte, 64<<10), p.node, other)
	})
	both.Wait()
}

// hello reads until the connecting node has said its name.
func hello(in net.Conn) (said []byte, node int, err error) {
	buf := make([]byte, 4<<10)
	for len(said) < helloMax {
		n, err := in.Read(buf)
		said = append(said, buf[:n]...)
		if m := serverName.FindSubmatch(said); m != nil && bytes.HasSuffix(said, []byte("\n")) {
			node, err := strconv.Atoi(string(m[1]))
			return said, node, err
		}
		if err != nil {
			return said, 0, err
		}
	}
	return said, 0, errNoName
}

// pump moves bytes one way while both ends are connected.
func (c *Cuts) pump(dst, src net.Conn, buf []byte, a, b int) {
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !c.open(a, b) {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
