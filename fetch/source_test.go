package fetch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap/zaptest"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

func newSource(tb testing.TB, address string) *fetch.Source {
	tb.Helper()
	s, err := fetch.NewSource(fetch.SourceConfig{
		Source: plainConfig(tb, address), Mirror: "m", Node: 7, RequestTimeout: 5 * time.Second, Log: zaptest.NewLogger(tb),
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func TestSourceTopology(t *testing.T) {
	c := startStub(t, 3)
	c.Update(func(st *stub.State) {
		topic := st.NewTopic("t", topicID, 3)
		for i, p := range topic.Partitions {
			p.Leader, p.Epoch = int32(i), int32(10+i)
			p.Fill(5 + i)
		}
		topic.Partitions[2].Leader = -1
		topic.Partitions[1].Trim(2)
		st.NewTopic("__internal", messages.TopicID{9}, 1).Internal = true
		const notAllowed = 29
		st.NewTopic("secret", messages.TopicID{8}, 1).Code = notAllowed
	})
	s := newSource(t, c.Address())
	id, err := s.ClusterID(t.Context())
	require.NoError(t, err)
	require.Equal(t, "stub-cluster", id)
	brokers, err := s.Brokers(t.Context())
	require.NoError(t, err)
	require.Len(t, brokers, 3)

	all, err := s.Topics(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, all.Topics, 3)
	require.True(t, all.Topics["__internal"].Internal)
	require.Error(t, all.Topics["secret"].Err)
	topic := all.Topics["t"]
	require.Equal(t, topicID, topic.ID)
	require.Equal(t, fetch.Leader{ID: 1, Epoch: 11, Host: "127.0.0.1", Port: topic.Partitions[1].Leader.Port}, topic.Partitions[1].Leader)
	require.Equal(t, c.Broker(1).Address(), topic.Partitions[1].Leader.Address())
	require.Equal(t, messages.NoNode, topic.Partitions[2].Leader.ID)
	require.Error(t, topic.Partitions[2].Err)

	some, err := s.Topics(t.Context(), []string{"nope"})
	require.NoError(t, err)
	require.Error(t, some.Topics["nope"].Err)

	queries := []fetch.OffsetQuery{{tp("t", 0), 10}, {tp("t", 1), 11}, {tp("t", 1), 11}, {tp("nope", 0), -1}}
	first, err := s.ListOffsets(t.Context(), fetch.Earliest, queries)
	require.NoError(t, err)
	require.Equal(t, int64(0), first[tp("t", 0)].Offset)
	require.Equal(t, int64(2), first[tp("t", 1)].Offset)
	require.Error(t, first[tp("nope", 0)].Err)
	last, err := s.ListOffsets(t.Context(), fetch.Latest, queries[:2])
	require.NoError(t, err)
	require.Equal(t, int64(6), last[tp("t", 1)].Offset)
	fenced, err := s.ListOffsets(t.Context(), fetch.Latest, []fetch.OffsetQuery{{tp("t", 0), 9}})
	require.NoError(t, err)
	require.Error(t, fenced[tp("t", 0)].Err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

func TestSourceTopicConfigs(t *testing.T) {
	c := oneTopic(t, 1, func(st *stub.State, topic *stub.Topic) { topic.Configs["retention.ms"] = "5" })
	got, err := newSource(t, c.Address()).TopicConfigs(t.Context(), []string{"t", "nope"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"retention.ms": "5"}, got["t"].Overrides)
	require.NoError(t, got["t"].Err)
	require.Error(t, got["nope"].Err)
}

func requireLME(t *testing.T, want int32, m fetch.Mirrors, tp messages.TopicPartition) {
	t.Helper()
	got, err := m.LME("m", tp)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// workflows.md "LOG_TRUNCATION in detail", the table of step 2, and OP-35.
func TestLastMirrorEpochs(t *testing.T) {
	c := startStub(t, 2)
	s := newSource(t, c.Address())
	m, err := s.LastMirrorEpochs(t.Context(), "m")
	require.NoError(t, err)
	require.False(t, m.Supported, "the request isn't offered")
	requireLME(t, messages.NoEpoch, m, tp("t", 0))

	c.Update(func(st *stub.State) { st.Versions = stub.VersionsWithMirrors() })
	s = newSource(t, c.Address())
	m, err = s.LastMirrorEpochs(t.Context(), "m")
	require.NoError(t, err)
	require.True(t, m.Supported)
	requireLME(t, messages.NoEpoch, m, tp("t", 0))

	c.Update(func(st *stub.State) {
		st.Mirrors[0] = []wire.DescribeClusterMirrorsResponseDescribedMirror{
			stub.Mirror("m", messages.StateStopped, map[messages.TopicPartition]int32{tp("t", 0): 5}),
			stub.Mirror("back", messages.StateMirroring, map[messages.TopicPartition]int32{tp("u", 0): -1}),
		}
		st.Mirrors[1] = []wire.DescribeClusterMirrorsResponseDescribedMirror{
			stub.Mirror("m", messages.StateStopped, map[messages.TopicPartition]int32{tp("t", 1): 7, tp("t", 2): -1}),
		}
	})
	m, err = s.LastMirrorEpochs(t.Context(), "m")
	require.NoError(t, err)
	for partition, want := range []int32{5, 7, -1, -1} {
		requireLME(t, want, m, tp("t", int32(partition)))
	}
	m, err = s.AllMirrors(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.CheckLoop("t", "ours", "theirs"))
	require.ErrorIs(t, m.CheckLoop("u", "ours", "theirs"), fetch.ErrMirrorLoop)
	require.ErrorIs(t, m.CheckLoop("t", "same", "same"), fetch.ErrMirrorLoop)
	require.False(t, fetch.Retriable(m.CheckLoop("u", "", "")))

	// A broker that can't be asked must not look like one that knows nothing.
	c.Broker(1).Down()
	_, err = s.LastMirrorEpochs(t.Context(), "m")
	require.True(t, fetch.IsConnection(err), "%v", err)

	// C46: but for a cluster that doesn't have the request one broker is enough.
	c.Update(func(st *stub.State) { st.Versions = stub.NewestVersions() })
	m, err = newSource(t, c.Address()).LastMirrorEpochs(t.Context(), "m")
	require.NoError(t, err)
	require.False(t, m.Supported)
}

func TestSourceLogins(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		for _, password := range []string{"right", "wr0ng-secret"} {
			t.Run(mechanism+" "+password, func(t *testing.T) {
				_, address := fakeCluster(t, 1, kfake.EnableSASL(), kfake.Superuser(mechanism, "alice", "right"))
				module := "scram.ScramLoginModule"
				if mechanism == "PLAIN" {
					module = "plain.PlainLoginModule"
				}
				cfg, err := fetch.ParseConfig(map[string]string{
					"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
					"sasl.jaas.config": "org.apache.kafka.common.security." + module + ` required username="alice" password="` + password + `";`,
				})
				require.NoError(t, err)
				require.NotContains(t, cfg.String(), password)
				s, err := fetch.NewSource(fetch.SourceConfig{Source: cfg, Mirror: "m", RequestTimeout: 3 * time.Second, Log: zaptest.NewLogger(t)})
				require.NoError(t, err)
				defer s.Close()
				_, err = s.ClusterID(t.Context())
				if password == "right" {
					require.NoError(t, err)
					return
				}
				require.True(t, fetch.IsConnection(err))
				require.NotContains(t, err.Error(), password)
			})
		}
	}
}
