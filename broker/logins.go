package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Logins counts how clients of one listener said who they are: what Kafka has in
// socket-server-metrics. A TLS handshake is a login where there is no SASL.
type Logins struct {
	Listener string

	Successful, Failed             LoginCount // first ones
	Reauthenticated, FailedReauths LoginCount // later ones of a connection (KIP-368)
	ExpiredKilled                  int64      // connections that were closed as they didn't authenticate again
	HandshakeFailures              int64      // of TLS, those that the client broke off among them
	// Expires is when the listener's certificate ends; zero without TLS.
	Expires time.Time
}

// LoginCount is a number since the start, and per second of the last half minute.
type LoginCount struct {
	Total int64
	Rate  float64
}

// logins counts for one listener, and writes the lines of those that failed.
type logins struct {
	successful, failed, reauthenticated, failedReauths loginCounter
	expiredKilled, handshakeFailures                   atomic.Int64

	log *sampled
}

// Logins are those of each listener, in the order of the configuration. Any goroutine may
// ask, after Listen.
func (s *Server) Logins() []Logins {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	now := s.clock.Now()
	out := make([]Logins, 0, len(listeners))
	for _, l := range listeners {
		one := Logins{
			Listener: l.Name, Successful: l.logins.successful.count(now), Failed: l.logins.failed.count(now),
			Reauthenticated: l.logins.reauthenticated.count(now), FailedReauths: l.logins.failedReauths.count(now),
			ExpiredKilled: l.logins.expiredKilled.Load(), HandshakeFailures: l.logins.handshakeFailures.Load(),
		}
		if l.Expires != nil {
			one.Expires = l.Expires()
		}
		out = append(out, one)
	}
	return out
}

// rateSeconds is the time that rates look back.
const rateSeconds = 30

// loginCounter counts, by the second.
type loginCounter struct {
	mu    sync.Mutex
	total int64
	n     [rateSeconds]int64
	at    [rateSeconds]int64 // second that n is of
}

func (c *loginCounter) add(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	second := now.Unix()
	if i := second % rateSeconds; c.at[i] == second {
		c.n[i]++
	} else {
		c.at[i], c.n[i] = second, 1
	}
}

func (c *loginCounter) count(now time.Time) LoginCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lately int64
	for i, at := range c.at {
		if now.Unix()-at < rateSeconds {
			lately += c.n[i]
		}
	}
	return LoginCount{Total: c.total, Rate: float64(lately) / rateSeconds}
}

// Lines of one kind that a client can cause, per minute: a flood of them must not fill the
// disk. The next line that is written says how many weren't.
const clientLines = 20

// sampled is a log for such lines.
type sampled struct {
	log     *zap.Logger
	dropped *atomic.Int64
}

func newSampled(log *zap.Logger) *sampled {
	s := &sampled{dropped: &atomic.Int64{}}
	count := zapcore.SamplerHook(func(_ zapcore.Entry, d zapcore.SamplingDecision) {
		if d&zapcore.LogDropped != 0 {
			s.dropped.Add(1)
		}
	})
	s.log = log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, clientLines, 0, count)
	}))
	return s
}

// warn writes a line, unless there were many of them.
func (s *sampled) warn(message string, fields ...zap.Field) {
	e := s.log.Check(zap.WarnLevel, message)
	if e == nil {
		return
	}
	if n := s.dropped.Swap(0); n > 0 {
		fields = append(fields, zap.Int64("linesLeftOut", n))
	}
	e.Write(fields...)
}

// userShown bounds what is logged of a name that a client made up.
const userShown = 128

// failed counts a login that failed, tells it, and makes the client wait for its answer
// (connection.failed.authentication.delay.ms).
func (c *conn) failed(ctx context.Context, err error) {
	c.loginFailed(err)
	c.mute(ctx, c.session.cfg.FailureDelay)
}

func (c *conn) loginFailed(err error) {
	s, l := c.session, c.listener
	counter := &l.logins.failed
	if s.user != "" {
		counter = &l.logins.failedReauths
	}
	counter.add(c.s.clock.Now())
	mechanism, user := "", ""
	if s.mechanism != nil {
		mechanism = s.mechanism.Name()
	}
	if s.exchange != nil {
		var why error
		if user, why = s.exchange.Claim(); why != nil {
			err = why
		}
	}
	s.failed = true
	l.logins.log.warn("authentication failed", c.who(), zap.String("listener", l.Name), zap.String("mechanism", mechanism),
		zap.String("user", user[:min(len(user), userShown)]), zap.Bool("again", s.user != ""), zap.Error(err))
}

// who is the client's address.
func (c *conn) who() zap.Field { return zap.String("client", c.nc.RemoteAddr().String()) }

// loggedIn counts a login that went well.
func (c *conn) loggedIn(again bool) {
	counter := &c.listener.logins.successful
	if again {
		counter = &c.listener.logins.reauthenticated
	}
	counter.add(c.s.clock.Now())
}

// handshakeFailed counts a TLS handshake that came to nothing, and tells it unless the
// client has just gone away.
func (c *conn) handshakeFailed(err error) {
	if errors.Is(err, io.EOF) || c.isStopped() {
		return // somebody looked whether the port is open
	}
	l := c.listener
	l.logins.handshakeFailures.Add(1)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		c.log.Debug("TLS handshake not ended", zap.Error(err))
		return
	}
	l.logins.failed.add(c.s.clock.Now()) // as in Kafka
	fields := []zap.Field{c.who(), zap.String("listener", l.Name), zap.Error(err)}
	if l.Expires != nil {
		if end := l.Expires(); end.Before(c.s.clock.Now()) {
			fields = append(fields, zap.Time("certificateOfThisListenerExpiredAt", end))
		}
	}
	l.logins.log.warn("TLS handshake failed", fields...)
}
