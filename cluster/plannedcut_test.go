package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// TestPlannedCutIsExact: what is written down before a cut is what the cut removes,
// however large it is: after a crash in between, the plan is what is told.
func TestPlannedCutIsExact(t *testing.T) {
	for _, op := range []journal.Operation{
		{Kind: journal.OpTruncate, Offset: 30},
		{Kind: journal.OpTruncate, Offset: 2},
		{Kind: journal.OpRestartAt, Offset: 1000},
		{Kind: journal.OpRestartAt, Offset: 5},
	} {
		m, err := persistence.Open(t.Context(), t.TempDir(), persistence.Options{FlushInterval: -1})
		require.NoError(t, err)
		tp := messages.TopicPartition{Topic: "t"}
		l, err := m.Create(t.Context(), persistence.Info{TopicPartition: tp}, persistence.Config{SegmentBytes: 40 << 20})
		require.NoError(t, err)
		value := make([]byte, 6<<20)
		for i := range int64(12) { // 72 MiB, one record in every ten offsets
			b := batch.Single(1, nil, value)
			batch.SetOffsetAndEpoch(b, 10*i, 0)
			_, err := l.Append(b, persistence.AppendOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, l.RaiseLogStart(15))
		d := &direct{log: l}
		plan := d.planCut(op)
		cut, err := d.cut(op)
		require.NoError(t, err)
		require.Positive(t, cut.Records)
		require.Less(t, cut.Records, int64(11))
		require.Equal(t, []int64{cut.Records, cut.Bytes, cut.To}, []int64{plan.Records, plan.Bytes, plan.To}, "%v", op)
		require.NoError(t, m.Close())
	}
}
