package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/faultfs"
)

// TestCheckpointsRenew: whatever call to the disk fails, the file can be renewed, has what
// was put and nothing that was refused, and keeps it when the power goes.
func TestCheckpointsRenew(t *testing.T) {
	renewed := 0
	run := func(at int) (effects int) {
		fsys, rng := newFaultFS(t), rand.New(rand.NewPCG(3, 4))
		c, err := OpenCheckpoints(fsys, faultFolder, zap.NewNop())
		require.NoError(t, err)
		opened := fsys.Effects()
		fsys.Fault = func(op faultfs.Op) error {
			if n := op.Number - opened; n == at || n == at+1 && at%2 == 0 {
				return syscall.EIO
			}
			return nil
		}
		told := map[messages.PartitionKey]int64{}
		for i := range int64(40) {
			cp := checkpointAt(rng.IntN(5))
			cp.State.LogEnd = i
			if i%16 == 15 {
				c.compactAt = 0
			}
			if err := c.Put(rng.IntN(2) == 0, cp); err == nil {
				told[cp.Key] = i
			}
			if c.failed == nil {
				continue
			}
			renewed++
			require.ErrorIs(t, c.Put(false, cp), messages.ErrStorage)
			if c.Renew() != nil {
				require.NoError(t, c.Renew(), "at %d: the disk is well again", at)
			}
		}
		fsys.Fault = nil
		require.NoError(t, c.Renew())
		require.NoError(t, c.Put(true), "at %d", at)
		effects = fsys.Effects() - opened
		c, err = OpenCheckpoints(fsys.Restart(faultfs.LoseUnsynced, nil), faultFolder, zap.NewNop())
		require.NoError(t, err)
		got := map[messages.PartitionKey]int64{}
		for key, cp := range c.untaken {
			got[key] = cp.State.LogEnd
		}
		require.Equal(t, told, got, "at %d", at)
		return effects
	}
	total := run(1 << 30)
	for at := 1; at <= total; at++ {
		run(at)
	}
	require.Greater(t, renewed, 20)
}

// TestRenewDirect: a node that is alone brings its logs back when their disk is well
// again, with all that it had acknowledged.
func TestRenewDirect(t *testing.T) {
	fsys, ctx := newFaultFS(t), t.Context()
	g, err := openFaultRig(ctx, fsys)
	require.NoError(t, err)
	require.NoError(t, g.r.Claim(ctx, 1))
	put := func(value string) error {
		_, err := g.r.AppendClient(ctx, batch.Single(1, nil, []byte(value)), persistence.ClientAppend{LeaderEpoch: messages.NoEpoch})
		return err
	}
	require.NoError(t, put("a"))
	require.NoError(t, put("b"))
	fsys.Fault = func(op faultfs.Op) error {
		if strings.HasPrefix(op.Kind, "sync") {
			return syscall.EIO
		}
		return nil
	}
	require.ErrorIs(t, g.r.Flush(ctx), persistence.ErrStorage)
	require.ErrorIs(t, put("refused"), persistence.ErrStorage)
	require.Error(t, g.r.renew(), "the disk isn't well")
	require.ErrorIs(t, put("refused"), persistence.ErrStorage)
	fsys.Fault = nil
	require.NoError(t, g.r.renew())
	require.NoError(t, put("c"))
	require.NoError(t, g.r.Flush(ctx))
	want := g.r.State()
	require.EqualValues(t, 3, want.End)
	g, err = openFaultRig(ctx, fsys.Restart(faultfs.LoseUnsynced, nil))
	require.NoError(t, err)
	require.EqualValues(t, 3, g.r.State().End)
	g.close()
}

// failingFS is the machine's, on which some files can't be synced.
type failingFS struct {
	persistence.OSFS
	unsynced *atomic.Pointer[string] // a part of their names
}

func (f failingFS) OpenFile(name string, create bool) (persistence.File, error) {
	file, err := f.OSFS.OpenFile(name, create)
	return failingFile{file, name, f.unsynced}, err
}

type failingFile struct {
	persistence.File
	name     string
	unsynced *atomic.Pointer[string]
}

func (f failingFile) Sync() error {
	if part := f.unsynced.Load(); part != nil && strings.Contains(f.name, *part) {
		return syscall.EIO
	}
	return f.File.Sync()
}

