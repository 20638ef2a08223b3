package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka/pki"
)

// c44Env is how many seconds the clients and mirrors of C44 run.
const c44Env = "KAGAMI_C44_SECONDS"

func c44Time(t *testing.T) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(c44Env))
	if err != nil {
		n = 6
	}
	return time.Duration(n) * time.Second
}

// relay passes connections on to a node, counts them, and can cut them.
type relay struct {
	net.Listener
	mu    sync.Mutex
	to    string
	open  map[net.Conn]bool
	count int
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{Listener: l, open: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { r.pass(c) })
		}
	})
	return r
}

func (r *relay) pass(c net.Conn) {
	defer c.Close()
	r.mu.Lock()
	to := r.to
	r.count++
	r.mu.Unlock()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	r.mu.Lock()
	r.open[c] = true
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(far, c)
		_ = far.Close()
	}()
	_, _ = io.Copy(c, far)
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		_ = c.Close()
	}
}

func (r *relay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// credentialsWorld is a mirror of a secured node behind a relay.
type credentialsWorld struct {
	*pair
	relay *relay
	logs  *observer.ObservedLogs // of the mirror's node
}

// newCredentialsWorld starts both nodes. The source's listener MIRROR is that of the mirror.
func newCredentialsWorld(t *testing.T, source ...string) *credentialsWorld {
	t.Helper()
	w := &credentialsWorld{relay: newRelay(t)}
	src := startTestNode(t, t.TempDir(), append(source, "listeners=PLAINTEXT://127.0.0.1:0,MIRROR://127.0.0.1:0", "advertised.listeners=MIRROR://"+w.relay.Addr().String())...)
	w.relay.mu.Lock()
	w.relay.to = src.at("MIRROR")
	w.relay.mu.Unlock()
	s, err := loadSettings("", options(t.TempDir(), "mirror.failed.retry.initial.backoff.ms=100", "mirror.fetch.backoff.ms=100"))
	require.NoError(t, err)
	core, logs := observer.New(zap.DebugLevel)
	dst, err := startNode(t.Context(), s, zap.New(core), zap.NewAtomicLevel())
	require.NoError(t, err)
	t.Cleanup(func() { stopTestNode(t, dst) })
	w.logs = logs
	admin := dialAs(t, src.kafka(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm, dstCl, _ := connectTo(t, dst.kafka())
	w.pair = &pair{t: t, src: src, dst: dst, srcCl: admin, dstCl: dstCl, adm: adm}
	topic(t, admin, "t", 1, 10, nil)
	return w
}

func (w *credentialsWorld) mirror(configs map[string]string) {
	w.t.Helper()
	set := map[string]*string{"bootstrap.servers": new(w.relay.Addr().String())}
	for k, v := range configs {
		set[k] = &v
	}
	require.NoError(w.t, w.adm.CreateClusterMirror(w.t.Context(), "m", set))
	details, err := kadm.NewClient(w.srcCl).ListTopics(w.t.Context(), "t")
	require.NoError(w.t, err)
	opts := client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{"t": {ID: messages.TopicID(details["t"].ID), Partitions: 1}}}
	res, err := w.adm.StartMirrorTopics(w.t.Context(), "m", []string{"t"}, opts)
	require.NoError(w.t, errors.Join(err, res.Err()))
	w.awaitEnd("t")
}

func (w *credentialsWorld) partition() client.DescribedPartition {
	w.t.Helper()
	told, err := w.adm.DescribeClusterMirrors(w.t.Context(), []string{"m"}, client.DescribeOptions{})
	require.NoError(w.t, err)
	require.Len(w.t, told.Mirrors["m"].Partitions, 1)
	return told.Mirrors["m"].Partitions[0]
}

func setScram(t *testing.T, admin *kgo.Client, user, password string) {
	t.Helper()
	res, err := kadm.NewClient(admin).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password}})
	require.NoError(t, err)
	require.NoError(t, res.Error())
}

