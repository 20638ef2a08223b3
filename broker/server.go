package broker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"kagami/internal/clock"
)

// Server is a node's Kafka server. Use: New, Listen, Serve (blocks), Close.
type Server struct {
	cfg  Config
	deps Deps
	// unguarded: there is no authorizer.
	unguarded bool
	clock     clock.Clock
	log       *zap.Logger

	byKey    map[int16]*api
	sessions *sessionCache
	quotas   *quotas
	pids     producerIDs
	traffic  traffic
	ends     *sampled // of connections, by faults of clients

	// opening holds a token per batch that is being decompressed, decoding a
	// weight per byte of big requests that are being decoded: both bound memory.
	opening  chan struct{}
	decoding *semaphore.Weighted
	// requests and answers bound what connections hold of both, strangers what those hold
	// that aren't authenticated, answering how many large answers are being made.
	requests, answers *budget
	strangers         *budget
	answering         chan struct{}
	copies            sync.Pool // see frameWriter

	started  int64         // ms since 1970
	stopping chan struct{} // closed when Close begins
	connSeq  atomic.Int64
	wg       sync.WaitGroup // accept loops and connections

	mu        sync.Mutex
	listeners []*listener
	conns     map[*conn]struct{}
	perIP     map[string]int
	strange   *list.List // of *conn: those that have to authenticate and haven't, oldest first
	throttled int        // connections that are to be closed in a while
	closed    bool
}

// listener is a bound Listener.
type listener struct {
	Listener
	socket net.Listener
	logins logins
}

// New checks cfg and deps and returns a server that listens nowhere yet.
func New(cfg Config, deps Deps, clk clock.Clock, log *zap.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check broker config: %w", err)
	}
	unguarded := deps.Authorizer == nil
	if unguarded {
		deps.Authorizer = AllowAll{}
	}
	if deps.Partitions == nil || deps.Images == nil || deps.Controller == nil || deps.Mirrors == nil || deps.Planner == nil || deps.History == nil || deps.Bus == nil || deps.Groups == nil || deps.Shares == nil {
		return nil, fmt.Errorf("build broker: %w", errMissingWiring)
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:       cfg,
		unguarded: unguarded,
		deps:      deps,
		clock:     clk,
		log:       log.Named("broker"),
		byKey:     map[int16]*api{},
		sessions:  newSessionCache(cfg.FetchSessionsMax, cfg.FetchSessionMinAge, clk),
		quotas:    newQuotas(cfg.QuotaWindow),
		ends:      newSampled(log.Named("broker")),
		opening:   make(chan struct{}, runtime.GOMAXPROCS(0)),
		decoding:  semaphore.NewWeighted(decodeBytesMax),

		requests:  newBudget("requests", int64(cfg.RequestBytesQueued)),
		answers:   newBudget("answers", int64(cfg.AnswerBytesQueued)),
		strangers: newBudget("requests before authentication", strangerBytesMax),
		answering: make(chan struct{}, answerSlots*runtime.GOMAXPROCS(0)),

		started:  clk.Now().UnixMilli(),
		stopping: make(chan struct{}),
		conns:    map[*conn]struct{}{},
		perIP:    map[string]int{},
		strange:  list.New(),
	}
	for _, a := range apis() {
		s.byKey[a.key] = &a
	}
	return s, nil
}

// Listen binds every listener. On an error none stays bound.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrServerClosed
	}
	var lc net.ListenConfig
	for _, l := range s.cfg.Listeners {
		socket := l.Socket
		if socket == nil {
			var err error
			if socket, err = lc.Listen(ctx, "tcp", l.Address); err != nil {
				for _, bound := range s.listeners {
					_ = bound.socket.Close()
				}
				s.listeners = nil
				return fmt.Errorf("listen on %s for %s: %w", l.Address, l.Name, err)
			}
		}
		s.listeners = append(s.listeners, &listener{Listener: l, socket: socket, logins: logins{log: newSampled(s.log)}})
	}
	return nil
}

