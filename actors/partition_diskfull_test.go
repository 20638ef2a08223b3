package actors

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence"
)

// cutFS is a disk that is full from the moment a cut shortens the log of t-0 on.
type cutFS struct {
	persistence.OSFS
	armed, full atomic.Bool
}

func (f *cutFS) OpenFile(name string, create bool) (persistence.File, error) {
	mine := strings.Contains(name, string(filepath.Separator)+"t-0"+string(filepath.Separator))
	if mine && create && f.full.Load() {
		return nil, syscall.ENOSPC
	}
	file, err := f.OSFS.OpenFile(name, create)
	if err == nil && mine && strings.HasSuffix(name, ".log") {
		file = cutFile{file, f}
	}
	return file, err
}

type cutFile struct {
	persistence.File
	fs *cutFS
}

func (f cutFile) Truncate(size int64) error {
	if f.fs.armed.Load() {
		f.fs.full.Store(true)
	}
	return f.File.Truncate(size)
}

// TestC29DiskFullInACut: a start whose cut runs out of room leaves the partition
// FAILED, read-only and readable. With room again the recovery goes on, without a
// restart of the node, and the cut is counted once.
func TestC29DiskFullInACut(t *testing.T) {
	for _, by := range []string{"retry", "recover"} {
		t.Run(by, func(t *testing.T) {
			fsys := &cutFS{}
			n := newNodeOn(t, fsys, t.TempDir(), freshImage(t, messages.DesiredActive))
			a := n.untilFetching()
			for off := range int64(3) {
				a.Sink.State()
				_, err := a.Sink.AppendMirror(t.Context(), off, sourceBatch(off, 3, false))
				require.NoError(t, err)
			}
			n.want(messages.DesiredStopped)
			n.untilState(messages.StateStopped)
			n.until("writable", func() bool { return produce(n) == nil })
			end := n.replica().Log().End()

			if by == "retry" {
				n.attempts.Store(0)
			}
			fsys.armed.Store(true)
			n.source.set(func(s *fakeSource) { s.lme = 3 })
			n.want(messages.DesiredActive)
			n.until("FAILED", func() bool { return n.status().State == messages.StateFailed })
			require.Contains(t, n.status().Error, "no space left on device")
			require.ErrorIs(t, produce(n), messages.ErrReadOnlyTopic)
			if by == "recover" {
				n.until("given up", func() bool { return n.status().RetryAttempt >= 3 })
			}
			c, err := n.replica().Log().Read(0, 1<<20, 3, true)
			require.NoError(t, err)
			require.EqualValues(t, 3, c.NextOffset)
			c.Release()

			fsys.armed.Store(false)
			fsys.full.Store(false)
			if by == "recover" {
				n.until("recovered", func() bool {
					_, err := n.partitions.Recover(t.Context(), messages.Requester{}, "m", "t")
					return err == nil && n.status().State != messages.StateFailed
				})
			}
			n.untilFetching()
			require.EqualValues(t, 3, n.replica().Log().End())
			n.until("counted", func() bool { return n.status().CutRecords == end-3 })
			require.NoError(t, n.replica().Flush(t.Context()))
			a = n.untilFetching()
			a.Sink.State()
			_, err = a.Sink.AppendMirror(t.Context(), 3, sourceBatch(3, 3, false))
			require.NoError(t, err)
			require.EqualValues(t, end-3, n.status().CutRecords, "once")
		})
	}
}
