package persistence_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/logtest"
)

func benchManager(tb testing.TB, dir string) *persistence.Manager {
	tb.Helper()
	m, err := persistence.Open(tb.Context(), dir, persistence.Options{ClusterID: "c", NodeID: 1})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = m.Close() })
	return m
}

func benchLog(tb testing.TB, m *persistence.Manager, i int, cfg persistence.Config) persistence.Log {
	tb.Helper()
	tp := messages.TopicPartition{Topic: fmt.Sprintf("topic-%d", i/100), Partition: int32(i % 100)}
	l, err := m.Create(tb.Context(), persistence.Info{TopicPartition: tp}, cfg)
	require.NoError(tb, err)
	return l
}

var batchSizes = []struct {
	name string
	size int
}{{"batch=1KiB", 1 << 10}, {"batch=64KiB", 64 << 10}, {"batch=1MiB", 1 << 20}}

// BenchmarkAppend appends one batch per call; segments are dropped as they fill.
func BenchmarkAppend(b *testing.B) {
	for _, c := range batchSizes {
		b.Run(c.name, func(b *testing.B) {
			l := benchLog(b, benchManager(b, b.TempDir()), 0, persistence.Config{SegmentBytes: 256 << 20})
			x := logtest.Build(logtest.Spec{Count: 1, Value: strings.Repeat("x", c.size-100)})
			b.SetBytes(int64(len(x)))
			b.ReportAllocs()
			for b.Loop() {
				batch.SetOffsetAndEpoch(x, l.End(), 1)
				if _, err := l.Append(x, persistence.AppendOptions{}); err != nil {
					b.Fatal(err)
				}
				if l.SizeBytes() > 1<<30 {
					_ = l.RaiseLogStart(l.End())
				}
			}
		})
	}
}

// BenchmarkAppendFlushed appends 1 MiB at a time for a while under the background
// flush; the longest append shows what a flush holds up.
func BenchmarkAppendFlushed(b *testing.B) {
	m, err := persistence.Open(b.Context(), b.TempDir(), persistence.Options{ClusterID: "c", NodeID: 1, FlushInterval: 200 * time.Millisecond})
	require.NoError(b, err)
	b.Cleanup(func() { _ = m.Close() })
	l := benchLog(b, m, 0, persistence.Config{SegmentBytes: 256 << 20})
	x := logtest.Build(logtest.Spec{Count: 1, Value: strings.Repeat("x", 1<<20-100)})
	b.SetBytes(int64(len(x)))
	var longest, late time.Duration
	for b.Loop() {
		batch.SetOffsetAndEpoch(x, l.End(), 1)
		start := time.Now()
		if _, err := l.Append(x, persistence.AppendOptions{}); err != nil {
			b.Fatal(err)
		}
		took := time.Since(start)
		longest = max(longest, took)
		if took > 20*time.Millisecond {
			late += took
		}
		if l.SizeBytes() > 1<<30 {
			_ = l.RaiseLogStart(l.End() - 512)
		}
	}
	b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
	b.ReportMetric(float64(late)/float64(b.Elapsed()), "late-share")
}

func filled(b *testing.B, size int) persistence.Log {
	b.Helper()
	l := benchLog(b, benchManager(b, b.TempDir()), 0, persistence.Config{SegmentBytes: 64 << 20})
	x := logtest.Build(logtest.Spec{Count: 1, Value: strings.Repeat("x", size-100)})
	for l.SizeBytes() < 200<<20 {
		batch.SetOffsetAndEpoch(x, l.End(), 1)
		_, err := l.Append(x, persistence.AppendOptions{})
		require.NoError(b, err)
	}
	require.NoError(b, l.Flush())
	return l
}

