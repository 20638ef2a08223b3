package cases

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

const (
	codeOffsetOutOfRange int16 = 1
	codeInvalidTopic     int16 = 17
	codeTooLarge         int16 = 10
	codePolicyViolation  int16 = 44

	keyMetadata = 3
)

// TestC07CompactionHoles: holes between batches, batches whose last record is
// gone, and an empty batch that only remembers the end.
func TestC07CompactionHoles(t *testing.T) {
	w := owned(t)
	one := func(base int64) []byte {
		return stub.Build(stub.Spec{Base: base, Records: []stub.Record{{Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", base)}}})
	}
	empty := stub.Build(stub.Spec{Base: 8, LastOffsetDelta: 4, Payload: []byte{}, Producer: true, ProducerID: 7, BaseSequence: 12})
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Configs["cleanup.policy"] = "compact"
		tp.Partitions[0].Put(one(0), one(2),
			stub.Build(stub.Spec{Base: 4, LastOffsetDelta: 3, Records: []stub.Record{{Value: []byte("a")}, {OffsetDelta: 1, Value: []byte("b")}}}), empty)
	})
	w.mirrored(topic)
	check := func() {
		require.Equal(t, int64(13), w.end(topic, 0))
		p := w.fetch(topic, 0, 0, 0)
		require.Equal(t, int64(13), p.HighWatermark)
		require.Equal(t, int64(2), headers(t, w.fetch(topic, 0, 1, 0).RecordBatches)[0].base)
		require.Contains(t, []int64{4, 8}, headers(t, w.fetch(topic, 0, 6, 0).RecordBatches)[0].base)
		require.Equal(t, empty, w.fetch(topic, 0, 8, 0).RecordBatches)
	}
	check()
	w.restart()
	w.awaitState("MIRRORING", topic)
	check()
	w.part(topic, 0, func(p *stub.Partition) { p.Put(one(13)) })
	w.awaitEnd(topic, 0, 14)
	w.awaitEqual(topic)
	require.Equal(t, []int64{0, 2, 4, 5, 13}, offsets(w.consume(topic, 0, 5)))
	w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.Lag == 0 && p.DestinationOffset == 14 })
}

// TestC10TrimBelowResumePoint: a small trim after the fetcher was made anew.
func TestC10TrimBelowResumePoint(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3382) })
	w.mirrored(topic)
	w.pause(topic)
	w.resume(topic) // a new fetcher
	w.part(topic, 0, func(p *stub.Partition) { p.Trim(1000) })
	w.await(func() error {
		if s := w.begin(topic, 0); s != 1000 {
			return fmt.Errorf("start %d", s)
		}
		return nil
	})
	require.Equal(t, int64(3382), w.end(topic, 0))
	require.Equal(t, int64(1000), headers(t, w.fetch(topic, 0, 1000, 0).RecordBatches)[0].base)
	require.Equal(t, codeOffsetOutOfRange, w.fetch(topic, 0, 999, 0).ErrorCode)
	require.Len(t, headers(t, w.bytes(topic, 0)), 2382)
	require.NoError(t, w.equal(topic, 0))
}

// TestC11TopicMadeAnew: nothing of the new topic comes into ours.
func TestC11TopicMadeAnew(t *testing.T) {
	for _, row := range []struct {
		name string
		n    int
	}{{"more records", 15}, {"fewer records", 5}} {
		t.Run(row.name, func(t *testing.T) {
			w := shared(t)
			topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(10) })
			other := w.topic("other", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(3) })
			w.groupCommits(topic, 0, 6)
			w.mirrored(topic, other)
			w.awaitGroup(topic, 0, 6)
			var oldID, newID messages.TopicID
			w.src.Update(func(s *stub.State) {
				oldID = s.Topics[topic].ID
				delete(s.Topics, topic)
				n := s.NewTopic(topic, messages.NewTopicID(), 1)
				n.Partitions[0].Fill(row.n)
				newID = n.ID
			})
			w.groupCommits(topic, 0, 12)
			w.groupCommits(other, 0, 2)
			w.failed(topic, 0, oldID.String(), newID.String())
			before := len(w.src.Seen())
			w.refreshes(3)
			require.Less(t, len(w.src.Seen())-before, 100, "requests in three refresh intervals")
			w.failed(topic, 0, oldID.String(), newID.String())
			require.Equal(t, int64(10), w.end(topic, 0))
			w.awaitGroup(other, 0, 2)
			require.Equal(t, int64(6), w.groupAt(topic, 0))
			list, err := w.kadm().ListTopics(w.ctx, topic)
			require.NoError(t, err)
			require.Equal(t, oldID, messages.TopicID(list[topic].ID))
			require.NotZero(t, w.produce(topic, plain("x")).ErrorCode, "still read-only")
			w.part(other, 0, func(p *stub.Partition) { p.Fill(4) })
			w.awaitEnd(other, 0, 7)
		})
	}
}

