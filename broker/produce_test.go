package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

func produceOne(tb testing.TB, c *rawConn, req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	tb.Helper()
	resp := c.call(req).(*kmsg.ProduceResponse)
	require.Len(tb, resp.Topics, 1)
	return resp.Topics[0].Partitions[0]
}

func idempotent(pid int64, epoch int16, sequence int32, attributes int16, values ...string) []byte {
	props := batch.Plain()
	props.ProducerID, props.ProducerEpoch, props.BaseSequence, props.Attributes = pid, epoch, sequence, attributes
	var records []batch.Record
	for _, v := range values {
		records = append(records, batch.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(v)})
	}
	return batch.Append(nil, props, records...)
}

func changed(b []byte, f func(b []byte)) []byte { f(b); return b }

func sound(b []byte, f func(b []byte)) []byte { f(b); stampCRC(b); return b }

func TestProduceRefusals(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	w.topic("compact", 1, map[string]string{"cleanup.policy": "compact"})
	w.topic("strict", 1, map[string]string{"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"})
	w.topic("safe", 1, map[string]string{"min.insync.replicas": "2"})
	w.topic("broker time", 1, map[string]string{"message.timestamp.before.max.ms": "1000", "message.timestamp.type": "LogAppendTime"})
	w.topic("small", 1, map[string]string{"max.message.bytes": "2000"})
	w.topic("small, opened", 1, map[string]string{"max.message.bytes": "2000", "compression.type": "uncompressed"})
	w.topic("both", 1, map[string]string{"cleanup.policy": "compact,delete"})
	w.topic(messages.MirrorStateTopic, 1, nil)
	w.topic("denied", 1, nil)
	w.deny = func(_ messages.Requester, op Operation, on Resource) bool {
		return op == OpWrite && on.Name == "denied"
	}
	c := w.dial()
	noKey := batch.Append(nil, batch.Plain(), batch.Record{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
	old := batch.Append(nil, batch.Plain(), batch.Record{Timestamp: 1, Value: []byte("v")})
	early := batch.Append(nil, batch.Plain(), batch.Record{Timestamp: time.Now().Add(2 * time.Hour).UnixMilli(), Value: []byte("v")})
	large := oneBatch(strings.Repeat("large ", 1000))
	h, err := batch.ParseHeader(large)
	require.NoError(t, err)
	packed, err := recompress(large, h, compression{codec: batch.CodecGzip, level: 9})
	require.NoError(t, err)
	require.Less(t, len(packed), 500)
	for _, row := range []struct {
		name    string
		version int16
		acks    int16
		topic   string
		records []byte
		want    int16
	}{
		{"good", 9, 1, "t", oneBatch("v"), 0},
		{"good, all", 9, -1, "t", oneBatch("v", "w"), 0},
		{"bad acks", 9, 2, "t", oneBatch("v"), 21},
		{"not enough replicas", 9, -1, "safe", oneBatch("v"), 19},
		{"enough for acks 1", 9, 1, "safe", oneBatch("v"), 0},
		{"no batch", 9, 1, "t", []byte{}, 87},
		{"cut off", 9, 1, "t", oneBatch("value")[:70], 87},
		{"CRC", 9, 1, "t", changed(oneBatch("v"), func(b []byte) { b[len(b)-1] ^= 1 }), 2},
		{"magic 1", 9, 1, "t", changed(oneBatch("v"), func(b []byte) { b[16] = 1 }), 87},
		{"two batches", 9, 1, "t", append(oneBatch("v"), oneBatch("w")...), 87},
		{"negative length", 9, 1, "t", changed(oneBatch("v"), func(b []byte) { b[8] = 0x80 }), 2},
		{"count is not delta + 1", 9, 1, "t", sound(oneBatch("v"), func(b []byte) { setDelta(b, 5) }), 87},
		{"more records than bytes", 9, 1, "t", sound(oneBatch("v"), func(b []byte) { setDelta(b, 999); copy(b[57:], []byte{0, 0, 3, 0xe8}) }), 2},
		{"no records", 9, 1, "t", changed(oneBatch("v")[:61], func(b []byte) { setEmpty(b, 0) }), 87},
		{"garbage records", 9, 1, "t", sound(oneBatch("v"), func(b []byte) { b[61] = 0x7f }), 2},
		{"gzip that isn't", 9, 1, "t", sound(oneBatch("v"), func(b []byte) { b[22] |= 1 }), 2},
		{"unknown codec", 9, 1, "t", sound(oneBatch("v"), func(b []byte) { b[22] |= 7 }), 76},
		{"zstd below v7", 6, 1, "t", sound(oneBatch("v"), func(b []byte) { b[22] |= 4 }), 76},
		{"control batch", 9, 1, "t", batch.AbortMarker(1, 0, 0, 1), 87},
		{"transactional batch without an id", 9, 1, "t", idempotent(1, 0, 0, batch.AttrTransactional, "v"), 53},
		{"producer without sequence", 9, 1, "t", idempotent(1, 0, -1, 0, "v"), 87},
		{"log append time by client", 9, 1, "t", sound(oneBatch("v"), func(b []byte) { b[22] |= batch.AttrLogAppendTime }), 32},
		{"C26 3 MB, default limit", 9, 1, "t", oneBatch(string(make([]byte, 3_000_000))), 10},
		{"no key on compacted topic", 9, 1, "compact", noKey, 87},
		{"key on compacted topic", 9, 1, "compact", oneBatch("v"), 0},
		{"too old", 9, 1, "strict", old, 32},
		{"old is fine by default", 9, 1, "t", old, 0},
		{"old is fine with the broker's time", 9, 1, "broker time", old, 0},
		{"two hours early, default limit of one", 9, 1, "t", early, 32},
		{"max.message.bytes of the topic", 9, 1, "small", large, 10},
		{"small as it comes", 9, 1, "small", packed, 0},
		{"small as it comes, not as it is stored", 9, 1, "small, opened", packed, 10},
		{"no key, compacted and deleted", 9, 1, "both", noKey, 87},
		{"internal topic", 9, 1, messages.MirrorStateTopic, oneBatch("v"), 17},
		{"unknown topic", 9, 1, "nope", oneBatch("v"), 3},
		{"no right", 9, 1, "denied", oneBatch("v"), 29},
		{"v2 and older", 2, 1, "t", oneBatch("v"), 43},
		{"unknown id", 13, 1, "t", oneBatch("v"), 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := produceOne(t, c, produceRequest(row.version, row.acks, row.topic, messages.NewTopicID(), 0, row.records))
			require.Equal(t, row.want, got.ErrorCode)
			if row.want != 0 {
				require.Equal(t, int64(-1), got.BaseOffset)
			}
		})
	}
}

// TestC26LargeBatchByTopicLimit: where max.message.bytes allows it, 17 MB go in
// and come out.
func TestC26LargeBatchByTopicLimit(t *testing.T) {
	w := newWorld(t, onDisk)
	w.topic("t", 1, map[string]string{"max.message.bytes": "20000000"})
	c := w.dial()
	b := oneBatch(string(make([]byte, 17_000_000)))
	require.Zero(t, produceOne(t, c, produceRequest(9, -1, "t", messages.TopicID{}, 0, b)).ErrorCode)
	got := onlyPart(t, c.call(fetchRequest(12, fetchPart{"t", messages.TopicID{}, 0, 0}))).RecordBatches
	require.Equal(t, b, got)
}

// TestProduceIdempotent: a repeat is acked at the offset it has, a gap refused.
func TestProduceIdempotent(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	c := w.dial()
	for _, row := range []struct {
		name     string
		epoch    int16
		sequence int32
		values   []string
		want     int16
		offset   int64
	}{
		{"first", 0, 0, []string{"a", "b"}, 0, 0},
		{"second", 0, 2, []string{"c"}, 0, 2},
		{"second again", 0, 2, []string{"c"}, 0, 2},
		{"gap", 0, 9, []string{"d"}, 45, -1},
		{"third", 0, 3, []string{"d"}, 0, 3},
		{"old epoch", -1, 4, []string{"e"}, 87, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := produceOne(t, c, produceRequest(9, -1, "t", messages.TopicID{}, 0, idempotent(77, row.epoch, row.sequence, 0, row.values...)))
			require.Equal(t, row.want, got.ErrorCode)
			require.Equal(t, row.offset, got.BaseOffset)
		})
	}
	require.Equal(t, int64(4), w.part("t", 0).log.End())
}

