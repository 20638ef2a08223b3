package broker

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/broker/sasl"
	"kagami/internal/clock"
	"kagami/messages"
)

// stepClock stands still but for what a test adds.
type stepClock struct {
	clock.Wall
	mu    sync.Mutex
	added time.Duration
}

func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Wall.Now().Add(c.added)
}

func (c *stepClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added += d
}

// withSASL makes the only listener one with SASL: users alice and bob with PLAIN, and with
// SCRAM-SHA-256. A session lasts an hour if reauth.
func withSASL(reauth time.Duration) worldOption {
	return func(w *world, cfg *Config) {
		w.clk = &stepClock{}
		scram := scramUsers{}
		for _, u := range []string{"alice", "bob"} {
			c, err := sasl.NewCredential(messages.ScramSHA256, u, u+"-4711", messages.ScramIterationsMin)
			require.NoError(w.t, err)
			scram[u] = c
		}
		s256, err := sasl.NewScram(messages.ScramSHA256, scram)
		require.NoError(w.t, err)
		l := &cfg.Listeners[0]
		l.Protocol = ProtocolSASLPlaintext
		l.SASL = &SASL{ReceiveBytesMax: 4096, Mechanisms: []Mechanism{
			{Mechanism: sasl.NewPlain(map[string]string{"alice": "alice-4711", "bob": "bob-4711"}), MaxReauth: reauth}, {Mechanism: s256, MaxReauth: reauth},
		}}
	}
}

// scramUsers are users by name.
type scramUsers map[string]messages.ScramCredential

func (u scramUsers) Credential(user string) (messages.ScramCredential, bool) {
	c, ok := u[user]
	return c, ok
}

func (u scramUsers) Credentials() (out []messages.ScramCredential) {
	for _, name := range slices.Sorted(maps.Keys(u)) {
		out = append(out, u[name])
	}
	return out
}

func (c *rawConn) handshake(version int16, mechanism string) *kmsg.SASLHandshakeResponse {
	c.t.Helper()
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = version, mechanism
	return c.call(req).(*kmsg.SASLHandshakeResponse)
}

func (c *rawConn) token(version int16, token string) *kmsg.SASLAuthenticateResponse {
	c.t.Helper()
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = version, []byte(token)
	return c.call(req).(*kmsg.SASLAuthenticateResponse)
}

func plainToken(user string) string { return "\x00" + user + "\x00" + user + "-4711" }

func (c *rawConn) login(user string) *kmsg.SASLAuthenticateResponse {
	c.t.Helper()
	require.Zero(c.t, c.handshake(1, "PLAIN").ErrorCode)
	resp := c.token(2, plainToken(user))
	require.Zero(c.t, resp.ErrorCode, "%v", resp.ErrorMessage)
	return resp
}

func (c *rawConn) metadata() {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	c.call(req)
}

func TestSASLLogin(t *testing.T) {
	w := newWorld(t, withSASL(0))
	t.Run("as requests", func(t *testing.T) {
		c := w.dial()
		versions := kmsg.NewPtrApiVersionsRequest()
		c.call(versions)
		resp := c.login("alice")
		require.Zero(t, resp.SessionLifetimeMillis)
		c.metadata()
		require.Equal(t, kerr.IllegalSaslState.Code, c.handshake(1, "PLAIN").ErrorCode, "once is enough")
		require.Equal(t, kerr.IllegalSaslState.Code, c.token(1, plainToken("bob")).ErrorCode)
		create := kmsg.NewPtrCreateTopicsRequest()
		create.Version, create.Topics = 7, []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
		c.call(create)
		require.Equal(t, "User:alice", w.requester().Principal)
	})
	t.Run("bare tokens", func(t *testing.T) {
		c := w.dial()
		require.Zero(t, c.handshake(0, "PLAIN").ErrorCode)
		token := plainToken("alice")
		_, err := c.Write(append(kbin.AppendInt32(nil, int32(len(token))), token...))
		require.NoError(t, err)
		answer, err := c.frame()
		require.NoError(t, err)
		require.Empty(t, answer)
		c.metadata()
	})
}

// requester is who sent the last command.
func (w *world) requester() messages.Requester {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.who
}

