package stub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/internal/clock"
	"kagami/messages/wire"
)

// Options of [Start].
type Options struct {
	Brokers   int    // default 1; ids 0, 1, 2, ...
	ClusterID string // default "stub-cluster"
	Host      string // to listen on; default 127.0.0.1
	// TLS for all listeners, nil = plain.
	TLS *tls.Config
}

// Cluster is a source cluster. All methods are safe for concurrent use.
type Cluster struct {
	tls  *tls.Config
	work sync.WaitGroup

	mu       sync.Mutex
	state    State
	brokers  []*Broker
	changed  chan struct{} // closed and replaced by every Update
	asked    chan struct{} // the same by every request
	seen     []Seen
	handlers map[int16][]handler
	edits    map[int16][]func(*Request, kmsg.Response)
	closed   bool
	dropped  int // connections closed for an unknown key or version
}

// Request is one request to the stub.
type Request struct {
	Broker   int32
	Key      int16
	Version  int16
	ClientID string
	Body     kmsg.Request
}

// Seen is a request with the time it came.
type Seen struct {
	Request
	At time.Time
}

// Reply of an interceptor. The zero Reply passes the request on to the stub.
type Reply struct {
	Response kmsg.Response
	Close    bool // close the connection instead
	Hang     bool // never answer this and what follows on the connection, which stays
}

type handler func(*Request) Reply

// Start opens the listeners. Close the cluster at the end.
func Start(o Options) (*Cluster, error) {
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.ClusterID == "" {
		o.ClusterID = "stub-cluster"
	}
	c := &Cluster{
		tls: o.TLS, changed: make(chan struct{}), asked: make(chan struct{}), handlers: make(map[int16][]handler), edits: make(map[int16][]func(*Request, kmsg.Response)),
		state: State{
			ClusterID: o.ClusterID, Topics: make(map[string]*Topic), Groups: make(map[string]*Group),
			Mirrors: make(map[int32][]wire.DescribeClusterMirrorsResponseDescribedMirror), Versions: NewestVersions(),
		},
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	for id := range int32(o.Brokers) {
		b := &Broker{ID: id, c: c, sessions: make(map[int32]*fetchSession), conns: make(map[net.Conn]struct{})}
		if err := b.listen(net.JoinHostPort(o.Host, "0")); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.brokers = append(c.brokers, b)
	}
	return c, nil
}

// Close stops everything and waits. It may be called twice.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.closed = true
	brokers := c.brokers
	c.touchLocked()
	c.mu.Unlock()
	for _, b := range brokers {
		b.Down()
	}
	c.work.Wait()
	return nil
}

// Broker is the broker with an id.
func (c *Cluster) Broker(id int32) *Broker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokers[id]
}

// Address of broker 0.
func (c *Cluster) Address() string { return c.Broker(0).Address() }

// Update changes the tables and wakes waiting fetches.
func (c *Cluster) Update(f func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
	c.state.ids = nil
	c.touchLocked()
}

// Read looks at the tables.
func (c *Cluster) Read(f func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
}

func (c *Cluster) touchLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Intercept asks f about each request with a key before the stub answers. The
// newest interceptor is asked first; the zero Reply passes on. f runs on the
// connection's goroutine and may call methods of the cluster.
func (c *Cluster) Intercept(key int16, f func(*Request) Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers[key] = append([]handler{f}, c.handlers[key]...)
}

// Edit lets f change the stub's own answers to a key.
func (c *Cluster) Edit(key int16, f func(*Request, kmsg.Response)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edits[key] = append(c.edits[key], f)
}

// Seen lists the requests so far with one of the keys, all without keys.
func (c *Cluster) Seen(keys ...int16) []Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Seen
	for _, s := range c.seen {
		if len(keys) == 0 {
			out = append(out, s)
			continue
		}
		for _, k := range keys {
			if s.Key == k {
				out = append(out, s)
			}
		}
	}
	return out
}

// Dropped counts connections that were closed for an unknown key or version.
func (c *Cluster) Dropped() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// Wait waits until ok says so, asked after every Update and every request.
func (c *Cluster) Wait(ctx context.Context, ok func(*State, []Seen) bool) error {
	for {
		c.mu.Lock()
		done := ok(&c.state, c.seen)
		wake, asked := c.changed, c.asked
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-wake:
		case <-asked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// note remembers a request without waking fetches.
func (c *Cluster) note(r Request) {
	c.mu.Lock()
	c.seen = append(c.seen, Seen{Request: r, At: clock.Wall{}.Now()})
	close(c.asked)
	c.asked = make(chan struct{})
	c.mu.Unlock()
}

// Broker is one listener.
type Broker struct {
	ID int32
	c  *Cluster

	mu         sync.Mutex
	listener   net.Listener
	address    string
	advertised string // "" = address
	blackHole  bool
	conns      map[net.Conn]struct{}
	sessions   map[int32]*fetchSession
	lastID     int32
}

// Address is where the broker listens (host:port), also while it is down.
func (b *Broker) Address() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address
}

// Advertise makes Metadata name another address; "" = the real one.
func (b *Broker) Advertise(address string) {
	b.mu.Lock()
	b.advertised = address
	b.mu.Unlock()
}

func (b *Broker) hostPort() (host string, port int32) {
	b.mu.Lock()
	address := b.advertised
	if address == "" {
		address = b.address
	}
	b.mu.Unlock()
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	n, err := strconv.ParseInt(p, 10, 32)
	if err != nil {
		return host, 0
	}
	return host, int32(n)
}

// BlackHole makes the broker read requests and answer nothing.
func (b *Broker) BlackHole(on bool) {
	b.mu.Lock()
	b.blackHole = on
	b.mu.Unlock()
}

// DropSessions forgets all fetch sessions, as an eviction does.
func (b *Broker) DropSessions() {
	b.mu.Lock()
	b.sessions = make(map[int32]*fetchSession)
	b.mu.Unlock()
}

// Disconnect closes all connections; the broker stays up.
func (b *Broker) Disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns {
		_ = conn.Close()
	}
}

// Down closes listener and connections.
func (b *Broker) Down() {
	b.mu.Lock()
	l := b.listener
	b.listener = nil
	b.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	b.Disconnect()
}

// Up listens again at the old address.
func (b *Broker) Up() error { return b.listen(b.Address()) }

func (b *Broker) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", address, err)
	}
	b.mu.Lock()
	b.address, b.listener = l.Addr().String(), l
	b.mu.Unlock()
	if b.c.tls != nil {
		l = tls.NewListener(l, b.c.tls)
	}
	b.c.work.Go(func() { b.accept(l) })
	return nil
}
