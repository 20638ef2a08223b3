package cluster

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/faultfs"
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
// point. When there is room the partition goes on without being opened again, also
// in the middle of a cut, and what it says then is what a restart finds.
func TestDiskFullDuringChanges(t *testing.T) {
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
		require.NoError(t, change(), "left %d", left)
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
}

// TestC29DiskFullDuringReplicaCut: every write of a cut finds no room once. The cut
// goes on in place with the next change, whichever that is, and is told once: as
// the result of the call or, if that failed, by TakeFinished.
func TestC29DiskFullDuringReplicaCut(t *testing.T) {
	cuts := map[string]func(r *Replica) (persistence.Cut, error){
		"truncate": func(r *Replica) (persistence.Cut, error) { return r.Truncate(t.Context(), 7, "test") },
		"restart": func(r *Replica) (persistence.Cut, error) {
			cut, _, err := r.RestartAt(t.Context(), 3, "test")
			return cut, err
		},
	}
	for name, do := range cuts {
		taken := 0
		for writes := 0; ; writes++ {
			fsys, ctx := newFaultFS(t), t.Context()
			g, err := openFaultRig(ctx, fsys)
			require.NoError(t, err)
			require.NoError(t, g.r.Claim(ctx, 1))
			for range 10 {
				_, err := g.r.AppendClient(ctx, batch.Single(1, nil, []byte("before")), persistence.ClientAppend{LeaderEpoch: messages.NoEpoch})
				require.NoError(t, err)
			}
			_, err = g.r.SetMode(ctx, messages.ModeSealed)
			require.NoError(t, err)
			want, err := g.r.Log().PlanCut(7)
			if name == "restart" {
				want, err = g.r.Log().PlanCut(0)
				want.From = 3
			}
			require.NoError(t, err)
			left := writes
			fsys.Fault = func(op faultfs.Op) error {
				if op.Kind != "write" && op.Kind != "create" {
					return nil
				}
				if left--; left < 0 {
					return syscall.ENOSPC
				}
				return nil
			}
			got, failed := do(g.r)
			fsys.Fault = nil
			if failed != nil {
				require.ErrorIs(t, failed, syscall.ENOSPC, "%s, %d writes", name, writes)
				_, err := g.r.SetMode(ctx, messages.ModeSealed) // what the next attempt begins with
				require.NoError(t, err, "%s, %d writes", name, writes)
				if got = g.r.TakeFinished(); got == (persistence.Cut{}) { // it had not begun
					got, err = do(g.r)
					require.NoError(t, err)
				} else {
					taken++
				}
			}
			require.Equal(t, want, got, "%s, %d writes", name, writes)
			require.Zero(t, g.r.TakeFinished(), "told once")
			require.Equal(t, want.From, g.r.State().End)
			require.NoError(t, g.r.Close())
			g.close()
			if failed == nil {
				break
			}
		}
		require.Positive(t, taken, name)
	}
}
