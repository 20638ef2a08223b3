package cases

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/e2e"
	"kagami/test/kafka/stub"
)

const (
	codeUnsupportedVersion  int16 = 35
	codeInvalidConfig       int16 = 40
	codeSessionNotFound     int16 = 70
	codeSessionEpoch        int16 = 71
	codeUnsupportedCompress int16 = 76
)

// TestC16EpochsForClients: our epoch is never below the log's, and never goes down.
func TestC16EpochsForClients(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Partitions[0].Epoch = 12
		tp.Partitions[0].Fill(50)
	})
	w.create()
	require.NoError(t, w.tryStart(topic))
	last := int32(-1)
	watch := func() {
		t.Helper()
		end := w.end(topic, 0)
		highest := int32(-1)
		if end > 0 {
			hs := headers(t, w.fetch(topic, 0, end-1, 0).RecordBatches)
			highest = hs[len(hs)-1].epoch
		}
		l, err := w.kadm().ListTopics(w.ctx, topic)
		require.NoError(t, err)
		e := l[topic].Partitions[0].LeaderEpoch
		require.GreaterOrEqual(t, e, highest)
		require.GreaterOrEqual(t, e, last)
		last = e
	}
	w.await(func() error {
		watch()
		return w.equal(topic, 0)
	})
	e, end := w.epochEnd(topic, 0, 12)
	require.Equal(t, []int64{12, 50}, []int64{int64(e), end})
	from := time.Now()
	cl := w.kgo(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(40).WithEpoch(12)}}))
	rs := cl.PollFetches(w.ctx)
	require.NoError(t, rs.Err())
	require.Equal(t, int64(40), rs.Records()[0].Offset)
	require.Less(t, time.Since(from), 5*time.Second)
	for range 13 {
		w.elect(topic, 1)
		w.await(func() error {
			watch()
			return w.equal(topic, 0)
		})
	}
	require.GreaterOrEqual(t, last, int32(25))
	e, end = w.epochEnd(topic, 0, 12)
	require.Equal(t, []int64{12, 50}, []int64{int64(e), end})
	require.Len(t, w.consume(topic, 40, 23), 23)
}

// TestC33D22D23ReadOnlyDoors: every door into a mirror topic, in every state that
// can be held; only STOPPED opens it.
func TestC33D22D23ReadOnlyDoors(t *testing.T) {
	for _, row := range []struct {
		state string
		enter func(w *world, topic string)
	}{
		{"MIRRORING", func(*world, string) {}},
		{"PAUSED", func(w *world, topic string) { w.pause(topic) }},
		{"FAILED", func(w *world, topic string) {
			w.part(topic, 0, func(p *stub.Partition) {
				p.Code = 6
				p.NoHint = true
			})
			w.src.Update(func(s *stub.State) { s.Topics[topic].Partitions[0].Leader = -1 })
			w.failed(topic, 0)
		}},
		{"EPOCH_FENCING", func(w *world, topic string) {
			w.src.Intercept(keyMetadata, func(*stub.Request) stub.Reply { return stub.Reply{Hang: true} })
			w.part(topic, 0, func(p *stub.Partition) {
				p.Epoch = 100
				p.Fill(1)
			})
			w.awaitState("EPOCH_FENCING", topic)
		}},
	} {
		t.Run(row.state, func(t *testing.T) {
			w := shared(t)
			topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(10) })
			w.mirrored(topic)
			row.enter(w, topic)
			w.doors(topic, 10)
			w.done(w.adm.StopMirrorTopics(w.ctx, w.mirror, []string{topic}))
			w.awaitState("STOPPED", topic)
			w.write(topic, "open", 11)
		})
	}
	t.Run("LOG_TRUNCATION", func(t *testing.T) {
		w := shared(t)
		var hangs atomic.Bool
		w.src.Update(func(s *stub.State) { s.Versions = stub.VersionsWithMirrors() })
		w.src.Intercept(keyDescribeMirrors, func(*stub.Request) stub.Reply { return stub.Reply{Hang: hangs.Load()} })
		topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(10) })
		w.mirrored(topic)
		w.stop(topic)
		w.write(topic, "open", 11)
		hangs.Store(true)
		// The start's own look at the source ends after a while; it refuses nothing.
		require.NoError(t, w.tryStart(topic))
		w.awaitState("LOG_TRUNCATION", topic)
		w.doors(topic, 12)
		w.stop(topic)
		w.write(topic, "open", -1)
	})
}

