package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// answerProxy stands between clients and a node, whose advertised address it is. It can
// lose an answer: the request has been carried out, and its connection ends in place of
// the answer, as when a route goes away at the wrong moment.
type answerProxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	armed map[lostAnswer]int // how many to lose still
	lost  map[lostAnswer]int
	conns map[net.Conn]struct{}
}

// lostAnswer names requests: those of one client id and API key.
type lostAnswer struct {
	client string
	key    int16
}

func newAnswerProxy(tb testing.TB) *answerProxy {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen for proxy: %v", err)
	}
	p := &answerProxy{listener: l, armed: map[lostAnswer]int{}, lost: map[lostAnswer]int{}, conns: map[net.Conn]struct{}{}}
	tb.Cleanup(p.close)
	return p
}

// serve begins to forward.
func (p *answerProxy) serve(target string) {
	p.target = target
	p.wg.Go(func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.forward(c) })
		}
	})
}

func (p *answerProxy) addr() string { return p.listener.Addr().String() }

// lose loses the next answers to requests of a client.
func (p *answerProxy) lose(client string, key int16, count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed[lostAnswer{client, key}] = count
}

// hasLost is how many answers have been lost.
func (p *answerProxy) hasLost(client string, key int16) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[lostAnswer{client, key}]
}

func (p *answerProxy) take(a lostAnswer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed[a] == 0 {
		return false
	}
	p.armed[a]--
	p.lost[a]++
	return true
}

func (p *answerProxy) track(c net.Conn, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.conns[c] = struct{}{}
	} else {
		delete(p.conns, c)
	}
}

func (p *answerProxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// forward copies frames both ways. Answers come in the order of the requests.
func (p *answerProxy) forward(client net.Conn) {
	node, err := net.Dial("tcp4", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	for _, c := range []net.Conn{client, node} {
		p.track(c, true)
		defer p.track(c, false)
	}
	end := func() { _, _ = client.Close(), node.Close() }
	defer end()
	var mu sync.Mutex
	asked := map[uint32]lostAnswer{} // by correlation id
	var requests sync.WaitGroup
	defer requests.Wait()
	requests.Go(func() {
		defer end()
		for {
			frame, err := readFrame(client)
			if err != nil {
				return
			}
			if correlation, a, ok := asks(frame); ok {
				mu.Lock()
				asked[correlation] = a
				mu.Unlock()
			}
			if _, err := node.Write(frame); err != nil {
				return
			}
		}
	})
	for {
		frame, err := readFrame(node)
		if err != nil || len(frame) < 8 {
			end()
			return
		}
		correlation := binary.BigEndian.Uint32(frame[4:])
		mu.Lock()
		a, ok := asked[correlation]
		delete(asked, correlation)
		mu.Unlock()
		if ok && p.take(a) {
			end()
			return
		}
		if _, err := client.Write(frame); err != nil {
			end()
			return
		}
	}
}

// asks reads a request's header: key, version, correlation id, client id.
func asks(frame []byte) (uint32, lostAnswer, bool) {
	const fixed = 4 + 2 + 2 + 4 + 2
	if len(frame) < fixed {
		return 0, lostAnswer{}, false
	}
	size := int(int16(binary.BigEndian.Uint16(frame[12:])))
	if size < 0 || len(frame) < fixed+size {
		return 0, lostAnswer{}, false
	}
	return binary.BigEndian.Uint32(frame[8:]), lostAnswer{string(frame[fixed : fixed+size]), int16(binary.BigEndian.Uint16(frame[4:]))}, true
}

// readFrame reads a frame with its size in front.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 128<<20 {
		return nil, errors.New("a frame too large for a test")
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	if _, err := io.ReadFull(r, frame[4:]); err != nil {
		return nil, fmt.Errorf("read frame: %w", err)
	}
	return frame, nil
}
