package broker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/internal/clock"
)

func withLogs(logs **observer.ObservedLogs) worldOption {
	return func(w *world, _ *Config) {
		core, observed := observer.New(zap.WarnLevel)
		w.log, *logs = zap.New(core), observed
	}
}

// eventually polls.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 5*time.Millisecond, what)
}

// TestLoginsCounted: logins that went well and those that didn't, first ones and later ones,
// as Kafka counts them; a line for each that failed, without secrets.
func TestLoginsCounted(t *testing.T) {
	var logs *observer.ObservedLogs
	w := newWorld(t, withSASL(time.Hour), withLogs(&logs))
	clk := w.clk.(*stepClock)
	c, idle := w.dial(), w.dial()
	c.login("alice")
	idle.login("bob")
	c.login("alice")
	require.Equal(t, kerr.UnsupportedSaslMechanism.Code, w.dial().handshake(1, "GSSAPI").ErrorCode)
	wrong := w.dial()
	wrong.handshake(1, "PLAIN")
	require.Equal(t, kerr.SaslAuthenticationFailed.Code, wrong.token(1, "\x00mallory\x00wrong-0815").ErrorCode)
	scram := w.dial()
	scram.handshake(1, "SCRAM-SHA-256")
	first := scram.token(1, "n,,n=eve,r=abc")
	nonce, _, _ := cutComma(string(first.SASLAuthBytes))
	require.Equal(t, kerr.SaslAuthenticationFailed.Code, scram.token(1, "c=biws,"+nonce+",p=AAAA").ErrorCode)
	early := w.dial()
	early.send(kmsg.NewPtrMetadataRequest())
	early.requireClosed()
	c.handshake(1, "PLAIN")
	require.Equal(t, kerr.SaslAuthenticationFailed.Code, c.token(1, plainToken("bob")).ErrorCode)
	clk.add(2 * time.Hour)
	idle.send(kmsg.NewPtrMetadataRequest())
	idle.requireClosed()
	eventually(t, "counts", func() bool { return w.srv.Logins()[0].ExpiredKilled == 1 && w.srv.Logins()[0].Failed.Total == 4 })
	got := w.srv.Logins()[0]
	require.Equal(t, "PLAINTEXT", got.Listener)
	require.EqualValues(t, 2, got.Successful.Total)
	require.EqualValues(t, 1, got.Reauthenticated.Total)
	require.EqualValues(t, 1, got.FailedReauths.Total)
	require.Zero(t, got.HandshakeFailures)

	lines := map[string]string{} // user -> all of the line
	for _, e := range logs.FilterMessage("authentication failed").All() {
		f := e.ContextMap()
		require.NotEmpty(t, f["client"])
		require.Equal(t, "PLAINTEXT", f["listener"])
		require.NotEmpty(t, f["error"])
		lines[f["user"].(string)] = fmt.Sprint(f)
	}
	require.Len(t, lines, 4, "%v", lines) // two without a user
	require.Contains(t, lines["mallory"], "mechanism:PLAIN")
	require.Contains(t, lines["eve"], "mechanism:SCRAM-SHA-256")
	require.Contains(t, lines["bob"], "Cannot change principals")
	for _, e := range logs.All() {
		line := fmt.Sprint(e.Message, e.ContextMap())
		require.NotContains(t, line, "-4711")
		require.NotContains(t, line, "-0815")
	}
	require.Equal(t, 5, logs.FilterMessage("authentication failed").Len())
	require.Equal(t, 1, logs.FilterMessage("connection closed").Len(), "of the session that was over")
}

// TestFloodOfFailedLogins: each is counted, few are told, and the next line that is written
// says how many weren't.
func TestFloodOfFailedLogins(t *testing.T) {
	var logs *observer.ObservedLogs
	w := newWorld(t, withSASL(0), withLogs(&logs))
	const flood = 10 * clientLines
	for range flood {
		c := w.dial()
		c.handshake(1, "PLAIN")
		require.Equal(t, kerr.SaslAuthenticationFailed.Code, c.token(1, "\x00mallory\x00wrong").ErrorCode)
		require.NoError(t, c.Close())
	}
	for range flood {
		c := w.dial()
		_, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		require.NoError(t, err)
		c.requireClosed()
	}
	require.EqualValues(t, flood, w.srv.Logins()[0].Failed.Total)
	require.Positive(t, w.srv.Logins()[0].Failed.Rate)
	require.LessOrEqual(t, logs.Len(), 3*2*clientLines) // minutes may end meanwhile
}

func TestLinesLeftOut(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	s := newSampled(zap.New(core))
	for range clientLines + 5 {
		s.warn("one")
	}
	s.warn("another")
	require.EqualValues(t, 5, logs.All()[logs.Len()-1].ContextMap()["linesLeftOut"])
}

