package admin

import (
	"bytes"
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Bounds of the server. A client that is slow costs its own connection, and not for long.
const (
	readTimeout  = 30 * time.Second
	writeTimeout = 5 * time.Minute // a profile takes as long as it was asked for
	idleTimeout  = 2 * time.Minute
	headerBytes  = 64 << 10
	// connectionsMax of all, silentMax of those that haven't asked anything yet. When there
	// are more the oldest silent one is closed, else the oldest idle one: a probe that comes
	// is answered even while somebody opens connections and says nothing.
	connectionsMax = 1024
	silentMax      = 256
)

// connections knows which connections may be closed to make room for others.
type connections struct {
	silentMax, max int

	mu     sync.Mutex
	all    map[net.Conn]*list.Element
	silent *list.List // of net.Conn, the oldest first
	idle   *list.List // those between two requests, likewise
}

func newConnections() *connections {
	return &connections{silentMax: silentMax, max: connectionsMax, all: map[net.Conn]*list.Element{}, silent: list.New(), idle: list.New()}
}

// track is for http.Server.ConnState.
func (c *connections) track(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[nc]; e != nil {
		c.silent.Remove(e) // of the list that it is in: the other one leaves it alone
		c.idle.Remove(e)
	}
	switch state {
	case http.StateNew:
		c.all[nc] = c.silent.PushBack(nc)
	case http.StateIdle:
		c.all[nc] = c.idle.PushBack(nc)
	case http.StateActive:
		c.all[nc] = nil
	case http.StateClosed, http.StateHijacked:
		delete(c.all, nc)
		return
	}
	for c.silent.Len() > c.silentMax || len(c.all) > c.max && c.silent.Len() > 1 {
		c.closeLocked(c.silent)
	}
	if len(c.all) > c.max && c.idle.Len() > 0 {
		c.closeLocked(c.idle)
	}
}

// closeLocked closes the oldest of a list; the server hears of it and says StateClosed.
func (c *connections) closeLocked(of *list.List) {
	e := of.Front()
	of.Remove(e)
	nc := e.Value.(net.Conn)
	delete(c.all, nc)
	// Not through TLS, which waits to say goodbye.
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn()
	}
	_ = nc.Close()
}

// closeSilent closes those that haven't asked anything: a shutdown would wait for them.
func (c *connections) closeSilent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.silent.Len() > 0 {
		c.closeLocked(c.silent)
	}
}

// errorLog takes what net/http says of connections: handshakes that failed, most of all.
// It is sampled: whoever can connect can make any number of them.
type errorLog struct{ log *zap.Logger }

// Lines of a kind in a minute.
const logLines = 20

func newErrorLog(log *zap.Logger) errorLog {
	return errorLog{log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, logLines, 0)
	}))}
}

// Write takes one line.
func (l errorLog) Write(line []byte) (int, error) {
	text := zap.ByteString("text", bytes.TrimSpace(line))
	if bytes.HasSuffix(bytes.TrimSpace(line), []byte(": EOF")) { // somebody looks whether the port is open
		l.log.Debug("admin connection ended", text)
		return len(line), nil
	}
	l.log.Warn("admin connection failed", text)
	return len(line), nil
}
