package cases

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

// fromProducer is a one-record batch of an idempotent producer.
func fromProducer(base, pid int64, seq int32, value string) []byte {
	return stub.Build(stub.Spec{Base: base, Producer: true, ProducerID: pid, BaseSequence: seq, Timestamp: 1_700_000_000_000, Records: []stub.Record{{Value: []byte(value)}}})
}

// TestC01FirstWritesAfterFailover: a destination producer with the mirrored
// producer's id and sequences isn't taken for its retry.
func TestC01FirstWritesAfterFailover(t *testing.T) {
	for _, row := range []struct {
		name string
		prep func(w *world, topic string) // between the copy and the writes
	}{
		{"plain", func(w *world, topic string) { w.stop(topic) }},
		{"i killed between stop and produce", func(w *world, topic string) {
			w.stop(topic)
			w.kill()
		}},
		{"ii source gone before the node started", func(w *world, topic string) {
			w.src.Broker(0).Down()
			w.restart()
			w.stop(topic)
		}},
		{"iii in the moment of the stop", func(w *world, topic string) {
			w.done(w.adm.StopMirrorTopics(w.ctx, w.mirror, []string{topic}))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := owned(t)
			topic := w.topic("t", 1, func(tp *stub.Topic) {
				for i := range int64(4) {
					tp.Partitions[0].Put(fromProducer(i, 0, int32(i), fmt.Sprint(i)))
				}
			})
			w.mirrored(topic)
			row.prep(w, topic)
			w.await(func() error { // refused until STOPPED
				p := w.produce(topic, fromProducer(0, 0, 0, "new"))
				if p.ErrorCode == codePolicyViolation {
					return fmt.Errorf("still read-only")
				}
				require.Zero(t, p.ErrorCode)
				require.Equal(t, int64(5), p.BaseOffset)
				return nil
			})
			cl := w.kgo(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			r, err := cl.ProduceSync(w.ctx, kgo.StringRecord("fresh")).First()
			require.NoError(t, err)
			require.Equal(t, int64(6), r.Offset)
			require.Equal(t, int64(7), w.end(topic, 0))
			rs := w.consume(topic, 5, 2)
			require.Equal(t, []int64{5, 6}, offsets(rs))
			require.Equal(t, []string{"new", "fresh"}, []string{string(rs[0].Value), string(rs[1].Value)})
			require.True(t, headers(t, w.fetch(topic, 0, 4, 0).RecordBatches)[0].control(), "the reset record")
		})
	}
}

// transactions is the log of C04: 0 pid 1, 1 plain, 2 pid 2, 3 ABORT pid 1,
// 4 COMMIT pid 2, and with open > 0 a batch of each of pid 3, 4, ... left open.
func transactions(p *stub.Partition, open int) {
	in := func(base, pid int64) []byte {
		return stub.Build(stub.Spec{
			Base: base, Producer: true, ProducerID: pid, Transactional: true, Timestamp: 1_700_000_000_000,
			Records: []stub.Record{{Value: fmt.Appendf(nil, "pid%d", pid)}},
		})
	}
	p.Put(in(0, 1), stub.Build(stub.Spec{Base: 1, Timestamp: 1_700_000_000_000, Records: []stub.Record{{Value: []byte("plain")}}}), in(2, 2),
		stub.EndMarker(3, 0, 1, 0, false), stub.EndMarker(4, 0, 2, 0, true))
	for i := range open {
		p.Put(in(int64(5+i), int64(3+i)))
	}
}

// TestC04D44OpenTransactionAtStop: an ABORT for each open transaction, then the
// reset record, all with an epoch above the LME though DLE was that already.
func TestC04D44OpenTransactionAtStop(t *testing.T) {
	for open := range 3 {
		t.Run(fmt.Sprintf("%d open", open), func(t *testing.T) {
			w := shared(t)
			topic := w.topic("t", 1, func(tp *stub.Topic) { transactions(tp.Partitions[0], open) })
			w.mirrored(topic)
			require.Equal(t, int64(5), w.listOffset(topic, 0, latest, 1).Offset, "last stable offset")
			before := w.look(topic, 0).LeaderEpoch
			require.Positive(t, before, "DLE is above the LME of 0 already")
			w.stop(topic)
			p := w.look(topic, 0)
			require.Zero(t, p.LastMirrorEpoch)
			require.Greater(t, p.LeaderEpoch, before)
			mirrored := int64(5 + open)
			end := mirrored + int64(open) + 1
			require.Equal(t, end, w.end(topic, 0))
			w.write(topic, "after", end)
			require.Equal(t, end+1, w.listOffset(topic, 0, latest, 1).Offset, "last stable offset")
			require.Equal(t, []int64{1, 2, end}, offsets(w.consume(topic, 0, 3, committed())))
			hs := headers(t, w.bytes(topic, 0))
			aborted := map[int64]bool{}
			for _, h := range hs {
				if h.base < mirrored || h.base == end {
					continue
				}
				require.True(t, h.control())
				require.Equal(t, p.LeaderEpoch, h.epoch, "offset %d", h.base)
				if h.base < end-1 {
					aborted[h.pid] = true
				}
			}
			require.Len(t, aborted, open)
			require.Equal(t, p.LeaderEpoch, hs[len(hs)-1].epoch)
			require.Equal(t, w.sourceBytes(topic, 0), w.bytes(topic, 0)[:len(w.sourceBytes(topic, 0))])
		})
	}
}

func (w *world) sourceBytes(topic string, partition int32) (b []byte) {
	w.src.Read(func(s *stub.State) { b = s.Topics[topic].Partitions[partition].Bytes() })
	return b
}

// TestC22CommittedReads: the transaction index is made anew from the bytes.
func TestC22CommittedReads(t *testing.T) {
	w := owned(t)
	topic := w.topic("t", 1, func(tp *stub.Topic) { transactions(tp.Partitions[0], 1) })
	w.mirrored(topic)
	aborted := []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 0}}
	check := func(from []int64) {
		t.Helper()
		require.Equal(t, int64(5), w.listOffset(topic, 0, latest, 1).Offset)
		require.Equal(t, int64(6), w.listOffset(topic, 0, latest, 0).Offset)
		for _, at := range from {
			p := w.fetch(topic, 0, at, 1)
			require.Equal(t, []int64{6, 5}, []int64{p.HighWatermark, p.LastStableOffset})
			require.Len(t, p.AbortedTransactions, 1, "from %d", at)
			require.Equal(t, aborted[0].ProducerID, p.AbortedTransactions[0].ProducerID)
			require.Equal(t, aborted[0].FirstOffset, p.AbortedTransactions[0].FirstOffset)
			hs := headers(t, p.RecordBatches)
			require.Less(t, hs[len(hs)-1].last(), int64(5))
			require.Equal(t, []int64{1, 2}, offsets(w.consume(topic, at, 2, committed())))

			p = w.fetch(topic, 0, at, 0)
			require.Empty(t, p.AbortedTransactions)
			var data []int64
			for _, h := range headers(t, p.RecordBatches) {
				if !h.control() {
					data = append(data, h.base)
				}
			}
			require.Equal(t, []int64{0, 1, 2, 5}[at:], data)
			require.Equal(t, []int64{0, 1, 2, 5}[at:], offsets(w.consume(topic, at, 4-int(at))))
		}
	}
	check([]int64{0, 1})
	w.restart()
	w.awaitState("MIRRORING", topic)
	check([]int64{0, 1})
	w.part(topic, 0, func(p *stub.Partition) { p.LogStart = 1 })
	w.await(func() error {
		if s := w.begin(topic, 0); s != 1 {
			return fmt.Errorf("start %d", s)
		}
		return nil
	})
	check([]int64{1})
	w.restart()
	w.awaitState("MIRRORING", topic)
	check([]int64{1})
}

