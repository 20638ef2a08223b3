package cluster

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// TestCheckpointsDiskFull: a write that finds no room is refused and leaves no
// trace, and the file goes on when there is room. All partitions share the file.
func TestCheckpointsDiskFull(t *testing.T) {
	for left := int64(0); left < 3*checkpointRecordSize; left += 9 {
		fsys := newFaultFS(t)
		c, err := OpenCheckpoints(fsys, faultFolder, zap.NewNop())
		require.NoError(t, err)
		require.NoError(t, c.Put(true, checkpointAt(1)))
		fsys.SpaceLeft = left
		// three records, of which some may fit
		require.ErrorIs(t, c.Put(true, checkpointAt(2), checkpointAt(3), checkpointAt(4)), messages.ErrStorage)
		fsys.SpaceLeft = -1
		require.NoError(t, c.Put(true, checkpointAt(5)), "left %d", left)
		require.NoError(t, c.Close())
		c, err = OpenCheckpoints(fsys, faultFolder, zap.NewNop())
		require.NoError(t, err)
		require.Len(t, c.untaken, 2, "left %d", left)
		for _, n := range []int{1, 5} {
			cp, ok := c.Take(checkpointAt(n).Key)
			require.True(t, ok)
			require.Equal(t, checkpointAt(n).State, cp.State)
		}
		require.NoError(t, c.Close())
	}
}

// TestDiskFullDuringChanges: claims, modes, cuts and appends find no room, at any
// point. When there is room the partition goes on without being opened again, and
// what it says then is what a restart finds. Only a log that ran out of room in the
// middle of a cut wants to be opened again, and finishes the cut then.
func TestDiskFullDuringChanges(t *testing.T) {
	reopened := 0
	for left := int64(0); left < 1200; left += 11 {
		fsys, ctx := newFaultFS(t), t.Context()
		g, err := openFaultRig(ctx, fsys)
		require.NoError(t, err)
		require.NoError(t, g.r.Claim(ctx, 1))
		change := func() error {
			if _, err := g.r.SetMode(ctx, messages.ModeSealed); err != nil {
				return err
			}
			if _, err := g.r.Truncate(ctx, 7, "test"); err != nil {
				return err
			}
			if err := g.r.Claim(ctx, g.r.State().LeaderEpoch+1); err != nil {
				return err
			}
			if _, err := g.r.SetMode(ctx, messages.ModeWritable); err != nil {
				return err
			}
			_, err := g.r.AppendClient(ctx, batch.Single(1, nil, []byte("after")), persistence.ClientAppend{LeaderEpoch: messages.NoEpoch})
			return err
		}
		for range 10 {
			_, err := g.r.AppendClient(ctx, batch.Single(1, nil, []byte("before")), persistence.ClientAppend{LeaderEpoch: messages.NoEpoch})
			require.NoError(t, err)
		}
		fsys.SpaceLeft = left
		for range 3 {
			_ = change()
		}
		fsys.SpaceLeft = -1
		err = change()
		if errors.Is(err, persistence.ErrStorage) {
			reopened++
			_ = g.r.Close()
			g.close()
			g, err = openFaultRig(ctx, fsys)
			require.NoError(t, err, "left %d", left)
			require.EqualValues(t, 7, g.r.State().End, "left %d", left)
			require.NoError(t, g.r.Claim(ctx, 100))
		} else if err != nil { // an unfinished cut was finished, and is a new generation
			require.ErrorIs(t, err, messages.ErrNotLeader, "left %d", left)
		}
		require.NoError(t, change(), "left %d", left)
		want := g.r.State()
		require.EqualValues(t, 8, want.End)
		require.NoError(t, g.r.Close())
		g.close()
		g, err = openFaultRig(ctx, fsys)
		require.NoError(t, err)
		got := g.r.State()
		require.Equal(t, want.End, got.End, "left %d", left)
		require.Equal(t, want.LeaderEpoch, got.LeaderEpoch)
		require.Equal(t, want.Mode, got.Mode)
		require.NoError(t, g.r.Close())
		g.close()
	}
	require.Less(t, reopened, 10, "of 110")
}
