package persistence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/logtest"
)

// keyedBatch is one record at an offset.
func keyedBatch(offset, millis int64, key, value string) []byte {
	p := batch.Plain()
	p.BaseOffset = offset
	r := batch.Record{Timestamp: millis, Key: []byte(key), Value: []byte(value)}
	if value == "" {
		r.Value = nil
	}
	return batch.Append(nil, p, r)
}

// fillKeyed appends one record after the other, each value as long as size.
func fillKeyed(tb testing.TB, l persistence.Log, n, keys, size int) {
	tb.Helper()
	for i := range n {
		b := keyedBatch(l.End(), int64(1000+i), fmt.Sprint("key ", i%keys), strings.Repeat("v", size))
		_, err := l.Append(b, persistence.AppendOptions{})
		require.NoError(tb, err)
	}
}

func forced(l persistence.Log) persistence.CompactionPolicy {
	return persistence.CompactionPolicy{NowMillis: 1 << 40, Force: true, HighWatermark: l.End()}
}

func onBoth(t *testing.T, cfg persistence.Config, f func(t *testing.T, l persistence.Log)) {
	t.Helper()
	t.Run("disk", func(t *testing.T) {
		m, err := persistence.Open(t.Context(), t.TempDir(), options(nil))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		l, err := m.Create(t.Context(), persistence.Info{TopicPartition: crashTP}, cfg)
		require.NoError(t, err)
		f(t, l)
	})
	t.Run("memory", func(t *testing.T) { f(t, persistence.NewMemoryLog(persistence.Info{}, cfg)) })
}

func recordsIn(tb testing.TB, l persistence.Log) (n int) {
	tb.Helper()
	for _, b := range logtest.Split(logtest.Contents(tb, l, 1<<20)) {
		h, err := batch.ParseHeader(b)
		require.NoError(tb, err)
		n += int(h.Records)
	}
	return n
}

// TestCompactionKeepsEnd: when everything behind the cleaned part is cut, the log ends
// where the cleaned part ended, also after it was opened again.
func TestCompactionKeepsEnd(t *testing.T) {
	onBoth(t, persistence.Config{SegmentBytes: 500}, func(t *testing.T, l persistence.Log) {
		t.Helper()
		fillKeyed(t, l, 40, 3, 10)
		c, err := l.Compact(t.Context(), forced(l))
		require.NoError(t, err)
		require.Equal(t, 1, c.Passes)
		cut, err := l.Truncate(c.CleanedTo)
		require.NoError(t, err)
		require.Equal(t, c.CleanedTo, cut.From)
		require.Equal(t, c.CleanedTo, l.End())
		require.Equal(t, 3, recordsIn(t, l))
	})
}

// TestCompactionDue: when a log is cleaned, by Kafka's configs.
func TestCompactionDue(t *testing.T) {
	const first, end = 1000, 1039 // times of the records
	for _, c := range []struct {
		name string
		p    persistence.CompactionPolicy
		due  bool
		next int64
	}{
		{"all of it is dirty", persistence.CompactionPolicy{NowMillis: 5000, MinDirtyRatio: 0.99}, true, 0},
		{"ratio not above", persistence.CompactionPolicy{NowMillis: 5000, MinDirtyRatio: 1}, false, 0},
		{"younger than min.compaction.lag.ms", persistence.CompactionPolicy{NowMillis: end, MinLagMillis: 1000}, false, 2000},
		{"some are older than it", persistence.CompactionPolicy{NowMillis: end, MinLagMillis: 25}, true, 0},
		{"not max.compaction.lag.ms old", persistence.CompactionPolicy{NowMillis: first + 500, MinDirtyRatio: 1, MaxLagMillis: 500}, false, first + 501},
		{"older than max.compaction.lag.ms", persistence.CompactionPolicy{NowMillis: first + 501, MinDirtyRatio: 1, MaxLagMillis: 500}, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, persistence.Config{SegmentBytes: 500}, func(t *testing.T, l persistence.Log) {
				t.Helper()
				fillKeyed(t, l, 40, 3, 10)
				c.p.HighWatermark = l.End()
				got, err := l.Compact(t.Context(), c.p)
				require.NoError(t, err)
				require.Equal(t, c.due, got.Passes > 0)
				if c.next > 0 {
					require.InDelta(t, c.next, got.NextDue, 6) // of one record of the segment
				}
				if !c.due {
					require.Equal(t, 40, recordsIn(t, l))
					return
				}
				again, err := l.Compact(t.Context(), persistence.CompactionPolicy{NowMillis: 1 << 40, Force: true, HighWatermark: got.CleanedTo})
				require.NoError(t, err)
				require.Zero(t, again.Passes, "nothing has come since")
			})
		})
	}
}