func TestProduceLogAppendTime(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	c := w.dial()
	before := time.Now().UnixMilli()
	got := produceOne(t, c, produceRequest(9, -1, "t", messages.TopicID{}, 0, made(0, 0, "v")))
	require.Zero(t, got.ErrorCode)
	require.GreaterOrEqual(t, got.LogAppendTime, before)
	read := onlyPart(t, c.call(fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0}))).RecordBatches
	require.NoError(t, batch.CheckCRC(read))
	h, err := batch.ParseHeader(read)
	require.NoError(t, err)
	require.Equal(t, got.LogAppendTime, h.MaxTimestamp)
}

// TestC33ReadOnlyProduce: acks 0, 1 and all to a mirror topic, and one request
// with a mirror topic and an ordinary one.
func TestC33ReadOnlyProduce(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, map[string]string{"mirror.name": "m"})
	w.topic("u", 1, nil)
	w.states[messages.TopicPartition{Topic: "t"}] = messages.StateMirroring
	for i := range int64(10) {
		w.part("t", 0).mirror(t, made(i, 0, "v"))
	}
	w.part("t", 0).change(func(s *persistence.ReplicaState) { s.ReadOnly = true })
	c := w.dial()
	for v := int16(3); v <= 12; v++ {
		for _, acks := range []int16{1, -1} {
			got := produceOne(t, c, produceRequest(v, acks, "t", messages.TopicID{}, 0, oneBatch("v")))
			require.Equal(t, int16(44), got.ErrorCode)
			if v >= 8 {
				require.Regexp(t, `^READ_ONLY_TOPIC: .*topic t .*mirror m .*MIRRORING`, *got.ErrorMessage)
			}
		}
	}
	mixed := produceRequest(9, -1, "t", messages.TopicID{}, 0, oneBatch("v"))
	mixed.Topics = append(mixed.Topics, produceRequest(9, -1, "u", messages.TopicID{}, 0, oneBatch("v")).Topics...)
	resp := c.call(mixed).(*kmsg.ProduceResponse)
	require.Equal(t, []int16{44, 0}, []int16{resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode})
	require.Equal(t, int64(1), w.part("u", 0).log.End())

	// The gate that closes between our look and the append counts as well.
	w.part("t", 0).change(func(s *persistence.ReplicaState) { s.ReadOnly = false })
	w.part("t", 0).refuse = messages.ErrReadOnlyTopic
	require.Equal(t, int16(44), produceOne(t, c, produceRequest(9, -1, "t", messages.TopicID{}, 0, oneBatch("v"))).ErrorCode)

	c.send(produceRequest(9, 0, "t", messages.TopicID{}, 0, oneBatch("v")))
	c.requireClosed()
	require.Equal(t, int64(10), w.part("t", 0).log.End())

	// What a real client's user sees.
	cl := w.client(kgo.DefaultProduceTopic("t"))
	err := cl.ProduceSync(t.Context(), &kgo.Record{Value: []byte("v")}).FirstErr()
	require.ErrorContains(t, err, "POLICY_VIOLATION")

	w.part("t", 0).refuse = nil
	require.Zero(t, produceOne(t, w.dial(), produceRequest(9, -1, "t", messages.TopicID{}, 0, oneBatch("v"))).ErrorCode, "STOPPED opens it")
}

