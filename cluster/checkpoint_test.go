package cluster

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
)

func checkpointAt(n int) Checkpoint {
	return Checkpoint{
		Key: messages.PartitionKey{TopicID: messages.TopicID{15: byte(n % 7)}, CreatedAt: 3, Partition: int32(n % 3)},
		State: journal.State{
			Sequence: int64(n), Generation: int64(n - 1), Mode: messages.ModeSealed, Epoch: int32(n), Node: 4,
			LogStart: 5, LogEnd: int64(n) + 1000, ModeOffset: int64(n) + 900,
		},
	}
}

func openCheckpoints(tb testing.TB, folder string) *Checkpoints {
	tb.Helper()
	c, err := OpenCheckpoints(persistence.OSFS{}, folder, zap.NewNop())
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c
}

// TestCheckpointsCrash: whatever a crash leaves of the bytes behind the last
// durable put, everything up to it is there.
func TestCheckpointsCrash(t *testing.T) {
	folder := t.TempDir()
	c := openCheckpoints(t, folder)
	want := map[messages.PartitionKey]Checkpoint{}
	for n := range 40 {
		cp := checkpointAt(n)
		if n == 17 {
			cp.Pending, cp.PendingOffset = journal.OpTruncate, 12
		}
		require.NoError(t, c.Put(n%5 == 4, cp))
		want[cp.Key] = cp
	}
	path := filepath.Join(folder, CheckpointFileName)
	durable, err := os.ReadFile(path)
	require.NoError(t, err)
	late := checkpointAt(39)
	late.State.Sequence = 5000
	require.NoError(t, c.Put(false, late))
	all, err := os.ReadFile(path)
	require.NoError(t, err)
	for size := len(durable); size <= len(all); size++ {
		for _, flip := range []bool{false, true} {
			torn := append([]byte(nil), all[:size]...)
			if flip && size > len(durable) {
				torn[size-1] ^= 0x40
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, CheckpointFileName), torn, 0o600))
			r, err := OpenCheckpoints(persistence.OSFS{}, dir, zap.NewNop())
			require.NoError(t, err, "size %d", size)
			for key, cp := range want {
				got, ok := r.Take(key)
				require.True(t, ok)
				if size == len(all) && !flip && key == late.Key {
					cp = late
				}
				if d := cmp.Diff(cp, got); d != "" {
					t.Fatalf("size %d, flip %v (-want +got):\n%s", size, flip, d)
				}
				_, again := r.Take(key)
				require.False(t, again)
			}
			require.NoError(t, r.Put(true, checkpointAt(1)), "goes on")
			require.NoError(t, r.Close())
		}
	}
}

func TestCheckpointsDamageInTheMiddle(t *testing.T) {
	folder := t.TempDir()
	c := openCheckpoints(t, folder)
	pending := checkpointAt(0)
	pending.Pending, pending.PendingOffset = journal.OpTruncate, 7
	require.NoError(t, c.Put(false, pending, checkpointAt(1), checkpointAt(2)))
	require.NoError(t, c.Close())
	path := filepath.Join(folder, CheckpointFileName)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[checkpointHeaderSize+checkpointRecordSize+50] ^= 1 // the second record: perhaps the end of that cut
	require.NoError(t, os.WriteFile(path, b, 0o600))
	c = openCheckpoints(t, folder)
	got, ok := c.Take(pending.Key)
	require.True(t, ok)
	require.Zero(t, got.Pending, "a cut isn't repeated when its end may have been lost")
	_, ok = c.Take(checkpointAt(1).Key)
	require.False(t, ok)
	_, ok = c.Take(checkpointAt(2).Key)
	require.True(t, ok)
}

func TestCheckpointsForeignFile(t *testing.T) {
	next := checkpointHeader()
	binary.BigEndian.PutUint32(next[8:], checkpointVersion+1)
	for _, tc := range []struct {
		name    string
		content []byte
		want    error
	}{
		{"empty", nil, nil},
		{"torn header", checkpointHeader()[:9], nil},
		{"next version", next, ErrDamaged},
		{"something else", []byte("this is not a checkpoint file at all"), ErrDamaged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, CheckpointFileName), tc.content, 0o600))
			c, err := OpenCheckpoints(persistence.OSFS{}, folder, zap.NewNop())
			require.ErrorIs(t, err, tc.want)
			if c != nil {
				require.NoError(t, c.Close())
			}
		})
	}
}

func TestCheckpointsCompaction(t *testing.T) {
	folder := t.TempDir()
	c := openCheckpoints(t, folder)
	c.compactAt = 40 * checkpointRecordSize
	for n := range 1000 {
		require.NoError(t, c.Put(n%100 == 0, checkpointAt(n)))
		if c.size < 25*checkpointRecordSize {
			c.compactAt = 40 * checkpointRecordSize // else the limit for real files comes back
		}
	}
	require.Less(t, c.size, int64(60*checkpointRecordSize))
	require.NoError(t, c.Delete(checkpointAt(999).Key))
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Put(true, checkpointAt(1)), ErrClosed)

	c = openCheckpoints(t, folder)
	found := 0
	for n := 979; n < 1000; n++ {
		if got, ok := c.Take(checkpointAt(n).Key); ok {
			require.Equal(t, checkpointAt(n), got)
			found++
		}
	}
	require.Equal(t, 20, found, "all but the deleted one")
	require.NoError(t, c.Put(false, checkpointAt(5)))
	require.NoError(t, c.Close())
	c = openCheckpoints(t, folder)
	require.NoError(t, c.Forget(func(key messages.PartitionKey) bool { return key != checkpointAt(5).Key }))
	require.NoError(t, c.Close())
	c = openCheckpoints(t, folder)
	_, ok := c.Take(checkpointAt(5).Key)
	require.False(t, ok, "forgotten")
	require.Len(t, c.untaken, 19, "the others are kept")
}

func TestCheckpointsShareSyncs(t *testing.T) {
	folder := t.TempDir()
	c := openCheckpoints(t, folder)
	var writers sync.WaitGroup
	errs := make(chan error, 32)
	for w := range 32 {
		writers.Go(func() {
			for n := range 20 {
				cp := checkpointAt(n)
				cp.Key.CreatedAt = int64(w)
				if err := c.Put(true, cp); err != nil {
					errs <- err
				}
			}
		})
	}
	writers.Wait()
	close(errs)
	require.NoError(t, <-errs)
	require.Equal(t, c.written, c.synced)
	require.NoError(t, c.Close())
	c = openCheckpoints(t, folder)
	require.Len(t, c.untaken, 32*20)
}

func TestCheckpointsFailedWriteSticks(t *testing.T) {
	c, err := OpenCheckpoints(persistence.OSFS{}, t.TempDir(), zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, c.file.Close())
	require.ErrorIs(t, c.Put(false, checkpointAt(1)), messages.ErrStorage)
	require.ErrorIs(t, c.Put(true, checkpointAt(1)), messages.ErrStorage)
	require.Error(t, c.Close())
}

func BenchmarkCheckpointsPut(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("durable/writers=%d", writers), func(b *testing.B) {
			c := openCheckpoints(b, b.TempDir())
			b.ReportAllocs()
			b.SetParallelism(max(1, writers/2))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.Put(true, checkpointAt(1)); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
