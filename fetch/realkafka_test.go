package fetch_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/fetch"
	"kagami/messages"
	"kagami/test/kafka"
)

// Real Kafka of every release that the fixture knows: the copy is byte for byte
// what stands in the source's segment files.
func TestCopiesFromRealKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real brokers")
	}
	for _, version := range kafka.Versions() {
		t.Run(string(version), func(t *testing.T) {
			kafka.Require(t, version)
			c := kafka.Start(t, kafka.Options{Version: version})
			fillRealTopic(t, c)
			src := newSource(t, c.Bootstrap())
			topics, err := src.Topics(t.Context(), []string{"t"})
			require.NoError(t, err)
			topic := topics.Topics["t"]
			require.NoError(t, topic.Err)
			t.Logf("topic id %s, leader %+v", topic.ID, topic.Partitions[0].Leader)
			w := newWorker(t, topic.Partitions[0].Leader.Address(), func(cfg *fetch.WorkerConfig) {
				cfg.SourceBroker = topic.Partitions[0].Leader.ID
			})
			sinks := make([]*memSink, len(topic.Partitions))
			for i := range sinks {
				sinks[i] = newMemSink()
				require.NoError(t, w.Add(t.Context(), fetch.Assignment{
					TopicPartition: tp("t", int32(i)), TopicID: topic.ID, LeaderEpoch: topic.Partitions[i].Leader.Epoch, Sink: sinks[i], Notify: sinks[i].notify,
				}))
			}
			queries := make([]fetch.OffsetQuery, len(sinks))
			for i := range sinks {
				queries[i] = fetch.OffsetQuery{TopicPartition: tp("t", int32(i)), LeaderEpoch: topic.Partitions[i].Leader.Epoch}
			}
			ends, err := src.ListOffsets(t.Context(), fetch.Latest, queries)
			require.NoError(t, err)
			for i, s := range sinks {
				require.NoError(t, ends[tp("t", int32(i))].Err)
				s.waitEnd(t, ends[tp("t", int32(i))].Offset)
				file := filepath.Join(c.LogDir(1), "t-"+strconv.Itoa(i), "00000000000000000000.log")
				want, err := os.ReadFile(file)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, s.bytes()), "partition %d differs from the source's file", i)
			}
			deleteRecords(t, c, 0, 120)
			sinks[0].waitFor(t, "log start 120", func() bool { return sinks[0].start == 120 })
			configs, err := src.TopicConfigs(t.Context(), []string{"t"})
			require.NoError(t, err)
			require.Equal(t, map[string]string{"segment.bytes": "1000000000", "max.message.bytes": "9000000"}, configs["t"].Overrides)
			m, err := src.AllMirrors(t.Context())
			require.NoError(t, err)
			require.False(t, m.Supported)

			checkRealGroups(t, c, src)
			late := newMemSink() // the log start lies within a batch now
			require.NoError(t, w.Add(t.Context(), fetch.Assignment{TopicPartition: tp("t", 0), TopicID: topic.ID, LeaderEpoch: topic.Partitions[0].Leader.Epoch, Sink: late, Notify: late.notify}))
			late.waitEnd(t, ends[tp("t", 0)].Offset)
			late.waitFor(t, "log start 120", func() bool { return late.start == 120 })
			require.Zero(t, countEvents[fetch.Failed](late))
			require.True(t, bytes.HasSuffix(sinks[0].bytes(), late.bytes()) || bytes.HasSuffix(late.bytes(), sinks[0].bytes()))
		})
	}
}

// checkRealGroups commits for a group without members and reads it back.
func checkRealGroups(t *testing.T, c *kafka.Cluster, src *fetch.Source) {
	t.Helper()
	cl, err := c.Client()
	require.NoError(t, err)
	defer cl.Close()
	var o kadm.Offsets
	o.AddOffset("t", 1, 7, 0)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", o))
	groups, err := src.Groups(t.Context())
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(groups, func(g fetch.SourceGroup) bool { return g.Name == "g" }))
	all := src.GroupsOffsets(t.Context(), []string{"g"})
	require.NoError(t, all["g"].Err)
	offsets := all["g"].Offsets
	require.Equal(t, int64(7), offsets[tp("t", 1)].Offset)
	_, err = src.ACLs(t.Context())
	require.ErrorIs(t, err, fetch.ErrSecurityDisabled)
}