// TestCompactionBounds: the active segment, and what is at or above the high watermark
// or an open transaction, stays byte for byte.
func TestCompactionBounds(t *testing.T) {
	onBoth(t, persistence.Config{SegmentBytes: 500}, func(t *testing.T, l persistence.Log) {
		t.Helper()
		fillKeyed(t, l, 40, 1, 10)
		p := forced(l)
		p.HighWatermark = 20
		c, err := l.Compact(t.Context(), p)
		require.NoError(t, err)
		require.LessOrEqual(t, c.CleanedTo, int64(20))
		require.Greater(t, c.CleanedTo, int64(10))
		require.Equal(t, 40-int(c.CleanedTo)+1, recordsIn(t, l))
		txn := logtest.Build(logtest.Spec{Base: l.End(), Count: 1, Time: 2000, Producer: 5, Txn: true})
		open := l.End()
		_, err = l.Append(txn, persistence.AppendOptions{})
		require.NoError(t, err)
		fillKeyed(t, l, 40, 1, 10)
		c, err = l.Compact(t.Context(), forced(l))
		require.NoError(t, err)
		require.LessOrEqual(t, c.CleanedTo, open)
	})
}

// TestCompactionInPasses: a log with more keys than the map takes is cleaned in several
// passes, to the same end.
func TestCompactionInPasses(t *testing.T) {
	m, err := persistence.Open(t.Context(), t.TempDir(), options(nil))
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	l, err := m.Create(t.Context(), persistence.Info{TopicPartition: crashTP}, persistence.Config{SegmentBytes: 20_000})
	require.NoError(t, err)
	fillKeyed(t, l, 6000, 2500, 1)
	p := forced(l)
	p.MapBytes = 1
	c, err := l.Compact(t.Context(), p)
	require.NoError(t, err)
	require.Greater(t, c.Passes, 3)
	seen := map[string]bool{}
	for _, b := range logtest.Split(logtest.Contents(t, l, 1<<20)) {
		for r := range batch.Records(b) {
			require.False(t, seen[string(r.Key)] && r.Offset < c.CleanedTo, "%s again at %d", r.Key, r.Offset)
			seen[string(r.Key)] = true
		}
	}
	require.Len(t, seen, 2500)
}

// TestCompactionUnderReaders: a chunk that is out keeps its bytes, and so does a reader
// with an old view; appends go on.
func TestCompactionUnderReaders(t *testing.T) {
	o := options(nil)
	o.OpenFilesMax = 1
	m, err := persistence.Open(t.Context(), t.TempDir(), o)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	l, err := m.Create(t.Context(), persistence.Info{TopicPartition: crashTP}, persistence.Config{SegmentBytes: 2000})
	require.NoError(t, err)
	fillKeyed(t, l, 200, 10, 10)
	chunk, err := l.Read(0, 600, l.End(), true)
	require.NoError(t, err)
	before, err := chunk.ReadAll()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 3)
	for range 2 {
		go func() { failed <- readRound(ctx, l) }()
	}
	more := make(chan struct{}, 60)
	go func() {
		failed <- func() error {
			for i := 0; ; i++ {
				if i%20 == 0 { // so many appends for a compaction: there is an end to what it has to do
					select {
					case <-more:
					case <-ctx.Done():
						return nil
					}
				}
				if _, err := l.Append(keyedBatch(l.End(), 5000, fmt.Sprint("key ", i%10), "new"), persistence.AppendOptions{}); err != nil {
					return err
				}
			}
		}()
	}()
	for range cap(more) {
		more <- struct{}{}
		_, err := l.Compact(t.Context(), forced(l))
		require.NoError(t, err)
	}
	stop()
	for range 3 {
		require.NoError(t, <-failed)
	}
	after, err := chunk.ReadAll()
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
	chunk.Release()
	require.Less(t, m.Stats().OpenFiles, 5)
}

// readRound reads a log from its start to its end again and again: whole batches with
// rising offsets.
func readRound(ctx context.Context, l persistence.Log) error {
	for ctx.Err() == nil {
		for off := l.LogStart(); off < l.End(); {
			c, err := l.Read(off, 700, l.End(), true)
			if err != nil {
				return err
			}
			b, err := c.ReadAll()
			c.Release()
			if err != nil {
				return err
			}
			if len(b) == 0 {
				break
			}
			for len(b) > 0 {
				h, whole, rest, err := batch.Next(b)
				if err == nil {
					err = batch.CheckCRC(whole)
				}
				if err != nil || h.LastOffset() < off {
					return fmt.Errorf("batch at %d for %d: %w", h.BaseOffset, off, err)
				}
				off, b = h.LastOffset()+1, rest
			}
		}
	}
	return nil
}

