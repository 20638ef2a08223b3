package persistence

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/batch"
)

// idempotent builds a batch of one record of producer 9.
func idempotent(base int64) []byte {
	p := batch.Props{BaseOffset: base, ProducerID: 9, BaseSequence: int32(base)}
	return batch.Append(nil, p, batch.Record{Timestamp: 1000 + base, Value: make([]byte, 300)})
}

// TestSidePointUnderChanges: a side point is synced while the log goes on, and
// the process dies right after. The log is what was appended, producers
// included, and a change that makes the point untrue drops it.
func TestSidePointUnderChanges(t *testing.T) {
	cfg := Config{SegmentBytes: 4000, IndexIntervalBytes: 500}
	for _, row := range []struct {
		name   string
		change func(t *testing.T, l *segLog)
		kept   bool
	}{
		{"nothing", func(*testing.T, *segLog) {}, true},
		{"appends", func(t *testing.T, l *segLog) {
			t.Helper()
			appendNext(t, l, 3)
		}, true},
		{"a new segment", func(t *testing.T, l *segLog) {
			t.Helper()
			appendNext(t, l, 20)
		}, false},
		{"a cut below", func(t *testing.T, l *segLog) {
			t.Helper()
			_, err := l.Truncate(2)
			require.NoError(t, err)
		}, false},
		{"a cut, and more than before", func(t *testing.T, l *segLog) {
			t.Helper()
			_, err := l.Truncate(2)
			require.NoError(t, err)
			appendNext(t, l, 6)
		}, false},
		{"a log start above", func(t *testing.T, l *segLog) {
			t.Helper()
			appendNext(t, l, 3)
			require.NoError(t, l.RaiseLogStart(7))
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			m := openTest(t, dir, nil)
			opened, err := m.Create(t.Context(), Info{TopicPartition: testTP}, cfg)
			require.NoError(t, err)
			l := opened.(*segLog)
			appendNext(t, l, 5)
			l.wmu.Lock()
			at, err := l.sidesNow()
			l.wmu.Unlock()
			require.NoError(t, err)
			require.EqualValues(t, 5, at.end)
			row.change(t, l)
			require.NoError(t, l.flush(at))
			require.Equal(t, row.kept, l.st.sidePoint == at.end)
			require.Equal(t, l.End(), l.RecoveryPoint())
			start, end, want, producers := l.LogStart(), l.End(), readAll(t, l), latest(l)
			require.NoError(t, m.lock.Close()) // as if the process had died

			m = openTest(t, dir, nil)
			again, err := m.Open(t.Context(), testTP, cfg)
			require.NoError(t, err)
			require.Equal(t, start, again.LogStart())
			require.Equal(t, end, again.End())
			require.Equal(t, want, readAll(t, again))
			require.Equal(t, producers, latest(again))
		})
	}
}

func appendNext(t *testing.T, l *segLog, n int) {
	t.Helper()
	for range n {
		_, err := l.Append(idempotent(l.End()), AppendOptions{CheckCRC: true})
		require.NoError(t, err)
	}
}

// latest are the producers with their last batch each: a snapshot has no more.
func latest(l Log) []ProducerEntry {
	out := l.Producers()
	for i, p := range out {
		out[i].Batches = p.Batches[len(p.Batches)-1:]
	}
	return out
}
