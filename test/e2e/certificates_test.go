package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
	"kagami/test/kafka/pki"
	"kagami/test/kafka/proc"
)

// tlsWorld is a node whose clients show certificates, and whose admin port has TLS.
type tlsWorld struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	servers pki.Authority
	clients map[string]pki.Authority // old and new
	node    *Node
	address string // of the listener with TLS
}

func (w *tlsWorld) path(name string) string { return filepath.Join(w.dir, name) }

func startTLSWorld(ctx context.Context, t *testing.T) *tlsWorld {
	t.Helper()
	w := &tlsWorld{t: t, ctx: ctx, dir: t.TempDir(), servers: pki.NewAuthority(t), clients: map[string]pki.Authority{"old": pki.NewAuthority(t), "new": pki.NewAuthority(t)}}
	pki.Put(t, w.path("server.pem"), w.servers.Issue(t, "first", time.Now().Add(time.Hour)).PEM(t))
	pki.Put(t, w.path("servers-ca.pem"), w.servers.CA())
	for name, ca := range w.clients {
		pki.Put(t, w.path(name+".pem"), ca.Issue(t, name, time.Now().Add(time.Hour)).PEM(t))
	}
	pki.Put(t, w.path("clients-ca.pem"), w.clients["old"].CA())
	ports, err := proc.Ports(1)
	require.NoError(t, err)
	w.address = net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))
	w.node = StartNode(t, NodeOptions{
		Listeners: []string{"CERTS://" + w.address}, AdminTLS: w.trust(""),
		Properties: map[string]string{
			"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CERTS:SSL", "ssl.client.auth": "required", "kagami.admin.security.protocol": "SSL",
			"ssl.keystore.type": "PEM", "ssl.keystore.location": w.path("server.pem"), "ssl.truststore.type": "PEM", "ssl.truststore.location": w.path("clients-ca.pem"),
		},
	})
	return w
}

// trust is the TLS side of a client that shows a certificate, "" for none.
func (w *tlsWorld) trust(certificate string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(w.servers.Cert)
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if certificate != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(w.path(certificate+".pem"), w.path(certificate+".pem"))
			return &pair, err
		}
	}
	return c
}

// client is a new client of the listener with TLS.
func (w *tlsWorld) client(certificate string, opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.address), kgo.DialTLSConfig(w.trust(certificate))}, opts...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(cl.Close)
	return cl
}

// connects is what becomes of a new connection.
func (w *tlsWorld) connects(certificate string) error {
	w.t.Helper()
	cl := w.client(certificate, kgo.RequestRetries(0), kgo.RetryTimeout(5*time.Second))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	return cl.Ping(ctx)
}

// log waits until the node has written a line.
func (w *tlsWorld) log(line string) {
	w.t.Helper()
	b := func() bool {
		text, err := os.ReadFile(filepath.Join(w.node.dir, "kagami.log"))
		return err == nil && bytes.Contains(text, []byte(line))
	}
	require.Eventually(w.t, b, convergeTimeout, 20*time.Millisecond, line)
}

// tlsLoad is a producer and a consumer of franz-go on one topic.
type tlsLoad struct {
	stop  chan struct{}
	ended sync.WaitGroup
	acked atomic.Int64

	mu     sync.Mutex
	failed error
	read   map[string]int
}

func (w *tlsWorld) load(topic string) *tlsLoad {
	w.t.Helper()
	l := &tlsLoad{stop: make(chan struct{}), read: map[string]int{}}
	producer := w.client("old", kgo.DefaultProduceTopic(topic))
	consumer := w.client("old", kgo.ConsumeTopics(topic), kgo.FetchMaxWait(200*time.Millisecond))
	l.ended.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-l.stop:
				err := producer.Flush(w.ctx)
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.failed == nil {
					l.failed = err
				}
				return
			case <-time.After(5 * time.Millisecond):
			}
			producer.Produce(w.ctx, &kgo.Record{Value: fmt.Append(nil, "v-", n)}, func(_ *kgo.Record, err error) {
				if err == nil {
					l.acked.Add(1)
					return
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.failed = err
			})
		}
	})
	ctx, cancel := context.WithCancel(w.ctx)
	w.t.Cleanup(cancel)
	go func() {
		for ctx.Err() == nil {
			consumer.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.read[string(r.Value)]++
			})
		}
	}()
	return l
}

func (l *tlsLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.read)
}

// goesOn waits until both loads have got on by some records.
func (w *tlsWorld) goesOn(l *tlsLoad, j *kafka.Java) {
	w.t.Helper()
	acked, read := l.acked.Load(), l.count()
	javaAcked, javaRead := len(j.Events("p", "acked")), len(j.Events("c", "record"))
	require.Eventually(w.t, func() bool {
		return l.acked.Load() > acked+20 && l.count() > read+20 && len(j.Events("p", "acked")) > javaAcked+20 && len(j.Events("c", "record")) > javaRead+20
	}, convergeTimeout, 20*time.Millisecond, "%v", j.Tail(10))
	require.Empty(w.t, j.Events("p", "failed", "error"))
	require.Empty(w.t, j.Events("c", "error"))
}

// expire puts a certificate in place that is used, and waits until it has ended.
func (w *tlsWorld) expire() {
	w.t.Helper()
	for life := 2 * time.Second; ; life *= 2 { // longer, if the machine is slow
		pki.Put(w.t, w.path("server.pem"), w.servers.Issue(w.t, "short", time.Now().Add(life)).PEM(w.t))
		if w.connects("old") == nil {
			break
		}
		require.Less(w.t, life, time.Minute)
	}
	var err error
	require.Eventually(w.t, func() bool { err = w.connects("old"); return err != nil }, convergeTimeout, 200*time.Millisecond)
	require.ErrorContains(w.t, err, "certificate has expired")
}

