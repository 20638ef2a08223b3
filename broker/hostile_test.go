package broker

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence/metadata"
)

func sized(b []byte) []byte { return append(kbin.AppendInt32(nil, int32(len(b))), b...) }

func header(key, version int16) []byte {
	b := kbin.AppendInt16(nil, key)
	b = kbin.AppendInt16(b, version)
	b = kbin.AppendInt32(b, 1)
	return kbin.AppendNullableString(b, nil)
}

// TestHostileFrames: each costs its own connection, at once, and nothing else.
func TestHostileFrames(t *testing.T) {
	w := newWorld(t, func(_ *world, c *Config) { c.RequestBytesMax, c.SmallRequestBytesMax = 1<<20, 64<<10 })
	w.topic("t", 1, nil)
	good := w.dial()
	big := kbin.AppendInt32(nil, 100<<10)
	for _, row := range []struct {
		name  string
		bytes []byte
	}{
		{"TLS hello", []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"negative size", kbin.AppendInt32(nil, -1)},
		{"smallest size", kbin.AppendInt32(nil, math.MinInt32)},
		{"size zero", kbin.AppendInt32(nil, 0)},
		{"size seven", sized(make([]byte, 7))},
		{"size above the limit", kbin.AppendInt32(nil, 1<<20+1)},
		{"size above the limit of the key", append(big, header(3, 9)...)},
		{"unknown key", sized(header(999, 0))},
		{"negative key", sized(header(-1, 0))},
		{"group key", sized(header(11, 0))},
		{"version above", sized(header(3, 99))},
		{"version below", sized(header(1, 3))},
		{"negative version", sized(header(3, -1))},
		{"client id longer than the frame", sized(append(header(3, 9)[:8], 0x7f, 0xff))},
		{"negative client id", sized(append(header(3, 9)[:8], 0x80, 0))},
		{"tags without end", sized(append(header(3, 9), 0xff, 0xff, 0xff, 0xff, 0x0f))},
		{"empty body", sized(header(19, 5))},
		{"array of 2 billion", sized(append(header(3, 1), 0x7f, 0xff, 0xff, 0xff))},
		{"produce with a million topics", sized(append(append(header(0, 3), 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0x0f, 0, 0), make([]byte, 700_000)...))},
		{"garbage body", sized(append(header(44, 1), bytes.Repeat([]byte{0xff}, 1000)...))},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := w.dial()
			c.t, good.t = t, t
			_, err := c.Write(row.bytes)
			require.NoError(t, err)
			c.requireClosed()
			require.Zero(t, good.call(sample(w, keyAPIVersions, 3, 0)).(*kmsg.ApiVersionsResponse).ErrorCode, "the others live on")
		})
	}
}

// TestHostileLogLines: there is a line for what was wrong, none for an ordinary
// end.
func TestHostileLogLines(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	for _, row := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"unknown key", sized(header(999, 0)), "api key not served: key 999"},
		{"version", sized(header(3, 99)), "Metadata version 99, served are 0 to 13"},
		{"cut off", sized(header(3, 9))[:9], "frame cut off"},
		{"ordinary end", nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			logs.TakeAll()
			client, server := net.Pipe()
			s := bareServer(t, zap.New(core))
			done := make(chan struct{})
			go func() {
				defer close(done)
				newConn(s, &listener{Listener: Listener{Name: "PLAINTEXT"}}, server, "test", 1).run(t.Context())
			}()
			_, err := client.Write(row.bytes)
			require.NoError(t, err)
			if row.name == "ordinary end" || row.name == "cut off" {
				require.NoError(t, client.Close())
			}
			<-done
			_ = client.Close()
			if row.want == "" {
				require.Zero(t, logs.Len())
				return
			}
			require.Equal(t, 1, logs.Len())
			require.Contains(t, logs.All()[0].ContextMap()["error"], row.want)
		})
	}
}

// bareServer has no listener: tests hand it connections.
func bareServer(tb testing.TB, log *zap.Logger) *Server {
	tb.Helper()
	w := &world{t: tb, img: metadata.EmptyImage(), parts: map[messages.TopicPartition]*fakePartition{}, nextPID: 1, groups: newFakeGroups()}
	cfg := Config{NodeID: 1, Listeners: []Listener{{Name: "PLAINTEXT", Protocol: ProtocolPlaintext}}, RequestBytesMax: 1 << 20, SmallRequestBytesMax: 256 << 10, FetchWaitMax: time.Millisecond}
	s, err := New(cfg, Deps{Partitions: w, Images: w, Controller: w, Mirrors: w, Planner: w, History: w, Bus: w, Groups: w.groups, Shares: fakeShares{w}, Transactions: newFakeTxns(w), Authorizer: w}, clock.Wall{}, log)
	require.NoError(tb, err)
	return s
}