func scramConfigs(user, password string) map[string]string {
	return map[string]string{
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
		"sasl.jaas.config": `org.apache.kafka.common.security.scram.ScramLoginModule required username="` + user + `" password="` + password + `";`,
	}
}

// TestC44ShortSessions: sessions end every two seconds under a producer, a consumer group and a mirror:
// nobody sees an error, each record comes once, and the mirror makes at most one new connection for
// each session and broker. (C44 a, b)
func TestC44ShortSessions(t *testing.T) {
	const session = 2 * time.Second
	w := newCredentialsWorld(t, "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,MIRROR:SASL_PLAINTEXT",
		"sasl.enabled.mechanisms=SCRAM-SHA-256", fmt.Sprintf("connections.max.reauth.ms=%d", session.Milliseconds()))
	setScram(t, w.srcCl, "mirror", "mirror-4711")
	setScram(t, w.srcCl, "app", "app-4711")
	w.mirror(scramConfigs("mirror", "mirror-4711"))
	before, began := w.relay.connections(), time.Now()
	app := func(opts ...kgo.Opt) *kgo.Client {
		return dialAs(t, w.src.at("MIRROR"), append(opts, kgo.SASL(scram.Auth{User: "app", Pass: "app-4711"}.AsSha256Mechanism()), kgo.RequestRetries(5),
			kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) { // past the relay
				var d net.Dialer
				return d.DialContext(ctx, network, w.src.at("MIRROR"))
			}))...)
	}
	var start kadm.Offsets
	start.AddOffset("t", 0, 0, -1)
	await(t, "the source's coordinator", func() error { return kadm.NewClient(w.srcCl).CommitAllOffsets(t.Context(), "g", start) })
	producer := app(kgo.DefaultProduceTopic("t"))
	consumer := app(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	const first = 10 // were there before
	sent, seen := 0, map[int64]int{}
	for until := began.Add(c44Time(t)); time.Now().Before(until); sent++ {
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Value: []byte(strconv.Itoa(sent))}).FirstErr())
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		polled := consumer.PollFetches(ctx)
		cancel()
		for _, e := range polled.Errors() {
			require.ErrorIs(t, e.Err, context.DeadlineExceeded)
		}
		polled.EachRecord(func(r *kgo.Record) { seen[r.Offset]++ })
		p := w.partition()
		require.Equal(t, messages.StateMirroring.String(), p.State)
		require.Zero(t, p.RetryAttempt)
	}
	for len(seen) < first+sent {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		polled := consumer.PollFetches(ctx)
		cancel()
		require.NoError(t, polled.Err())
		polled.EachRecord(func(r *kgo.Record) { seen[r.Offset]++ })
	}
	for offset, n := range seen {
		require.Equal(t, 1, n, "offset %d", offset)
	}
	w.awaitEnd("t")
	// A mirror has a few connections to a broker: one that fetches, and some that ask.
	const each = 4
	sessions := int(time.Since(began)/session) + 1
	require.LessOrEqual(t, w.relay.connections()-before, each*sessions, "new connections over %d sessions", sessions)
	t.Logf("%d records, %d new connections of the mirror over %d sessions", sent, w.relay.connections()-before, sessions)
}

