package fetch

import (
	"net"
	"sync/atomic"
	"time"

	"kagami/internal/clock"
)

const (
	// farWait is from which wait for the first byte of an answer a source is far.
	farWait = 10 * time.Millisecond
	// farShare: the wait may be one part in so many of a whole request. What is left
	// is the share of the way that one connection fills.
	farShare = 16
	// stretchMax bounds window.stretch.
	stretchMax = 1 << 10
)

// window decides how much one request asks for. A worker has one request on its
// way, so on a long way the wait for each answer is lost; the further the source,
// the more one answer has to bring. Pure; owned by the worker's loop.
type window struct {
	limit   int32 // bytes, for a partition and for an answer
	stretch int32 // 1, 2, 4, ...: times the sizes of the configs
}

// size is what to ask for instead of base, which is never made smaller.
func (w *window) size(base int32) int32 {
	if int64(base)*int64(w.stretch) >= int64(w.limit) {
		return max(base, w.limit)
	}
	return base * w.stretch
}

// answered takes the measures of one request: whether its sizes bounded the answer,
// the time until the first byte, and that of the whole.
func (w *window) answered(bounded bool, wait, whole time.Duration) {
	switch {
	case !bounded:
		w.stretch = max(1, w.stretch/2)
	case wait >= farWait && wait*farShare > whole && w.stretch < stretchMax && w.limit > 0:
		w.stretch *= 2
	}
}

// waitMeter measures the time between a request and the first byte of its answer
// on connections with one request at a time.
type waitMeter struct {
	clock clock.Clock
	wait  atomic.Int64 // ns, of the last answer
	dials atomic.Int64 // connections made so far
}

// last is the wait of the last answer.
func (m *waitMeter) last() time.Duration { return time.Duration(m.wait.Load()) }

func (m *waitMeter) wrap(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	m.dials.Add(1)
	return &meteredConn{Conn: c, meter: m}, nil
}

type meteredConn struct {
	net.Conn
	meter   *waitMeter
	written atomic.Pointer[time.Time] // the last write, until something is read
}

func (c *meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	now := c.meter.clock.Now()
	c.written.Store(&now)
	return n, err
}

func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if at := c.written.Swap(nil); at != nil {
			c.meter.wait.Store(int64(c.meter.clock.Now().Sub(*at)))
		}
	}
	return n, err
}