// TestCertificatesReplacedUnderLoad: the server's certificate ends while clients are at
// work; new connections are refused, with a reason on both sides, until a good one is in
// place; then the clients' CA is replaced. Open connections lose nothing, nothing is
// restarted, and each record is there once.
func TestCertificatesReplacedUnderLoad(t *testing.T) {
	kafka.RequireJava(t)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	w := startTLSWorld(ctx, t)
	plain, err := kgo.NewClient(kgo.SeedBrokers(w.node.Bootstrap()))
	require.NoError(t, err)
	defer plain.Close()
	for _, topic := range []string{"go", "java"} {
		_, err := kadm.NewClient(plain).CreateTopic(ctx, 1, 1, nil, topic)
		require.NoError(t, err)
		require.NoError(t, kafka.Poll(ctx, func() error {
			_, err := kadm.NewClient(plain).ListEndOffsets(ctx, topic)
			return err
		}))
	}
	java := map[string]string{
		"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": w.path("servers-ca.pem"), "ssl.keystore.type": "PEM", "ssl.keystore.location": w.path("old.pem"),
	}
	j, err := kafka.StartJava(ctx, t.TempDir(),
		kafka.JavaJob{Kind: kafka.JavaProduce, Name: "p", Bootstrap: w.address, Topic: "java", Settings: settings("rate=100"), Client: java},
		kafka.JavaJob{Kind: kafka.JavaConsume, Name: "c", Bootstrap: w.address, Topic: "java", Settings: settings("assign=0:0"), Client: java})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Kill()) })
	l := w.load("go")
	w.goesOn(l, j)

	w.expire()
	w.log("certificateOfThisListenerExpiredAt")
	_, err = w.node.Get(ctx, "/healthz")
	require.ErrorContains(t, err, "certificate has expired", "the admin port shows the same")
	late, err := kafka.StartJava(ctx, t.TempDir(), kafka.JavaJob{Kind: kafka.JavaProduce, Name: "late", Bootstrap: w.address, Topic: "java", Settings: settings("count=1"), Client: java})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, late.Kill()) })
	failed, err := late.Await(ctx, "late", "failed", 1)
	require.NoError(t, err)
	require.Contains(t, strings.Join(failed[0].Fields, " "), "SslAuthenticationException")
	w.goesOn(l, j)

	// A file that is half written, and one with the new key and the old certificate, change nothing.
	next := w.servers.Issue(t, "next", time.Now().Add(time.Hour))
	half := next.PEM(t)
	require.NoError(t, os.WriteFile(w.path("server.pem"), half[:len(half)/2], 0o600))
	require.ErrorContains(t, w.connects("old"), "certificate has expired")
	swapped := next
	swapped.Cert = w.servers.Issue(t, "another", time.Now().Add(time.Hour)).Cert
	require.NoError(t, os.WriteFile(w.path("server.pem"), swapped.PEM(t), 0o600))
	require.ErrorContains(t, w.connects("old"), "certificate has expired")
	w.log("can't be used, the old one stays in force")
	pki.Put(t, w.path("server.pem"), half)
	require.NoError(t, w.connects("old"))
	w.goesOn(l, j)
	metrics, err := w.node.Get(ctx, "/metrics")
	require.NoError(t, err)
	for _, listener := range []string{"CERTS", "admin"} {
		ends := strconv.FormatFloat(float64(next.Cert.NotAfter.Unix()), 'g', -1, 64)
		require.Contains(t, string(metrics), fmt.Sprintf("kagami_tls_certificate_not_after_seconds{listener=%q} %s\n", listener, ends))
	}
	require.NotContains(t, string(metrics), `kafka_server_socket_server_metrics_failed_authentication_total{listener="CERTS"} 0`)

	// The clients' CA is another one from now on, for new connections.
	require.Error(t, w.connects("new"))
	pki.Put(t, w.path("clients-ca.pem"), w.clients["new"].CA())
	require.NoError(t, w.connects("new"))
	require.Error(t, w.connects("old"))
	w.goesOn(l, j)

	close(l.stop)
	l.ended.Wait()
	require.NoError(t, l.failed)
	require.Eventually(t, func() bool { return int64(l.count()) == l.acked.Load() }, convergeTimeout, 20*time.Millisecond)
	for value, times := range l.read {
		require.Equal(t, 1, times, value)
	}
	read := j.Events("c", "record")
	require.NoError(t, j.Stop(convergeTimeout))
	for i, e := range read {
		require.EqualValues(t, i, e.Int(2), "the Java consumer reads every offset once")
		require.Equal(t, fmt.Sprint("p-", i), e.Fields[0])
	}
	done := j.Events("p", "done")
	require.Len(t, done, 1)
	require.Zero(t, done[0].Int(1), "failed writes")
	ends, err := kadm.NewClient(plain).ListEndOffsets(ctx, "go", "java")
	require.NoError(t, err)
	goEnd, _ := ends.Lookup("go", 0)
	javaEnd, _ := ends.Lookup("java", 0)
	require.Equal(t, l.acked.Load(), goEnd.Offset, "as many as were acknowledged")
	require.Equal(t, done[0].Int(0), javaEnd.Offset)
}