// refreshes waits for n more whole refresh cycles of the mirror.
func (w *world) refreshes(n int) {
	w.t.Helper()
	count := func() int {
		return len(w.src.Seen(keyMetadata))
	}
	want := count() + n + 1
	w.await(func() error {
		if c := count(); c < want {
			return fmt.Errorf("%d of %d refreshes", c, want)
		}
		return nil
	})
}

// TestC12U13RetentionOvertakesPause: the gap is followed, and told.
func TestC12U13RetentionOvertakesPause(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { tp.Partitions[0].Fill(50) })
	w.groupCommits(topic, 0, 30)
	w.mirrored(topic)
	w.awaitGroup(topic, 0, 30)
	w.pause(topic)
	w.part(topic, 0, func(p *stub.Partition) {
		p.Fill(100)
		p.Trim(100)
	})
	w.resume(topic)
	w.awaitEqual(topic)
	w.awaitGroup(topic, 0, 100)
	require.Equal(t, int64(100), w.begin(topic, 0))
	require.Equal(t, int64(150), w.end(topic, 0))
	require.Equal(t, codeOffsetOutOfRange, w.fetch(topic, 0, 20, 0).ErrorCode)
	require.Equal(t, codeOffsetOutOfRange, w.fetch(topic, 0, 70, 0).ErrorCode)
	p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.GapTo >= 0 })
	require.Equal(t, int64(50), p.GapFrom)
	require.Contains(t, []int64{99, 100}, p.GapTo)
}

// TestC13TwoFastElections: KIP-279's naive cut point.
func TestC13TwoFastElections(t *testing.T) {
	w := shared(t)
	epoch := func(tp *stub.Partition, e int32, n int) {
		tp.Epoch = e
		tp.Fill(n)
	}
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.Configs["unclean.leader.election.enable"] = "true"
		epoch(tp.Partitions[0], 1, 20)
		epoch(tp.Partitions[0], 2, 5)
	})
	w.mirrored(topic)
	require.Equal(t, int64(25), w.end(topic, 0))
	w.pause(topic)
	w.part(topic, 0, func(p *stub.Partition) {
		p.Truncate(18)
		epoch(p, 3, 12)
	})
	w.resume(topic)
	w.awaitEqual(topic)
	for _, h := range headers(t, w.bytes(topic, 0)) {
		want := int32(1)
		if h.base >= 18 {
			want = 3
		}
		require.Equal(t, want, h.epoch, "offset %d", h.base)
	}
	for _, row := range []struct {
		ask, epoch int32
		end        int64
	}{{1, 1, 18}, {2, 1, 18}, {3, 3, 30}} {
		e, end := w.epochEnd(topic, 0, row.ask)
		require.Equal(t, row.epoch, e, "epoch %d", row.ask)
		require.Equal(t, row.end, end, "epoch %d", row.ask)
	}
	p := w.look(topic, 0)
	require.Equal(t, int64(7), p.CutRecords)
	require.Equal(t, []int64{18, 25}, []int64{p.CutFrom, p.CutTo})
}

// epochEnd is OffsetForLeaderEpoch.
func (w *world) epochEnd(topic string, partition, epoch int32) (int32, int64) {
	w.t.Helper()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch = partition, epoch, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	a := ask[*kmsg.OffsetForLeaderEpochResponse](w, req, 4).Topics[0].Partitions[0]
	require.Zero(w.t, a.ErrorCode)
	return a.LeaderEpoch, a.EndOffset
}

// TestC15OffsetsReused: cut and refill twice, each followed by a restart.
func TestC15OffsetsReused(t *testing.T) {
	w := owned(t)
	fill := func(p *stub.Partition, epoch int32, to int64) {
		p.Epoch = epoch
		for p.End() < to {
			p.Put(stub.Build(stub.Spec{
				Base: p.End(), Epoch: epoch, Timestamp: int64(epoch)*1_000_000 + p.End(), Producer: true, ProducerID: int64(epoch), BaseSequence: int32(p.End()),
				Records: []stub.Record{{Value: fmt.Appendf(nil, "%d-%d", epoch, p.End())}},
			}))
		}
	}
	topic := w.topic("t", 1, func(tp *stub.Topic) { fill(tp.Partitions[0], 1, 25) })
	w.mirrored(topic)
	refill := func(cut int64, epoch int32, to int64) {
		w.pause(topic)
		w.part(topic, 0, func(p *stub.Partition) {
			p.Truncate(cut)
			fill(p, epoch, to)
		})
		w.resume(topic)
		w.awaitEqual(topic)
		w.restart()
		w.awaitState("MIRRORING", topic)
		require.NoError(t, w.equal(topic, 0))
		for _, h := range headers(t, w.bytes(topic, 0)) {
			p := w.fetch(topic, 0, h.base, 0)
			require.Equal(t, h.raw, headers(t, p.RecordBatches)[0].raw, "offset %d by itself", h.base)
			o := w.listOffset(topic, 0, int64(h.epoch)*1_000_000+h.base, 0)
			require.Equal(t, h.base, o.Offset, "by time")
		}
		var want []int64
		for i := range to {
			want = append(want, i)
		}
		require.Equal(t, want, offsets(w.consume(topic, 0, int(to))))
	}
	refill(18, 2, 30)
	refill(5, 3, 12)
	require.Equal(t, int64(-1), w.listOffset(topic, 0, 2_000_000+29, 0).Offset-w.listOffset(topic, 0, 3_000_000+5, 0).Offset-1, "no old time is reachable")
	e, end := w.epochEnd(topic, 0, 2)
	require.Equal(t, []int64{1, 5}, []int64{int64(e), end}, "nothing is left of epoch 2")
}