// fillRealTopic makes topic t: every codec, transactions of both ends, an open
// one, and a batch beyond the fetch size.
func fillRealTopic(t *testing.T, c *kafka.Cluster) {
	t.Helper()
	admin, err := c.Client()
	require.NoError(t, err)
	defer admin.Close()
	_, err = kadm.NewClient(admin).CreateTopic(t.Context(), 2, 1, map[string]*string{"segment.bytes": new("1000000000"), "max.message.bytes": new("9000000")}, "t")
	require.NoError(t, err)
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		cl, err := c.Client(kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond), kgo.ProducerBatchMaxBytes(9000000-1000), kgo.DefaultProduceTopic("t"))
		require.NoError(t, err)
		for partition := range int32(2) {
			var records []*kgo.Record
			for j := range 50 {
				records = append(records, &kgo.Record{Partition: partition, Key: []byte{byte(j)}, Value: slices.Repeat([]byte{byte(j), byte(i)}, 100)})
			}
			require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
		}
		big := &kgo.Record{Partition: 1, Value: make([]byte, 3000000)}
		require.NoError(t, cl.ProduceSync(t.Context(), big).FirstErr())
		cl.Close()
	}
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		cl, err := c.Client(kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))
		require.NoError(t, err)
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Partition: 0, Value: []byte("in a transaction")}).FirstErr())
		require.NoError(t, cl.EndTransaction(t.Context(), end))
		cl.Close()
	}
	// A transaction has ended before its marker is written: 5 x 50 records and two
	// times a record and its marker.
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, kafka.Poll(waiting, func() error {
		ends, err := kadm.NewClient(admin).ListEndOffsets(waiting, "t")
		if o, ok := ends.Lookup("t", 0); err == nil && (!ok || o.Offset != 254) {
			err = fmt.Errorf("log end is %d, want 254", o.Offset)
		}
		return err
	}))
}

func deleteRecords(t *testing.T, c *kafka.Cluster, partition int32, before int64) {
	t.Helper()
	cl, err := c.Client()
	require.NoError(t, err)
	defer cl.Close()
	var o kadm.Offsets
	o.AddOffset("t", partition, before, messages.NoEpoch)
	got, err := kadm.NewClient(cl).DeleteRecords(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, got.Error())
}

// A source leader moves between real brokers: the worker is told where to (from
// 3.7 on with an address), and the copy goes on there.
func TestRealLeaderMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real brokers")
	}
	kafka.Require(t)
	c := kafka.Start(t, kafka.Options{Brokers: 2})
	cl, err := c.Client(kgo.DefaultProduceTopic("t"))
	require.NoError(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), 1, 2, nil, "t")
	require.NoError(t, err)
	for range 20 {
		require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord("before")).FirstErr())
	}
	src := newSource(t, c.Bootstrap())
	topics, err := src.Topics(t.Context(), []string{"t"})
	require.NoError(t, err)
	leader, id := topics.Topics["t"].Partitions[0].Leader, topics.Topics["t"].ID
	s := newMemSink()
	at := func(l fetch.Leader) {
		w := newWorker(t, l.Address(), func(cfg *fetch.WorkerConfig) { cfg.SourceBroker = l.ID })
		require.NoError(t, w.Add(t.Context(), fetch.Assignment{TopicPartition: tp("t", 0), TopicID: id, LeaderEpoch: l.Epoch, Sink: s, Notify: s.notify}))
	}
	at(leader)
	s.waitEnd(t, 20)
	to := 3 - int(leader.ID)
	require.NoError(t, c.ElectLeader(t.Context(), "t", 0, to))
	moved := waitEvent[fetch.SourceLeaderMoved](t, s).Leader
	require.Equal(t, messages.NodeID(to), moved.ID)
	require.Equal(t, c.Addr(to), moved.Address())
	require.Greater(t, moved.Epoch, leader.Epoch)
	at(moved)
	for range 20 {
		require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord("after")).FirstErr())
	}
	s.waitEnd(t, 40)
}