// TestC03FailbackWithTail: A's records in the last common epoch that never
// reached B go, by the LME and by divergence on the first fetch. A is the node, B
// is scripted, as it is after its failover.
func TestC03FailbackWithTail(t *testing.T) {
	w := shared(t)
	id := messages.NewTopicID()
	// First the node gets A's log: 0..9 in epoch 3, from somewhere, and is stopped.
	topic := w.topic("t", 1, func(tp *stub.Topic) {
		tp.ID = id
		tp.Partitions[0].Epoch = 3
		tp.Partitions[0].Fill(10)
	})
	w.mirrored(topic)
	w.stop(topic)
	require.Equal(t, int64(11), w.end(topic, 0))
	require.NoError(t, w.adm.DeleteClusterMirror(w.ctx, w.mirror))

	// B: 0..7, the reset record at 8, and two records of its own.
	b := source(t, stub.Options{ClusterID: "B-of-" + w.mirror})
	tp0 := messages.TopicPartition{Topic: topic}
	b.Update(func(s *stub.State) {
		s.Versions = stub.VersionsWithMirrors()
		s.Mirrors[0] = append(s.Mirrors[0], stub.Mirror(w.mirror, messages.StateStopped, map[messages.TopicPartition]int32{tp0: 3}))
		p := s.NewTopic(topic, id, 1).Partitions[0]
		p.Epoch = 3
		p.Fill(8)
		p.Epoch = 14
		p.Put(stub.Build(stub.Spec{Base: 8, Epoch: 14, Control: true, Records: []stub.Record{{Key: []byte{0, 0, 0, 6}, Value: []byte{0, 0, 1, 'x', 0}}}}))
		p.Fill(2)
	})
	w.src = b
	w.create()
	require.NoError(t, w.tryStart(topic))
	w.awaitEqual(topic)
	w.awaitState("MIRRORING", topic)
	require.Equal(t, int64(11), w.end(topic, 0))
	asked := false
	for _, s := range b.Seen(1) {
		for _, ft := range s.Body.(*kmsg.FetchRequest).Topics {
			for _, fp := range ft.Partitions {
				if fp.FetchOffset == 10 {
					asked = true
					require.Equal(t, int32(3), fp.LastFetchedEpoch)
				}
			}
		}
	}
	require.True(t, asked, "A asks at 10 with epoch 3: the LME keeps all of it")
	p := w.look(topic, 0)
	require.Equal(t, []int64{8, 10}, []int64{p.CutFrom, p.CutTo}, "the last cut")
	require.Equal(t, int64(3), p.CutRecords, "A's own reset record, and 8 and 9")
	require.NotZero(t, w.produce(topic, plain("x")).ErrorCode)

	// The same failback again changes nothing.
	w.stop(topic)
	end := w.end(topic, 0)
	b.Update(func(s *stub.State) {
		s.Mirrors[0][0] = stub.Mirror(w.mirror, messages.StateStopped, map[messages.TopicPartition]int32{tp0: 14})
	})
	w.start(topic)
	w.awaitEqual(topic)
	again := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.Lag == 0 })
	require.Equal(t, end-11, again.CutRecords-p.CutRecords, "only what the stop itself wrote")
}
