package diff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
)

// answerTimeout: what isn't answered by then counts as no answer.
const answerTimeout = 15 * time.Second

// side is one of the two clusters, as a plain connection.
type side struct {
	name, addr string
	login      string // token of SASL PLAIN, "" on a listener without
	prefix     string // of all names, the same on both sides and new in every run
	nc         net.Conn
	seq        int32
	ids        map[string][16]byte // topic ids by name
	names      map[[16]byte]string
	kept       map[string]any   // what a step keeps for later ones
	producers  map[int64]string // transactional ids by producer id
}

func newSide(name, addr, prefix string) *side {
	return &side{name: name, addr: addr, prefix: prefix, ids: map[string][16]byte{}, names: map[[16]byte]string{}, kept: map[string]any{}, producers: map[int64]string{}}
}

func (s *side) close() {
	if s.nc != nil {
		_ = s.nc.Close()
		s.nc = nil
	}
}

// n is a name of this run.
func (s *side) n(name string) string { return s.prefix + name }

// v is a name of this run and version: a step that changes something does so anew in
// every version.
func (s *side) v(name string, version int16) string {
	return fmt.Sprintf("%s%s-v%d", s.prefix, name, version)
}

// id is the id of a topic, by its name.
func (s *side) id(topic string) [16]byte { return s.ids[topic] }

func (s *side) learn(topic string, id [16]byte) {
	if topic != "" && id != [16]byte{} {
		s.ids[topic], s.names[id] = id, topic
	}
}

// outcome is what came back: an answer, or the end of the connection or of patience.
type outcome struct {
	resp kmsg.Response
	body []byte
	end  string
}

// Ends of a request without an answer.
const (
	endClosed    = "the connection is closed"
	endSilent    = "no answer"
	endUndecoded = "an answer that can't be decoded"
)

func header(key, version int16, seq int32, flexible bool) []byte {
	b := kbin.AppendInt32(nil, 0)
	b = kbin.AppendInt16(b, key)
	b = kbin.AppendInt16(b, version)
	b = kbin.AppendInt32(b, seq)
	b = kbin.AppendNullableString(b, new("diff"))
	if flexible {
		b = append(b, 0)
	}
	return b
}

// send writes a request. body nil: as req has it.
func (s *side) send(req kmsg.Request, body []byte) error {
	if s.nc == nil {
		nc, err := net.DialTimeout("tcp", s.addr, answerTimeout)
		if err != nil {
			return fmt.Errorf("dial %s: %w", s.name, err)
		}
		s.nc = nc
		if err := s.authenticate(); err != nil {
			return err
		}
	}
	s.seq++
	b := header(req.Key(), req.GetVersion(), s.seq, req.IsFlexible())
	if body == nil {
		b = req.AppendTo(b)
	} else {
		b = append(b, body...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := s.nc.Write(b)
	return err
}

// authenticate says who this side is.
func (s *side) authenticate() error {
	if s.login == "" {
		return nil
	}
	hello, token := kmsg.NewPtrSASLHandshakeRequest(), kmsg.NewPtrSASLAuthenticateRequest()
	hello.Version, hello.Mechanism = 1, "PLAIN"
	token.Version, token.SASLAuthBytes = 1, []byte(s.login)
	for _, req := range []kmsg.Request{hello, token} {
		o, err := s.call(req, nil)
		if err != nil {
			return err
		}
		if a, ok := o.resp.(*kmsg.SASLAuthenticateResponse); o.end != "" || ok && a.ErrorCode != 0 {
			return fmt.Errorf("%s refuses the login: %s", s.name, o.end)
		}
	}
	return nil
}

// call sends and waits. The error is of the machine, never of the broker.
func (s *side) call(req kmsg.Request, body []byte) (outcome, error) {
	if s.send(req, body) == nil {
		return s.receive(req)
	}
	s.close()
	return outcome{end: endClosed}, nil
}

// receive reads the answer to the last request.
func (s *side) receive(req kmsg.Request) (outcome, error) {
	_ = s.nc.SetReadDeadline(time.Now().Add(answerTimeout))
	var size [4]byte
	switch _, err := io.ReadFull(s.nc, size[:]); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.close()
		return outcome{end: endSilent}, nil
	case err != nil:
		s.close()
		return outcome{end: endClosed}, nil //nolint:nilerr // the end is what is compared
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(s.nc, b); err != nil {
		s.close()
		return outcome{}, fmt.Errorf("read answer of %s: %w", s.name, err)
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != s.seq {
		s.close()
		return outcome{}, fmt.Errorf("%s answers request %d, asked was %d", s.name, got, s.seq)
	}
	resp := responseOf(req)
	body := b[4:]
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		var err error
		if body, err = skipHeaderTags(body); err != nil {
			return outcome{}, err
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		if fallback := olderAPIVersions(req, body); fallback != nil {
			return outcome{resp: fallback, body: body}, nil
		}
		return outcome{end: endUndecoded, body: body}, nil
	}
	return outcome{resp: resp, body: body}, nil
}

// olderAPIVersions: a version that is too new is answered in the layout of version 0.
func olderAPIVersions(req kmsg.Request, body []byte) kmsg.Response {
	if req.Key() != int16(kmsg.ApiVersions) {
		return nil
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if resp.ReadFrom(body) != nil {
		return nil
	}
	return resp
}

func skipHeaderTags(b []byte) ([]byte, error) {
	r := kbin.Reader{Src: b}
	for range r.Uvarint() {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
	if !r.Ok() {
		return nil, errors.New("response header is cut off")
	}
	return r.Src, nil
}

func responseOf(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp
}

func requestOf(key int16) kmsg.Request {
	if r := kmsg.RequestForKey(key); r != nil {
		return r
	}
	return wire.RequestForKey(key)
}