// doors tries every change of a mirror topic that a client can ask for.
func (w *world) doors(topic string, end int64) {
	t := w.t
	t.Helper()
	plainTopic := topic + "-u"
	_, err := w.kadm().CreateTopic(w.ctx, 1, 1, nil, plainTopic)
	require.NoError(t, err)
	id := [16]byte(w.topicID(topic))
	for version := int16(3); version <= 13; version++ {
		for _, acks := range []int16{1, -1} {
			req := produceRequest(acks, map[string][]byte{topic: plain("x")})
			if version >= 13 {
				req.Topics[0].Topic, req.Topics[0].TopicID = "", id
			}
			p := ask[*kmsg.ProduceResponse](w, req, version).Topics[0].Partitions[0]
			require.Equal(t, codePolicyViolation, p.ErrorCode, "produce v%d acks %d", version, acks)
			if version >= 8 {
				require.True(t, strings.HasPrefix(*p.ErrorMessage, "READ_ONLY_TOPIC: "), *p.ErrorMessage)
				require.Contains(t, *p.ErrorMessage, topic)
				require.Contains(t, *p.ErrorMessage, w.mirror)
			}
		}
	}
	c := dial(t, w.node.Bootstrap())
	require.NoError(t, c.send(produceRequest(0, map[string][]byte{topic: plain("x")})))
	_, err = c.receive()
	require.True(t, errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset"), "acks=0 closes the connection: %v", err)

	mixed := ask[*kmsg.ProduceResponse](w, produceRequest(-1, map[string][]byte{topic: plain("x"), plainTopic: plain("u")}), 9)
	for _, pt := range mixed.Topics {
		want := codePolicyViolation
		if pt.Topic == plainTopic {
			want = 0
		}
		require.Equal(t, want, pt.Partitions[0].ErrorCode, pt.Topic)
	}
	require.Equal(t, int64(1), w.end(plainTopic, 0))

	del := kmsg.NewPtrDeleteRecordsRequest()
	dt := kmsg.NewDeleteRecordsRequestTopic()
	dt.Topic = topic
	dt.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 5}}
	del.Topics, del.TimeoutMillis = append(del.Topics, dt), 5000
	require.Equal(t, codePolicyViolation, ask[*kmsg.DeleteRecordsResponse](w, del, 2).Topics[0].Partitions[0].ErrorCode)

	grow := kmsg.NewPtrCreatePartitionsRequest()
	gt := kmsg.NewCreatePartitionsRequestTopic()
	gt.Topic, gt.Count = topic, 3
	grow.Topics, grow.TimeoutMillis = append(grow.Topics, gt), 5000
	require.Equal(t, codePolicyViolation, ask[*kmsg.CreatePartitionsResponse](w, grow, 3).Topics[0].ErrorCode)

	name, _ := w.config(topic, "mirror.name")
	w.alterTopic(topic, "retention.ms", "123456789")
	for _, value := range []string{"other", ""} { // D23
		_, code, _ := w.alter(kmsg.ConfigResourceTypeTopic, topic, "mirror.name", value)
		require.Equal(t, codeInvalidConfig, code)
	}
	made := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic+"-made", 1, 1
	ct.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "mirror.name", Value: &w.mirror}}
	made.Topics = append(made.Topics, ct)
	require.Equal(t, codeInvalidConfig, ask[*kmsg.CreateTopicsResponse](w, made, 5).Topics[0].ErrorCode)

	whole := kmsg.NewPtrAlterConfigsRequest() // replaces what it doesn't name
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	r.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: new("987654321")}}
	whole.Resources = append(whole.Resources, r)
	require.Zero(t, ask[*kmsg.AlterConfigsResponse](w, whole, 2).Resources[0].ErrorCode)
	got, _ := w.config(topic, "mirror.name")
	require.Equal(t, name, got)
	whole.Resources[0].Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "mirror.name", Value: new("other")}}
	require.Equal(t, codeInvalidConfig, ask[*kmsg.AlterConfigsResponse](w, whole, 2).Resources[0].ErrorCode)
	got, _ = w.config(topic, "mirror.name")
	require.Equal(t, name, got)
	got, _ = w.config(topic, "retention.ms")
	require.Equal(t, "987654321", got)

	require.Equal(t, []int64{0, end}, []int64{w.begin(topic, 0), w.end(topic, 0)})
	require.Equal(t, 1, w.partitions(topic))
	require.NotEmpty(t, w.consume(topic, 0, 1), "reading works")
}

