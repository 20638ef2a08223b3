package broker

import (
	"bufio"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/messages"
)

const (
	acceptPause    = 50 * time.Millisecond
	readBufferSize = 8 << 10
	// requestsAhead is how many requests of one connection are read while one is
	// answered: enough to overlap network and disk, little enough to bound memory.
	requestsAhead = 1
)

// conn is one client connection. run owns it: it starts the reader, answers
// requests in order, and returns when both are through.
type conn struct {
	s        *Server
	listener *listener
	nc       net.Conn
	host     string
	id       int64
	log      *zap.Logger
	w        *frameWriter
	requests int64 // decoded so far; only the answering goroutine counts

	principal string   // who the client is; of the goroutine that answers
	session   *session // nil on a listener without SASL; of the goroutine that answers

	waiting *list.Element // among the server's unknown ones, under its mutex

	queue    chan frame
	gone     chan struct{} // closed when the client can't be waiting any more
	goneOnce sync.Once
	cancel   context.CancelCauseFunc // set by run before the reader starts, under mu
	mu       sync.Mutex
	stopped  bool
	pending  atomic.Int32 // requests read and not yet answered
}

func newConn(s *Server, l *listener, nc net.Conn, host string, id int64) *conn {
	if l.TLS != nil {
		nc = tls.Server(nc, l.TLS)
	}
	c := &conn{
		s: s, listener: l, nc: nc, host: host, id: id,
		log:   s.log.With(zap.String("client", nc.RemoteAddr().String()), zap.Int64("connection", id)),
		queue: make(chan frame, requestsAhead),
		gone:  make(chan struct{}),
	}
	c.w = newFrameWriter(nc, !s.cfg.NoSendfile, &s.copies, func() {
		_ = nc.SetWriteDeadline(s.clock.Now().Add(s.cfg.WriteTimeout))
	})
	return c
}

// run serves the connection to its end. The reader may be ahead of the answers
// by requestsAhead frames; when it ends, what it has read is still answered.
func (c *conn) run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	c.log.Debug("connection opened", zap.String("listener", c.listener.Name))

	r := bufio.NewReaderSize(c.nc, readBufferSize)
	if err := c.secure(ctx, r); err != nil {
		cancel(net.ErrClosed)
		_ = c.nc.Close()
		c.logEnd(err)
		return
	}
	c.s.known(c)
	readerDone := make(chan error, 1)
	quit := make(chan struct{})
	go func() { readerDone <- c.read(ctx, r, quit) }()

	err := c.answerAll(ctx)
	close(quit)
	cancel(net.ErrClosed)
	_ = c.nc.Close()
	if readErr := <-readerDone; err == nil {
		err = readErr
	}
	for f := range c.queue { // read, and not answered any more
		c.s.requests.give(f.held)
	}
	c.logEnd(err)
}

// logEnd writes one line on how the connection ended: a fault of the client is
// a warning, an ordinary end isn't. Consumers go while they are being answered, at
// every rebalance and exit: a connection that the other end has torn down is ordinary.
func (c *conn) logEnd(err error) {
	switch {
	case err == nil, errors.Is(err, io.EOF) && !errors.Is(err, errFrameCut), errors.Is(err, net.ErrClosed), errors.Is(err, ErrServerClosed):
		c.log.Debug("connection closed")
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.log.Debug("connection closed: idle", zap.Error(err))
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		c.log.Debug("connection closed: the client has gone", zap.Error(err))
	case errors.Is(err, errHandshake), errors.Is(err, errAuthentication), errors.Is(err, errNotYet):
		c.log.Debug("connection closed", zap.Error(err)) // that has been told
	default:
		c.s.ends.warn("connection closed", c.who(), zap.Int64("connection", c.id), zap.String("listener", c.listener.Name), zap.Error(err))
	}
}

// read puts frames into the queue until the client ends, errs, or quit closes.
func (c *conn) read(ctx context.Context, r *bufio.Reader, quit <-chan struct{}) error {
	defer close(c.queue)
	defer c.goneOnce.Do(func() { close(c.gone) })
	limits := frameLimits{largest: c.s.cfg.RequestBytesMax, small: c.s.cfg.SmallRequestBytesMax}
	for {
		f, err := readFrame(r, limits, frameHooks{
			before: c.extendRead,
			body:   (&pace{c: c, budget: c.s.requests}).check,
			grow:   func(n int, held int64) (int64, error) { return c.s.requests.swap(ctx, held, n) },
		})
		if err != nil {
			c.s.requests.give(f.held)
		}
		switch {
		case err == nil:
		case c.isStopped():
			return ErrServerClosed
		case errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errFrameCut) && c.pending.Load() > 0:
			continue // not idle: the client waits for an answer
		default:
			return fmt.Errorf("read request: %w", err)
		}
		c.pending.Add(1)
		select {
		case c.queue <- f:
		case <-quit:
			c.s.requests.give(f.held)
			return nil
		}
	}
}