// TestC25Timestamps: times are the source's, whatever they say.
func TestC25Timestamps(t *testing.T) {
	w := shared(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		p := tp.Partitions[0]
		p.Put(brokerTime(),
			stub.Build(stub.Spec{Base: 3, Timestamp: 1, Records: []stub.Record{{Value: []byte("1970")}}}),
			stub.Build(stub.Spec{Base: 4, Timestamp: 4102444800000, Records: []stub.Record{{Value: []byte("2100")}}}),
			stub.Build(stub.Spec{Base: 5, Timestamp: -1, Records: []stub.Record{{Value: []byte("none")}}}))
	})
	// The topic is here already, as a stopped member would be, with limits of its own.
	w.create()
	w.start(topic)
	w.alterTopic(topic, "message.timestamp.before.max.ms", "3600000")
	w.alterTopic(topic, "message.timestamp.after.max.ms", "3600000")
	w.part(topic, 0, func(p *stub.Partition) {
		p.Put(stub.Build(stub.Spec{Base: 6, Timestamp: 1, Records: []stub.Record{{Value: []byte("1970 again")}}}))
	})
	w.awaitEqual(topic)
	for _, row := range []struct {
		ask, offset, time int64
	}{{1500, 0, 5000}, {5001, 4, 4102444800000}, {9999999999999, -1, -1}, {maxTime, 4, 4102444800000}} {
		o := w.listOffset(topic, 0, row.ask, 0)
		require.Zero(t, o.ErrorCode)
		require.Equal(t, []int64{row.offset, row.time}, []int64{o.Offset, o.Timestamp}, "ask %d", row.ask)
	}
	require.Zero(t, w.begin(topic, 0))
}

// brokerTime is a batch of three records with deltas 0, 1, 2 from base time 1000,
// whose broker said 5000.
func brokerTime() []byte {
	payload := []byte{}
	for i := range byte(3) {
		payload = append(payload, 14, 0, i*2, i*2, 1, 2, 'v', 0)
	}
	b := stub.Build(stub.Spec{Payload: payload, Count: 3, LastOffsetDelta: 2, LogAppendTime: true, Timestamp: 1000})
	copy(b[35:43], []byte{0, 0, 0, 0, 0, 0, 5000 >> 8, 5000 & 255})
	return stub.Seal(b)
}

func (w *world) alterTopic(topic, key, value string) {
	w.t.Helper()
	_, code, msg := w.alter(kmsg.ConfigResourceTypeTopic, topic, key, value)
	require.Zero(w.t, code, msg)
}

// alter sets one config by IncrementalAlterConfigs.
func (w *world) alter(kind kmsg.ConfigResourceType, name, key, value string) (*kmsg.IncrementalAlterConfigsResponse, int16, string) {
	w.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, kmsg.IncrementalAlterConfigOpSet, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp := ask[*kmsg.IncrementalAlterConfigsResponse](w, req, 1)
	msg := ""
	if m := resp.Resources[0].ErrorMessage; m != nil {
		msg = *m
	}
	return resp, resp.Resources[0].ErrorCode, msg
}