// TestCompactionOnAFullDisk: no room changes nothing, and the next try does it all.
func TestCompactionOnAFullDisk(t *testing.T) {
	fsys := faultfs.New()
	m, l, err := openCompact(t, fsys)
	require.NoError(t, err)
	fillKeyed(t, l, 59, 40, 10)
	before := logtest.Contents(t, l, 1<<20)
	require.NoError(t, l.Flush())
	fsys.Fault = func(op faultfs.Op) error {
		if op.Kind == "write" && strings.Contains(op.Name, ".cleaned") {
			return syscall.ENOSPC
		}
		return nil
	}
	_, err = l.Compact(t.Context(), forced(l))
	require.ErrorIs(t, err, persistence.ErrStorage)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.True(t, bytes.Equal(before, logtest.Contents(t, l, 1<<20)))
	fillKeyed(t, l, 1, 40, 10)
	fsys.Fault = nil
	c, err := l.Compact(t.Context(), forced(l))
	require.NoError(t, err)
	require.Positive(t, c.Segments)
	require.Less(t, len(logtest.Contents(t, l, 1<<20)), len(before))
	require.NoError(t, m.Close())
}

// TestCompactionFailsInTheSwap: an error of the disk behind the commit stops writes, not
// reads, and opening the log again finishes the swap.
func TestCompactionFailsInTheSwap(t *testing.T) {
	for _, kind := range []string{"remove", "rename"} {
		t.Run(kind, func(t *testing.T) {
			fsys := faultfs.New()
			_, l, err := openCompact(t, fsys)
			require.NoError(t, err)
			fillKeyed(t, l, 60, 3, 10)
			if kind == "remove" { // a second cleaning puts the small segments together
				_, err := l.Compact(t.Context(), forced(l))
				require.NoError(t, err)
				fillKeyed(t, l, 20, 3, 10)
			}
			require.NoError(t, l.Flush())
			committed := false
			fsys.Fault = func(op faultfs.Op) error {
				if committed && op.Kind == kind {
					return syscall.EIO
				}
				committed = committed || strings.Contains(op.Name, ".swap")
				return nil
			}
			_, err = l.Compact(t.Context(), forced(l))
			require.ErrorIs(t, err, persistence.ErrStorage)
			want := logtest.Contents(t, l, 300)
			_, err = l.Append(keyedBatch(l.End(), 1, "k", "v"), persistence.AppendOptions{})
			require.ErrorIs(t, err, persistence.ErrStorage)
			_, l, err = openCompact(t, fsys.Restart(faultfs.LoseUnsynced, nil))
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, logtest.Contents(t, l, 1<<20)))
		})
	}
}

// TestCompactionOfDamage: a batch with a bad CRC is never written anew with a good one.
func TestCompactionOfDamage(t *testing.T) {
	dir := t.TempDir()
	m, err := persistence.Open(t.Context(), dir, options(nil))
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	l, err := m.Create(t.Context(), persistence.Info{TopicPartition: crashTP}, persistence.Config{SegmentBytes: 500})
	require.NoError(t, err)
	fillKeyed(t, l, 30, 3, 10)
	require.NoError(t, l.Flush())
	f, err := os.OpenFile(filepath.Join(dir, "t-0", "00000000000000000000.log"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xff}, 100)
	require.NoError(t, errors.Join(err, f.Close()))
	content := func() []byte {
		c, err := l.Read(0, 400, l.End(), true)
		require.NoError(t, err)
		defer c.Release()
		b, err := c.ReadAll()
		require.NoError(t, err)
		return b
	}
	before := content()
	_, err = l.Compact(t.Context(), forced(l))
	require.ErrorIs(t, err, persistence.ErrCorrupt)
	require.True(t, bytes.Equal(before, content()))
	left, err := filepath.Glob(filepath.Join(dir, "t-0", "*.cleaned"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestCompactionSurvivesRestart: how far the log is clean, and what was purged, is
// known after a clean restart and after a crash; a cut takes it back.
func TestCompactionSurvivesRestart(t *testing.T) {
	fsys := faultfs.New()
	m, l, err := openCompact(t, fsys)
	require.NoError(t, err)
	fillKeyed(t, l, 20, 3, 10)
	_, err = l.Append(keyedBatch(l.End(), 1000, "key 1", ""), persistence.AppendOptions{})
	require.NoError(t, err)
	fillKeyed(t, l, 21, 1, 10)
	p := forced(l)
	_, err = l.Compact(t.Context(), p)
	require.NoError(t, err)
	require.Zero(t, l.PurgedTo())
	fillKeyed(t, l, 21, 1, 10)
	p.HighWatermark = l.End()
	c, err := l.Compact(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, int64(21), l.PurgedTo())
	require.NoError(t, m.Close())
	for range 2 {
		_, l, err = openCompact(t, fsys)
		require.NoError(t, err)
		require.Equal(t, int64(21), l.PurgedTo())
		p.HighWatermark = c.CleanedTo
		again, err := l.Compact(t.Context(), p)
		require.NoError(t, err)
		require.Zero(t, again.Passes, "%+v", again)
		require.Equal(t, c.CleanedTo, again.CleanedTo)
		fillKeyed(t, l, 1, 1, 10)
		require.NoError(t, l.Flush())
		fsys = fsys.Restart(faultfs.LoseNothing, nil)
	}
	_, l, err = openCompact(t, fsys)
	require.NoError(t, err)
	_, err = l.Truncate(15)
	require.NoError(t, err)
	require.LessOrEqual(t, l.PurgedTo(), int64(15))
}