// TestC40ServerSession: only what changed comes again.
func TestC40ServerSession(t *testing.T) {
	w := shared(t)
	var topics []string
	for _, n := range []string{"a", "b", "c"} {
		topic := w.mirror + "-" + n
		_, err := w.kadm().CreateTopic(w.ctx, 1, 1, nil, topic)
		require.NoError(t, err)
		w.write(topic, "first", 0)
		topics = append(topics, topic)
	}
	c := dial(t, w.node.Bootstrap())
	fetch := func(id, epoch int32, change func(*kmsg.FetchRequest)) (*kmsg.FetchResponse, []string) {
		t.Helper()
		req := fetchRequest("", 0, 0)
		req.Topics, req.SessionID, req.SessionEpoch, req.MinBytes = nil, id, epoch, 0
		if change != nil {
			change(req)
		}
		resp, err := c.ask(req)
		require.NoError(t, err)
		r := resp.(*kmsg.FetchResponse)
		var names []string
		for _, ft := range r.Topics {
			names = append(names, ft.Topic)
		}
		return r, names
	}
	r, names := fetch(0, 0, func(req *kmsg.FetchRequest) {
		for _, topic := range topics {
			req.Topics = append(req.Topics, fetchTopic(topic, 0, 1))
		}
	})
	require.Zero(t, r.ErrorCode)
	if r.SessionID == 0 {
		return // no sessions kept: right as well
	}
	id := r.SessionID
	require.Len(t, names, 3)
	r, names = fetch(id, 1, nil)
	require.Equal(t, id, r.SessionID)
	require.Empty(t, names, "nothing changed")
	w.write(topics[1], "second", 1)
	_, names = fetch(id, 2, nil)
	require.Equal(t, topics[1:2], names)
	_, names = fetch(id, 3, func(req *kmsg.FetchRequest) {
		req.Topics = append(req.Topics, fetchTopic(topics[1], 0, 2))
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.Partitions = topics[2], []int32{0}
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	})
	require.NotContains(t, names, topics[2])
	w.write(topics[2], "unseen", 1)
	w.write(topics[0], "seen", 1)
	_, names = fetch(id, 4, nil)
	require.Equal(t, topics[:1], names)
	r, _ = fetch(id, 2, nil)
	require.Equal(t, codeSessionEpoch, r.ErrorCode)
	r, _ = fetch(id+1_000_000, 1, nil)
	require.Equal(t, codeSessionNotFound, r.ErrorCode)
}

// TestC43APIVersionsTooNew: answered in the oldest layout on a live connection.
func TestC43APIVersionsTooNew(t *testing.T) {
	w := shared(t)
	c := dial(t, w.node.Bootstrap())
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 127, "x", "1"
	require.NoError(t, c.send(req))
	b, err := c.receive()
	require.NoError(t, err)
	resp := kmsg.NewPtrApiVersionsResponse()
	require.NoError(t, resp.ReadFrom(b))
	require.Equal(t, codeUnsupportedVersion, resp.ErrorCode)
	require.True(t, slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == keyAPIVersions && k.MaxVersion >= 3 }))
	req.Version = 0
	again, err := c.ask(req)
	require.NoError(t, err)
	require.Zero(t, again.(*kmsg.ApiVersionsResponse).ErrorCode)
}