// TestPanicCostsTheConnection: a bug in a handler isn't the end of the process.
func TestPanicCostsTheConnection(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	s := bareServer(t, zap.New(core))
	s.byKey[3] = &api{key: 3, name: "Metadata", max: 13, new: s.byKey[3].new, handle: nil}
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		newConn(s, &listener{}, server, "test", 1).run(t.Context())
	}()
	_, err := client.Write(encodeRequest(&kmsg.MetadataRequest{Version: 1}, 1, "x"))
	require.NoError(t, err)
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	<-done
	require.Equal(t, 1, logs.FilterMessage("handler panicked").Len())
}

// FuzzFrame: any bytes on a connection. The reader must not panic, must not take
// more memory than it was given bytes (times four, plus a chunk), and must
// return what was framed.
func FuzzFrame(f *testing.F) {
	f.Add(sized(header(3, 9)))
	f.Add(encodeRequest(&kmsg.MetadataRequest{Version: 12}, 7, "client"))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1})
	limits := frameLimits{largest: 100 << 20, small: 8 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := readFrame(bytes.NewReader(b), limits, frameHooks{
			before: func(bool) {}, body: func(int, int64) error { return nil }, grow: func(int, int64) (int64, error) { return 0, nil },
		})
		if err != nil {
			return
		}
		size := int(binary.BigEndian.Uint32(b))
		if len(fr.body)+frameHeaderMin != size || size > len(b)-4 {
			t.Fatalf("frame of %d bytes from %d claims %d", len(fr.body), len(b), size)
		}
		if cap(fr.body) > 4*len(b)+frameChunk {
			t.Fatalf("%d bytes taken for %d", cap(fr.body), len(b))
		}
		_, _, _ = splitHeader(fr.body, true)
		_, _, _ = splitHeader(fr.body, false)
	})
}

// FuzzRequest: any body for any key and version, all the way through the
// handlers. No panic; what the server answers, kmsg can decode.
func FuzzRequest(f *testing.F) {
	seed := &world{t: f, img: metadata.EmptyImage(), parts: map[messages.TopicPartition]*fakePartition{}}
	seed.topic("t", 1, nil)
	seed.topic("grow", 1, nil)
	n := 0
	for _, a := range apis() {
		for v := a.min; v <= a.max; v++ {
			n++
			req := sample(seed, a.key, v, n)
			req.SetVersion(v)
			f.Add(a.key, v, encodeRequest(req, 1, "fuzz")[12:])
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		s := fuzzServer(t)
		a := s.byKey[key]
		if a == nil || version < a.min || version > a.max || len(body) > 64<<10 {
			return
		}
		client, server := net.Pipe()
		defer client.Close()
		c := newConn(s, &listener{Listener: Listener{Name: "PLAINTEXT"}}, server, "fuzz", 1)
		close(c.gone)
		r, _, err := c.decode(t.Context(), a, frame{key: key, version: version, body: body})
		if err != nil {
			return
		}
		rep := a.handle(s, t.Context(), r)
		var out []byte
		switch {
		case rep.drop != nil || rep.silent:
			return
		case rep.fetch != nil:
			defer rep.fetch.release()
			buf, cuts := rep.fetch.encode(nil)
			at := 0
			for _, cut := range cuts {
				out = append(append(out, buf[at:cut.at]...), cut.chunk.Bytes...)
				at = cut.at
			}
			out = append(out, buf[at:]...)
		default:
			out = rep.resp.AppendTo(nil)
		}
		resp := r.body.ResponseKind()
		resp.SetVersion(version)
		if err := resp.ReadFrom(out); err != nil {
			t.Fatalf("%s version %d: our answer can't be read: %v", a.name, version, err)
		}
	})
}

func fuzzServer(t *testing.T) *Server {
	t.Helper()
	s := bareServer(t, zap.NewNop())
	w := s.deps.Images.(*world)
	w.topic("t", 1, nil)
	w.topic("grow", 1, nil)
	w.topic(messages.MirrorStateTopic, 2, nil)
	return s
}