// Addr is the bound address of a listener, nil before Listen or if unknown.
func (s *Server) Addr(name string) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if l.Name == name {
			return l.socket.Addr()
		}
	}
	return nil
}

// Serve accepts connections until Close, then returns nil once the accept loops
// have ended; Close waits for the connections. ctx is the parent of every
// request: its end aborts them. Call it once, after Listen.
func (s *Server) Serve(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrServerClosed
	}
	listeners := s.listeners
	if len(listeners) == 0 {
		s.mu.Unlock()
		return ErrNoListener
	}
	errs := make(chan error, len(listeners))
	for _, l := range listeners {
		s.wg.Go(func() { errs <- s.accept(ctx, l) })
	}
	s.mu.Unlock()
	var all error
	for range listeners {
		all = errors.Join(all, <-errs)
	}
	return all
}

func (s *Server) accept(ctx context.Context, l *listener) error {
	s.log.Info("listening", zap.String("listener", l.Name), zap.Stringer("address", l.socket.Addr()))
	for {
		nc, err := l.socket.Accept()
		if err == nil {
			s.open(ctx, l, nc)
			continue
		}
		select {
		case <-s.stopping:
			return nil
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept on %s: %w", l.Name, err)
		}
		// Out of file descriptors, or a client that was gone before it was taken:
		// neither ends the listener.
		s.log.Warn("accept", zap.String("listener", l.Name), zap.Error(err))
		if err := s.clock.Sleep(ctx, acceptPause); err != nil {
			return fmt.Errorf("accept on %s: %w", l.Name, err)
		}
	}
}

// open registers a connection and starts it, or refuses it.
func (s *Server) open(ctx context.Context, l *listener, nc net.Conn) {
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		host = nc.RemoteAddr().String()
	}
	if s.throttleConnection(nc, host) {
		return
	}
	s.mu.Lock()
	var why string
	switch {
	case s.closed:
		why = "server is closing"
	case len(s.conns) >= s.cfg.ConnectionsMax && !s.makeRoomLocked():
		why = "too many connections"
	case s.cfg.ConnectionsPerIPMax > 0 && s.perIP[host] >= s.cfg.ConnectionsPerIPMax:
		why = "too many connections from this address"
	}
	if why != "" {
		s.mu.Unlock()
		s.ends.warn("connection refused", zap.String("client", host), zap.String("reason", why))
		_ = nc.Close()
		return
	}
	c := newConn(s, l, nc, host, s.connSeq.Add(1))
	s.conns[c] = struct{}{}
	s.perIP[host]++
	if l.TLS != nil || l.SASL != nil {
		c.waiting = s.strange.PushBack(c)
	}
	s.wg.Go(func() {
		c.run(ctx)
		s.forget(c)
	})
	s.mu.Unlock()
}

// makeRoomLocked ends the connection that has been there for the longest without saying who it is,
// if there is one: who opens many and leaves it at that shuts nobody out.
func (s *Server) makeRoomLocked() bool {
	oldest := s.strange.Front()
	if oldest == nil {
		return false
	}
	c := oldest.Value.(*conn)
	s.knownLocked(c)
	s.ends.warn("too many connections: the oldest that hasn't authenticated is closed", c.who())
	c.hangUp()
	return true
}

// known takes a connection that has authenticated, or ended, from those that haven't.
func (s *Server) known(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knownLocked(c)
}

func (s *Server) knownLocked(c *conn) {
	if c.waiting != nil {
		s.strange.Remove(c.waiting)
		c.waiting = nil
	}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knownLocked(c)
	delete(s.conns, c)
	if s.perIP[c.host]--; s.perIP[c.host] <= 0 {
		delete(s.perIP, c.host)
	}
}

// Connections is the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Close stops listening, ends long polls, lets requests that have begun finish
// and answers them, and waits for all goroutines. When ctx ends first the
// connections are cut and the error is its cause. It may be called twice.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stopping)
		for _, l := range s.listeners {
			_ = l.socket.Close()
		}
	}
	for c := range s.conns {
		c.stopReading()
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	<-done
	return fmt.Errorf("close broker: %w", context.Cause(ctx))
}
