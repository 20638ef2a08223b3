// Package wan is a long way between a client and a server: bytes take time each
// way, and only so many pass in a second.
package wan

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// chunk is the largest piece that travels as one.
const chunk = 16 << 10

// queued is how many pieces may be on their way in one direction of a connection.
const queued = 16384

// Link forwards TCP from its address to a target.
type Link struct {
	listener net.Listener
	target   string
	delay    time.Duration // one way
	down, up *pipe         // towards the client, and towards the target
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// pipe is the room of one direction, which all connections share.
type pipe struct {
	rate int64 // bytes per second, 0 = without limit

	mu   sync.Mutex
	free time.Time // when what was taken before is through
}

// take is when n bytes that arrived at the pipe are through.
func (p *pipe) take(arrived time.Time, n int) time.Time {
	if p.rate == 0 {
		return arrived
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free.Before(arrived) {
		p.free = arrived
	}
	p.free = p.free.Add(time.Duration(int64(n) * int64(time.Second) / p.rate))
	return p.free
}

// NewLink listens on 127.0.0.1, on a free port. roundTrip is the time there and back;
// rate is bytes per second each way, 0 for no limit. The caller closes it.
func NewLink(target string, roundTrip time.Duration, rate int64) (*Link, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for link: %w", err)
	}
	k := &Link{listener: l, target: target, delay: roundTrip / 2, down: &pipe{rate: rate}, up: &pipe{rate: rate}, conns: map[net.Conn]struct{}{}}
	k.wg.Go(k.accept)
	return k, nil
}

// Addr is where clients connect to.
func (k *Link) Addr() string { return k.listener.Addr().String() }

// Close ends every connection and waits. It may be called twice.
func (k *Link) Close() {
	k.mu.Lock()
	k.closed = true
	_ = k.listener.Close()
	for c := range k.conns {
		_ = c.Close()
	}
	k.mu.Unlock()
	k.wg.Wait()
}

func (k *Link) accept() {
	for {
		in, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.wg.Go(func() { k.serve(in) })
	}
}

func (k *Link) track(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		_ = c.Close()
		return false
	}
	k.conns[c] = struct{}{}
	return true
}

func (k *Link) forget(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	_ = c.Close()
}

func (k *Link) serve(in net.Conn) {
	if !k.track(in) {
		return
	}
	defer k.forget(in)
	time.Sleep(2 * k.delay) // the handshake
	out, err := net.DialTimeout("tcp4", k.target, 5*time.Second)
	if err != nil || !k.track(out) {
		return
	}
	defer k.forget(out)
	var both sync.WaitGroup
	both.Go(func() { k.carry(out, in, k.up) })
	both.Go(func() { k.carry(in, out, k.down) })
	both.Wait()
}

type piece struct {
	bytes []byte
	at    time.Time // when it arrives
}

// carry moves bytes one way until src ends.
func (k *Link) carry(dst, src net.Conn, p *pipe) {
	way := make(chan piece, queued)
	var sender sync.WaitGroup
	sender.Go(func() {
		for x := range way {
			time.Sleep(time.Until(x.at))
			if _, err := dst.Write(x.bytes); err != nil {
				_ = src.Close() // ends the reader, and what the other way reads from dst
				_ = dst.Close()
				for range way { // what is on its way is lost
					continue
				}
				return
			}
		}
		if c, ok := dst.(*net.TCPConn); ok {
			_ = c.CloseWrite() // the other way may go on
		}
	})
	for {
		buf := make([]byte, chunk)
		n, err := src.Read(buf)
		if n > 0 {
			way <- piece{bytes: buf[:n], at: p.take(time.Now(), n).Add(k.delay)}
		}
		if err != nil {
			close(way)
			sender.Wait()
			return
		}
	}
}
