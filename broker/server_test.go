package broker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mirrorVersions lets kgo send the KIP's keys.
func mirrorVersions() *kversion.Versions {
	v := kversion.Stable()
	wire.RaiseMaxVersions(v)
	return v
}

func TestProduceAndConsumeWithClient(t *testing.T) {
	for _, c := range []struct {
		name  string
		codec kgo.CompressionCodec
		opts  []worldOption
	}{
		{"none", kgo.NoCompression(), nil},
		{"none from files", kgo.NoCompression(), []worldOption{onDisk}},
		{"files without sendfile", kgo.NoCompression(), []worldOption{onDisk, func(_ *world, c *Config) { c.NoSendfile = true }}},
		{"gzip", kgo.GzipCompression(), []worldOption{onDisk}},
		{"snappy", kgo.SnappyCompression(), []worldOption{onDisk}},
		{"lz4", kgo.Lz4Compression(), []worldOption{onDisk}},
		{"zstd", kgo.ZstdCompression(), []worldOption{onDisk}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.opts...)
			cl := w.client(kgo.ProducerBatchCompression(c.codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 3, 1, nil, "orders")
			require.NoError(t, err)
			const n = 300
			var records []*kgo.Record
			for i := range n {
				records = append(records, &kgo.Record{Topic: "orders", Partition: int32(i % 3), Key: []byte{byte(i)}, Value: make([]byte, 500)})
			}
			require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())

			reader := w.client(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			got := 0
			for got < n {
				fs := reader.PollFetches(ctx)
				require.NoError(t, fs.Err0())
				fs.EachError(func(_ string, _ int32, err error) { require.NoError(t, err) })
				got += fs.NumRecords()
			}
			require.Equal(t, n, got)
			require.Equal(t, int64(100), w.part("orders", 2).log.End())
		})
	}
}

// TestPipelinedAnswersInOrder: many requests in one write, answered in order.
func TestPipelinedAnswersInOrder(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	c := w.dial()
	var all []byte
	var reqs []kmsg.Request
	for i := range 200 {
		req := sample(w, keyAPIVersions, 3, 0)
		if i%2 == 0 {
			req = produceRequest(9, 1, "t", messages.TopicID{}, 0, oneBatch("v"))
		}
		all = append(all, encodeRequest(req, int32(i), "pipe")...)
		reqs = append(reqs, req)
	}
	go func() { _, _ = c.Write(all) }()
	for i, req := range reqs {
		resp := c.receive(req, int32(i))
		if p, ok := resp.(*kmsg.ProduceResponse); ok {
			require.Equal(t, int64(i/2), p.Topics[0].Partitions[0].BaseOffset)
		}
	}
}

func TestConnectionLimits(t *testing.T) {
	w := newWorld(t, func(_ *world, c *Config) { c.ConnectionsMax, c.ConnectionsPerIPMax = 3, 2 })
	a, b := w.dial(), w.dial()
	a.call(sample(w, keyAPIVersions, 3, 0))
	b.call(sample(w, keyAPIVersions, 3, 0))
	w.dial().requireClosed()
	require.NoError(t, a.Close())
	require.Eventually(t, func() bool { return w.srv.Connections() == 1 }, 10*time.Second, time.Millisecond)
	w.dial().call(sample(w, keyAPIVersions, 3, 0))
}

// TestIdleConnectionIsClosed: in virtual time. A long poll isn't idleness.
func TestIdleConnectionIsClosed(t *testing.T) {
	const idle, poll, frame = 10 * time.Minute, 12 * time.Minute, time.Minute
	for _, row := range []struct {
		name string
		send []byte
		want time.Duration
	}{
		{"silent from the start", nil, idle},
		{"half a frame", []byte{0, 0, 0, 20, 0, 3}, frame},
		{"half a body", []byte{0, 0, 0, 20, 0, 3, 0, 0, 0, 0, 0, 1, 0}, frame},
		{"after a long poll", longPoll(poll), poll + idle},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bareServer(t, zap.NewNop())
				s.cfg.IdleTimeout, s.cfg.FetchWaitMax = idle, time.Hour
				s.deps.Images.(*world).topic("t", 1, nil)
				client, server := net.Pipe()
				done := make(chan struct{})
				start := time.Now()
				go func() {
					defer close(done)
					newConn(s, &listener{}, server, "test", 1).run(t.Context())
				}()
				_, err := client.Write(row.send)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, client)
				require.NoError(t, err)
				<-done
				// The reader's deadline runs from its last look, so a poll may add up to
				// one idle time.
				require.GreaterOrEqual(t, time.Since(start), row.want-min(idle, row.want)/2)
				require.LessOrEqual(t, time.Since(start), row.want+paceSlice)
				require.NoError(t, client.Close())
			})
		})
	}
}

