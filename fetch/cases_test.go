package fetch_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/fetch"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

// C07: holes between batches, a batch that lost its last records, and an empty
// batch at the very end.
func TestC07CompactionHoles(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Put(
			stub.Build(stub.Spec{Base: 0, Records: value(3)}),
			stub.Build(stub.Spec{Base: 2, Records: value(3)}),
			stub.Build(stub.Spec{Base: 4, LastOffsetDelta: 3, Records: []stub.Record{{Value: []byte("a")}, {OffsetDelta: 1, Value: []byte("b")}}}),
			stub.Build(stub.Spec{Base: 8, LastOffsetDelta: 4, Payload: []byte{}, Producer: true, ProducerID: 7, BaseSequence: 12}),
		)
	})
	s := newMemSink()
	_, lag := follow(t, c, s, nil)
	s.waitEnd(t, 13)
	require.Equal(t, sourceBytes(c, 0), s.bytes())
	require.Eventually(t, func() bool { return lag.Snapshot().Lag == 0 }, 5*time.Second, time.Millisecond)
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(1) })
	s.waitEnd(t, 14)
	require.Equal(t, sourceBytes(c, 0), s.bytes())
	require.Equal(t, int64(13), s.batches[len(s.batches)-1].h.BaseOffset)
}

// C10: a small trim on the source is followed exactly, also by a worker that
// began at the log end.
func TestC10TrimIsFollowedExactly(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(3382) })
	s := newMemSink()
	w, _ := follow(t, c, s, nil)
	s.waitEnd(t, 3382)
	require.NoError(t, w.Close())
	follow(t, c, s, nil)
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Trim(1000) })
	s.waitFor(t, "log start 1000", func() bool { return s.start == 1000 })
	require.Equal(t, int64(3382), s.State().End)
	require.Len(t, s.batches, 2382)
}

// C12: retention on the source overtook the copy.
func TestC12RetentionOvertakes(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Fill(50) })
	s := newMemSink()
	w, _ := follow(t, c, s, nil)
	s.waitEnd(t, 50)
	require.NoError(t, w.Remove(t.Context(), tp("t", 0)))
	c.Update(func(st *stub.State) {
		p := st.Topics["t"].Partitions[0]
		p.Fill(100)
		p.Trim(100)
	})
	require.NoError(t, w.Add(t.Context(), assignment(s, 0)))
	s.waitEnd(t, 150)
	gap := waitEvent[fetch.GapSkipped](t, s)
	require.Equal(t, int64(50), gap.From)
	require.Equal(t, int64(100), gap.To)
	require.False(t, gap.Fresh)
	require.Equal(t, int64(100), s.State().LogStart)
	require.Equal(t, sourceBytes(c, 0), s.bytes())
}

func TestC12FreshCopyStartsAtSourceStart(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Fill(30)
		topic.Partitions[0].Trim(20)
	})
	s := newMemSink()
	follow(t, c, s, nil)
	s.waitEnd(t, 30)
	require.True(t, waitEvent[fetch.GapSkipped](t, s).Fresh)
	require.Equal(t, int64(20), s.State().LogStart)
}

// C13: two fast elections; cutting to the source's end alone leaves records of a
// third history behind.
func TestC13TwoFastElections(t *testing.T) {
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		p := topic.Partitions[0]
		p.Epoch = 1
		p.Fill(18)
		p.Epoch = 3
		p.Fill(12)
	})
	s := newMemSink()
	fill := func(from, to int64, epoch int32) {
		for o := from; o < to; o++ {
			_, err := s.AppendMirror(t.Context(), o, stub.Build(stub.Spec{Base: o, Epoch: epoch, Records: value(9)}))
			require.NoError(t, err)
		}
	}
	fill(0, 20, 1)
	fill(20, 25, 2)
	follow(t, c, s, func(a *fetch.Assignment) { a.LeaderEpoch = 3 })
	cut := waitEvent[fetch.Truncated](t, s)
	require.Equal(t, fetch.Cut{From: 18, To: 25, Records: 7, Bytes: cut.Cut.Bytes}, cut.Cut)
	s.waitEnd(t, 30)
	for _, b := range s.batches {
		if b.h.BaseOffset >= 18 {
			require.Equal(t, int32(3), b.h.LeaderEpoch)
		}
	}
	require.Equal(t, sourceBytes(c, 0)[len(sourceBytes(c, 0))-100:], s.bytes()[len(s.bytes())-100:])
	for _, r := range fetches(c.Seen(keyFetch)) {
		require.Equal(t, int32(-1), r.ReplicaID)
		require.Equal(t, int8(0), r.IsolationLevel)
	}
	require.Empty(t, c.Seen(keyEpochEnd))
}

