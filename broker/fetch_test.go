package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

type fetchPart struct {
	topic     string
	id        messages.TopicID
	partition int32
	offset    int64
}

func fetchRequest(version int16, parts ...fetchPart) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.SessionEpoch = version, 10<<20, -1
	for _, p := range parts {
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p.partition, p.offset, 1<<20
		req.Topics = append(req.Topics, kmsg.FetchRequestTopic{Topic: p.topic, TopicID: p.id, Partitions: []kmsg.FetchRequestTopicPartition{fp}})
	}
	return req
}

func onlyPart(tb testing.TB, resp kmsg.Response) kmsg.FetchResponseTopicPartition {
	tb.Helper()
	r := resp.(*kmsg.FetchResponse)
	require.Zero(tb, r.ErrorCode)
	require.Len(tb, r.Topics, 1)
	require.Len(tb, r.Topics[0].Partitions, 1)
	return r.Topics[0].Partitions[0]
}

// made is a batch as it stands in a log.
func made(base int64, epoch int32, values ...string) []byte {
	props := batch.Plain()
	props.BaseOffset, props.LeaderEpoch = base, epoch
	var records []batch.Record
	for _, v := range values {
		records = append(records, batch.Record{Timestamp: 1000 + base, Value: []byte(v)})
	}
	return batch.Append(nil, props, records...)
}

func txnBatch(base, pid int64, attributes int16) []byte {
	props := batch.Plain()
	props.BaseOffset, props.ProducerID, props.ProducerEpoch, props.BaseSequence, props.Attributes = base, pid, 0, 0, attributes
	return batch.Append(nil, props, batch.Record{Value: []byte("v")})
}

func at(b []byte, base int64) []byte { batch.SetOffsetAndEpoch(b, base, 0); return b }

// TestFetchEncodesAsKmsgDoes compares our encoder, which leaves the records out,
// with kmsg's for every version.
func TestFetchEncodesAsKmsgDoes(t *testing.T) {
	rack := "r1"
	for v := int16(4); v <= 18; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			id := messages.TopicID{1}
			key := func(topic string, p int32) sessionKey { return keyOf(topic, id, p, v >= fetchTopicIDs) }
			targets := []*fetchTarget{
				{key: key("a", 0), hw: 10, lso: 9, logStart: 2, committed: true, aborted: []persistence.AbortedTxn{{ProducerID: 7, FirstOffset: 3}}, chunk: persistence.Chunk{Bytes: []byte("records"), Len: 7}},
				{key: key("a", 1), code: 6, hw: -1, lso: -1, logStart: -1, committed: true},
				{key: key("a", 2), hw: 5, lso: 5},
			}
			want := kmsg.NewPtrFetchResponse()
			want.Version = v
			if v >= fetchSessions {
				want.SessionID = 77
			}
			wt := kmsg.NewFetchResponseTopic()
			if v >= fetchTopicIDs {
				wt.TopicID = id
			} else {
				wt.Topic = "a"
			}
			for _, tg := range targets {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = tg.key.partition, tg.code, tg.hw, tg.lso, tg.logStart
				p.RecordBatches = append([]byte{}, tg.chunk.Bytes...)
				if tg.aborted != nil {
					p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 7, FirstOffset: 3}}
				}
				wt.Partitions = append(wt.Partitions, p)
			}
			f := &fetchReply{version: v, sessionID: 77, targets: targets}
			if v >= fetchFlexible {
				targets[2].diverging = &persistence.EpochEntry{Epoch: 3, StartOffset: 4}
				wt.Partitions[2].DivergingEpoch = kmsg.FetchResponseTopicPartitionDivergingEpoch{Epoch: 3, EndOffset: 4}
				targets[1].leader = &metadata.Partition{Leader: 4, LeaderEpoch: 9}
				wt.Partitions[1].CurrentLeader = kmsg.FetchResponseTopicPartitionCurrentLeader{LeaderID: 4, LeaderEpoch: 9}
				f.nodes = []hintNode{{id: 4, host: "h", port: 9, rack: &rack}, {id: 5, host: "::1", port: 10}}
				want.Brokers = []kmsg.FetchResponseBroker{{NodeID: 4, Host: "h", Port: 9, Rack: &rack}, {NodeID: 5, Host: "::1", Port: 10}}
			}
			want.Topics = []kmsg.FetchResponseTopic{wt}
			buf, cuts := f.encode(nil)
			require.Len(t, cuts, 1)
			got := append([]byte{}, buf[:cuts[0].at]...)
			got = append(got, cuts[0].chunk.Bytes...)
			got = append(got, buf[cuts[0].at:]...)
			if d := cmp.Diff(want.AppendTo(nil), got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// TestC22CommittedReads: aborted list and last stable offset, both levels.
func TestC22CommittedReads(t *testing.T) {
	w := newWorld(t, onDisk)
	w.topic("t", 1, nil)
	p := w.part("t", 0)
	p.mirror(t,
		txnBatch(0, 1, batch.AttrTransactional), made(1, 0, "plain"), txnBatch(2, 2, batch.AttrTransactional),
		at(batch.AbortMarker(1, 0, 0, 1), 3), at(batch.CommitMarker(2, 0, 0, 1), 4), txnBatch(5, 3, batch.AttrTransactional))
	c := w.dial()
	for _, row := range []struct {
		name      string
		offset    int64
		committed int8
		aborted   []kmsg.FetchResponseTopicPartitionAbortedTransaction
		last      int64
	}{
		{"committed at 0", 0, 1, []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 0}}, 4},
		{"committed at 1", 1, 1, []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 0}}, 4},
		{"uncommitted", 0, 0, nil, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := fetchRequest(12, fetchPart{"t", messages.TopicID{}, 0, row.offset})
			req.IsolationLevel = row.committed
			got := onlyPart(t, c.call(req))
			require.Zero(t, got.ErrorCode)
			require.Equal(t, int64(6), got.HighWatermark)
			require.Equal(t, int64(5), got.LastStableOffset)
			require.Equal(t, row.aborted, got.AbortedTransactions)
			require.Equal(t, row.last, lastOffset(t, got.RecordBatches))
		})
	}
	require.Equal(t, int64(5), listOne(t, c, "t", -1, 1).Offset)
	require.Equal(t, int64(6), listOne(t, c, "t", -1, 0).Offset)
}