// extendRead moves the read deadline: between frames a client may be idle, in a frame it
// holds memory.
func (c *conn) extendRead(begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	patience := c.s.cfg.IdleTimeout
	if begun {
		patience = min(patience, c.s.cfg.FrameTimeout)
	}
	if !c.stopped {
		_ = c.nc.SetReadDeadline(c.s.clock.Now().Add(patience))
	}
}

// pace watches how the body of one request comes in.
type pace struct {
	c        *conn
	budget   *budget   // what it holds is of
	since    time.Time // begin of the slice of time that is looked at
	got      int       // bytes that were there then
	progress time.Time // when the last byte had come, within a slice
}

const (
	paceSlice = 2 * time.Second
	// paceLeast is what a request that holds memory must bring in a slice when others wait
	// for memory.
	paceLeast = 4 << 10
)

// check sets the deadline of the next read, and ends a request that stands still.
func (p *pace) check(got int, held int64) error {
	now := p.c.s.clock.Now()
	if p.since.IsZero() {
		p.since, p.progress, p.got = now, now, got
	}
	if now.Sub(p.since) >= paceSlice {
		came := got - p.got
		if came > 0 {
			p.progress = now
		}
		if held > 0 && came < paceLeast && p.budget.waiting.Load() > 0 {
			return fmt.Errorf("%d bytes in %s: %w", came, now.Sub(p.since), errOverloaded)
		}
		if now.Sub(p.progress) >= p.c.s.cfg.FrameTimeout {
			return os.ErrDeadlineExceeded
		}
		p.since, p.got = now, got
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.stopped {
		return ErrServerClosed
	}
	_ = p.c.nc.SetReadDeadline(p.since.Add(paceSlice))
	return nil
}

func (c *conn) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// stopReading makes the reader end; requests that were read are still answered.
func (c *conn) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// cut ends the connection at once.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.cancel != nil {
		c.cancel(ErrServerClosed)
	}
	_ = c.nc.Close()
}

// hangUp ends a connection that isn't authenticated, and what it waits for: it counts as one
// until it has ended. Nothing is said to the client: the end of TLS would wait for it.
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.cancel != nil {
		c.cancel(ErrServerClosed)
	}
	nc := c.nc
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	_ = nc.Close()
}

func (c *conn) answerAll(ctx context.Context) error {
	for f := range c.queue {
		err := c.answerOne(ctx, f)
		c.s.requests.give(f.held)
		c.pending.Add(-1)
		if err != nil {
			return err
		}
	}
	return nil
}

// answerOne decodes, handles and answers one frame. An error ends the
// connection.
func (c *conn) answerOne(ctx context.Context, f frame) error {
	a := c.s.byKey[f.key]
	if a == nil {
		return fmt.Errorf("%w: key %d version %d", errAPIUnknown, f.key, f.version)
	}
	if f.version < a.min || f.version > a.max {
		if f.key == keyAPIVersions {
			return c.w.writeResponse(tooNewAPIVersions(), f.correlation, false)
		}
		return fmt.Errorf("%w: %s version %d, served are %d to %d", errAPIVersion, a.name, f.version, a.min, a.max)
	}
	began := c.s.clock.Now()
	if c.session.over(f.key, began) {
		c.listener.logins.expiredKilled.Add(1)
		return errSessionExpired
	}
	r, decoded, err := c.decode(ctx, a, f)
	defer decoded()
	if err != nil {
		return err
	}
	release, err := c.s.slot(ctx, f.key)
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	defer release()
	rep := c.handle(ctx, r)
	decoded()
	if rep.fetch != nil {
		defer rep.fetch.release()
	}
	throttle := c.s.throttle(r, len(f.body), &rep, c.s.clock.Now().Sub(began))
	if err := c.reply(ctx, a, f, rep, throttle, release); err != nil {
		return err
	}
	if rep.last != nil {
		return rep.last
	}
	c.mute(ctx, throttle)
	return nil
}