// C11 with real brokers, by topic id and by name (Fetch 12): nothing of the new
// topic gets into the copy.
func TestC11RealTopicRecreated(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real brokers")
	}
	for _, version := range []kafka.Version{kafka.V44, kafka.V30} {
		t.Run(string(version), func(t *testing.T) {
			kafka.Require(t, version)
			c := kafka.Start(t, kafka.Options{Version: version})
			cl, err := c.Client()
			require.NoError(t, err)
			defer cl.Close()
			admin := kadm.NewClient(cl)
			fill := func(n int) {
				require.Eventually(t, func() bool { // the deletion may still be under way
					_, err := admin.CreateTopic(t.Context(), 1, 1, nil, "t")
					return err == nil
				}, 20*time.Second, 100*time.Millisecond)
				producer, err := c.Client(kgo.DefaultProduceTopic("t"))
				require.NoError(t, err)
				defer producer.Close()
				for range n {
					require.NoError(t, producer.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr())
				}
			}
			fill(10)
			src := newSource(t, c.Bootstrap())
			topics, err := src.Topics(t.Context(), []string{"t"})
			require.NoError(t, err)
			leader := topics.Topics["t"].Partitions[0].Leader
			s := newMemSink()
			w := newWorker(t, leader.Address(), func(cfg *fetch.WorkerConfig) { cfg.SourceBroker = leader.ID })
			require.NoError(t, w.Add(t.Context(), fetch.Assignment{TopicPartition: tp("t", 0), TopicID: topics.Topics["t"].ID, LeaderEpoch: leader.Epoch, Sink: s, Notify: s.notify}))
			s.waitEnd(t, 10)
			before := s.bytes()
			_, err = admin.DeleteTopic(t.Context(), "t")
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				got, err := src.Topics(t.Context(), []string{"t"})
				return err == nil && got.Topics["t"].Err != nil
			}, 20*time.Second, 50*time.Millisecond)
			fill(15)
			s.waitFor(t, "an end of the partition", func() bool {
				for _, e := range s.events {
					switch e := e.(type) {
					case fetch.LeaderUnknown:
						return true // the refresh finds the new id
					case fetch.Failed:
						require.ErrorIs(t, e.Err, fetch.ErrTopicRecreated)
						return true
					}
				}
				return false
			})
			require.Equal(t, before, s.bytes())
		})
	}
}

// An unclean election on a real source: the new leader's log is shorter, its
// answer carries a diverging epoch, and the copy ends byte for byte as that log.
func TestRealUncleanElection(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real brokers")
	}
	kafka.Require(t)
	// Broker 3 holds nothing; it keeps the controllers' majority with whoever is up.
	c := kafka.Start(t, kafka.Options{Brokers: 3, Properties: map[string]string{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}})
	cl, err := c.Client(kgo.DefaultProduceTopic("t"), kgo.RequiredAcks(kgo.AllISRAcks()))
	require.NoError(t, err)
	defer cl.Close()
	assignTopic(t, cl, "t", []int32{1, 2})
	write := func(n int, text string) {
		for range n {
			require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord(text)).FirstErr())
		}
	}
	write(20, "common")
	require.NoError(t, c.Stop(2))
	write(10, "only on 1")
	src := newSource(t, c.Addr(3))
	s := newMemSink()
	at := func(id messages.NodeID) {
		var topic fetch.SourceTopic
		require.Eventually(t, func() bool {
			got, err := src.Topics(t.Context(), []string{"t"})
			topic = got.Topics["t"]
			return err == nil && topic.Err == nil && len(topic.Partitions) == 1 && topic.Partitions[0].Leader.ID == id
		}, 60*time.Second, 100*time.Millisecond)
		l := topic.Partitions[0].Leader
		w := newWorker(t, l.Address(), func(cfg *fetch.WorkerConfig) { cfg.SourceBroker = l.ID })
		require.NoError(t, w.Add(t.Context(), fetch.Assignment{TopicPartition: tp("t", 0), TopicID: topic.ID, LeaderEpoch: l.Epoch, Sink: s, Notify: s.notify}))
	}
	at(1)
	s.waitEnd(t, 30)
	require.NoError(t, c.Kill(1))
	require.NoError(t, c.Restart(t.Context(), 2))
	at(2)
	cut := waitEvent[fetch.Truncated](t, s)
	require.Equal(t, int64(20), cut.Cut.From)
	require.Equal(t, int64(30), cut.Cut.To)
	write(5, "after")
	s.waitEnd(t, 25)
	want, err := os.ReadFile(filepath.Join(c.LogDir(2), "t-0", "00000000000000000000.log"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, s.bytes()))
}

func assignTopic(t *testing.T, cl *kgo.Client, topic string, replicas []int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	kt := kmsg.NewCreateTopicsRequestTopic()
	kt.Topic, kt.NumPartitions, kt.ReplicationFactor = topic, -1, -1
	a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	a.Replicas = replicas
	kt.ReplicaAssignment = append(kt.ReplicaAssignment, a)
	req.Topics = append(req.Topics, kt)
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].ErrorCode)
}
