package broker

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// loginStep is what a hostile client may send next; the fuzzer puts them in any order.
type loginStep byte

const (
	stepHandshake loginStep = iota // PLAIN, version 1
	stepHandshakeScram
	stepHandshakeBare // version 0
	stepAlice
	stepBob
	stepWrong
	stepBareAlice
	stepBareBob
	stepVersions
	stepCreate // tells the test who asks
	stepWait   // most of a session's life
	stepCount
)

// FuzzLogin: in any order of handshakes, tokens and requests a client is nobody until a token of its was
// good, and whoever that said it is from then on.
func FuzzLogin(f *testing.F) {
	f.Add([]byte{0, 3, 9, 0, 4, 9, 3, 9})
	f.Add([]byte{2, 6, 9, 0, 3, 10, 9, 10, 9})
	f.Add([]byte{0, 5, 9})
	f.Add([]byte{0, 3, 10, 0, 9, 3, 9, 2, 7, 9})
	f.Add([]byte{1, 4, 9, 0, 3, 9, 1, 3, 9})
	w := newWorld(f, withSASL(time.Hour))
	w.topic("t", 1, nil) // it is there: whoever asks for it, nothing is made
	clk := w.clk.(*stepClock)
	plain := func(mechanism string, version int16) kmsg.Request {
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Version, req.Mechanism = version, mechanism
		return req
	}
	token := func(text string) kmsg.Request {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = 2, []byte(text)
		return req
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		c := dialRaw(t, w.addr)
		defer c.Close()
		user, bare := "", false
		for _, b := range steps[:min(len(steps), 40)] {
			var req kmsg.Request
			who := ""
			switch loginStep(b) % stepCount {
			case stepHandshake:
				req = plain("PLAIN", 1)
			case stepHandshakeScram:
				req = plain("SCRAM-SHA-256", 1)
			case stepHandshakeBare:
				req = plain("PLAIN", 0)
			case stepAlice:
				req, who = token(plainToken("alice")), "alice"
			case stepBob:
				req, who = token(plainToken("bob")), "bob"
			case stepWrong:
				req = token("\x00alice\x00bob-4711")
			case stepBareAlice, stepBareBob:
				who = "alice"
				if loginStep(b)%stepCount == stepBareBob {
					who = "bob"
				}
				if !bare {
					continue // it would be read as a request
				}
				text := plainToken(who)
				_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
				if answer, err := c.frame(); err != nil || len(answer) > 0 {
					return
				}
				if bare = false; user != "" && user != who {
					t.Fatalf("%s became %s", user, who)
				}
				user = who
				continue
			case stepVersions:
				req = kmsg.NewPtrApiVersionsRequest()
			case stepCreate:
				create := kmsg.NewPtrCreateTopicsRequest()
				create.Version, create.Topics = 7, []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
				req = create
			case stepWait:
				clk.add(50 * time.Minute)
				continue
			case stepCount:
			}
			if bare {
				return // a request is a wrong token now
			}
			correlation := uint32(len(steps))
			if _, err := c.Write(encodeRequest(req, int32(correlation), "fuzz")); err != nil {
				return
			}
			answer, err := c.frame()
			if err != nil {
				return
			}
			if len(answer) < 4 || binary.BigEndian.Uint32(answer) != correlation {
				t.Fatalf("%x answers request %d", answer, correlation)
			}
			body := answer[4:]
			if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
				body = body[1:]
			}
			resp := req.ResponseKind()
			resp.SetVersion(req.GetVersion())
			if err := resp.ReadFrom(body); err != nil {
				t.Fatal(err)
			}
			switch r := resp.(type) {
			case *kmsg.SASLHandshakeResponse:
				bare = r.ErrorCode == 0 && req.GetVersion() == 0
			case *kmsg.SASLAuthenticateResponse:
				switch {
				case r.ErrorCode == 0 && (who == "" || user != "" && user != who):
					t.Fatalf("%q became %q", user, who)
				case r.ErrorCode == 0:
					user = who
				}
			case *kmsg.CreateTopicsResponse:
				if asked := w.requester().Principal; user == "" || asked != userPrefix+user {
					t.Fatalf("%q asks as %s", user, asked)
				}
			}
		}
	})
}
