package cases

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

// ownData gives the node a topic with data of its own: four mirrored records, the
// reset record, and one written here. The source is another one afterwards, which
// has the topic with records that differ.
func (w *world) ownData(prepare func(*stub.State)) (topic string) {
	w.t.Helper()
	w.src.Update(func(s *stub.State) { s.Versions = stub.VersionsWithMirrors() })
	id := messages.NewTopicID()
	topic = w.topic("t", 1, func(tp *stub.Topic) {
		tp.ID = id
		tp.Partitions[0].Fill(4)
	})
	w.mirrored(topic)
	w.stop(topic)
	w.write(topic, "mine", 5)
	require.NoError(w.t, w.adm.DeleteClusterMirror(w.ctx, w.mirror))
	w.src = source(w.t, stub.Options{ClusterID: "peer-of-" + w.mirror})
	w.src.Update(func(s *stub.State) {
		p := s.NewTopic(topic, id, 1).Partitions[0]
		for range 9 {
			p.Put(stub.Build(stub.Spec{Base: p.End(), Epoch: p.Epoch, Records: []stub.Record{{Value: []byte("the peer's")}}}))
		}
		prepare(s)
	})
	w.create()
	return topic
}

const oneWay = "the source has no mirror API: mirroring is one-way, a start copies everything again, no failback"

// TestU3NoLastMirrorEpoch: without an LME on the peer all is cut and copied
// again, which is counted and said; where it can't be known whether there is one,
// nothing is.
func TestU3NoLastMirrorEpoch(t *testing.T) {
	mirror := func(w *world, f func(*wire.DescribeClusterMirrorsResponseDescribedMirror)) func(*stub.State) {
		return func(s *stub.State) {
			s.Versions = stub.VersionsWithMirrors()
			m := stub.Mirror(w.mirror, messages.StateStopped, nil)
			f(&m)
			s.Mirrors[0] = append(s.Mirrors[0], m)
		}
	}
	for _, row := range []struct {
		name   string
		peer   func(w *world) func(*stub.State)
		oneWay bool
	}{
		{"mirror unknown there", func(*world) func(*stub.State) {
			return func(s *stub.State) { s.Versions = stub.VersionsWithMirrors() }
		}, false},
		{"mirror unknown by its code", func(w *world) func(*stub.State) {
			return mirror(w, func(m *wire.DescribeClusterMirrorsResponseDescribedMirror) {
				m.ErrorCode = wire.CodeUnknownClusterMirror
			})
		}, false},
		{"partition not listed", func(w *world) func(*stub.State) {
			return mirror(w, func(*wire.DescribeClusterMirrorsResponseDescribedMirror) {})
		}, false},
		{"no mirror API", func(*world) func(*stub.State) { return func(*stub.State) {} }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := shared(t)
			topic := w.ownData(row.peer(w))
			require.NoError(t, w.tryStart(topic))
			w.awaitEqual(topic)
			p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "MIRRORING" && p.Lag == 0 })
			require.Equal(t, []int64{6, 0, 6}, []int64{p.CutRecords, p.CutFrom, p.CutTo})
			require.NotZero(t, w.produce(topic, plain("x")).ErrorCode)
			want := 0
			if row.oneWay {
				want = 1
			}
			said := 0
			for line := range strings.Lines(w.node.Process().Log()) {
				if strings.Contains(line, `"mirror": "`+w.mirror+`"`) && strings.Contains(line, oneWay) {
					said++
				}
			}
			require.Equal(t, want, said, "lines that say it")
		})
	}
	t.Run("no right to see the mirror", func(t *testing.T) {
		w := shared(t)
		topic := w.ownData(mirror(w, func(m *wire.DescribeClusterMirrorsResponseDescribedMirror) {
			m.ErrorCode = wire.CodeClusterMirrorAuthorizationFailed
		}))
		require.NoError(t, w.tryStart(topic))
		w.failed(topic, 0, "AUTHORIZATION")
		require.Equal(t, int64(6), w.end(topic, 0))
		require.Zero(t, w.look(topic, 0).CutRecords)
		w.stop(topic)
	})
}

// TestU4UncleanElectionOnSource: the new leader lacks records that we have. The
// copy goes back to where they part, without a pause, whether the new leader is
// ahead of us by then, behind us, or empty; what went is counted and logged.
func TestU4UncleanElectionOnSource(t *testing.T) {
	for _, row := range []struct {
		name       string
		lost, more int
		cut        int64
	}{
		{"ahead", 7, 20, 7}, {"behind", 7, 2, 7}, {"nothing new", 7, 0, 7}, {"empty", 25, 0, 25}, {"empty then new records", 25, 3, 25},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := shared(t)
			w.src = source(t, stub.Options{Brokers: 2, ClusterID: "source-of-" + w.mirror})
			topic := w.topic("t", 2, func(tp *stub.Topic) {
				tp.Configs["unclean.leader.election.enable"] = "true"
				tp.Partitions[0].Epoch = 1
				tp.Partitions[0].Fill(25)
				tp.Partitions[1].Fill(5)
			})
			w.mirrored(topic)
			w.part(topic, 0, func(p *stub.Partition) {
				p.Truncate(int64(25 - row.lost))
				p.Leader, p.Epoch = 1, 2
				for range row.more {
					p.Put(stub.Build(stub.Spec{Base: p.End(), Epoch: 2, Records: []stub.Record{{Value: []byte("after the election")}}}))
				}
			})
			w.awaitEqual(topic)
			p := w.awaitLook(topic, 0, func(p client.DescribedPartition) bool { return p.State == "MIRRORING" && p.CutRecords > 0 })
			require.Equal(t, []int64{row.cut, 25 - row.cut}, []int64{p.CutRecords, p.CutFrom}, "by one cut or two")
			w.part(topic, 0, func(p *stub.Partition) { p.Fill(3) })
			w.part(topic, 1, func(p *stub.Partition) { p.Fill(3) })
			w.awaitEqual(topic)
			require.Zero(t, w.look(topic, 1).CutRecords)
			w.stop(topic)
			require.Equal(t, int32(2), w.look(topic, 0).LastMirrorEpoch)
		})
	}
}