// C11: the topic was made again under the same name.
func TestC11TopicRecreated(t *testing.T) {
	for name, records := range map[string]int{"longer than the copy": 15, "shorter than the copy": 5} {
		for version, max := range map[string]int16{"by id": 18, "by name": 12} {
			t.Run(name+" "+version, func(t *testing.T) {
				c := oneTopic(t, 1, func(st *stub.State, topic *stub.Topic) {
					topic.Partitions[0].Fill(10)
					st.Versions[keyFetch] = stub.Range{Min: 4, Max: max}
					st.NewTopic("other", messages.TopicID{9}, 1)
				})
				s, other := newMemSink(), newMemSink()
				w, _ := follow(t, c, s, nil)
				require.NoError(t, w.Add(t.Context(), fetch.Assignment{TopicPartition: tp("other", 0), TopicID: messages.TopicID{9}, Sink: other, Notify: other.notify}))
				s.waitEnd(t, 10)
				c.Update(func(st *stub.State) { delete(st.Topics, "t") })
				waitEvent[fetch.RefreshWanted](t, s)
				c.Update(func(st *stub.State) {
					st.NewTopic("t", messages.TopicID{2}, 1).Partitions[0].Fill(records)
					st.Topics["other"].Partitions[0].Fill(3)
				})
				other.waitEnd(t, 3)
				failed := waitEvent[fetch.Failed](t, s)
				require.ErrorIs(t, failed.Err, fetch.ErrTopicRecreated)
				require.ErrorContains(t, failed.Err, topicID.String())
				require.ErrorContains(t, failed.Err, messages.TopicID{2}.String())
				require.False(t, fetch.Retriable(failed.Err))
				require.Equal(t, int64(10), s.State().End)
				require.Equal(t, 1, countEvents[fetch.RefreshWanted](s))
				require.Equal(t, 1, w.Len())
			})
		}
	}
}

// C26: batches larger than any limit on the way, and answers that end in a
// cut-off batch.
func TestC26LargeBatches(t *testing.T) {
	c := oneTopic(t, 2, func(st *stub.State, topic *stub.Topic) {
		st.CutOffTails = true
		for _, p := range topic.Partitions {
			p.Put(stub.Build(stub.Spec{Base: 0, Records: value(3000000)}), stub.Build(stub.Spec{Base: 1, Records: value(10)}),
				stub.Build(stub.Spec{Base: 2, Records: value(9000000)}))
		}
	})
	a, b := newMemSink(), newMemSink()
	w, _ := follow(t, c, a, nil)
	require.NoError(t, w.Add(t.Context(), assignment(b, 1)))
	a.waitEnd(t, 3)
	b.waitEnd(t, 3)
	require.True(t, bytes.Equal(sourceBytes(c, 0), a.bytes()))
	require.True(t, bytes.Equal(sourceBytes(c, 1), b.bytes()))
	require.Zero(t, countEvents[fetch.Failed](a))
}

// C26: a source that cuts off even the first batch unless it is asked for its
// whole size.
func TestC26CutOffFirstBatchAsksForMore(t *testing.T) {
	whole := stub.Build(stub.Spec{Base: 0, Records: value(3000000)})
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].Put(whole) })
	c.Edit(keyFetch, func(req *stub.Request, resp kmsg.Response) {
		r := resp.(*kmsg.FetchResponse)
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				p := &r.Topics[i].Partitions[j]
				asked := req.Body.(*kmsg.FetchRequest)
				if len(asked.Topics) > 0 && int(asked.Topics[0].Partitions[0].PartitionMaxBytes) < len(p.RecordBatches) {
					p.RecordBatches = p.RecordBatches[:1<<20]
				}
			}
		}
	})
	s := newMemSink()
	follow(t, c, s, nil)
	s.waitEnd(t, 1)
	require.True(t, bytes.Equal(whole, s.bytes()))
}