func lastOffset(tb testing.TB, b []byte) int64 {
	tb.Helper()
	last := int64(-1)
	for len(b) > 0 {
		h, _, rest, err := batch.Next(b)
		require.NoError(tb, err)
		last, b = h.LastOffset(), rest
	}
	return last
}

// TestC07HolesAndEmptyTail: fetches into holes give the next batch, an empty
// batch at the end is sent as it is.
func TestC07HolesAndEmptyTail(t *testing.T) {
	w := newWorld(t, onDisk)
	w.topic("t", 1, nil)
	four := made(4, 0, "x", "y")
	setDelta(four, 3)
	tail := made(8, 0, "z")[:batch.HeaderSize]
	setEmpty(tail, 4)
	p := w.part("t", 0)
	p.mirror(t, made(0, 0, "a"), made(2, 0, "b"), four, tail)
	require.Equal(t, int64(13), p.log.End())
	c := w.dial()
	for _, row := range []struct {
		offset, first int64
	}{{0, 0}, {1, 2}, {3, 4}, {6, 4}, {8, 8}, {12, 8}} {
		t.Run(fmt.Sprintf("at %d", row.offset), func(t *testing.T) {
			got := onlyPart(t, c.call(fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, row.offset})))
			h, _, _, err := batch.Next(got.RecordBatches)
			require.NoError(t, err)
			require.Equal(t, row.first, h.BaseOffset)
			require.Equal(t, int64(12), lastOffset(t, got.RecordBatches))
		})
	}
	got := onlyPart(t, c.call(fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 13})))
	require.Empty(t, got.RecordBatches)
	require.Zero(t, got.ErrorCode)
}

func setDelta(b []byte, delta int32) { copy(b[23:], kbin.AppendInt32(nil, delta)); stampCRC(b) }

func setEmpty(b []byte, delta int32) {
	copy(b[8:], kbin.AppendInt32(nil, batch.HeaderSize-batch.Overhead))
	copy(b[57:], kbin.AppendInt32(nil, 0))
	setDelta(b, delta)
}

// TestC26FirstBatchAlwaysWhole: limits of 1 KiB and a batch of 3 MB.
func TestC26FirstBatchAlwaysWhole(t *testing.T) {
	for _, disk := range []bool{false, true} {
		t.Run(fmt.Sprintf("disk=%v", disk), func(t *testing.T) {
			w := newWorld(t, func(w *world, c *Config) {
				if disk {
					onDisk(w, c)
				}
			})
			w.topic("t", 2, nil)
			big := made(0, 0, string(make([]byte, 3_000_000)))
			w.part("t", 0).mirror(t, big, made(1, 0, "small"))
			w.part("t", 1).mirror(t, made(0, 0, "other"))
			req := fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0}, fetchPart{"t", messages.TopicID{}, 1, 0})
			req.MaxBytes = 1024
			req.Topics[0].Partitions[0].PartitionMaxBytes = 1024
			resp := w.dial().call(req).(*kmsg.FetchResponse)
			require.Len(t, resp.Topics, 1, "consecutive partitions of a topic are one entry")
			require.Equal(t, big, resp.Topics[0].Partitions[0].RecordBatches)
			require.Empty(t, resp.Topics[0].Partitions[1].RecordBatches, "the response limit is used up")
		})
	}
}

