package cluster

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestStreamSurvivesNodes: elections, restarts and reconnects cost a follower
// nothing, and what was published with an unknown outcome is there once.
func TestStreamSurvivesNodes(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], nil)
	st, err := s.Open(testContext(t), "0", 3)
	require.NoError(t, err)
	f := follow(t, st, 1, false)

	var want []string
	publish := func(n int) {
		texts := numbered(len(want)+1, len(want)+n)
		want = append(want, texts...)
		publishSafely(t, st, texts...)
	}
	publish(10)
	for _, leader := range []messages.NodeID{2, 1, 3} {
		require.NoError(t, st.StepDown(testContext(t), leader))
		publish(10)
	}
	require.NoError(t, st.StepDown(testContext(t), -1))
	publish(10)
	for _, id := range []messages.NodeID{2, 3} {
		c.stop(id)
		publish(10)
		c.start(id)
		publish(10)
	}
	require.NoError(t, s.read.ForceReconnect())
	publish(10)
	require.NoError(t, s.send.ForceReconnect())
	publish(10)
	require.Equal(t, want, f.wait(t, len(want)))

	// The last nodes but one leave: no quorum, an outcome that nobody knows.
	c.stop(2)
	c.stop(3)
	require.ErrorIs(t, publishAll(st, "lonely")[0].err, ErrOutcomeUnknown)
	c.start(2)
	publishSafely(t, st, "lonely")
	require.Equal(t, append(want, "lonely"), f.wait(t, len(want)+1))
}

// TestRequestOverReconnect: a request that waits as its connection goes is made again.
func TestRequestOverReconnect(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], nil)
	other := openTestStreams(t, c.servers[1], nil)
	asked := 0
	sub, err := other.read.Subscribe("ask", func(m *nats.Msg) {
		if asked++; asked == 1 {
			assert.NoError(t, s.read.ForceReconnect())
			return
		}
		assert.NoError(t, m.Respond([]byte(`{}`)))
	})
	require.NoError(t, err)
	require.NoError(t, other.read.Flush())
	require.NoError(t, s.retry(testContext(t), func(ctx context.Context) error {
		_, err := s.request(ctx, &nats.Msg{Subject: "ask"})
		return err
	}))
	require.NoError(t, sub.Unsubscribe())
	require.Equal(t, 2, asked)
}

// TestStreamWentBack: journal folders that were put back to an older copy.
func TestStreamWentBack(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	ids := []messages.NodeID{1, 2, 3}
	s := openTestStreams(t, c.servers[1], nil)
	st, err := s.Open(testContext(t), "0", 3)
	require.NoError(t, err)
	publishSafely(t, st, numbered(1, 10)...)
	stopAll := func() {
		require.NoError(t, s.Close())
		for _, id := range ids {
			c.stop(id)
		}
	}
	startAll := func() {
		for _, id := range ids {
			c.start(id)
		}
		s = openTestStreams(t, c.servers[1], nil)
		st, err = s.Open(testContext(t), "0", 3)
		require.NoError(t, err)
	}
	stopAll()
	for _, id := range ids {
		copyFolder(t, c.store(id), filepath.Join(c.dir, "copies", natsName(id)))
	}
	startAll()
	publishSafely(t, st, numbered(11, 20)...)
	require.Equal(t, numbered(15, 20), follow(t, st, 15, false).wait(t, 6))
	stopAll()
	for _, id := range ids {
		copyFolder(t, filepath.Join(c.dir, "copies", natsName(id)), c.store(id))
	}
	startAll()
	require.ErrorIs(t, follow(t, st, 21, false).result(t), ErrJournalWentBack)
	require.ErrorIs(t, follow(t, st, 12, false).result(t), ErrJournalWentBack)
	ahead := follow(t, st, 11, false)
	publishSafely(t, st, "other")
	require.Equal(t, []string{"other"}, ahead.wait(t, 1))
}

// TestStreamScale: a stream of one node becomes one of three, which outlives it.
func TestStreamScale(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], nil)
	third := messages.NodeID(3)
	st, err := s.OpenStream(testContext(t), StreamOptions{Name: "0", Replicas: 1, Leader: &third})
	require.NoError(t, err)
	leader, err := st.Leader(testContext(t))
	require.NoError(t, err)
	require.Equal(t, third, leader)
	require.NoError(t, st.StepDown(testContext(t), third), "it leads already")
	f := follow(t, st, 1, false)
	publishSafely(t, st, numbered(1, 10)...)
	require.NoError(t, st.Scale(testContext(t), 3))
	require.NoError(t, st.Scale(testContext(t), 3), "again")
	eventually(t, "three replicas without a lag", func() bool {
		state, err := st.State(testContext(t))
		return err == nil && state.Replicas == 3 && len(state.Current) == 3 && !state.Moving
	})
	c.stop(3)
	publishSafely(t, st, numbered(11, 20)...)
	require.Equal(t, numbered(1, 20), f.wait(t, 20))
}

