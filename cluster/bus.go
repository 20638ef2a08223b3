package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
)

// BusOptions of OpenBus. ClusterID, Node and Logger are required.
type BusOptions struct {
	ClusterID string
	Node      messages.NodeID
	// Server to connect to; the caller closes it after the bus. Default: the bus
	// starts one of a node that is alone, and stops it.
	Server *Server
	// MessageBytesMax limits a request and a reply. Default 20 MiB: records of
	// 16 MiB pass.
	MessageBytesMax int
	// RequestTimeout is for requests whose context has no deadline. Default 5 s.
	RequestTimeout time.Duration
	// DrainTimeout is how long Close lets running handlers finish before their
	// contexts end. Default 5 s.
	DrainTimeout time.Duration
	// HandlersMax is how many requests of one subject are handled at a time;
	// more wait. Default 64.
	HandlersMax int
	Clock       clock.Clock // default clock.Wall
	Logger      *zap.Logger
}

func (o BusOptions) withDefaults() BusOptions {
	if o.MessageBytesMax == 0 {
		o.MessageBytesMax = 20 << 20
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 5 * time.Second
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 5 * time.Second
	}
	if o.HandlersMax == 0 {
		o.HandlersMax = 64
	}
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	return o
}

// Handler answers one request of the bus. ctx ends at the requester's deadline
// or when the bus closes. The payload belongs to the handler.
type Handler func(ctx context.Context, payload []byte) []byte

// Headers of bus messages.
const (
	headerTimeout = "Kagami-Timeout-Ms" // request: how long the requester waits
	headerError   = "Kagami-Error"      // reply: the handler failed, this is how
	headerCode    = "Kagami-Error-Code" // reply: tooLarge, or absent
	codeTooLarge  = "too-large"
)

// Bus is request and reply between nodes over an embedded NATS server. On one
// node requests to oneself take the same way, so that nothing is special about
// a cluster of one. All methods may be called from any goroutine.
type Bus struct {
	Subjects
	opts  BusOptions
	log   *zap.Logger
	owned *Server // nil if the caller brought the server
	conn  *nats.Conn

	// newWork makes the context of a handler; endWork ends them all.
	newWork func(timeout time.Duration) (context.Context, context.CancelFunc)
	endWork context.CancelCauseFunc

	mute atomic.Int64 // since when the server didn't answer, ns; 0: it did

	mu     sync.Mutex
	served map[*service]struct{}
	closed bool
}

// OpenBus connects to the server, which it starts if none is given. ctx carries
// values only; the bus lives until Close.
func OpenBus(ctx context.Context, o BusOptions) (*Bus, error) {
	o = o.withDefaults()
	log := o.Logger.Named("bus")
	srv, owned := o.Server, (*Server)(nil)
	if srv == nil {
		var err error
		owned, err = OpenServer(ctx, ServerOptions{Node: o.Node, MessageBytesMax: o.MessageBytesMax, Clock: o.Clock, Logger: log})
		if err != nil {
			return nil, err
		}
		srv = owned
	}
	conn, err := srv.connect(fmt.Sprintf("node-%d", o.Node), log)
	if err != nil {
		if owned != nil {
			owned.Close()
		}
		return nil, err
	}
	work, endWork := context.WithCancelCause(context.WithoutCancel(ctx))
	return &Bus{
		Subjects: NewSubjects(o.ClusterID), opts: o, log: log, owned: owned, conn: conn,
		newWork: func(timeout time.Duration) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(work, timeout, messages.ErrTimedOut)
		},
		endWork: endWork,
		served:  make(map[*service]struct{}),
	}, nil
}

// Request sends payload to whoever serves subject and waits for the answer.
// Errors: ErrNoResponders at once if nobody serves it; messages.ErrTimedOut;
// ErrTooLarge for a payload or an answer above the limit; ErrHandler if the
// handler panicked; ErrClosed; or the cause of ctx.
func (b *Bus) Request(ctx context.Context, subject string, payload []byte) ([]byte, error) {
	if len(payload) > b.opts.MessageBytesMax {
		return nil, fmt.Errorf("request %s: %w: %d bytes, limit %d", subject, ErrTooLarge, len(payload), b.opts.MessageBytesMax)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, requestError(ctx, err))
	}
	timeout := b.opts.RequestTimeout
	if d, ok := ctx.Deadline(); ok {
		timeout = d.Sub(b.opts.Clock.Now())
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, messages.ErrTimedOut)
		defer cancel()
	}
	return b.request(ctx, subject, payload, timeout)
}

func (b *Bus) request(ctx context.Context, subject string, payload []byte, timeout time.Duration) ([]byte, error) {
	msg := nats.NewMsg(subject)
	msg.Data = payload
	msg.Header.Set(headerTimeout, strconv.FormatInt(max(1, timeout.Milliseconds()), 10))
	reply, err := b.conn.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, requestError(ctx, err))
	}
	if text := reply.Header.Get(headerError); text != "" {
		if reply.Header.Get(headerCode) == codeTooLarge {
			return nil, fmt.Errorf("request %s: answer: %w: %s", subject, ErrTooLarge, text)
		}
		return nil, fmt.Errorf("request %s: %w: %s", subject, ErrHandler, text)
	}
	return reply.Data, nil
}

// requestError is the one place that reads errors of nats.go.
func requestError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return ErrNoResponders
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining):
		return ErrClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return messages.ErrTimedOut
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return err
	}
}

// Close stops serving, lets running handlers finish, disconnects and stops the
// server if it is the bus's own. It may be called twice; not from a handler.
func (b *Bus) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	running := make([]*service, 0, len(b.served))
	for s := range b.served {
		running = append(running, s)
	}
	b.mu.Unlock()
	stopTimer := b.opts.Clock.AfterFunc(b.opts.DrainTimeout, func() { b.endWork(ErrClosed) })
	for _, s := range running {
		s.drain()
	}
	for _, s := range running {
		s.wait()
	}
	stopTimer()
	b.endWork(ErrClosed)
	var err error
	if b.reaches() {
		err = b.conn.Flush()
	}
	b.conn.Close()
	if b.owned != nil {
		b.owned.Close()
	}
	if err != nil {
		return fmt.Errorf("flush bus: %w", err)
	}
	return nil
}
