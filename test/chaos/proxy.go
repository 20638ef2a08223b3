package chaos

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what a proxy does to the bytes between its clients and its target.
type Fault int

// Faults. A black hole keeps every connection open and moves nothing, as a lost
// route does; a reset ends every connection, old and new, at once; half an answer
// stops each connection, both ways, in the middle of the next thing that the
// target says; a drip moves a byte each way ten times a second.
const (
	Open Fault = iota + 1
	BlackHole
	Reset
	Slow
	HalfAnswer
	Drip
)

func (f Fault) String() string {
	return [...]string{"?", "open", "black hole", "reset", "slow", "half an answer", "drip"}[f]
}

const (
	chunk     = 16 << 10
	slowChunk = 600
	slowPause = 15 * time.Millisecond
	dripPause = 100 * time.Millisecond
)

// Proxy forwards TCP from its address to a target that may come and go.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed at the next change of fault
	conns   map[*net.TCPConn]struct{}
	closed  bool
}

// NewProxy listens on addr; the caller closes it.
func NewProxy(addr, target string) (*Proxy, error) {
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, fault: Open, changed: make(chan struct{}), conns: map[*net.TCPConn]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set changes the fault, for old connections too.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(f)
}

func (p *Proxy) setLocked(f Fault) {
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	if f == Reset {
		for c := range p.conns {
			abort(c)
		}
	}
}

// Close ends every connection and waits. It may be called twice.
func (p *Proxy) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.listener.Close()
		p.setLocked(Reset)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// StopListening refuses new connections for good; Set decides on the old ones.
func (p *Proxy) StopListening() { _ = p.listener.Close() }

func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		conn := c.(*net.TCPConn)
		p.wg.Go(func() { p.serve(conn) })
	}
}

// track refuses a connection while the fault is a reset.
func (p *Proxy) track(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == Reset {
		abort(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func (p *Proxy) serve(in *net.TCPConn) {
	if !p.track(in) {
		return
	}
	defer p.forget(in)
	if p.pass() == Reset {
		return
	}
	c, err := net.DialTimeout("tcp4", p.target, 5*time.Second)
	if err != nil {
		abort(in)
		return
	}
	out := c.(*net.TCPConn)
	if !p.track(out) {
		return
	}
	defer p.forget(out)
	var both sync.WaitGroup
	var stalled atomic.Bool
	both.Go(func() { p.pump(out, in, &stalled, false) })
	both.Go(func() { p.pump(in, out, &stalled, true) })
	both.Wait()
}

// pass waits while there is a black hole and returns the fault that ended it.
func (p *Proxy) pass() Fault { return p.passUnless(BlackHole) }

// passUnless waits while there is the fault and returns the next one.
func (p *Proxy) passUnless(hold Fault) Fault {
	for {
		p.mu.Lock()
		f, changed := p.fault, p.changed
		p.mu.Unlock()
		if f != hold {
			return f
		}
		<-changed
	}
}

// pump moves bytes one way. stalled is set when half an answer was given.
func (p *Proxy) pump(dst, src *net.TCPConn, stalled *atomic.Bool, answers bool) {
	defer func() { _ = dst.Close(); _ = src.Close() }()
	buf := make([]byte, chunk)
	for {
		n, err := src.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			part := b
			if stalled.Load() {
				p.passUnless(HalfAnswer)
				stalled.Store(false)
			}
			switch p.pass() {
			case Reset:
				return
			case Slow:
				part = b[:min(len(b), slowChunk)]
				time.Sleep(slowPause)
			case Drip:
				part = b[:1]
				time.Sleep(dripPause)
			case HalfAnswer:
				if answers {
					part = b[:len(b)/2]
					stalled.Store(true)
				}
			case Open, BlackHole:
			}
			if _, werr := dst.Write(part); werr != nil {
				return
			}
			b = b[len(part):]
		}
		if err != nil {
			return
		}
	}
}
