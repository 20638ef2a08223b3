package cluster

import (
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

func TestChooseClusterID(t *testing.T) {
	for _, tc := range []struct {
		name, stored, configured, want string
		wantErr                        error
	}{
		{"stored", "A", "", "A", nil},
		{"both alike", "A", "A", "A", nil},
		{"configured", "", "B", "B", nil},
		{"foreign folder", "A", "B", "", persistence.ErrForeignFolder},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ChooseClusterID(tc.stored, tc.configured)
			require.ErrorIs(t, err, tc.wantErr)
			require.Equal(t, tc.want, got)
		})
	}
	form := regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{21}$`)
	seen := map[string]bool{}
	for range 1000 {
		id, err := ChooseClusterID("", "")
		require.NoError(t, err)
		require.Regexp(t, form, id)
		require.False(t, seen[id])
		seen[id] = true
	}
}

func TestMembershipOfOne(t *testing.T) {
	m := NewMembership(4)
	require.Equal(t, messages.NodeID(4), m.Self())
	require.Equal(t, []messages.NodeID{4}, m.Live())
	require.True(t, m.IsLive(4))
	require.False(t, m.IsLive(5))
	m.Watch(func() {})()
	m.SetSource(func() Beat { return Beat{Leads: 3} })
	b, age, ok := m.Beat(4)
	require.Equal(t, Beat{Node: 4, Leads: 3}, b)
	require.True(t, ok)
	require.Zero(t, age)
	_, _, ok = m.Beat(5)
	require.False(t, ok)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
}

func openTestMembership(tb testing.TB, bus *Bus, change func(*MembershipOptions)) *Membership {
	tb.Helper()
	o := MembershipOptions{Bus: bus, Interval: 20 * time.Millisecond, DeadAfter: 10 * time.Second, Logger: zap.NewNop()}
	if change != nil {
		change(&o)
	}
	m, err := OpenMembership(tb.Context(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, m.Close()) })
	return m
}

func TestMembershipOfThree(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	members := map[messages.NodeID]*Membership{}
	for id := range c.servers {
		members[id] = openTestMembership(t, c.bus(id), nil)
	}
	members[2].SetSource(func() Beat {
		return Beat{Node: 77, Leads: 5, Shards: []ShardProgress{{-1, 10, 9}}, Extension: []byte("x")}
	})
	all := []messages.NodeID{1, 2, 3}
	for id, m := range members {
		require.Equal(t, id, m.Self())
		eventually(t, "all alive", func() bool { return slices.Equal(all, m.Live()) })
	}
	eventually(t, "the load of a beat", func() bool { b, _, _ := members[1].Beat(2); return b.Leads == 5 })
	b, _, ok := members[1].Beat(2)
	require.True(t, ok)
	require.Equal(t, Beat{
		Node: 2, Incarnation: members[2].Incarnation(), Number: b.Number, Leads: 5,
		Shards: []ShardProgress{{-1, 10, 9}}, Extension: []byte("x"),
	}, b)
	_, _, ok = members[1].Beat(4)
	require.False(t, ok)
	own, _, ok := members[2].Beat(2)
	require.True(t, ok)
	require.Equal(t, 5, own.Leads)

	// A goodbye is seen at once: long before ten seconds of silence.
	changed := make(chan struct{}, 10)
	cancel := members[1].Watch(func() { changed <- struct{}{} })
	defer cancel()
	require.NoError(t, members[3].Close())
	<-changed
	require.Equal(t, []messages.NodeID{1, 2}, members[1].Live())
	require.False(t, members[1].IsLive(3))
	require.True(t, members[1].IsLive(2))
	again := openTestMembership(t, c.bus(3), nil)
	<-changed
	require.True(t, members[1].IsLive(3))
	require.NotEqual(t, members[3].Incarnation(), again.Incarnation())
}

func TestMembershipDeath(t *testing.T) {
	c := startTestCluster(t, 3, nil)
	m := openTestMembership(t, c.bus(1), func(o *MembershipOptions) { o.DeadAfter = 300 * time.Millisecond })
	dying := c.bus(2)
	openTestMembership(t, dying, nil)
	eventually(t, "both alive", func() bool { return len(m.Live()) == 2 })
	require.NoError(t, dying.Close()) // without a goodbye
	eventually(t, "death", func() bool { return !m.IsLive(2) })
	_, age, ok := m.Beat(2)
	require.True(t, ok, "the last beat stays")
	require.GreaterOrEqual(t, age, 300*time.Millisecond)
}

// TestMembershipNodeIDTaken: two processes of one id, as they are seen by one of
// them and by another node.
func TestMembershipNodeIDTaken(t *testing.T) {
	c := startTestCluster(t, 2, nil)
	var errs [3]chan error
	taken := func(i int) func(*MembershipOptions) {
		errs[i] = make(chan error, 1)
		return func(o *MembershipOptions) {
			o.OnNodeIDTaken = func(err error) {
				select {
				case errs[i] <- err:
				default:
				}
			}
		}
	}
	openTestMembership(t, c.bus(1), taken(0))
	openTestMembership(t, c.bus(1), taken(1))
	openTestMembership(t, c.bus(2), taken(2))
	for _, ch := range errs {
		err := <-ch
		require.ErrorIs(t, err, ErrNodeIDTaken)
		require.ErrorContains(t, err, "node 1")
	}
}

// stoppedClock lets a test say how long a process was away.
type stoppedClock struct {
	clock.Wall
	ahead atomic.Int64
}

func (c *stoppedClock) Now() time.Time { return c.Wall.Now().Add(time.Duration(c.ahead.Load())) }

// TestMembershipAway: a process that didn't run tells its owner, and holds
// nobody for dead because of it.
func TestMembershipAway(t *testing.T) {
	c := startTestCluster(t, 2, nil)
	jump := &stoppedClock{}
	away := make(chan time.Duration, 1)
	m := openTestMembership(t, c.bus(1), func(o *MembershipOptions) {
		o.Clock, o.OnAway = jump, func(d time.Duration) { away <- d }
	})
	openTestMembership(t, c.bus(2), nil)
	eventually(t, "both alive", func() bool { return len(m.Live()) == 2 })
	var fewer atomic.Bool
	defer m.Watch(func() { fewer.Store(true) })()
	jump.ahead.Store(int64(time.Hour))
	require.GreaterOrEqual(t, <-away, time.Hour)
	require.Equal(t, []messages.NodeID{1, 2}, m.Live())
	require.False(t, fewer.Load())
}

// The metadata store runs on a replica, and images that it makes drive the
// replicas of topics.
func TestMetadataReplica(t *testing.T) {
	store, folder := newFakeStore(), t.TempDir()
	var offset int64
	for round := range 2 {
		checkpoints, err := OpenCheckpoints(persistence.OSFS{}, folder, zap.NewNop())
		require.NoError(t, err)
		r, err := OpenMetadataReplica(t.Context(), 1, store, checkpoints, zap.NewNop())
		require.NoError(t, err)
		require.True(t, store.config(r.TopicPartition()).FlushAlways)
		_, err = r.AppendInternal(t.Context(), records(0, 1, 0))
		require.ErrorIs(t, err, messages.ErrNotLeader, "not before the controller's claim")
		require.NoError(t, r.Claim(t.Context(), int32(round)))
		ms, err := metadata.Open(t.Context(), metadata.Options{Journal: r, Source: r, Dir: t.TempDir(), Now: func() int64 { return 1 }, Logger: zap.NewNop()})
		require.NoError(t, err)
		rs := NewReplicas(t.Context(), ReplicasOptions{Node: 1, Logs: store, Checkpoints: checkpoints, Logger: zap.NewNop()})
		cancel := ms.Subscribe(rs.Apply)
		if round == 0 {
			offset, err = ms.Append(t.Context(), topicRecords("a", 1, 2), messages.Requester{})
			require.NoError(t, err)
		}
		require.NoError(t, rs.WaitApplied(t.Context(), offset))
		got, err := rs.Leading(messages.TopicPartition{Topic: "a", Partition: 1}, messages.TopicID{})
		require.NoError(t, err)
		require.Equal(t, int64(3*round), got.State().End)
		_, err = got.AppendClient(t.Context(), records(0, 3, 0), anyEpoch)
		require.NoError(t, err)
		cancel()
		require.NoError(t, rs.Close())
		require.NoError(t, ms.Close())
		require.NoError(t, r.Close())
		require.NoError(t, checkpoints.Close())
	}
}
