package persistence_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/logtest"
)

// cutRig is a log on a faulty disk with its twin, and what both had before.
type cutRig struct {
	fsys *faultfs.FS
	m    *persistence.Manager
	log  persistence.Log
	twin persistence.Log
}

func newCutRig(t *testing.T, batches int) *cutRig {
	t.Helper()
	g := &cutRig{fsys: faultfs.New(), twin: persistence.NewMemoryLog(persistence.Info{}, crashConfig)}
	var err error
	g.m, g.log, err = openCrash(t, g.fsys)
	require.NoError(t, err)
	for _, l := range []persistence.Log{g.log, g.twin} {
		for i := range batches {
			g.put(t, l, int32(i/10))
		}
		require.NoError(t, l.RaiseLogStart(12))
		require.NoError(t, l.Flush())
	}
	return g
}

func (g *cutRig) put(t *testing.T, l persistence.Log, epoch int32) {
	t.Helper()
	b := logtest.Build(logtest.Spec{Base: l.End(), Count: 2, Epoch: epoch, Value: strings.Repeat("v", 40)})
	_, err := l.Append(b, persistence.AppendOptions{})
	require.NoError(t, err)
}

func (g *cutRig) same(t *testing.T) {
	t.Helper()
	require.Equal(t, []int64{g.twin.LogStart(), g.twin.End()}, []int64{g.log.LogStart(), g.log.End()})
	require.Equal(t, logtest.Contents(t, g.twin, 1<<20), logtest.Contents(t, g.log, 1<<20))
	require.Equal(t, g.twin.Epochs(), g.log.Epochs())
	require.Equal(t, g.twin.Producers(), g.log.Producers())
}

// cutChange is a change that takes something away.
type cutChange struct {
	name string
	do   func(l persistence.Log) (persistence.Cut, error)
	cuts bool // what it hides it can't show again
}

// TestC29DiskFullDuringCut: a cut, a restart or a raise that runs out of room at
// any point is repeated in place once there is room, and says then what it
// removed. Until then nothing is taken and everything that stays can be read; a
// crash or a close in between is as good.
func TestC29DiskFullDuringCut(t *testing.T) {
	raise := func(offset int64) func(l persistence.Log) (persistence.Cut, error) {
		return func(l persistence.Log) (persistence.Cut, error) { return persistence.Cut{}, l.RaiseLogStart(offset) }
	}
	for _, c := range []cutChange{
		{name: "truncate", cuts: true, do: func(l persistence.Log) (persistence.Cut, error) { return l.Truncate(31) }},
		{name: "truncate below start", cuts: true, do: func(l persistence.Log) (persistence.Cut, error) { return l.Truncate(5) }},
		{name: "restart", cuts: true, do: func(l persistence.Log) (persistence.Cut, error) { return l.RestartAt(90) }},
		{name: "raise", do: raise(43)},
		{name: "raise in a segment", do: raise(13)},
	} {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reopen=%t", c.name, reopen), func(t *testing.T) {
				refused, unfinished := 0, 0
				for writes := 0; ; writes++ { // that find room
					g := newCutRig(t, 24)
					failed, hidden := g.change(t, c, writes, reopen)
					g.put(t, g.log, 7)
					g.put(t, g.twin, 7)
					g.again(t, writes%2 == 0)
					g.same(t)
					require.NoError(t, g.m.Close())
					if hidden {
						unfinished++
					}
					if !failed {
						break
					}
					refused++
				}
				require.Positive(t, refused)
				require.Equal(t, c.cuts, unfinished > 0)
			})
		}
	}
}