// TestRenewNode: on a node whose disk can't be synced for a while nothing can be changed;
// afterwards all goes on without a restart: the metadata, the checkpoint file, and logs.
func TestRenewNode(t *testing.T) {
	n := &node{tb: t, folder: t.TempDir(), unsynced: new(atomic.Pointer[string])}
	n.start()
	n.change(topicRecords("t", 1, 1)...)
	put := func() error {
		_, err := n.get("t", 0).AppendClient(t.Context(), batch.Single(1, nil, []byte("a")), anyEpoch)
		return err
	}
	require.NoError(t, put())
	all := ""
	n.unsynced.Store(&all)
	_, err := n.store.Append(t.Context(), topicRecords("u", 2, 1), messages.Requester{Principal: "User:test"})
	require.Error(t, err)
	require.Error(t, n.get("t", 0).Flush(t.Context()))
	require.Error(t, put())
	require.ErrorIs(t, n.checkpoints.Put(true, checkpointAt(1)), messages.ErrStorage)
	n.unsynced.Store(nil)
	require.Eventually(t, func() bool { return put() == nil && n.checkpoints.Put(true, checkpointAt(1)) == nil }, 60*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := n.store.Append(t.Context(), topicRecords("u", 2, 1), messages.Requester{Principal: "User:test"})
		return err == nil
	}, 60*time.Second, 10*time.Millisecond)
	require.NoError(t, n.get("t", 0).Flush(t.Context()))
	end := n.get("t", 0).State().End
	n.stop()
	n.start()
	require.Equal(t, end, n.get("t", 0).State().End)
	require.NotNil(t, n.store.Image().Topic("u"))
	n.stop()
}

// TestSeveralRenew: a log that couldn't be synced, on one replica or on the only one, is
// in order again, without a restart, when its disk is well again. damage: what stood
// there unsynced is damaged, so that the stream or another replica has to give it again.
func TestSeveralRenew(t *testing.T) {
	for _, damage := range []bool{false, true} {
		for _, name := range []string{"t", "only"} {
			t.Run(fmt.Sprintf("%s/damage=%t", name, damage), func(t *testing.T) {
				s := &several{t: t, unsynced: new(atomic.Pointer[string])}
				s.begin(1, 2)
				n := s.nodes[1]
				s.topic("t", 7, 1, 2)
				s.topic("only", 8, 1)
				n.leads(name)
				n.append(name, "durable")
				n.goesOn()
				n.append(name, "in doubt")
				part := "/" + name + "-0/"
				s.unsynced.Store(&part)
				n.goesOn()
				require.False(t, n.get(name).order.inOrder())
				want := n.bytes(name)
				if damage {
					file := n.folder + part + "00000000000000000000.log"
					b, err := os.ReadFile(file)
					require.NoError(t, err)
					b[len(b)-1] ^= 1
					f, err := os.OpenFile(file, os.O_WRONLY, 0)
					require.NoError(t, err)
					_, err = f.WriteAt(b[len(b)-1:], int64(len(b)-1))
					require.NoError(t, errors.Join(err, f.Close()))
				}
				n.goesOn()
				require.False(t, n.get(name).order.inOrder(), "the disk isn't well")
				s.unsynced.Store(nil)
				require.Eventually(t, n.get(name).order.inOrder, 20*time.Second, time.Millisecond)
				require.Equal(t, want, n.bytes(name))
				n.leads(name)
				n.append(name, "more")
				n.goesOn()
				if name == "t" {
					s.equal(1, "t")
				}
				n.crash()
				n.start()
				n.leads(name)
				require.EqualValues(t, 3, n.get(name).State().End)
			})
		}
	}
}

// TestRenewGoesBackOnlyToWhatIsThere: what was lost below the last checkpoint is copied, not read again.
func TestRenewGoesBackOnlyToWhatIsThere(t *testing.T) {
	s := &streamed{whole: true, behind: true, held: true, shard: &shard{log: zap.NewNop()}}
	log := &shortLog{end: 3}
	s.d = direct{log: log, state: journal.State{LogEnd: 9, Sequence: 9}, durable: journal.State{LogEnd: 5, Sequence: 5}}
	require.NoError(t, s.renew())
	require.False(t, s.whole)
	require.False(t, s.held, "it has to be copied")
	require.EqualValues(t, 9, s.d.state.LogEnd)
}

// shortLog has lost its end.
type shortLog struct {
	persistence.Log
	end int64
}

func (l *shortLog) Renew() error { return nil }
func (l *shortLog) End() int64   { return l.end }
