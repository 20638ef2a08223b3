package actors

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

var planInfo = persistence.Info{TopicPartition: messages.TopicPartition{Topic: "t"}, Key: messages.PartitionKey{TopicID: messages.TopicID{1}}}

func memoryLog(*testing.T) persistence.Log {
	return persistence.NewMemoryLog(planInfo, persistence.Config{})
}

// diskLog has several small segments.
func diskLog(t *testing.T) persistence.Log {
	t.Helper()
	m, err := persistence.Open(t.Context(), t.TempDir(), persistence.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	log, err := m.Create(t.Context(), planInfo, persistence.Config{SegmentBytes: 300})
	require.NoError(t, err)
	return log
}

// planLog fills a log with batches; each is base offset, last offset, epoch.
func planLog(t *testing.T, log persistence.Log, start int64, batches ...[3]int64) persistence.Log {
	t.Helper()
	for _, b := range batches {
		records := make([]batch.Record, b[1]-b[0]+1)
		for i := range records {
			records[i].Value = []byte("value")
		}
		raw := batch.Append(nil, batch.Plain(), records...)
		batch.SetOffsetAndEpoch(raw, b[0], int32(b[2]))
		_, err := log.Append(raw, persistence.AppendOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, log.RaiseLogStart(start))
	return log
}

// TestLandingIsTheCut: what is planned is what Truncate does, at every offset of
// logs with gaps, as compaction leaves them.
func TestLandingIsTheCut(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		create, step := memoryLog, int64(1)
		if round == 0 {
			create, step = diskLog, 29
		}
		var batches [][3]int64
		next := int64(0)
		for range 12 {
			next += random.Int64N(3) * random.Int64N(40)
			last := next + random.Int64N(4)
			batches = append(batches, [3]int64{next, last, int64(len(batches) / 4)})
			next = last + 1
		}
		for offset := int64(0); offset <= next+1; offset += step {
			log := planLog(t, create(t), 0, batches...)
			planned := landing(log, offset)
			records, bytes, err := countFrom(log, planned)
			require.NoError(t, err)
			cut, err := log.Truncate(offset)
			require.NoError(t, err)
			require.Equal(t, log.End(), planned, "%v cut at %d", batches, offset)
			require.Equal(t, []int64{cut.Records, cut.Bytes}, []int64{records, bytes}, "%v cut at %d", batches, offset)
		}
	}
}

// epochTable is a source's log as OffsetForLeaderEpoch shows it: the end of each
// epoch.
type epochTable map[int32]int64

func (e epochTable) end(epoch int32) fetch.EpochEnd {
	for ; epoch >= 0; epoch-- {
		if end, ok := e[epoch]; ok {
			return fetch.EpochEnd{Epoch: epoch, End: end}
		}
	}
	return fetch.EpochEnd{Epoch: messages.NoEpoch, End: messages.NoOffset}
}

func TestCutPlan(t *testing.T) {
	ours := [][3]int64{{0, 9, 3}, {10, 14, 5}, {15, 24, 7}}
	down := errors.New("down")
	for _, tc := range []struct {
		name     string
		lme      int32
		start    int64
		source   fetch.Range
		epochs   epochTable
		old      bool // no divergence by epochs
		noIDs    bool
		askFault error
		want     string // end records reason
	}{
		{"one way", -1, 0, fetch.Range{End: 25}, epochTable{7: 25}, false, false, nil, "0 25 no last mirror epoch"},
		{"equal", 7, 0, fetch.Range{End: 30}, epochTable{3: 10, 5: 15, 7: 30}, false, false, nil, "25 0 nothing to cut: last mirror epoch 7"},
		{"above the last mirror epoch", 5, 0, fetch.Range{End: 40}, epochTable{3: 10, 5: 15, 9: 40}, false, false, nil, "15 10 last mirror epoch 5"},
		{"C03 inside the last common epoch", 3, 0, fetch.Range{End: 11}, epochTable{3: 8, 6: 11}, false, false, nil, "0 25 last mirror epoch 3; diverging inside epoch 3, which ends at 8"},
		{"inside, at a batch's edge", 5, 0, fetch.Range{End: 11}, epochTable{3: 10, 9: 11}, false, false, nil, "10 15 diverging from epoch 3 on"},
		{"C13 two fast elections", 7, 0, fetch.Range{End: 30}, epochTable{3: 10, 8: 30}, false, false, nil, "10 15 diverging from epoch 3 on, which ends at 10"},
		{"three cuts", 7, 0, fetch.Range{End: 30}, epochTable{3: 5, 5: 12, 7: 20, 8: 30}, false, false, nil, "0 25 diverging inside epoch 7, which ends at 20 on the source; diverging inside epoch 5, which ends at 12 on the source; diverging inside epoch 3, which ends at 5"},
		{"retention on the source", 3, 0, fetch.Range{Start: 12, End: 30}, epochTable{3: 10, 8: 30}, false, false, nil, "12 25 the source's log starts at 12"},
		{"a source before 2.7", 7, 0, fetch.Range{End: 15}, nil, true, false, nil, "15 10 last mirror epoch 7; the source's log ends at 15"},
		{"a source before 2.7 that has all", 7, 0, fetch.Range{End: 30}, nil, true, false, nil, "25 0 nothing to cut"},
		{"no topic ids", 7, 0, fetch.Range{End: 15}, nil, true, true, nil, "? the log ends at 15 there"},
		{"nobody answers", 7, 0, fetch.Range{Err: down}, nil, false, false, nil, "? down"},
		{"nobody answers for epochs", 7, 0, fetch.Range{End: 30}, nil, false, false, down, "? down"},
		{"nothing is left to ask about", -1, 0, fetch.Range{Err: down}, nil, false, false, nil, "0 25 no last mirror epoch"},
		{"an old log start", 3, 10, fetch.Range{End: 30}, epochTable{3: 8}, false, false, nil, "0 15 last mirror epoch 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := planLog(t, memoryLog(t), tc.start, ours...)
			c := newCutPlan(0, messages.TopicPartition{Topic: "t"}, log, tc.lme, !tc.noIDs, true)
			c.within(tc.source, true, !tc.old)
			for range 10 {
				epoch, ok := c.next()
				if !ok {
					break
				}
				a := tc.epochs.end(epoch)
				a.Err = tc.askFault
				c.answer(epoch, a)
			}
			var row messages.PlannedStart
			c.finish(&row)
			end, text, _ := strings.Cut(tc.want, " ")
			if end == "?" {
				require.True(t, row.Unknown)
				require.Contains(t, row.Reason, text)
				require.Equal(t, []int64{-1, -1}, []int64{row.Records, row.Bytes})
				return
			}
			records, text, _ := strings.Cut(text, " ")
			require.Equal(t, end+" "+records, fmt.Sprintf("%d %d", row.CutTo, row.Records), row.Reason)
			require.Contains(t, row.Reason, text)
			require.Equal(t, int64(25), log.End(), "nothing was cut")
		})
	}
}