// TestC26HugeBatches: larger than every limit on the way.
func TestC26HugeBatches(t *testing.T) {
	w := owned(t, "replica.fetch.max.bytes=1048576")
	random := func(n int) []byte {
		b := make([]byte, n)
		_, err := rand.Read(b)
		require.NoError(t, err)
		return b
	}
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		for i, n := range []int{3_000_000, 10, 9_000_000} {
			tp.Partitions[0].Put(stub.Build(stub.Spec{Base: int64(i), Records: []stub.Record{{Value: random(n)}}}))
		}
	})
	w.src.Update(func(s *stub.State) { s.CutOffTails = true })
	w.mirrored(topic)
	require.Equal(t, int64(3), w.end(topic, 0))
	rs := w.consume(topic, 0, 3, kgo.FetchMaxBytes(1024), kgo.FetchMaxPartitionBytes(1024), kgo.BrokerMaxReadBytes(64<<20))
	require.Equal(t, []int64{0, 1, 2}, offsets(rs))
	require.Len(t, rs[2].Value, 9_000_000)

	_, err := w.kadm().CreateTopic(w.ctx, 1, 1, nil, "ordinary")
	require.NoError(t, err)
	require.Equal(t, codeTooLarge, w.produce("ordinary", plain(string(random(3_000_000)))).ErrorCode)
	require.Zero(t, w.end("ordinary", 0))
}

// TestC27CollidingNames: every topic has its own records, whatever its name.
func TestC27CollidingNames(t *testing.T) {
	w := owned(t)
	long := strings.Repeat("n", 248)
	counts := map[string]int{"a.b": 2, "a_b": 1, "a-b": 1, "A.B": 1, "a..b": 1, long + "1": 1, long + "2": 1}
	var names []string
	for name, n := range counts {
		names = append(names, name)
		w.named(name, 1, func(tp *stub.Topic) {
			for i := range n {
				tp.Partitions[0].Put(stub.Build(stub.Spec{Base: int64(i), Records: []stub.Record{{Value: fmt.Appendf(nil, "%s %d", name, i)}}}))
			}
		})
	}
	w.mirrored(names...)
	check := func() {
		t.Helper()
		list, err := w.kadm().ListTopics(w.ctx)
		require.NoError(t, err)
		for name, n := range counts {
			require.True(t, list.Has(name), name)
			require.Equal(t, int64(n), w.end(name, 0), name)
			require.NoError(t, w.equal(name, 0))
		}
	}
	check()
	_, err := w.kadm().DeleteTopic(w.ctx, "a_b")
	require.NoError(t, err)
	w.src.Update(func(s *stub.State) { delete(s.Topics, "a_b") })
	delete(counts, "a_b")
	check()
	w.restart()
	check()
	for _, bad := range []string{".", "..", strings.Repeat("n", 250)} {
		req := kmsg.NewPtrCreateTopicsRequest()
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = bad, 1, 1
		req.Topics = append(req.Topics, ct)
		require.Equal(t, codeInvalidTopic, ask[*kmsg.CreateTopicsResponse](w, req, 5).Topics[0].ErrorCode, bad)
		res, err := w.adm.StartMirrorTopics(w.ctx, w.mirror, []string{bad}, client.StartOptions{
			TopicMetadata: map[string]client.TopicMetadata{bad: {ID: messages.NewTopicID(), Partitions: 1}},
		})
		require.NoError(t, err)
		require.Error(t, res.Err(), bad)
	}
}

// TestC30ByteIdentity: bytes that nobody here may decode and encode again.
func TestC30ByteIdentity(t *testing.T) {
	w := shared(t)
	nulls := []stub.Record{
		{Key: nil, Value: []byte("v")}, {Key: []byte{}, Value: []byte("v")}, {Key: []byte("k"), Value: nil}, {Key: []byte("k"), Value: []byte{}},
		{Value: []byte("h"), Headers: []stub.Header{{Key: "a", Value: nil}, {Key: "b", Value: []byte{}}, {Key: "a", Value: []byte("2")}}},
	}
	// Not even valid compression: what isn't opened can't fail.
	xerial := func(order []byte) []byte {
		b := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, order...)
		return append(b, bytes.Repeat([]byte{7}, 40)...)
	}
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		p := tp.Partitions[0]
		p.Epoch = 9
		add := func(s stub.Spec) {
			s.Base, s.Epoch = p.End(), 9
			p.Put(stub.Build(s))
		}
		add(stub.Spec{Records: nulls})
		add(stub.Spec{Codec: 2, Payload: xerial([]byte{0, 0, 0, 1, 0, 0, 0, 1}), Count: 2, LastOffsetDelta: 1})
		add(stub.Spec{Codec: 2, Payload: xerial([]byte{1, 0, 0, 0, 1, 0, 0, 0}), Count: 2, LastOffsetDelta: 1})
		add(stub.Spec{Codec: 2, Payload: bytes.Repeat([]byte{3}, 30), Count: 1})
		for codec := range int16(5) {
			add(stub.Spec{Codec: codec, Payload: bytes.Repeat([]byte{byte(codec), 9, 200}, 30), Count: 3, LastOffsetDelta: 2})
		}
	})
	w.mirrored(topic)
	for _, h := range headers(t, w.bytes(topic, 0)) {
		require.Equal(t, int32(9), h.epoch)
	}
	require.Equal(t, "MIRRORING", w.look(topic, 0).State)
}
