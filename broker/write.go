package broker

import (
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/persistence"
)

const (
	writeBufferKeep = 32 << 10 // a bigger encode buffer is dropped after its frame
	copyBufferSize  = 128 << 10
	sendfileStep    = 1 << 20 // bytes per sendfile call, between which the deadline moves
)

// frameWriter writes answers to one connection. Only the connection's answering
// goroutine uses it.
type frameWriter struct {
	nc     net.Conn
	tcp    *net.TCPConn // not nil when file ranges may go by sendfile
	extend func()       // moves the write deadline
	buf    []byte
	copies *sync.Pool // of *[]byte, copyBufferSize each: file ranges on their way to connections without sendfile
}

func newFrameWriter(nc net.Conn, sendfile bool, copies *sync.Pool, extend func()) *frameWriter {
	w := &frameWriter{nc: nc, copies: copies, extend: extend}
	if sendfile && haveSendfile {
		w.tcp, _ = nc.(*net.TCPConn)
	}
	return w
}

func (w *frameWriter) writeResponse(resp kmsg.Response, correlation int32, flexibleHeader bool) error {
	return w.write(w.encode(resp, correlation, flexibleHeader))
}

// encode makes a frame, which is good until the next one.
func (w *frameWriter) encode(resp kmsg.Response, correlation int32, flexibleHeader bool) []byte {
	buf := resp.AppendTo(beginResponse(w.buf[:0], correlation, flexibleHeader))
	endResponse(buf, 0)
	w.keep(buf)
	return buf
}

func (w *frameWriter) keep(buf []byte) {
	if cap(buf) <= writeBufferKeep {
		w.buf = buf
	} else {
		w.buf = nil
	}
}

// writeFetch writes a Fetch answer: encoded parts with chunks of logs between
// them, which never pass through our memory when they are file ranges and the
// connection is plain TCP.
func (w *frameWriter) writeFetch(f *fetchReply, correlation int32) error {
	buf, cuts := f.encode(beginResponse(w.buf[:0], correlation, f.version >= fetchFlexible))
	extra := 0
	for _, c := range cuts {
		extra += c.chunk.Len
	}
	endResponse(buf, extra)
	w.keep(buf)
	var pending net.Buffers
	at := 0
	for _, c := range cuts {
		pending = append(pending, buf[at:c.at])
		at = c.at
		if c.chunk.File == nil {
			pending = append(pending, c.chunk.Bytes)
			continue
		}
		if err := w.flush(&pending); err != nil {
			return err
		}
		if err := w.writeFile(c.chunk); err != nil {
			return err
		}
	}
	if at < len(buf) {
		pending = append(pending, buf[at:])
	}
	return w.flush(&pending)
}

func (w *frameWriter) flush(b *net.Buffers) error {
	if len(*b) == 0 {
		return nil
	}
	w.extend()
	if _, err := b.WriteTo(w.nc); err != nil {
		return fmt.Errorf("write response: %w", err)
	}
	*b = (*b)[:0]
	return nil
}

func (w *frameWriter) write(b []byte) error {
	w.extend()
	if _, err := w.nc.Write(b); err != nil {
		return fmt.Errorf("write response: %w", err)
	}
	return nil
}

// writeFile sends a chunk's file range. If the log was cut under us and the
// range ends early, the frame can't be completed and the connection must end.
func (w *frameWriter) writeFile(c *persistence.Chunk) error {
	if w.tcp != nil {
		return w.sendfile(c)
	}
	buf, ok := w.copies.Get().(*[]byte)
	if !ok {
		fresh := make([]byte, copyBufferSize)
		buf = &fresh
	}
	defer w.copies.Put(buf)
	for pos, end := c.Pos, c.Pos+int64(c.Len); pos < end; {
		part := (*buf)[:min(copyBufferSize, end-pos)]
		if n, err := c.File.ReadAt(part, pos); n < len(part) {
			return fmt.Errorf("read %s at %d: %w", c.File.Name(), pos, orShort(err))
		}
		if err := w.write(part); err != nil {
			return err
		}
		pos += int64(len(part))
	}
	return nil
}

func orShort(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // ReadAt returns io.EOF unwrapped
		return io.ErrUnexpectedEOF
	}
	return err
}