// TestC43Zstd: a zstd topic refuses old fetchers, a zstd batch in a producer's
// topic doesn't change.
func TestC43Zstd(t *testing.T) {
	w := shared(t)
	for _, row := range []struct {
		compression string
		old         int16
		want        int16
	}{{"zstd", 9, codeUnsupportedCompress}, {"producer", 4, 0}} {
		topic := w.mirror + "-" + row.compression
		_, err := w.kadm().CreateTopic(w.ctx, 1, 1, map[string]*string{"compression.type": new(row.compression)}, topic)
		require.NoError(t, err)
		cl := w.kgo(kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.DefaultProduceTopic(topic))
		require.NoError(t, cl.ProduceSync(w.ctx, kgo.StringRecord(strings.Repeat("value ", 500))).FirstErr())
		newer := ask[*kmsg.FetchResponse](w, fetchRequest(topic, 0, 0), 10).Topics[0].Partitions[0]
		require.Zero(t, newer.ErrorCode)
		require.Equal(t, int16(4), headers(t, newer.RecordBatches)[0].attrs&7)
		older := ask[*kmsg.FetchResponse](w, fetchRequest(topic, 0, 0), row.old).Topics[0].Partitions[0]
		require.Equal(t, row.want, older.ErrorCode)
		if row.want == 0 {
			require.Equal(t, newer.RecordBatches, older.RecordBatches)
		} else {
			require.Empty(t, older.RecordBatches)
		}
	}
}

// TestC43EveryAdvertisedVersion: none is answered with a closed connection.
func TestC43EveryAdvertisedVersion(t *testing.T) {
	w := shared(t)
	list := ask[*kmsg.ApiVersionsResponse](w, kmsg.NewPtrApiVersionsRequest(), 0)
	require.NotEmpty(t, list.ApiKeys)
	for _, k := range list.ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			req := kmsg.RequestForKey(k.ApiKey)
			if req == nil {
				req = wire.RequestForKey(k.ApiKey)
			}
			require.NotNil(t, req, "key %d", k.ApiKey)
			req.SetVersion(v)
			if p, ok := req.(*kmsg.ProduceRequest); ok {
				p.Acks = -1
			}
			c := dial(t, w.node.Bootstrap())
			_, err := c.ask(req)
			require.NoError(t, err, "%s v%d", kmsg.NameForKey(k.ApiKey), v)
			_ = c.c.Close()
		}
	}
}

// TestC45aOwnCluster: a mirror of ourselves under another name.
func TestC45aOwnCluster(t *testing.T) {
	w := shared(t)
	topic := w.mirror + "-t"
	_, err := w.kadm().CreateTopic(w.ctx, 1, 1, nil, topic)
	require.NoError(t, err)
	w.write(topic, "ours", 0)
	own := strings.Replace(w.node.Bootstrap(), "127.0.0.1", "localhost", 1)
	require.NoError(t, w.tryCreate(w.mirror, "bootstrap.servers="+own))
	res, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, []string{topic}, client.StartOptions{
		TopicMetadata: map[string]client.TopicMetadata{topic: {ID: w.topicID(topic), Partitions: 1}},
	})
	require.NoError(t, err)
	require.ErrorIs(t, res.Err(), kerr.InvalidRequest)
	require.Equal(t, int64(1), w.end(topic, 0))
	w.write(topic, "still ours", 1)
	// By a pattern neither.
	res, err = w.adm.StartMirrorTopics(w.ctx, w.mirror, nil, client.StartOptions{IncludePatterns: []string{w.mirror + ".*"}})
	require.NoError(t, err)
	require.NoError(t, res.Err())
	w.write(topic, "still ours", 2)
	require.NoError(t, w.adm.DeleteClusterMirror(w.ctx, w.mirror))
	w.write(topic, "still ours", 3)
}

