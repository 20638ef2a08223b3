package cases

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/e2e"
	"kagami/test/kafka"
	"kagami/test/kafka/stub"
)

const (
	testTimeout = 2 * time.Minute
	// waitTimeout is generous for a busy machine; the usual wait takes a second.
	waitTimeout = 30 * time.Second
)

// world is one node, one scripted source and one mirror named after the test.
type world struct {
	t      *testing.T
	ctx    context.Context
	node   *e2e.Node
	own    bool // the node is this test's alone
	adm    *client.Client
	src    *stub.Cluster
	mirror string
}

// shared is a world on the node that tests share. The test runs in parallel.
func shared(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	n, err := sharedOnce()
	require.NoError(t, err)
	return newWorld(t, n)
}

// owned is a world with a node of its own, which it may restart. Properties are
// key=value.
func owned(t *testing.T, properties ...string) *world {
	t.Helper()
	t.Parallel()
	all := nodeProperties()
	for _, p := range properties {
		k, v, _ := strings.Cut(p, "=")
		all[k] = v
	}
	n := e2e.StartNode(t, e2e.NodeOptions{Properties: all})
	t.Cleanup(func() { require.NoError(t, sane(n)) })
	w := newWorld(t, n)
	w.own = true
	return w
}

func newWorld(t *testing.T, n *e2e.Node) *world {
	t.Helper()
	w := &world{t: t, node: n, mirror: strings.ReplaceAll(t.Name(), "/", "-")}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	w.src = source(t, stub.Options{ClusterID: "source-of-" + w.mirror})
	var err error
	w.adm, err = n.Admin()
	require.NoError(t, err)
	t.Cleanup(w.adm.Close)
	return w
}

// source starts a scripted source that ends with the test.
func source(t *testing.T, o stub.Options) *stub.Cluster {
	t.Helper()
	c, err := stub.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// sub is the same world for a subtest.
func (w *world) sub(t *testing.T) *world {
	t.Helper()
	s := *w
	s.t = t
	return &s
}

// topic makes a topic on the source; the name gets the test's name in front.
func (w *world) topic(name string, partitions int, fill func(*stub.Topic)) string {
	w.t.Helper()
	name = w.mirror + "-" + name
	w.named(name, partitions, fill)
	return name
}

func (w *world) named(name string, partitions int, fill func(*stub.Topic)) {
	w.t.Helper()
	w.src.Update(func(s *stub.State) {
		t := s.NewTopic(name, messages.NewTopicID(), partitions)
		if fill != nil {
			fill(t)
		}
	})
}

// part changes a partition of the source.
func (w *world) part(topic string, partition int32, f func(*stub.Partition)) {
	w.src.Update(func(s *stub.State) { f(s.Topics[topic].Partitions[partition]) })
}

// create makes the mirror. Configs are key=value.
func (w *world) create(configs ...string) {
	w.t.Helper()
	require.NoError(w.t, w.tryCreate(w.mirror, configs...))
}

func (w *world) tryCreate(mirror string, configs ...string) error {
	all := map[string]*string{"bootstrap.servers": new(w.src.Address())}
	for _, c := range configs {
		k, v, _ := strings.Cut(c, "=")
		all[k] = &v
	}
	return w.adm.CreateClusterMirror(w.ctx, mirror, all)
}

// tryStart asks for topics with what the source says of them.
func (w *world) tryStart(topics ...string) error {
	w.t.Helper()
	opts := client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{}}
	w.src.Read(func(s *stub.State) {
		for _, name := range topics {
			if t := s.Topics[name]; t != nil {
				opts.TopicMetadata[name] = client.TopicMetadata{ID: t.ID, Partitions: int32(len(t.Partitions))}
			}
		}
	})
	res, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, topics, opts)
	return errors.Join(err, res.Err())
}

// start starts topics and waits until all their partitions are MIRRORING.
func (w *world) start(topics ...string) {
	w.t.Helper()
	require.NoError(w.t, w.tryStart(topics...))
	w.awaitState("MIRRORING", topics...)
}

// mirrored creates the mirror, starts the topics and waits until they are copied.
func (w *world) mirrored(topics ...string) {
	w.t.Helper()
	w.create()
	w.start(topics...)
	for _, t := range topics {
		w.awaitEqual(t)
	}
}

func (w *world) stop(topics ...string) {
	w.t.Helper()
	w.done(w.adm.StopMirrorTopics(w.ctx, w.mirror, topics))
	w.awaitState("STOPPED", topics...)
}

func (w *world) pause(topics ...string) {
	w.t.Helper()
	w.done(w.adm.PauseMirrorTopics(w.ctx, w.mirror, topics))
	w.awaitState("PAUSED", topics...)
}

func (w *world) resume(topics ...string) {
	w.t.Helper()
	w.done(w.adm.ResumeMirrorTopics(w.ctx, w.mirror, topics))
	w.awaitState("MIRRORING", topics...)
}

func (w *world) done(res client.TopicResults, err error) {
	w.t.Helper()
	require.NoError(w.t, err)
	require.NoError(w.t, res.Err())
}