// TestProduceAcksZero: no answer on success, and the connection lives.
func TestProduceAcksZero(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	c := w.dial()
	for range 5 {
		c.send(produceRequest(9, 0, "t", messages.TopicID{}, 0, oneBatch("v")))
	}
	require.Zero(t, c.call(sample(w, keyAPIVersions, 3, 0)).(*kmsg.ApiVersionsResponse).ErrorCode)
	require.Equal(t, int64(5), w.part("t", 0).log.End())

	// A client that hangs up at once has still sent what it sent.
	c.send(produceRequest(9, 0, "t", messages.TopicID{}, 0, oneBatch("v")))
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return w.part("t", 0).log.End() == 6 }, 10*time.Second, time.Millisecond)
}

func TestProducerIDsAreUnique(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	seen := map[int64]bool{}
	for range producerIDBlock + 10 {
		r := c.call(sample(w, 22, 4, 0)).(*kmsg.InitProducerIDResponse)
		require.Zero(t, r.ErrorCode)
		require.False(t, seen[r.ProducerID])
		seen[r.ProducerID] = true
	}
	require.Equal(t, int64(5000+2*producerIDBlock), w.nextPID, "two blocks")
}

func TestProduceErrorsOfTheReplica(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	c := w.dial()
	for _, row := range []struct {
		err  error
		want int16
	}{
		{messages.ErrNotLeader, 6},
		{messages.ErrFencedLeaderEpoch, 74},
		{persistence.ErrStorage, 56},
		{persistence.ErrClosed, 6},
		{persistence.ErrInvalidProducerEpoch, 47},
		{persistence.ErrUnknownProducer, 59},
		{messages.ErrTimedOut, 7},
		{errFake, -1},
	} {
		t.Run(row.err.Error(), func(t *testing.T) {
			w.part("t", 0).refuse = fmt.Errorf("append: %w", row.err)
			got := produceOne(t, c, produceRequest(9, -1, "t", messages.TopicID{}, 0, oneBatch("v")))
			require.Equal(t, row.want, got.ErrorCode)
			if row.want == -1 {
				require.NotContains(t, *got.ErrorMessage, "fake", "an unknown error's text stays in the log")
			}
		})
	}
}

