package persistence

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
)

// mk builds a batch of n records with the given offsets and epoch.
func mk(base int64, n int, epoch int32, ts int64, value string) []byte {
	p := batch.Plain()
	p.BaseOffset, p.LeaderEpoch = base, epoch
	recs := make([]batch.Record, n)
	for i := range recs {
		recs[i] = batch.Record{Timestamp: ts + int64(i), Key: []byte("k"), Value: []byte(value)}
	}
	return batch.Append(nil, p, recs...)
}

var testTP = messages.TopicPartition{Topic: "a.b", Partition: 3}

func openTest(t *testing.T, dir string, fsys FS) *Manager {
	t.Helper()
	m, err := Open(t.Context(), dir, Options{ClusterID: "c", NodeID: 1, FS: fsys, FlushInterval: -1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func readAll(t *testing.T, l Log) []byte {
	t.Helper()
	var out []byte
	for off := l.LogStart(); off < l.End(); {
		c, err := l.Read(off, 1<<20, l.End(), true)
		require.NoError(t, err)
		if c.Len == 0 {
			break
		}
		b, err := c.ReadAll()
		require.NoError(t, err)
		c.Release()
		out = append(out, b...)
		require.Greater(t, c.NextOffset, off)
		off = c.NextOffset
	}
	return out
}

func TestAppendReadTruncateReopen(t *testing.T) {
	for _, clean := range []bool{true, false} {
		dir := t.TempDir()
		m := openTest(t, dir, nil)
		info := Info{TopicPartition: testTP, Key: messages.PartitionKey{TopicID: messages.NewTopicID(), CreatedAt: 7}}
		l, err := m.Create(t.Context(), info, Config{SegmentBytes: 2000, IndexIntervalBytes: 200})
		require.NoError(t, err)
		var want []byte
		for i := range 50 {
			b := mk(int64(i*2), 2, int32(i/10), int64(1000+i), "value")
			_, err := l.Append(b, AppendOptions{CheckCRC: true})
			require.NoError(t, err)
			want = append(want, b...)
		}
		require.Equal(t, want, readAll(t, l))
		cut, err := l.Truncate(61)
		require.NoError(t, err)
		require.Equal(t, Cut{From: 60, To: 100, Records: 40, Bytes: int64(len(want)) * 20 / 50}, cut)
		want = want[:len(want)*30/50]
		require.True(t, bytes.Equal(want, readAll(t, l)))
		require.Len(t, l.Epochs(), 3)
		if clean {
			require.NoError(t, m.Close())
		} else {
			require.NoError(t, m.lock.Close()) // as if the process had died
		}
		m = openTest(t, dir, nil)
		require.Len(t, m.Infos(), 1)
		require.Equal(t, info.Key.CreatedAt, m.Infos()[0].Key.CreatedAt)
		require.Equal(t, info.Key.TopicID, m.Infos()[0].Key.TopicID)
		l, err = m.Open(t.Context(), testTP, Config{SegmentBytes: 2000, IndexIntervalBytes: 200})
		require.NoError(t, err)
		require.EqualValues(t, 60, l.End())
		require.Equal(t, want, readAll(t, l))
		require.Len(t, l.Epochs(), 3)
		b := mk(60, 1, 5, 1, "x")
		_, err = l.Append(b, AppendOptions{})
		require.NoError(t, err)
		require.Equal(t, append(want, b...), readAll(t, l))
	}
}