// BenchmarkRead finds file ranges of up to 1 MiB: one after the other, as a
// consumer does, and at random places.
func BenchmarkRead(b *testing.B) {
	for _, c := range batchSizes {
		l := filled(b, c.size)
		b.Run("sequential/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			off := int64(0)
			for b.Loop() {
				chunk, err := l.Read(off, 1<<20, l.End(), true)
				if err != nil {
					b.Fatal(err)
				}
				off = chunk.NextOffset
				chunk.Release()
				if off >= l.End() {
					off = 0
				}
			}
		})
		b.Run("random/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			off := int64(7)
			for b.Loop() {
				off = (off*7919 + 13) % l.End()
				chunk, err := l.Read(off, 1<<20, l.End(), true)
				if err != nil {
					b.Fatal(err)
				}
				chunk.Release()
			}
		})
	}
}

var reopenLogs = flag.Int("reopen.logs", 10000, "logs of BenchmarkReopen")

// BenchmarkReopen opens a folder of 10,000 logs, and every log in it: after a
// clean shutdown; the same and one read of each; after a crash. It reports the
// heap per log that is open and idle.
func BenchmarkReopen(b *testing.B) {
	logs := *reopenLogs
	dir := b.TempDir()
	m := benchManager(b, dir)
	for i := range logs {
		l := benchLog(b, m, i, persistence.Config{})
		_, err := l.Append(logtest.Build(logtest.Spec{Count: 1, Value: "x"}), persistence.AppendOptions{})
		require.NoError(b, err)
	}
	require.NoError(b, m.Close())
	for _, c := range []struct {
		name        string
		read, crash bool
	}{{"clean", false, false}, {"read", true, false}, {"crash", false, true}} {
		b.Run(fmt.Sprintf("%s/logs=%d", c.name, logs), func(b *testing.B) {
			for b.Loop() {
				if c.crash {
					require.NoError(b, os.Remove(filepath.Join(dir, "kagami.manifest")))
				}
				before := heap()
				start := time.Now()
				m := benchManager(b, dir)
				openAll(b, m, c.read)
				b.ReportMetric(float64(time.Since(start).Milliseconds()), "open-ms")
				b.ReportMetric(float64(heap()-before)/float64(logs), "heap-B/log")
				b.ReportMetric(float64(m.Stats().OpenFiles), "open-files")
				require.NoError(b, m.Close())
			}
		})
	}
}

func openAll(b *testing.B, m *persistence.Manager, read bool) {
	b.Helper()
	for _, info := range m.Infos() {
		l, err := m.Open(b.Context(), info.TopicPartition, persistence.Config{})
		require.NoError(b, err)
		if read {
			c, err := l.Read(0, 1, l.End(), true)
			require.NoError(b, err)
			c.Release()
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkCompact cleans a log of 64 MiB in batches of 100 records, of which one in
// ten is the last of its key.
func BenchmarkCompact(b *testing.B) {
	const size = 64 << 20
	value := make([]byte, 200)
	b.ReportAllocs()
	b.SetBytes(size)
	for b.Loop() {
		b.StopTimer()
		m, err := persistence.Open(b.Context(), b.TempDir(), options(nil))
		require.NoError(b, err)
		l, err := m.Create(b.Context(), persistence.Info{TopicPartition: crashTP}, persistence.Config{SegmentBytes: 16 << 20})
		require.NoError(b, err)
		records := make([]batch.Record, 100)
		for i := 0; l.SizeBytes() < size; i++ {
			p := batch.Plain()
			p.BaseOffset = l.End()
			for j := range records {
				records[j] = batch.Record{Timestamp: 1000, Key: fmt.Append(nil, "key ", (i*100+j)%30_000), Value: value}
			}
			_, err := l.Append(batch.Append(nil, p, records...), persistence.AppendOptions{})
			require.NoError(b, err)
		}
		b.StartTimer()
		c, err := l.Compact(b.Context(), forced(l))
		require.NoError(b, err)
		require.Less(b, c.Stats.RecordsKept, c.Stats.Records/4)
		b.StopTimer()
		require.NoError(b, m.Close())
		b.StartTimer()
	}
}