func longPoll(wait time.Duration) []byte {
	req := fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0})
	req.MaxWaitMillis, req.MinBytes = int32(wait.Milliseconds()), 1
	return encodeRequest(req, 1, "poll")
}

// TestCloseIsGraceful: a long poll is answered with what there is, requests that
// were read are answered, new ones and new connections aren't taken.
func TestCloseIsGraceful(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	idle, polling := w.dial(), w.dial()
	idle.call(sample(w, keyAPIVersions, 3, 0))
	req := fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0})
	req.MaxWaitMillis, req.MinBytes = 200_000, 1
	correlation := polling.send(req)
	require.Eventually(t, func() bool { return w.part("t", 0).watched() == 1 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.srv.Close(ctx))
	require.Empty(t, onlyPart(t, polling.receive(req, correlation)).RecordBatches)
	polling.requireClosed()
	idle.requireClosed()
	require.Zero(t, w.srv.Connections())
	_, err := net.Dial("tcp", w.addr)
	require.Error(t, err)
	require.NoError(t, w.srv.Close(ctx), "twice")
	require.ErrorIs(t, w.srv.Listen(ctx), ErrServerClosed)
}

// TestCloseCutsWhatHangs: when the grace is over, the rest is cut and reported.
func TestCloseCutsWhatHangs(t *testing.T) {
	w := newWorld(t, onDisk)
	w.topic("t", 1, nil)
	for i := range int64(40) {
		w.part("t", 0).mirror(t, made(i, 0, string(make([]byte, 1_000_000))))
	}
	c := w.dial()
	req := fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0})
	req.MaxBytes = 50 << 20
	req.Topics[0].Partitions[0].PartitionMaxBytes = 50 << 20
	c.send(req) // and never reads
	require.Eventually(t, func() bool { return w.srv.Connections() == 1 }, 10*time.Second, time.Millisecond)
	_, err := c.Read(make([]byte, 1)) // the answer has begun
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.srv.Close(ctx), context.DeadlineExceeded)
	require.Zero(t, w.srv.Connections())
}

func TestConfigFaults(t *testing.T) {
	ok := Config{Listeners: []Listener{{Name: "A", Protocol: ProtocolPlaintext}}}
	require.NoError(t, ok.Validate())
	for _, row := range []struct {
		name string
		cfg  Config
		want error
	}{
		{"no listener", Config{}, ErrNoListener},
		{"name twice", Config{Listeners: []Listener{ok.Listeners[0], ok.Listeners[0]}}, ErrBadListener},
		{"TLS without keys", Config{Listeners: []Listener{{Name: "A", Protocol: ProtocolSSL}}}, ErrBadListener},
		{"keys without TLS", Config{Listeners: []Listener{{Name: "A", Protocol: ProtocolPlaintext, TLS: &tls.Config{}}}}, ErrBadListener},
		{"SASL without mechanisms", Config{Listeners: []Listener{{Name: "A", Protocol: "SASL_PLAINTEXT"}}}, ErrBadListener},
		{"SASL where there is none", Config{Listeners: []Listener{{Name: "A", Protocol: ProtocolPlaintext, SASL: &SASL{}}}}, ErrBadListener},
		{"another protocol", Config{Listeners: []Listener{{Name: "A", Protocol: "QUIC"}}}, ErrNotSupported},
		{"negative node", Config{NodeID: -1, Listeners: ok.Listeners}, ErrBadNode},
		{"negative limit", Config{ConnectionsMax: -1, Listeners: ok.Listeners}, ErrBadLimit},
		{"negative time", Config{IdleTimeout: -1, Listeners: ok.Listeners}, ErrBadLimit},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.ErrorIs(t, row.cfg.Validate(), row.want)
			_, err := New(row.cfg, Deps{}, clock.Wall{}, zap.NewNop())
			require.ErrorIs(t, err, row.want)
		})
	}
	_, err := New(ok, Deps{}, clock.Wall{}, zap.NewNop())
	require.ErrorIs(t, err, errMissingWiring)
}

// TestTLSListener: the same over TLS, where file ranges pass through memory.
func TestTLSListener(t *testing.T) {
	cert := selfSigned(t)
	w := newWorld(t, onDisk, func(_ *world, c *Config) {
		c.Listeners[0].Protocol, c.Listeners[0].TLS = ProtocolSSL, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	})
	w.topic("t", 1, nil)
	big := made(0, 0, string(make([]byte, 3<<20)))
	w.part("t", 0).mirror(t, big)
	plain := w.dial()
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	secure := &rawConn{Conn: tls.Client(plain.Conn, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}), t: t}
	require.Equal(t, big, onlyPart(t, secure.call(fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0}))).RecordBatches)
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// cutLog loses the end of its file after each read.
type cutLog struct {
	persistence.Log
	file string
}