// TestSASLRefused: what can't be done ends the connection, after an answer where there is
// one to give.
func TestSASLRefused(t *testing.T) {
	w := newWorld(t, withSASL(0))
	for name, do := range map[string]func(c *rawConn){
		"a request before": func(c *rawConn) { c.send(kmsg.NewPtrMetadataRequest()) },
		"produce before": func(c *rawConn) {
			req := kmsg.NewPtrProduceRequest()
			req.Version = 9
			c.send(req)
		},
		"a token before": func(c *rawConn) {
			require.Equal(c.t, kerr.IllegalSaslState.Code, c.token(1, plainToken("alice")).ErrorCode)
		},
		"an unknown mechanism": func(c *rawConn) {
			resp := c.handshake(1, "GSSAPI")
			require.Equal(c.t, kerr.UnsupportedSaslMechanism.Code, resp.ErrorCode)
			require.Equal(c.t, []string{"PLAIN", "SCRAM-SHA-256"}, resp.SupportedMechanisms)
		},
		"a wrong password": func(c *rawConn) {
			c.handshake(1, "PLAIN")
			resp := c.token(1, "\x00alice\x00wrong-0815")
			require.Equal(c.t, kerr.SaslAuthenticationFailed.Code, resp.ErrorCode)
			require.Equal(c.t, "Authentication failed: Invalid username or password", *resp.ErrorMessage)
		},
		"as somebody else": func(c *rawConn) {
			c.handshake(1, "PLAIN")
			require.Equal(c.t, kerr.SaslAuthenticationFailed.Code, c.token(1, "bob"+plainToken("alice")).ErrorCode)
		},
		"garbage for PLAIN": func(c *rawConn) {
			c.handshake(1, "PLAIN")
			require.Equal(c.t, kerr.SaslAuthenticationFailed.Code, c.token(1, "\xff\x00\x00").ErrorCode)
		},
		"garbage for SCRAM": func(c *rawConn) {
			c.handshake(1, "SCRAM-SHA-256")
			require.Equal(c.t, kerr.SaslAuthenticationFailed.Code, c.token(1, "n,,n=alice").ErrorCode)
		},
		"no proof for SCRAM": func(c *rawConn) {
			c.handshake(1, "SCRAM-SHA-256")
			first := c.token(1, "n,,n=alice,r=abc")
			require.Zero(c.t, first.ErrorCode)
			nonce, _, _ := cutComma(string(first.SASLAuthBytes))
			require.Equal(c.t, kerr.SaslAuthenticationFailed.Code, c.token(1, "c=biws,"+nonce+",p=AAAA").ErrorCode)
		},
		"another handshake within one": func(c *rawConn) {
			c.handshake(1, "PLAIN")
			require.Equal(c.t, kerr.IllegalSaslState.Code, c.handshake(1, "SCRAM-SHA-256").ErrorCode)
			c.send(kmsg.NewPtrMetadataRequest())
		},
		"a large request": func(c *rawConn) {
			_, err := c.Write(binary.BigEndian.AppendUint32(nil, 4097))
			require.NoError(c.t, err)
		},
		"a large bare token": func(c *rawConn) {
			c.handshake(0, "PLAIN")
			_, err := c.Write(binary.BigEndian.AppendUint32(nil, 1<<30))
			require.NoError(c.t, err)
		},
		"a wrong bare token": func(c *rawConn) {
			c.handshake(0, "PLAIN")
			_, err := c.Write(append(kbin.AppendInt32(nil, 3), 0, 0, 0))
			require.NoError(c.t, err)
		},
		"a TLS hello": func(c *rawConn) {
			_, err := c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
			require.NoError(c.t, err)
		},
		"questions without end": func(c *rawConn) {
			for range requestsBeforeAuth {
				c.call(kmsg.NewPtrApiVersionsRequest())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.dial()
			c.t = t
			do(c)
			c.requireClosed()
		})
	}
	c := w.dial()
	c.login("alice")
	c.metadata()
}

func cutComma(s string) (before, after string, ok bool) {
	for i := range len(s) {
		if s[i] == ',' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// TestC44SessionsEnd: who doesn't authenticate again in time is cut off, who does goes on;
// nobody becomes somebody else.
func TestC44SessionsEnd(t *testing.T) {
	w := newWorld(t, withSASL(time.Hour))
	clk := w.clk.(*stepClock)
	c, idle, other := w.dial(), w.dial(), w.dial()
	require.Equal(t, time.Hour.Milliseconds(), c.login("alice").SessionLifetimeMillis)
	idle.login("alice")
	other.login("alice")
	require.Equal(t, kerr.IllegalSaslState.Code, c.handshake(0, "PLAIN").ErrorCode, "not with bare tokens")
	c.login("alice")
	clk.add(50 * time.Minute)
	c.login("alice")
	clk.add(20 * time.Minute)
	c.metadata()
	idle.send(kmsg.NewPtrMetadataRequest())
	idle.requireClosed()
	require.Zero(t, other.handshake(1, "PLAIN").ErrorCode, "late is better than never")
	resp := other.token(1, plainToken("bob"))
	require.Equal(t, kerr.SaslAuthenticationFailed.Code, resp.ErrorCode)
	require.Contains(t, *resp.ErrorMessage, "Cannot change principals")
	other.requireClosed()
	clk.add(2 * time.Second)
	require.Equal(t, kerr.SaslAuthenticationFailed.Code, c.handshake(1, "SCRAM-SHA-256").ErrorCode, "nor another mechanism")
	c.requireClosed()
}

// FuzzSASL: whatever comes before authentication costs its own connection at most, and is
// answered with little.
func FuzzSASL(f *testing.F) {
	frame := func(req kmsg.Request) []byte { return encodeRequest(req, 1, "fuzz") }
	hello := kmsg.NewPtrSASLHandshakeRequest()
	hello.Version, hello.Mechanism = 1, "SCRAM-SHA-256"
	token := kmsg.NewPtrSASLAuthenticateRequest()
	token.Version, token.SASLAuthBytes = 2, []byte("n,,n=alice,r=abc")
	f.Add(append(frame(hello), frame(token)...))
	old := *hello
	old.Version, old.Mechanism = 0, "PLAIN"
	f.Add(append(frame(&old), 0, 0, 0, 3, 0, 0, 0))
	f.Add(frame(kmsg.NewPtrApiVersionsRequest()))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	w := newWorld(f, withSASL(0))
	f.Fuzz(func(t *testing.T, input []byte) {
		c := dialRaw(t, w.addr)
		_, _ = c.Write(input)
		if err := c.closeWrite(); err != nil {
			return // it hung up already
		}
		for total := 0; ; {
			b, err := c.frame()
			if err != nil {
				break
			}
			if total += len(b); total > 1<<20 {
				t.Fatalf("%d bytes are answered", total)
			}
		}
		_ = c.Close()
		after := dialRaw(t, w.addr)
		after.login("alice")
		_ = after.Close()
	})
}

func (c *rawConn) closeWrite() error {
	cw, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("%T can't", c.Conn)
	}
	return cw.CloseWrite()
}