// reply writes the answer, with what the client has to wait for. encoded is called when
// the answer is encoded and there is room for it.
func (c *conn) reply(ctx context.Context, a *api, f frame, rep reply, throttle time.Duration, encoded func()) error {
	ms := int32((throttle + time.Millisecond - 1) / time.Millisecond)
	switch {
	case rep.drop != nil:
		return fmt.Errorf("%s: %w", a.name, rep.drop)
	case rep.silent:
		return nil
	case rep.fetch != nil:
		rep.fetch.throttle = ms
		return c.w.writeFetch(rep.fetch, f.correlation)
	}
	if t, ok := rep.resp.(kmsg.SetThrottleResponse); ok && ms > 0 {
		t.SetThrottle(ms)
	}
	buf := c.w.encode(rep.resp, f.correlation, rep.resp.IsFlexible() && f.key != keyAPIVersions)
	held, err := c.s.answers.take(ctx, len(buf))
	encoded()
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	defer c.s.answers.give(held)
	return c.w.write(buf)
}

// mute takes no request of this connection for a while: what the client sends meanwhile
// stays in its socket, but for one frame.
func (c *conn) mute(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	over := make(chan struct{})
	stop := c.s.clock.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
	case <-c.gone:
	case <-c.s.stopping:
	case <-ctx.Done():
	}
}

// decodeBytesMax bounds the big requests that are decoded, and handled, at a time: a count in
// a hostile frame can cost some 100 bytes of memory per byte of the frame, and its answer as much.
const (
	decodeBytesMax   = 8 << 20
	decodeBytesSmall = 64 << 10
)

// waits reports whether handling a request of a key waits for other clients: those would wait for it
// in turn.
func waits(key int16) bool { return key == keyFetch || key == keyJoinGroup || key == keySyncGroup }

// decode makes the request. done is to be called, and may be so twice, when nobody has it any more.
func (c *conn) decode(ctx context.Context, a *api, f frame) (r *request, done func(), err error) {
	done = func() {}
	if n := int64(min(len(f.body), decodeBytesMax)); n > decodeBytesSmall && a.guard == nil {
		if err := c.s.decoding.Acquire(ctx, n); err != nil {
			return nil, done, fmt.Errorf("decode %s: %w", a.name, err)
		}
		done = sync.OnceFunc(func() { c.s.decoding.Release(n) })
		if waits(f.key) {
			defer done()
		}
	}
	r, err = c.decodeBody(a, f)
	return r, done, err
}

func (c *conn) decodeBody(a *api, f frame) (*request, error) {
	body := a.new()
	body.SetVersion(f.version)
	clientID, rest, err := splitHeader(f.body, body.IsFlexible())
	if err != nil {
		return nil, fmt.Errorf("decode %s version %d: %w", a.name, f.version, err)
	}
	if a.guard != nil {
		if err := a.guard(rest, f.version); err != nil {
			return nil, fmt.Errorf("decode %s version %d: %w", a.name, f.version, err)
		}
	}
	if err := body.ReadFrom(rest); err != nil {
		return nil, fmt.Errorf("decode %s version %d: %w: %w", a.name, f.version, errFrameShape, err)
	}
	return &request{
		api: a, version: f.version, body: body, listener: c.listener.Name, conn: c, gone: c.gone, log: c.log,
		who: messages.Requester{
			Principal: c.principal,
			ClientID:  clientID,
			Host:      c.host,
			RequestID: c.requestID(),
		},
	}, nil
}

// requestID is unique in the cluster's life: node, start of the server,
// connection, request.
func (c *conn) requestID() string {
	c.requests++
	return fmt.Sprintf("%d-%s-%d-%d", c.s.cfg.NodeID, strconv.FormatInt(c.s.started, 36), c.id, c.requests)
}

// anonymous is the principal of a client that didn't authenticate.
const anonymous = "User:ANONYMOUS"

// handle runs the handler. A panic costs this connection, not the process.
func (c *conn) handle(ctx context.Context, r *request) (rep reply) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("handler panicked", zap.String("api", r.api.name), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			rep = reply{drop: fmt.Errorf("%w: %v", errHandlerPanic, p)}
		}
	}()
	if c.log.Core().Enabled(zap.DebugLevel) {
		c.log.Debug("request", zap.String("api", r.api.name), zap.Int16("version", r.version), zap.String("client_id", r.who.ClientID))
	}
	return r.api.handle(c.s, ctx, r)
}

var errHandlerPanic = errors.New("handler panicked")
