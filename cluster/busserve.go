package cluster

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

// service is one served subject: a subscription and its running handlers.
type service struct {
	bus     *Bus
	subject string
	handle  Handler
	sub     *nats.Subscription
	slots   chan struct{} // one per running handler
	running sync.WaitGroup
	ended   chan struct{} // closed when no message can arrive any more
	drained sync.Once
	end     func() // closes ended, once
}

// Serve answers requests to subject with h until stop is called. Handlers run
// in goroutines of their own, up to HandlersMax at a time. A panic in h is
// logged and answered as an error. Other nodes know of it a moment later, and get
// ErrNoResponders until then. stop waits until every request that had
// arrived is answered; it may be called twice, but not from h.
func (b *Bus) Serve(subject string, h func(ctx context.Context, payload []byte) []byte) (stop func(), err error) {
	s := &service{bus: b, subject: subject, handle: h, slots: make(chan struct{}, b.opts.HandlersMax), ended: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("serve %s: %w", subject, ErrClosed)
	}
	if s.sub, err = b.conn.Subscribe(subject, s.receive); err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, err)
	}
	// What waits for a slot: as many messages as nats.go holds, and some large ones.
	if err := s.sub.SetPendingLimits(nats.DefaultSubPendingMsgsLimit, 8*b.opts.MessageBytesMax); err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, err)
	}
	s.sub.SetClosedHandler(func(string) { s.end() })
	// The server must know of the subscription before anybody is told that it is
	// there, or the first request would find no responder.
	if err := b.conn.Flush(); err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, err)
	}
	b.served[s] = struct{}{}
	return s.stop, nil
}

func (s *service) stop() {
	s.drain()
	s.wait()
	s.bus.mu.Lock()
	delete(s.bus.served, s)
	s.bus.mu.Unlock()
}

// drain takes no new requests; those that have arrived are still handled, unless the
// server doesn't answer: then nobody would hear of it, and it would take ten seconds.
func (s *service) drain() {
	s.drained.Do(func() {
		end := s.sub.Drain
		if !s.bus.reaches() {
			end = s.sub.Unsubscribe
		}
		if err := end(); err != nil {
			s.bus.log.Warn("drain subject", zap.String("subject", s.subject), zap.Error(err))
			s.end() // the connection is closed already
		}
	})
}

// reachTimeout is how long a server may take to answer a ping, and muteTime for how long
// one that didn't isn't asked again.
const (
	reachTimeout = 2 * time.Second
	muteTime     = 10 * time.Second
)

// reaches reports whether the server answers. A node that ends has many things to say
// good-bye to: it doesn't wait for each of them.
func (b *Bus) reaches() bool {
	if !b.conn.IsConnected() {
		return false
	}
	now := b.opts.Clock.Now().UnixNano()
	if since := b.mute.Load(); since > 0 && now-since < int64(muteTime) {
		return false
	}
	ok := b.conn.FlushTimeout(reachTimeout) == nil
	if b.mute.Store(0); !ok {
		b.mute.Store(now)
	}
	return ok
}

func (s *service) wait() {
	<-s.ended
	s.running.Wait()
}

// receive runs in the subscription's goroutine, so that a full house holds
// further requests back in the subscription's queue.
func (s *service) receive(m *nats.Msg) {
	s.slots <- struct{}{}
	s.running.Go(func() {
		defer func() { <-s.slots }()
		s.answer(m)
	})
}

func (s *service) answer(m *nats.Msg) {
	timeout := s.bus.opts.RequestTimeout
	if ms, err := strconv.ParseInt(m.Header.Get(headerTimeout), 10, 64); err == nil && ms > 0 {
		timeout = time.Duration(ms) * time.Millisecond
	}
	ctx, cancel := s.bus.newWork(timeout)
	defer cancel()
	reply := nats.NewMsg(m.Reply)
	out, err := s.call(ctx, m.Data)
	switch {
	case err != nil:
		reply.Header.Set(headerError, err.Error())
	case len(out) > s.bus.opts.MessageBytesMax:
		reply.Header.Set(headerError, fmt.Sprintf("%d bytes, limit %d", len(out), s.bus.opts.MessageBytesMax))
		reply.Header.Set(headerCode, codeTooLarge)
	default:
		reply.Data = out
	}
	if m.Reply == "" {
		return
	}
	if err := s.bus.conn.PublishMsg(reply); err != nil {
		s.bus.log.Warn("send answer", zap.String("subject", s.subject), zap.Error(err))
	}
}

func (s *service) call(ctx context.Context, payload []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.bus.log.Error("bus handler panicked", zap.String("subject", s.subject), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("panic in handler of %s", s.subject)
		}
	}()
	return s.handle(ctx, payload), nil
}
