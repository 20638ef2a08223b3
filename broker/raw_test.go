package broker

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawConn speaks frames, so that tests can send what no client would.
type rawConn struct {
	net.Conn
	t   testing.TB
	seq int32
}

func (w *world) dial() *rawConn {
	w.t.Helper()
	return dialRaw(w.t, w.addr)
}

func dialRaw(tb testing.TB, addr string) *rawConn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	require.NoError(tb, c.SetDeadline(time.Now().Add(20*time.Second)))
	return &rawConn{Conn: c, t: tb}
}

// encodeRequest is a whole frame.
func encodeRequest(req kmsg.Request, correlation int32, clientID string) []byte {
	b := kbin.AppendInt32(nil, 0)
	b = kbin.AppendInt16(b, req.Key())
	b = kbin.AppendInt16(b, req.GetVersion())
	b = kbin.AppendInt32(b, correlation)
	b = kbin.AppendNullableString(b, &clientID)
	if req.IsFlexible() {
		b = append(b, 0)
	}
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *rawConn) send(req kmsg.Request) (correlation int32) {
	c.t.Helper()
	c.seq++
	_, err := c.Write(encodeRequest(req, c.seq, "raw"))
	require.NoError(c.t, err)
	return c.seq
}

// frame reads one response frame without its size.
func (c *rawConn) frame() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

func (c *rawConn) receive(req kmsg.Request, correlation int32) kmsg.Response {
	c.t.Helper()
	b, err := c.frame()
	require.NoError(c.t, err, "connection closed after %s version %d", kmsg.NameForKey(req.Key()), req.GetVersion())
	require.Equal(c.t, correlation, int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != keyAPIVersions {
		require.Zero(c.t, b[0])
		b = b[1:]
	}
	require.NoError(c.t, resp.ReadFrom(b))
	// What was read is all there was: encoded again it is as long.
	require.Len(c.t, resp.AppendTo(nil), len(b))
	return resp
}

func (c *rawConn) call(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	return c.receive(req, c.send(req))
}

// requireClosed waits for the server to hang up without an answer.
func (c *rawConn) requireClosed() {
	c.t.Helper()
	n, err := c.Read(make([]byte, 1))
	require.Zero(c.t, n, "server answered")
	var ne net.Error
	if !errors.Is(err, io.EOF) && (!errors.As(err, &ne) || ne.Timeout()) {
		c.t.Fatalf("connection not closed: %v", err)
	}
}

// stampCRC makes the CRC of a changed batch right again.
func stampCRC(b []byte) {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}