// await asks again until f returns nil.
func (w *world) await(f func() error) {
	w.t.Helper()
	w.awaitIn(waitTimeout, f)
}

func (w *world) awaitIn(limit time.Duration, f func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, f))
}

func (w *world) awaitState(state string, topics ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, waitTimeout)
	defer cancel()
	require.NoError(w.t, e2e.AwaitStates(ctx, w.adm, w.mirror, topics, 0, state))
}

// look describes one partition.
func (w *world) look(topic string, partition int32) client.DescribedPartition {
	w.t.Helper()
	ps, err := e2e.Partitions(w.ctx, w.adm, w.mirror)
	require.NoError(w.t, err)
	for _, p := range ps {
		if p.Topic == topic && p.Partition == partition {
			return p
		}
	}
	require.Fail(w.t, "partition isn't described", "%s-%d", topic, partition)
	return client.DescribedPartition{}
}

// awaitLook waits until a partition's description is right.
func (w *world) awaitLook(topic string, partition int32, ok func(client.DescribedPartition) bool) client.DescribedPartition {
	w.t.Helper()
	var p client.DescribedPartition
	w.await(func() error {
		if p = w.look(topic, partition); !ok(p) {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	return p
}

// failed waits until a partition is FAILED with all texts in its reason.
func (w *world) failed(topic string, partition int32, texts ...string) client.DescribedPartition {
	w.t.Helper()
	return w.awaitLook(topic, partition, func(p client.DescribedPartition) bool {
		for _, text := range texts {
			if !strings.Contains(p.ErrorText, text) {
				return false
			}
		}
		return p.State == "FAILED"
	})
}

// detail is the partition's row of `kagami query partitions`.
func (w *world) detail(topic string, partition int32) map[string]any {
	w.t.Helper()
	body, err := w.node.Get(w.ctx, "/api/partitions?topic="+url.QueryEscape(topic))
	require.NoError(w.t, err)
	var rows []map[string]any
	require.NoError(w.t, json.Unmarshal(body, &rows))
	for _, r := range rows {
		if r["partition"] == float64(partition) {
			return r
		}
	}
	require.Fail(w.t, "no such partition", "%s-%d in %v", topic, partition, rows)
	return nil
}

// listOffset is ListOffsets for one partition.
func (w *world) listOffset(topic string, partition int32, timestamp int64, isolation int8) kmsg.ListOffsetsResponseTopicPartition {
	w.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := ask[*kmsg.ListOffsetsResponse](w, req, 7)
	return resp.Topics[0].Partitions[0]
}

const (
	latest   = -1
	earliest = -2
	maxTime  = -3
)

func (w *world) end(topic string, partition int32) int64 {
	w.t.Helper()
	p := w.listOffset(topic, partition, latest, 0)
	require.Zero(w.t, p.ErrorCode)
	return p.Offset
}

func (w *world) begin(topic string, partition int32) int64 {
	w.t.Helper()
	p := w.listOffset(topic, partition, earliest, 0)
	require.Zero(w.t, p.ErrorCode)
	return p.Offset
}

func (w *world) awaitEnd(topic string, partition int32, want int64) {
	w.t.Helper()
	w.await(func() error {
		p := w.listOffset(topic, partition, latest, 0)
		if p.ErrorCode != 0 || p.Offset != want {
			return fmt.Errorf("%s-%d ends at %d (code %d), want %d", topic, partition, p.Offset, p.ErrorCode, want)
		}
		return nil
	})
}

// fetch is one raw Fetch of one partition.
func (w *world) fetch(topic string, partition int32, offset int64, isolation int8) kmsg.FetchResponseTopicPartition {
	w.t.Helper()
	req := fetchRequest(topic, partition, offset)
	req.IsolationLevel = isolation
	resp := ask[*kmsg.FetchResponse](w, req, 12)
	require.Zero(w.t, resp.ErrorCode)
	return resp.Topics[0].Partitions[0]
}

// bytes is the node's log as served by Fetch, from its start.
func (w *world) bytes(topic string, partition int32) []byte {
	w.t.Helper()
	out, err := w.tryBytes(topic, partition)
	require.NoError(w.t, err)
	return out
}

// tryBytes fails where the log is cut meanwhile.
func (w *world) tryBytes(topic string, partition int32) ([]byte, error) {
	w.t.Helper()
	var out []byte
	for at, end := w.begin(topic, partition), w.end(topic, partition); at < end; {
		p := w.fetch(topic, partition, at, 0)
		if p.ErrorCode != 0 {
			return nil, fmt.Errorf("fetch at %d: %w", at, kerr.ErrorForCode(p.ErrorCode))
		}
		hs := headers(w.t, p.RecordBatches)
		if len(hs) == 0 {
			return nil, fmt.Errorf("nothing at %d of %d", at, end)
		}
		out = append(out, p.RecordBatches...)
		at = hs[len(hs)-1].last() + 1
	}
	return out, nil
}

// header is what a batch says of itself, read here and not by the product.
type header struct {
	base  int64
	delta int32
	epoch int32
	attrs int16
	pid   int64
	count int32
	raw   []byte
}

func (h header) last() int64   { return h.base + int64(h.delta) }
func (h header) control() bool { return h.attrs&0x20 != 0 }

func headers(t *testing.T, b []byte) []header {
	t.Helper()
	var out []header
	for len(b) > 0 {
		require.GreaterOrEqual(t, len(b), 61)
		n := int(binary.BigEndian.Uint32(b[8:])) + 12
		require.GreaterOrEqual(t, len(b), n, "a cut-off batch")
		out = append(out, header{
			base: int64(binary.BigEndian.Uint64(b)), epoch: int32(binary.BigEndian.Uint32(b[12:])),
			attrs: int16(binary.BigEndian.Uint16(b[21:])), delta: int32(binary.BigEndian.Uint32(b[23:])),
			pid: int64(binary.BigEndian.Uint64(b[43:])), count: int32(binary.BigEndian.Uint32(b[57:])), raw: b[:n],
		})
		b = b[n:]
	}
	return out
}

// equal is nil if the node's partition holds what the source's does.
func (w *world) equal(topic string, partition int32) error {
	w.t.Helper()
	var start, end int64
	var want []byte
	w.src.Read(func(s *stub.State) {
		p := s.Topics[topic].Partitions[partition]
		start, end, want = p.LogStart, p.End(), p.Bytes()
	})
	for ts, o := range map[int64]int64{earliest: start, latest: end} {
		if p := w.listOffset(topic, partition, ts, 0); p.ErrorCode != 0 || p.Offset != o {
			return fmt.Errorf("%s-%d: ListOffsets %d gives %d (code %d), want %d", topic, partition, ts, p.Offset, p.ErrorCode, o)
		}
	}
	got, err := w.tryBytes(topic, partition)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s-%d: %d bytes differ from the source's %d", topic, partition, len(got), len(want))
	}
	return nil
}

// awaitEqual waits until all partitions of a topic equal the source's.
func (w *world) awaitEqual(topic string) {
	w.t.Helper()
	var n int
	w.src.Read(func(s *stub.State) { n = len(s.Topics[topic].Partitions) })
	w.await(func() error {
		for p := range int32(n) {
			if err := w.equal(topic, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// produce writes a batch made by stub.Build and returns the partition's answer.
func (w *world) produce(topic string, b []byte) kmsg.ProduceResponseTopicPartition {
	w.t.Helper()
	resp := ask[*kmsg.ProduceResponse](w, produceRequest(-1, map[string][]byte{topic: b}), 9)
	return resp.Topics[0].Partitions[0]
}

func plain(values ...string) []byte {
	var s stub.Spec
	for _, v := range values {
		s.Records = append(s.Records, stub.Record{Value: []byte(v)})
	}
	s.Timestamp = time.Now().UnixMilli()
	return stub.Build(s)
}

// write produces one plain record and wants it at an offset; -1 = anywhere.
func (w *world) write(topic, value string, offset int64) {
	w.t.Helper()
	p := w.produce(topic, plain(value))
	require.Zero(w.t, p.ErrorCode, "produce to %s: %v %v", topic, kerr.ErrorForCode(p.ErrorCode), text(p.ErrorMessage))
	if offset >= 0 {
		require.Equal(w.t, offset, p.BaseOffset)
	}
}

// kgo is an ordinary client of the node.
func (w *world) kgo(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.node.Bootstrap())}, opts...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(cl.Close)
	return cl
}

func (w *world) kadm() *kadm.Client { return kadm.NewClient(w.kgo()) }

// consume reads n records of partition 0 from an offset on.
func (w *world) consume(topic string, from int64, n int, opts ...kgo.Opt) []*kgo.Record {
	w.t.Helper()
	cl := w.kgo(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))...)
	ctx, cancel := context.WithTimeout(w.ctx, waitTimeout)
	defer cancel()
	var out []*kgo.Record
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(w.t, fetches.Err(), "%d of %d records", len(out), n)
		out = append(out, fetches.Records()...)
	}
	return out
}

func offsets(rs []*kgo.Record) []int64 {
	var out []int64
	for _, r := range rs {
		out = append(out, r.Offset)
	}
	return out
}

func committed() kgo.Opt { return kgo.FetchIsolationLevel(kgo.ReadCommitted()) }

// restart stops and starts the world's own node.
func (w *world) restart() {
	w.t.Helper()
	require.True(w.t, w.own, "the shared node isn't restarted")
	require.NoError(w.t, w.node.Restart(w.ctx))
}

// kill ends the world's own node as a crash would and starts it again.
func (w *world) kill() {
	w.t.Helper()
	require.True(w.t, w.own, "the shared node isn't killed")
	require.NoError(w.t, w.node.Kill9())
	require.NoError(w.t, w.node.Start(w.ctx))
}

// config is a topic's effective config here; false if it has none.
func (w *world) config(topic, key string) (string, bool) {
	w.t.Helper()
	rc, err := w.kadm().DescribeTopicConfigs(w.ctx, topic)
	require.NoError(w.t, err)
	r, err := rc.On(topic, nil)
	require.NoError(w.t, err)
	for _, c := range r.Configs {
		if c.Key == key && c.Value != nil {
			return *c.Value, true
		}
	}
	return "", false
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