func TestFetchRefusals(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1, nil)
	w.topic("moved", 1, nil)
	moved := w.Image().Topic("moved")
	w.apply(metadata.PartitionRecord(moved.ID, 0, metadata.Partition{Leader: 2, LeaderEpoch: 3, Replicas: []messages.NodeID{2}}))
	w.topic("denied", 1, nil)
	w.deny = func(_ messages.Requester, op Operation, on Resource) bool { return op == OpRead && on.Name == "denied" }
	p := w.part("t", 0)
	p.mirror(t, made(10, 2, "a"))
	require.NoError(t, p.RaiseLogStart(t.Context(), 10))
	p.change(func(s *persistence.ReplicaState) { s.LeaderEpoch = 5 })
	c := w.dial()
	for _, row := range []struct {
		name    string
		version int16
		part    fetchPart
		epoch   int32
		want    int16
	}{
		{"good", 12, fetchPart{"t", messages.TopicID{}, 0, 10}, -1, 0},
		{"good by id", 13, fetchPart{"", topic.ID, 0, 10}, 5, 0},
		{"at the end", 12, fetchPart{"t", messages.TopicID{}, 0, 11}, 5, 0},
		{"below the start", 12, fetchPart{"t", messages.TopicID{}, 0, 9}, -1, 1},
		{"above the end", 12, fetchPart{"t", messages.TopicID{}, 0, 12}, -1, 1},
		{"unknown topic", 12, fetchPart{"nope", messages.TopicID{}, 0, 0}, -1, 3},
		{"unknown partition", 12, fetchPart{"t", messages.TopicID{}, 7, 0}, -1, 3},
		{"negative partition", 12, fetchPart{"t", messages.TopicID{}, -7, 0}, -1, 3},
		{"unknown id", 13, fetchPart{"", messages.NewTopicID(), 0, 0}, -1, 100},
		{"old epoch", 12, fetchPart{"t", messages.TopicID{}, 0, 10}, 4, 74},
		{"new epoch", 12, fetchPart{"t", messages.TopicID{}, 0, 10}, 6, 75},
		{"not the leader", 16, fetchPart{"", moved.ID, 0, 0}, -1, 6},
		{"no right", 12, fetchPart{"denied", messages.TopicID{}, 0, 0}, -1, 29},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := fetchRequest(row.version, row.part)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = row.epoch
			req.MaxWaitMillis, req.MinBytes = 30_000, 1
			if row.want == 0 {
				req.MaxWaitMillis = 0
			}
			got := onlyPart(t, c.call(req))
			require.Equal(t, row.want, got.ErrorCode)
			if row.want == 6 {
				require.Equal(t, kmsg.FetchResponseTopicPartitionCurrentLeader{LeaderID: 2, LeaderEpoch: 3}, got.CurrentLeader)
			}
		})
	}
}

// TestFetchDivergingEpoch: what a mirror of us learns about our history.
func TestFetchDivergingEpoch(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	w.topic("empty", 1, nil)
	p := w.part("t", 0)
	for i := range int64(18) {
		p.mirror(t, made(i, 1, "a"))
	}
	for i := int64(18); i < 30; i++ {
		p.mirror(t, made(i, 3, "b"))
	}
	c := w.dial()
	none := kmsg.NewFetchResponseTopicPartitionDivergingEpoch()
	for _, row := range []struct {
		name   string
		topic  string
		offset int64
		last   int32
		want   kmsg.FetchResponseTopicPartitionDivergingEpoch
	}{
		{"C13 epoch between ours", "t", 25, 2, kmsg.FetchResponseTopicPartitionDivergingEpoch{Epoch: 1, EndOffset: 18}},
		{"same history", "t", 25, 3, none},
		{"at the end of an old epoch", "t", 18, 1, none},
		{"beyond the end of an old epoch", "t", 20, 1, kmsg.FetchResponseTopicPartitionDivergingEpoch{Epoch: 1, EndOffset: 18}},
		{"beyond our end", "t", 35, 3, kmsg.FetchResponseTopicPartitionDivergingEpoch{Epoch: 3, EndOffset: 30}},
		{"epoch above all of ours", "t", 30, 9, kmsg.FetchResponseTopicPartitionDivergingEpoch{Epoch: 3, EndOffset: 30}},
		{"epoch below all of ours", "t", 5, 0, kmsg.FetchResponseTopicPartitionDivergingEpoch{Epoch: 0, EndOffset: 0}},
		{"not sent", "t", 5, -1, none},
		{"no history", "empty", 0, 4, none},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := fetchRequest(12, fetchPart{row.topic, messages.TopicID{}, 0, row.offset})
			req.Topics[0].Partitions[0].LastFetchedEpoch = row.last
			if row.want.Epoch >= 0 {
				req.MaxWaitMillis, req.MinBytes = 30_000, 1 // answered at once all the same
			}
			got := onlyPart(t, c.call(req))
			require.Zero(t, got.ErrorCode)
			require.Equal(t, row.want, got.DivergingEpoch)
			if row.want.Epoch >= 0 {
				require.Empty(t, got.RecordBatches)
			}
		})
	}
}

