package stub

import (
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
)

const (
	frameBytesMax  = 64 << 20
	keyAPIVersions = 18
)

var errDrop = errors.New("unknown request")

func (b *Broker) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		if b.listener == nil {
			b.mu.Unlock()
			_ = conn.Close()
			continue
		}
		b.conns[conn] = struct{}{}
		b.mu.Unlock()
		b.c.work.Go(func() { b.serve(conn) })
	}
}

// serve answers one connection until it ends.
func (b *Broker) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		b.mu.Lock()
		delete(b.conns, conn)
		b.mu.Unlock()
	}()
	for hung := false; ; {
		req, corr, err := b.read(conn)
		if err != nil {
			if errors.Is(err, errDrop) {
				b.c.mu.Lock()
				b.c.dropped++
				b.c.mu.Unlock()
			}
			return
		}
		b.c.note(*req)
		b.mu.Lock()
		hole := b.blackHole
		b.mu.Unlock()
		if hole {
			continue
		}
		if hung {
			continue
		}
		resp, again := b.answer(req)
		if resp == nil {
			if again { // answers come in order: nothing behind it is answered either
				hung = true
				continue
			}
			return
		}
		if err := write(conn, resp, corr, req); err != nil {
			return
		}
	}
}

// answer makes the response; nil with again = say nothing and go on.
func (b *Broker) answer(req *Request) (resp kmsg.Response, again bool) {
	b.c.mu.Lock()
	handlers := b.c.handlers[req.Key]
	b.c.mu.Unlock()
	for _, h := range handlers {
		switch r := h(req); {
		case r.Close:
			return nil, false
		case r.Hang:
			return nil, true
		case r.Response != nil:
			return r.Response, true
		}
	}
	resp = b.handle(req)
	if resp == nil {
		return nil, false
	}
	b.c.mu.Lock()
	edits := b.c.edits[req.Key]
	b.c.mu.Unlock()
	for _, f := range edits {
		f(req, resp)
	}
	return resp, true
}

func (b *Broker) read(conn net.Conn) (*Request, int32, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, 0, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > frameBytesMax {
		return nil, 0, errDrop
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(conn, frame); err != nil {
		return nil, 0, err
	}
	r := kbin.Reader{Src: frame}
	key, version, corr := r.Int16(), r.Int16(), r.Int32()
	client := r.NullableString()
	offered, ok := b.offered(key)
	if key == keyAPIVersions && ok && (version < offered.Min || version > offered.Max) {
		// Answered in the oldest layout with UNSUPPORTED_VERSION (KIP-511).
		return &Request{Broker: b.ID, Key: key, Version: -1, Body: kmsg.NewPtrApiVersionsRequest()}, corr, nil
	}
	if !ok || version < offered.Min || version > offered.Max {
		return nil, 0, errDrop
	}
	body := kmsg.RequestForKey(key)
	if body == nil {
		body = wire.RequestForKey(key)
	}
	body.SetVersion(version)
	if body.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := body.ReadFrom(r.Src); err != nil {
		return nil, 0, errDrop
	}
	req := &Request{Broker: b.ID, Key: key, Version: version, Body: body}
	if client != nil {
		req.ClientID = *client
	}
	return req, corr, nil
}

func (b *Broker) offered(key int16) (Range, bool) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	r, ok := b.c.state.Versions[key]
	return r, ok
}

func write(conn net.Conn, resp kmsg.Response, corr int32, req *Request) error {
	buf := make([]byte, 4, 1<<12)
	buf = binary.BigEndian.AppendUint32(buf, uint32(corr))
	if resp.IsFlexible() && req.Key != keyAPIVersions {
		buf = append(buf, 0)
	}
	buf = resp.AppendTo(buf)
	binary.BigEndian.PutUint32(buf, uint32(len(buf)-4))
	_, err := conn.Write(buf)
	return err
}
