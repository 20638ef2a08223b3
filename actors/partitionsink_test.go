package actors

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/messages"
	"kagami/persistence"
)

// TestSinkRestartThenAppend: when the source's log start lies within a batch, the
// worker restarts the log at the batch and appends it, in one decision. Its own
// restart doesn't refuse its append; anybody else's cut in between does.
func TestSinkRestartThenAppend(t *testing.T) {
	rows := []struct {
		name  string
		cut   bool // somebody else's, after the restart
		fails bool
	}{
		{name: "alone"},
		{name: "cut in between", cut: true, fails: true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			ctx, dir := t.Context(), t.TempDir()
			logs, err := persistence.Open(ctx, dir, persistence.Options{ClusterID: "c", NodeID: 1, Logger: zap.NewNop()})
			require.NoError(t, err)
			defer logs.Close()
			points, err := cluster.OpenCheckpoints(persistence.OSFS{}, dir, zap.NewNop())
			require.NoError(t, err)
			defer points.Close()
			replica, err := cluster.OpenMetadataReplica(ctx, 1, logs, points, zap.NewNop()) // a replica like any other
			require.NoError(t, err)
			defer replica.Close()
			require.NoError(t, replica.Claim(ctx, 3))
			_, err = replica.SetMode(ctx, messages.ModeMirroring)
			require.NoError(t, err)

			s := &replicaSink{replica: replica}
			s.State()
			_, err = s.RestartAt(ctx, 4, "log start 5 lies within a batch")
			require.NoError(t, err)
			if row.cut {
				_, _, err = replica.RestartAt(ctx, 4, "by somebody else")
				require.NoError(t, err)
			}
			got, err := s.AppendMirror(ctx, 4, sourceBatch(4, 3, false))
			if row.fails {
				require.ErrorIs(t, err, messages.ErrNotLeader)
				return
			}
			require.NoError(t, err)
			require.Equal(t, replica.State().End, got.End)
		})
	}
}