// A length that is wrong looks like a cut-off batch: it must not stall for ever
// (OP-39).
func TestOP39WrongLengthFails(t *testing.T) {
	b := stub.Build(stub.Spec{Base: 0, Records: value(100)})
	b[9] = 0x10 // claims a megabyte
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) { topic.Partitions[0].PutRaw(0, 0, 0, b) })
	s := newMemSink()
	follow(t, c, s, nil)
	failed := waitEvent[fetch.Failed](t, s)
	require.ErrorIs(t, failed.Err, fetch.ErrCorrupt)
	require.True(t, fetch.Retriable(failed.Err))
}

// C30: every codec's bytes, odd records and the source's epoch come through
// unchanged and unopened.
func TestC30ByteIdentity(t *testing.T) {
	junk := []byte("these bytes are no codec's output at all, which is the point")
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		p := topic.Partitions[0]
		p.Epoch = 9
		for codec := range int16(5) {
			spec := stub.Spec{Base: p.End(), Epoch: 9, Codec: codec, Payload: junk, Count: 3, LastOffsetDelta: 2}
			if codec == 0 {
				spec = stub.Spec{Base: p.End(), Epoch: 9, Records: []stub.Record{
					{Key: nil, Value: []byte{}}, {Key: []byte{}, Value: nil},
					{Key: []byte("k"), Value: []byte("v"), Headers: []stub.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte{}}}},
				}}
			}
			p.Put(stub.Build(spec))
		}
		p.Put(stub.Build(stub.Spec{Base: p.End(), Epoch: 9, Producer: true, ProducerID: 4, ProducerEpoch: 1, BaseSequence: 17, Transactional: true, LogAppendTime: true, Timestamp: 99, Records: value(5)}))
		p.Put(stub.EndMarker(p.End(), 9, 4, 1, true))
	})
	s := newMemSink()
	s.dle = 20
	follow(t, c, s, func(a *fetch.Assignment) { a.LeaderEpoch = 9 })
	s.waitEnd(t, 17)
	require.Equal(t, sourceBytes(c, 0), s.bytes())
	require.Equal(t, byte(9), s.bytes()[15])
}

// C32: damage in one partition of an answer never reaches its neighbours.
func TestC32OneCorruptBatch(t *testing.T) {
	good := func(from, to int64) []byte {
		var rs []stub.Record
		for range to - from {
			rs = append(rs, stub.Record{Value: []byte("x")})
		}
		return stub.Build(stub.Spec{Base: from, Records: rs})
	}
	c := oneTopic(t, 5, func(_ *stub.State, topic *stub.Topic) {
		flipped := good(5, 10)
		flipped[70] ^= 1
		topic.Partitions[0].Put(good(0, 5), flipped)
		topic.Partitions[1].Put(good(0, 5), good(5, 10))
		long, short, many := good(0, 5), good(0, 5), stub.Build(stub.Spec{LastOffsetDelta: 999999, Count: 1000000, Payload: make([]byte, 19)})
		copy(long[8:], []byte{0x7f, 0xff, 0xff, 0xff})
		copy(short[8:], []byte{0xff, 0xff, 0xff, 0xff})
		topic.Partitions[2].PutRaw(0, 4, 0, long)
		topic.Partitions[3].PutRaw(0, 4, 0, short)
		topic.Partitions[4].PutRaw(0, 4, 0, many)
	})
	w := newWorker(t, c.Address(), nil)
	sinks := make([]*memSink, 5)
	for i := range sinks {
		sinks[i] = newMemSink()
		require.NoError(t, w.Add(t.Context(), assignment(sinks[i], int32(i))))
	}
	sinks[1].waitEnd(t, 10)
	wantOffset := []int64{5, -1, 0, 0, 0}
	wantReason := []string{"CRC", "", "more than the", "batch length -1", "1000000 records in 19 bytes"}
	for i, s := range sinks {
		if wantOffset[i] < 0 {
			continue
		}
		failed := waitEvent[fetch.Failed](t, s)
		corrupt, ok := errors.AsType[*fetch.CorruptError](failed.Err)
		require.True(t, ok, "%v", failed.Err)
		require.Equal(t, wantOffset[i], corrupt.Offset)
		require.Contains(t, corrupt.Reason, wantReason[i])
		require.Equal(t, wantOffset[i], s.State().End)
	}
	require.Equal(t, 1, w.Len())
	// The source serves it right later; the retry policy adds it again.
	c.Update(func(st *stub.State) {
		p := st.Topics["t"].Partitions[0]
		p.Batches = p.Batches[:1]
		p.Put(good(5, 10))
	})
	require.NoError(t, w.Add(t.Context(), assignment(sinks[0], 0)))
	sinks[0].waitEnd(t, 10)
}