// TestC45bLoop: A -> B runs, B -> A is refused for the same topic.
func TestC45bLoop(t *testing.T) {
	b := shared(t)
	a := &world{t: t, ctx: b.ctx, node: e2e.StartNode(t, e2e.NodeOptions{Properties: nodeProperties()}), mirror: b.mirror}
	var err error
	a.adm, err = a.node.Admin()
	require.NoError(t, err)
	t.Cleanup(a.adm.Close)
	topic := b.mirror + "-t"
	_, err = a.kadm().CreateTopic(a.ctx, 1, 1, nil, topic)
	require.NoError(t, err)
	a.write(topic, "one", 0)
	meta := map[string]client.TopicMetadata{topic: {ID: a.topicID(topic), Partitions: 1}}

	require.NoError(t, b.tryCreate(b.mirror, "bootstrap.servers="+a.node.Bootstrap()))
	res, err := b.adm.StartMirrorTopics(b.ctx, b.mirror, []string{topic}, client.StartOptions{TopicMetadata: meta})
	b.done(res, err)
	b.awaitState("MIRRORING", topic)
	b.awaitEnd(topic, 0, 1)

	require.NoError(t, a.adm.CreateClusterMirror(a.ctx, a.mirror, map[string]*string{"bootstrap.servers": new(b.node.Bootstrap())}))
	res, err = a.adm.StartMirrorTopics(a.ctx, a.mirror, []string{topic}, client.StartOptions{TopicMetadata: meta})
	require.NoError(t, err)
	require.ErrorIs(t, res.Err(), kerr.InvalidRequest)
	a.write(topic, "two", 1)
	b.awaitEnd(topic, 0, 2)
	require.Equal(t, a.bytes(topic, 0), b.bytes(topic, 0), "no record twice")
	b.stop(topic)
}

// TestC45cInternalTopics: ".*" takes what isn't the source's own.
func TestC45cInternalTopics(t *testing.T) {
	w := owned(t)
	for _, n := range []string{"__consumer_offsets", "__transaction_state", "__mirror_state", "__anything", "_schemas", "t"} {
		w.named(n, 1, func(tp *stub.Topic) {
			tp.Internal = n == "__consumer_offsets" || n == "__transaction_state"
			tp.Partitions[0].Fill(2)
		})
	}
	w.create()
	res, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, nil, client.StartOptions{IncludePatterns: []string{".*"}})
	w.done(res, err)
	w.await(func() error {
		if here := w.topicsHere(); !slices.Contains(here, "t") || !slices.Contains(here, "_schemas") {
			return fmt.Errorf("%v", here)
		}
		return nil
	})
	w.awaitState("MIRRORING", "t", "_schemas")
	w.refreshes(2)
	ps, err := e2e.Partitions(w.ctx, w.adm, w.mirror)
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.ErrorIs(t, w.tryStart("__anything"), kerr.InvalidRequest)
}

// TestC45dTwoClaims: the second mirror is refused, by name and by pattern.
func TestC45dTwoClaims(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(2) })
	w.mirrored(topic)
	second := w.sub(t)
	second.mirror = w.mirror + "-second"
	second.src = source(t, stub.Options{ClusterID: "another"})
	second.named(topic, 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(7) })
	second.create()
	require.ErrorIs(t, second.tryStart(topic), messages.ErrTopicInMirror)
	res, err := second.adm.StartMirrorTopics(w.ctx, second.mirror, nil, client.StartOptions{IncludePatterns: []string{topic}})
	second.done(res, err)
	second.refreshes(2)
	name, _ := w.config(topic, "mirror.name")
	require.Equal(t, w.mirror, name)
	require.Equal(t, int64(2), w.end(topic, 0))
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(1) })
	w.awaitEqual(topic)
}

// TestC45eBadPatterns: refused at once, existing mirrors untouched.
func TestC45eBadPatterns(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(2) })
	w.mirrored(topic)
	long := strings.Repeat("x", 40_000)
	for _, bad := range []string{"(", long} {
		require.ErrorIs(t, w.tryCreate(w.mirror+"-bad", "mirror.topics.include="+bad), kerr.InvalidConfig)
		_, code, _ := w.alter(resourceMirror, w.mirror, "mirror.topics.include", bad)
		require.Equal(t, codeInvalidConfig, code)
		_, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, nil, client.StartOptions{IncludePatterns: []string{bad}})
		require.Error(t, err)
		_, err = w.adm.StopMirrorTopics(w.ctx, w.mirror, nil, bad)
		require.Error(t, err)
	}
	_, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, nil, client.StartOptions{IncludePatterns: []string{"("}})
	require.ErrorIs(t, err, kerr.InvalidRegularExpression)
	require.Empty(t, w.mirrorConfig("mirror.topics.include"))
	w.part(topic, 0, func(p *stub.Partition) { p.Fill(1) })
	w.awaitEqual(topic)
	list, err := w.adm.ListClusterMirrors(w.ctx)
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(list, func(m client.ListedMirror) bool { return m.Name == w.mirror+"-bad" }))
}
