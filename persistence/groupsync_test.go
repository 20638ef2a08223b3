package persistence

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// groupBench is a groupSync whose syncs wait until they are let go.
type groupBench struct {
	g        *groupSync
	alone    atomic.Int64 // single syncs begun
	letAlone chan struct{}
	letAll   chan error
	foreign  atomic.Bool
	all      sync.WaitGroup
	done     atomic.Int64
}

func newGroupBench() *groupBench {
	b := &groupBench{letAlone: make(chan struct{}), letAll: make(chan error)}
	b.g = &groupSync{
		all: func(*os.File) error { return <-b.letAll }, same: func(string) bool { return !b.foreign.Load() },
		ended: make(chan struct{}),
	}
	return b
}

// sync starts n syncs and waits until each has got where it waits.
func (b *groupBench) sync(n int) {
	for range n {
		b.all.Go(func() {
			_ = b.g.sync("f", func() error { b.alone.Add(1); <-b.letAlone; return nil })
			b.done.Add(1)
		})
	}
	synctest.Wait()
}

// TestGroupSync: what comes on top of a few syncs waits for one syncfs that
// began after it came.
func TestGroupSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGroupBench()
		b.sync(groupAlone)
		require.EqualValues(t, groupAlone, b.alone.Load(), "a few go alone")
		b.sync(1)
		b.sync(100)
		require.EqualValues(t, groupAlone, b.alone.Load())
		b.letAll <- nil
		synctest.Wait()
		require.EqualValues(t, 1, b.done.Load(), "the hundred came after the first syncfs had begun")
		b.letAll <- nil
		synctest.Wait()
		require.EqualValues(t, 101, b.done.Load())
		require.Equal(t, 2, b.g.rounds)
		close(b.letAlone)
		b.all.Wait()
		b.sync(3)
		require.EqualValues(t, groupAlone+3, b.alone.Load(), "few again")
	})
}

// TestGroupSyncFails: nobody takes the error of a syncfs for his own, nor a later
// success for the absence of one.
func TestGroupSyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGroupBench()
		b.sync(groupAlone)
		b.sync(1)
		b.sync(5)
		b.letAll <- errors.New("input/output error")
		synctest.Wait()
		require.EqualValues(t, groupAlone+6, b.alone.Load(), "each finds out for itself")
		b.sync(50)
		require.EqualValues(t, groupAlone+56, b.alone.Load(), "and nobody waits for one again")
		close(b.letAlone)
		b.all.Wait()
	})
}

// TestGroupSyncOtherFileSystem: a syncfs does nothing for files elsewhere.
func TestGroupSyncOtherFileSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGroupBench()
		b.foreign.Store(true)
		b.sync(groupAlone + 10)
		require.EqualValues(t, groupAlone+10, b.alone.Load())
		close(b.letAlone)
		b.all.Wait()
	})
}

// TestGroupFS: the real thing, with more files at once than go alone.
func TestGroupFS(t *testing.T) {
	dir := t.TempDir()
	fs := newGroupFS(dir)
	if fs == nil {
		t.Skip("no syncfs that tells errors here")
	}
	defer fs.g.close()
	require.True(t, fs.g.same(dir))
	require.False(t, fs.g.same("/proc"), "another file system")
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			name := filepath.Join(dir, string(rune('a'+i%26)))
			f, err := fs.OpenFile(name, true)
			if err == nil {
				_, err = f.WriteAt([]byte("x"), int64(i))
				err = errors.Join(err, f.Sync(), fs.SyncDir(dir), f.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.False(t, fs.g.broken)
}