// The source's log start lies within a batch (DeleteRecords): the batch comes
// whole, and the copy's log start is the source's.
func TestC10LogStartWithinABatch(t *testing.T) {
	ten := make([]stub.Record, 10)
	for i := range ten {
		ten[i].Value = []byte("x")
	}
	c := oneTopic(t, 1, func(_ *stub.State, topic *stub.Topic) {
		p := topic.Partitions[0]
		p.Put(stub.Build(stub.Spec{Base: 0, Records: ten}), stub.Build(stub.Spec{Base: 10, Records: ten}), stub.Build(stub.Spec{Base: 20, Records: ten}))
		p.Trim(15)
	})
	s := newMemSink()
	_, lag := follow(t, c, s, nil)
	s.waitEnd(t, 30)
	s.waitFor(t, "log start 15", func() bool { return s.start == 15 })
	require.Equal(t, sourceBytes(c, 0), s.bytes())
	c.Update(func(st *stub.State) { st.Topics["t"].Partitions[0].Fill(2) })
	s.waitEnd(t, 32)
	require.Equal(t, 1, countEvents[fetch.GapSkipped](s))
	require.Equal(t, int64(15), lag.Snapshot().SourceLogStart)
}

// C11: a topic that is being made again answers with a diverging epoch that ends
// at 0 before the source names its id (seen with 3.0): nothing is cut.
func TestC11EmptyNewTopicCutsNothing(t *testing.T) {
	c := oneTopic(t, 1, func(st *stub.State, topic *stub.Topic) {
		topic.Partitions[0].Fill(10)
		st.Versions[keyFetch] = stub.Range{Min: 4, Max: 12}
	})
	s := newMemSink()
	follow(t, c, s, nil)
	s.waitEnd(t, 10)
	unknown := int16(3)
	c.Edit(keyFetch, func(_ *stub.Request, resp kmsg.Response) {
		for _, topic := range resp.(*kmsg.FetchResponse).Topics {
			for i := range topic.Partitions {
				topic.Partitions[i].DivergingEpoch.Epoch, topic.Partitions[i].DivergingEpoch.EndOffset = 0, 0
			}
		}
	})
	c.Update(func(st *stub.State) {
		st.Topics["t"].Code = unknown
		st.Topics["t"].Partitions[0].Fill(1)
	})
	require.NoError(t, c.Wait(within(t, 10*time.Second), func(_ *stub.State, seen []stub.Seen) bool {
		n := 0
		for _, r := range seen {
			if r.Key == keyMetadata {
				n++
			}
		}
		return n >= 3
	}))
	require.Equal(t, int64(10), s.State().End)
	c.Update(func(st *stub.State) { st.Topics["t"].Code, st.Topics["t"].ID = 0, messages.TopicID{2} })
	require.ErrorIs(t, waitEvent[fetch.Failed](t, s).Err, fetch.ErrTopicRecreated)
	require.Equal(t, int64(10), s.State().End)
	require.Zero(t, countEvents[fetch.Truncated](s))
}