// TestStreamLosesOneInside: a message that even the leader doesn't have any more,
// between others that are there.
func TestStreamLosesOneInside(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], nil)
	st := s.stream("0")
	config := st.config(StreamOptions{Replicas: 3})
	config.DenyDelete = false
	require.NoError(t, s.api(testContext(t), "STREAM.CREATE."+st.stream, config, nil))
	publishSafely(t, st, numbered(1, 6)...)
	for _, lost := range []int{3, 4} {
		require.NoError(t, s.api(testContext(t), "STREAM.MSG.DELETE."+st.stream, map[string]int{"seq": lost}, nil))
	}
	f := follow(t, st, 1, false)
	require.Equal(t, &HoleError{"0", 3, 5}, f.result(t))
	require.Equal(t, 2, f.count())
	require.Equal(t, numbered(5, 6), follow(t, st, 5, false).wait(t, 2))
}

// TestStreamWithoutDirectGet: no replica answers, so the leader does.
func TestStreamWithoutDirectGet(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[1], nil)
	st, err := s.Open(testContext(t), "0", 3)
	require.NoError(t, err)
	publishSafely(t, st, numbered(1, 5)...)
	info, err := st.led(testContext(t))
	require.NoError(t, err)
	info.Config.AllowDirect = false
	require.NoError(t, st.update(testContext(t), info.Config))
	require.Equal(t, numbered(1, 5), follow(t, st, 1, false).wait(t, 5))
}

func TestStreamWhoseInfoCounts(t *testing.T) {
	peer := func(name string, active time.Duration, offline bool) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Name: name, Active: active, Offline: offline}
	}
	for _, tc := range []struct {
		name            string
		cluster         *jetstream.ClusterInfo
		leader, trusted bool
	}{
		{"no cluster", nil, false, false},
		{"nobody leads", &jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{peer("b", 0, false), peer("c", 0, false)}}, false, false},
		{"a follower answers", &jetstream.ClusterInfo{Leader: "b", Replicas: []*jetstream.PeerInfo{peer("b", 0, false), peer("c", 0, false)}}, false, false},
		{"leader, all there", &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{peer("b", time.Second, false), peer("c", 0, false)}}, true, true},
		{"leader, one lost", &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{peer("b", time.Hour, false), peer("c", 0, false)}}, true, true},
		{"leader cut off", &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{peer("b", 4*time.Second, false), peer("c", 0, true)}}, true, false},
		{"one replica", &jetstream.ClusterInfo{Leader: "a"}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info := &jetstream.StreamInfo{Cluster: tc.cluster}
			require.Equal(t, tc.leader, fromLeader(info))
			require.Equal(t, tc.trusted, fromLeader(info) && hearsQuorum(info))
		})
	}
}

// TestStreamClosedWhileInFlight: every publish has one outcome.
func TestStreamClosedWhileInFlight(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	s := openTestStreams(t, c.servers[2], nil)
	st, err := s.Open(testContext(t), "0", 3)
	require.NoError(t, err)
	outcomes := make(chan error, 1000)
	for _, text := range numbered(1, 1000) {
		st.Publish(text, []byte(text), func(_ uint64, err error) { outcomes <- err })
	}
	require.NoError(t, s.Close())
	var closed int
	for range 1000 {
		if err := <-outcomes; err != nil {
			require.ErrorIs(t, err, ErrClosed)
			closed++
		}
	}
	t.Logf("%d of 1000 were in flight", closed)
	again := openTestStreams(t, c.servers[3], nil)
	st, err = again.Open(testContext(t), "0", 3)
	require.NoError(t, err)
	_, last, err := st.Bounds(testContext(t))
	require.NoError(t, err)
	require.GreaterOrEqual(t, int(last), 1000-closed)
	texts := follow(t, st, 1, false).wait(t, int(last))
	require.Equal(t, numbered(1, int(last)), texts[:last])
	require.True(t, slices.IsSortedFunc(texts, func(a, b string) int { return len(a) - len(b) }))
}