func (l cutLog) Read(offset int64, maxBytes int, upTo int64, minOne bool) (persistence.Chunk, error) {
	c, err := l.Log.Read(offset, maxBytes, upTo, minOne)
	if err == nil {
		err = os.Truncate(l.file, 10)
	}
	return c, err
}

// TestLogCutUnderAFetch: a file range that ends early can't be answered, so the
// connection ends; the others go on.
func TestLogCutUnderAFetch(t *testing.T) {
	for _, noSendfile := range []bool{false, true} {
		w := newWorld(t, onDisk, func(_ *world, c *Config) { c.NoSendfile = noSendfile })
		w.topic("t", 1, nil)
		p := w.part("t", 0)
		p.mirror(t, made(0, 0, "value"))
		p.log = cutLog{p.log, filepath.Join(w.disk.Dir(), "t-0", "00000000000000000000.log")}
		c := w.dial()
		c.send(fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0}))
		_, err := c.frame()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Zero(t, w.dial().call(sample(w, keyAPIVersions, 3, 0)).(*kmsg.ApiVersionsResponse).ErrorCode)
	}
}

// BenchmarkFetch compares sendfile with bytes through memory: 1 MiB batches read
// by one client over loopback.
func BenchmarkFetch(b *testing.B) {
	for _, row := range []struct {
		name string
		opt  worldOption
	}{
		{"path=sendfile", onDisk},
		{"path=copy", func(w *world, c *Config) { onDisk(w, c); c.NoSendfile = true }},
		{"path=memory", func(*world, *Config) {}},
	} {
		for _, size := range []int{16 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/batch=%dKiB", row.name, size>>10), func(b *testing.B) {
				w := newWorld(b, row.opt)
				w.topic("t", 1, nil)
				for i := range int64(64) {
					w.part("t", 0).mirror(b, made(i, 0, string(make([]byte, size))))
				}
				c := w.dial()
				require.NoError(b, c.SetDeadline(time.Time{}))
				req := fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0})
				req.MaxBytes = 16 << 20
				req.Topics[0].Partitions[0].PartitionMaxBytes = 16 << 20
				frame := encodeRequest(req, 1, "bench")
				buf := make([]byte, 1<<20)
				var before, after unix.Rusage
				require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &before))
				total := 0
				b.ReportAllocs()
				for b.Loop() {
					_, err := c.Write(frame)
					require.NoError(b, err)
					_, err = io.ReadFull(c, buf[:4])
					require.NoError(b, err)
					left := int(binary.BigEndian.Uint32(buf))
					b.SetBytes(int64(left))
					total += left
					for left > 0 {
						n, err := c.Read(buf[:min(left, len(buf))])
						require.NoError(b, err)
						left -= n
					}
				}
				require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &after))
				cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
				b.ReportMetric(cpu.Seconds()/(float64(total)/1e9), "cpu-s/GB")
			})
		}
	}
}

// BenchmarkProduce is one connection that sends batches and waits for each.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("batch=%dKiB", size>>10), func(b *testing.B) {
			w := newWorld(b)
			w.topic("t", 1, nil)
			c := w.dial()
			require.NoError(b, c.SetDeadline(time.Time{}))
			frame := encodeRequest(produceRequest(9, 1, "t", messages.TopicID{}, 0, oneBatch(string(make([]byte, size)))), 1, "bench")
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				_, err := c.Write(frame)
				require.NoError(b, err)
				_, err = c.frame()
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkFetchIdle is a fetch of many partitions that have nothing new: what a
// long poll costs the server, in a session and without.
func BenchmarkFetchIdle(b *testing.B) {
	const partitions = 1000
	for _, session := range []bool{false, true} {
		b.Run(fmt.Sprintf("partitions=%d/session=%v", partitions, session), func(b *testing.B) {
			w := newWorld(b)
			topic := w.topic("t", partitions, nil)
			c := w.dial()
			require.NoError(b, c.SetDeadline(time.Time{}))
			req := fetchRequest(13)
			t := kmsg.FetchRequestTopic{TopicID: topic.ID}
			for n := range int32(partitions) {
				p := kmsg.NewFetchRequestTopicPartition()
				p.Partition, p.PartitionMaxBytes = n, 1<<20
				t.Partitions = append(t.Partitions, p)
			}
			req.Topics = []kmsg.FetchRequestTopic{t}
			req.MaxWaitMillis, req.MinBytes = 1, 1
			if session {
				req.SessionEpoch = 0
				req.SessionID = c.call(req).(*kmsg.FetchResponse).SessionID
				req.Topics = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				if session {
					req.SessionEpoch++
				}
				require.Zero(b, c.call(req).(*kmsg.FetchResponse).ErrorCode)
			}
		})
	}
}
