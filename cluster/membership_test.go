package cluster

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

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