// TestC44RotatedCertificates: authority, certificate of the source and our own are replaced on disk, the
// old ones end, and connections are cut: the mirror goes on with the new ones, without a restart. (C44 c)
func TestC44RotatedCertificates(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(a pki.Authority, until time.Time) {
		// The trust first: who reads in between trusts the new one and shows the old.
		pki.Put(t, file("trust.pem"), a.CA())
		pki.Put(t, file("source.pem"), a.Issue(t, "source", until).PEM(t))
		pki.Put(t, file("mirror.pem"), a.Issue(t, "mirror", until).PEM(t))
	}
	old := pki.NewAuthority(t)
	put(old, time.Now().Add(time.Hour))
	w := newCredentialsWorld(t, "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,MIRROR:SSL", "listener.name.mirror.ssl.client.auth=required",
		"listener.name.mirror.ssl.keystore.type=PEM", "listener.name.mirror.ssl.keystore.location="+file("source.pem"),
		"listener.name.mirror.ssl.truststore.type=PEM", "listener.name.mirror.ssl.truststore.location="+file("trust.pem"))
	w.mirror(map[string]string{
		"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": file("trust.pem"),
		"ssl.keystore.type": "PEM", "ssl.keystore.location": file("mirror.pem"),
	})
	ends := time.Now().Add(2 * time.Second)
	put(old, ends)
	w.relay.cut()
	require.Eventually(t, func() bool { return time.Now().After(ends) }, patience, 50*time.Millisecond)
	w.relay.cut() // from now on neither lets the other in
	produce(t, w.srcCl, "t", 5)
	before := w.relay.connections()
	require.Eventually(t, func() bool { return w.relay.connections() > before }, patience, 10*time.Millisecond, "it tries again")
	require.EqualValues(t, 10, end(t, kadm.NewClient(w.dstCl), "t"))
	for range 2 { // the second time open connections have the old ones still
		put(pki.NewAuthority(t), time.Now().Add(time.Hour))
		w.awaitEnd("t")
		w.relay.cut()
		produce(t, w.srcCl, "t", 5)
		w.awaitEnd("t")
	}
	require.Equal(t, messages.StateMirroring.String(), w.partition().State)
}

// TestC44RotatedPassword: the password on the source is another one. The mirror says so, as often as it
// is asked, goes on when its config says the new one, and tells neither. (C44 d)
func TestC44RotatedPassword(t *testing.T) {
	w := newCredentialsWorld(t, "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,MIRROR:SASL_PLAINTEXT", "sasl.enabled.mechanisms=SCRAM-SHA-256", "connections.max.reauth.ms=1000")
	setScram(t, w.srcCl, "mirror", "mirror-4711")
	w.mirror(scramConfigs("mirror", "mirror-4711"))
	setScram(t, w.srcCl, "mirror", "other-0815")
	w.relay.cut()
	produce(t, w.srcCl, "t", 5)
	reason := ""
	require.Eventually(t, func() bool {
		for _, e := range w.logs.All() {
			for _, f := range e.Context {
				if f.Key == "error" && strings.Contains(strings.ToUpper(fmt.Sprint(f.Interface)), "SASL") {
					reason = e.Message + ": " + fmt.Sprint(f.Interface)
					return true
				}
			}
		}
		return false
	}, patience, 50*time.Millisecond)
	t.Log(reason, w.partition().State, w.partition().ErrorText)
	require.EqualValues(t, 10, end(t, kadm.NewClient(w.dstCl), "t"), "nothing comes without a login")
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), "m"
	res.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "sasl.jaas.config", Value: new(scramConfigs("mirror", "other-0815")["sasl.jaas.config"])}}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(t.Context(), w.dstCl)
	require.NoError(t, err)
	require.Zero(t, resp.Resources[0].ErrorCode, "%v", resp.Resources[0].ErrorMessage)
	w.awaitEnd("t")
	require.Equal(t, messages.StateMirroring.String(), w.partition().State)

	ask := kmsg.NewPtrDescribeConfigsRequest()
	ask.IncludeSynonyms = true
	ask.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceType(messages.ResourceClusterMirror), ResourceName: "m"}}
	described, err := ask.RequestWith(t.Context(), w.dstCl)
	require.NoError(t, err)
	told := fmt.Sprintf("%+v %+v", described.Resources[0].Configs, w.partition())
	for _, c := range described.Resources[0].Configs {
		if c.Name == "sasl.jaas.config" {
			require.True(t, c.IsSensitive)
			require.Nil(t, c.Value)
		}
	}
	for _, e := range w.logs.All() {
		told += fmt.Sprint(e.Message, e.ContextMap())
	}
	for _, secret := range []string{"4711", "0815"} {
		require.NotContains(t, told, "mirror-"+secret)
		require.NotContains(t, told, "other-"+secret)
	}
}