// change makes a change with so much room, and again with room for everything.
func (g *cutRig) change(t *testing.T, c cutChange, writes int, reopen bool) (failed, hidden bool) {
	t.Helper()
	end := g.log.End()
	g.room(writes)
	cut, err := c.do(g.log)
	want, twinErr := c.do(g.twin)
	require.NoError(t, twinErr)
	if failed = err != nil; failed {
		require.ErrorIs(t, err, persistence.ErrStorage)
		if hidden = g.log.End() != end; hidden {
			_, err = c.do(g.log)
			require.ErrorIs(t, err, persistence.ErrStorage, "still no room")
			require.ErrorIs(t, g.log.Flush(), persistence.ErrStorage)
			_, err = g.log.Append(logtest.Build(logtest.Spec{Base: g.log.End(), Count: 1}), persistence.AppendOptions{})
			require.ErrorIs(t, err, persistence.ErrStorage, "nothing is put behind a cut that isn't finished")
			require.Equal(t, logtest.Contents(t, g.twin, 1<<20), logtest.Contents(t, g.log, 1<<20))
		}
		g.room(-1)
		if reopen {
			g.again(t, writes%2 == 0)
		}
		cut, err = c.do(g.log)
		require.NoError(t, err, "after %d writes", writes)
	}
	g.room(-1)
	if !reopen || !failed { // opening may have finished it
		require.Equal(t, want, cut, "after %d writes", writes)
	}
	g.same(t)
	return failed, hidden
}

// room is for so many writes and new files; -1 = for all.
func (g *cutRig) room(writes int) {
	if writes < 0 {
		g.fsys.Fault = nil
		return
	}
	g.fsys.Fault = func(op faultfs.Op) error {
		if op.Kind != "write" && op.Kind != "create" {
			return nil
		}
		if writes--; writes < 0 {
			return syscall.ENOSPC
		}
		return nil
	}
}

// fullFS is a disk that has no room for the copy of a segment.
type fullFS struct {
	persistence.OSFS
	full atomic.Bool
}

func (f *fullFS) OpenFile(name string, create bool) (persistence.File, error) {
	if strings.HasSuffix(name, ".log.cut") && f.full.Load() {
		return nil, syscall.ENOSPC
	}
	return f.OSFS.OpenFile(name, create)
}

// TestC29DiskFullUnderReader: a chunk that is out keeps its bytes while a cut below
// it waits for room, and after it.
func TestC29DiskFullUnderReader(t *testing.T) {
	fsys := &fullFS{}
	m, err := persistence.Open(t.Context(), t.TempDir(), persistence.Options{FS: fsys, FlushInterval: -1})
	require.NoError(t, err)
	defer m.Close()
	l, err := m.Create(t.Context(), persistence.Info{TopicPartition: crashTP}, persistence.Config{})
	require.NoError(t, err)
	for range 10 {
		_, err := l.Append(logtest.Build(logtest.Spec{Base: l.End(), Count: 2, Value: "value"}), persistence.AppendOptions{})
		require.NoError(t, err)
	}
	chunk, err := l.Read(8, 1<<20, l.End(), true)
	require.NoError(t, err)
	require.NotNil(t, chunk.File)
	want, err := chunk.ReadAll()
	require.NoError(t, err)
	below := logtest.Contents(t, l, 1<<20)
	below = below[:len(below)/10*6]
	fsys.full.Store(true)
	_, err = l.Truncate(12)
	require.ErrorIs(t, err, persistence.ErrStorage)
	require.Equal(t, below, logtest.Contents(t, l, 1<<20))
	fsys.full.Store(false)
	cut, err := l.Truncate(12)
	require.NoError(t, err)
	require.Equal(t, []int64{12, 20, 8}, []int64{cut.From, cut.To, cut.Records})
	got, err := chunk.ReadAll()
	require.NoError(t, err)
	require.Equal(t, want, got)
	chunk.Release()
	require.Equal(t, below, logtest.Contents(t, l, 1<<20))
}

// again opens the log anew, after a clean close or after a crash.
func (g *cutRig) again(t *testing.T, clean bool) {
	t.Helper()
	if clean {
		require.NoError(t, g.m.Close())
	} else {
		g.fsys.Crash()
		_ = g.m.Close()
		g.fsys = g.fsys.Restart(faultfs.LoseNothing, rand.New(rand.NewPCG(1, 1)))
	}
	var err error
	g.m, g.log, err = openCrash(t, g.fsys)
	require.NoError(t, err)
}