// TestProduceRecompresses: a topic's compression.type wins over the producer's,
// and the records stay what they were.
func TestProduceRecompresses(t *testing.T) {
	codecs := map[string]batch.Codec{"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
	values := []string{strings.Repeat("compress me ", 5000), "b", ""}
	plain := oneBatch(values...)
	h, err := batch.ParseHeader(plain)
	require.NoError(t, err)
	w := newWorld(t)
	c := w.dial()
	for to, want := range codecs {
		w.topic("to-"+to, 1, map[string]string{"compression.type": to})
		for from, codec := range codecs {
			t.Run(from+" to "+to, func(t *testing.T) {
				sent, err := recompress(plain, h, compression{codec: codec, level: 3})
				require.NoError(t, err)
				require.NoError(t, batch.CheckCRC(sent))
				got := produceOne(t, c, produceRequest(9, -1, "to-"+to, messages.TopicID{}, 0, sent))
				require.Zero(t, got.ErrorCode)
				stored := onlyPart(t, c.call(fetchRequest(12, fetchPart{"to-" + to, messages.TopicID{}, 0, got.BaseOffset}))).RecordBatches
				require.NoError(t, batch.CheckCRC(stored))
				sh, err := batch.ParseHeader(stored)
				require.NoError(t, err)
				require.Equal(t, want, sh.Codec())
				require.Equal(t, h.MaxTimestamp, sh.MaxTimestamp)
				var read []string
				for r, err := range batch.DecompressRecords(stored, 1<<20) {
					require.NoError(t, err)
					read = append(read, string(r.Value))
				}
				require.Equal(t, values, read)
			})
		}
	}
}

// TestProduceWaitsForState: a stopped topic's partition whose leadership has just come
// here takes a write as soon as its state is known, and doesn't refuse it for good.
func TestProduceWaitsForState(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, map[string]string{"mirror.name": "m.stopped"})
	p := w.part("t", 0)
	p.change(func(s *persistence.ReplicaState) { s.ReadOnly = true })
	c := w.dial()
	hasty := produceRequest(9, -1, "t", messages.TopicID{}, 0, oneBatch("v"))
	hasty.TimeoutMillis = 10
	require.Equal(t, int16(7), produceOne(t, c, hasty).ErrorCode, "to be tried again")
	req := produceRequest(9, -1, "t", messages.TopicID{}, 0, oneBatch("v"))
	req.TimeoutMillis = 60_000
	correlation := c.send(req)
	require.Eventually(t, func() bool { return p.watched() > 0 }, 10*time.Second, time.Millisecond)
	p.change(func(s *persistence.ReplicaState) { s.ReadOnly = false })
	got := c.receive(req, correlation).(*kmsg.ProduceResponse)
	require.Zero(t, got.Topics[0].Partitions[0].ErrorCode)
	w.states[messages.TopicPartition{Topic: "t"}] = messages.StateStopped // it goes to another node
	p.change(func(s *persistence.ReplicaState) { s.ReadOnly = true })
	require.Equal(t, int16(7), produceOne(t, c, hasty).ErrorCode)
	p.change(func(s *persistence.ReplicaState) { s.ReadOnly = false })
	p.refuse = messages.ErrReadOnlyTopic
	require.Equal(t, int16(6), produceOne(t, c, req).ErrorCode, "the gate closes between look and append")
	p.refuse = nil
	w.states[messages.TopicPartition{Topic: "t"}] = messages.StateStopping
	p.change(func(s *persistence.ReplicaState) { s.ReadOnly = true })
	require.Equal(t, int16(44), produceOne(t, c, req).ErrorCode)
}