// TestC43Zstd: zstd data goes to Fetch v10 and above where the topic says zstd.
func TestC43Zstd(t *testing.T) {
	w := newWorld(t)
	w.topic("z", 1, map[string]string{"compression.type": "zstd"})
	w.topic("p", 1, nil)
	b := made(0, 0, "v")
	b[22] |= 4 // the bytes aren't zstd: nobody may look
	stampCRC(b)
	for _, topic := range []string{"z", "p"} {
		w.part(topic, 0).mirror(t, b)
	}
	c := w.dial()
	for _, row := range []struct {
		topic   string
		version int16
		code    int16
	}{{"z", 9, 76}, {"z", 10, 0}, {"p", 4, 0}, {"p", 10, 0}} {
		t.Run(fmt.Sprintf("%s v%d", row.topic, row.version), func(t *testing.T) {
			got := onlyPart(t, c.call(fetchRequest(row.version, fetchPart{row.topic, messages.TopicID{}, 0, 0})))
			require.Equal(t, row.code, got.ErrorCode)
			if row.code == 0 {
				require.Equal(t, b, got.RecordBatches)
			}
		})
	}
}

// TestFetchLongPoll: a fetch at the end waits for the next append, for MaxWait,
// and no longer than its client.
func TestFetchLongPoll(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	p := w.part("t", 0)
	c := w.dial()
	waitWatched := func(n int) {
		require.Eventually(t, func() bool { return p.watched() == n }, 10*time.Second, time.Millisecond)
	}

	req := fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0})
	req.MaxWaitMillis, req.MinBytes = 60_000, 1
	correlation := c.send(req)
	waitWatched(1)
	p.mirror(t, made(0, 0, "a"))
	require.NotEmpty(t, onlyPart(t, c.receive(req, correlation)).RecordBatches)
	waitWatched(0)

	req.Topics[0].Partitions[0].FetchOffset, req.MaxWaitMillis = 1, 20
	require.Empty(t, onlyPart(t, c.call(req)).RecordBatches)

	req.MaxWaitMillis, req.MinBytes = 60_000, 1000
	correlation = c.send(req)
	waitWatched(1)
	for i := int64(1); i < 20; i++ { // wakes it, but it is not enough until the end
		p.mirror(t, made(i, 0, "a"))
	}
	require.GreaterOrEqual(t, len(onlyPart(t, c.receive(req, correlation)).RecordBatches), 1000)

	gone := w.dial()
	req.Topics[0].Partitions[0].FetchOffset = 20
	gone.send(req)
	waitWatched(1)
	require.NoError(t, gone.Close())
	waitWatched(0)
}

// TestRightTakenAway: a long poll and an open session of a connection that is open give nothing more
// from the moment in which the right is taken away.
func TestRightTakenAway(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	p := w.part("t", 0)
	forbid := func(on bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.deny = func(_ messages.Requester, op Operation, _ Resource) bool { return on && op == OpRead }
	}
	c := w.dial()
	req := fetchRequest(11, fetchPart{"t", messages.TopicID{}, 0, 0})
	req.MaxWaitMillis, req.MinBytes, req.SessionEpoch = 60_000, 1, 0
	correlation := c.send(req)
	require.Eventually(t, func() bool { return p.watched() == 1 }, 10*time.Second, time.Millisecond)
	forbid(true)
	p.mirror(t, made(0, 0, "secret"))
	resp := c.receive(req, correlation)
	got := onlyPart(t, resp)
	require.Equal(t, kerr.TopicAuthorizationFailed.Code, got.ErrorCode)
	require.Empty(t, got.RecordBatches)
	next := fetchRequest(11)
	next.SessionID, next.SessionEpoch = resp.(*kmsg.FetchResponse).SessionID, 1
	require.Equal(t, kerr.TopicAuthorizationFailed.Code, onlyPart(t, c.call(next)).ErrorCode)
	forbid(false)
	next.SessionEpoch = 2
	require.NotEmpty(t, onlyPart(t, c.call(next)).RecordBatches)
}