func TestLoginRate(t *testing.T) {
	var c loginCounter
	at := time.Unix(1000, 0)
	for range 60 {
		c.add(at)
	}
	require.Equal(t, LoginCount{60, 2}, c.count(at.Add((rateSeconds-1)*time.Second)))
	require.Equal(t, LoginCount{60, 0}, c.count(at.Add(rateSeconds*time.Second)))
	c.add(at.Add(rateSeconds * time.Second)) // in the place of the first
	require.Equal(t, LoginCount{61, 1. / rateSeconds}, c.count(at.Add((rateSeconds+1)*time.Second)))
}

// TestHandshakesCounted: what TLS refuses is a failed login, and the log says when it is the
// listener's own certificate that has ended. Who only looks whether the port is open isn't told.
func TestHandshakesCounted(t *testing.T) {
	cert := selfSigned(t)
	var logs *observer.ObservedLogs
	w := newWorld(t, withLogs(&logs), func(_ *world, c *Config) {
		l := &c.Listeners[0]
		l.Protocol, l.TLS = ProtocolSSL, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		l.Expires = func() time.Time { return time.Unix(1000, 0) }
	})
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	good, err := tls.Dial("tcp", w.addr, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	require.NoError(t, err)
	require.NoError(t, good.Close())
	_, err = tls.Dial("tcp", w.addr, &tls.Config{ServerName: "127.0.0.1"})
	require.Error(t, err)
	for _, text := range []string{"", "garbage, and no TLS"} {
		nc, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		_, err = io.WriteString(nc, text)
		require.NoError(t, err)
		if text == "" {
			require.NoError(t, nc.Close())
		} else {
			_, _ = io.ReadAll(nc)
			require.NoError(t, nc.Close())
		}
	}
	eventually(t, "counts", func() bool { return w.srv.Logins()[0].Failed.Total == 2 && w.srv.Connections() == 0 })
	got := w.srv.Logins()[0]
	require.EqualValues(t, 1, got.Successful.Total)
	require.EqualValues(t, 2, got.HandshakeFailures)
	require.Equal(t, time.Unix(1000, 0), got.Expires)
	require.Equal(t, 2, logs.FilterMessage("TLS handshake failed").Len())
	require.Equal(t, 2, logs.FilterFieldKey("certificateOfThisListenerExpiredAt").Len())
}

// delayClock writes down what is waited for, and lets nobody wait.
type delayClock struct {
	stepClock
	mu    sync.Mutex
	waits []time.Duration
}

func (c *delayClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, d)
	go f()
	return func() bool { return false }
}

func (c *delayClock) taken() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.waits
	c.waits = nil
	return out
}

// TestFailedLoginsWait: connection.failed.authentication.delay.ms, before the answer.
func TestFailedLoginsWait(t *testing.T) {
	const delay = 100 * time.Millisecond
	clk := &delayClock{}
	w := newWorld(t, withSASL(0), func(w *world, cfg *Config) {
		w.clk, cfg.Listeners[0].SASL.FailureDelay = clk, delay
	})
	w.dial().login("alice")
	require.NotContains(t, clk.taken(), delay)
	c := w.dial()
	c.handshake(1, "PLAIN")
	require.Equal(t, kerr.SaslAuthenticationFailed.Code, c.token(1, "\x00alice\x00wrong").ErrorCode)
	require.Contains(t, clk.taken(), delay, "a wrong password")
	require.Equal(t, kerr.UnsupportedSaslMechanism.Code, w.dial().handshake(1, "GSSAPI").ErrorCode)
	require.Contains(t, clk.taken(), delay, "a mechanism that isn't offered")
	c = w.dial()
	c.handshake(0, "PLAIN")
	_, err := c.Write(append(kbin.AppendInt32(nil, 3), 0, 0, 0))
	require.NoError(t, err)
	c.requireClosed()
	require.Contains(t, clk.taken(), delay, "a bare token")
}

// TestFailedLoginsHoldNothing: clients whose login has failed and who wait for that answer make
// room for others as soon as it is wanted, whatever they have sent behind.
func TestFailedLoginsHoldNothing(t *testing.T) {
	const most = 8
	w := newWorld(t, withSASL(0), func(w *world, cfg *Config) {
		w.clk = clock.Wall{}
		cfg.ConnectionsMax, cfg.Listeners[0].SASL.FailureDelay = most, time.Hour
	})
	for range 5 * most {
		c := w.dial()
		c.handshake(1, "PLAIN")
		for range 5 { // the first one fails
			req := kmsg.NewPtrSASLAuthenticateRequest()
			req.Version, req.SASLAuthBytes = 1, []byte("\x00alice\x00wrong")
			c.send(req)
		}
	}
	w.dial().login("alice")
	eventually(t, "the others to go", func() bool { return w.srv.Connections() <= most })
}
