package e2e

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

func rawBatch(base int64, records int32, fill byte) []byte {
	b := make([]byte, headerSize+10)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-batchOverhead))
	binary.BigEndian.PutUint32(b[posLastDelta:], uint32(records-1))
	binary.BigEndian.PutUint32(b[posCount:], uint32(records))
	b[len(b)-1] = fill
	return b
}

func TestSplitBatches(t *testing.T) {
	two := append(rawBatch(5, 3, 1), rawBatch(8, 1, 1)...)
	rows := []struct {
		name string
		in   []byte
		want []int64 // base offsets
		err  string
	}{
		{name: "nothing"},
		{name: "two", in: two, want: []int64{5, 8}},
		{name: "last cut off", in: two[:len(two)-1], want: []int64{5}},
		{name: "last cut in its header", in: two[:len(two)/2+8], want: []int64{5}},
		{name: "too small", in: make([]byte, 100), err: "batch of 12 bytes"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			batches, err := splitBatches(row.in)
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			var got []int64
			for _, b := range batches {
				got = append(got, b.Base)
			}
			require.Equal(t, row.want, got)
		})
	}
	one, err := splitBatches(rawBatch(5, 3, 1))
	require.NoError(t, err)
	other, err := splitBatches(rawBatch(5, 3, 2))
	require.NoError(t, err)
	require.NotEqual(t, one[0], other[0], "one different byte")
	require.Equal(t, int64(7), one[0].Last)
}

// TestJudge: the comparison finds a topic equal to itself, reads every record,
// and sees differences of every kind, between two real clusters.
func TestJudge(t *testing.T) {
	kafka.Require(t)
	ctx := t.Context()
	first := sourceOf(t)
	second := kafka.Start(t, kafka.Options{})
	a, err := NewSide("A", first.Bootstrap())
	require.NoError(t, err)
	defer a.Close()
	b, err := NewSide("B", second.Bootstrap())
	require.NoError(t, err)
	defer b.Close()
	const topic = "judge"
	for _, s := range []*Side{a, b} {
		_, err := s.Admin.CreateTopic(ctx, 2, 1, nil, topic)
		require.NoError(t, err)
	}
	records := Records{Count: 50, Headers: 2, NullKeys: true, NullValues: true}
	toOne := kgo.RecordPartitioner(kgo.ManualPartitioner()) // partition 0
	plain := kgo.DisableIdempotentWrite()                   // no producer ids, which differ
	require.NoError(t, Produce(ctx, first.Bootstrap(), topic, records, toOne, plain))
	require.NoError(t, Different(ctx, a, a, topic, true))
	require.ErrorContains(t, Different(ctx, a, b, topic, true), "id of judge")
	require.ErrorContains(t, Different(ctx, a, b, topic, false), "bounds of judge")

	detail, err := a.Topic(ctx, topic)
	require.NoError(t, err)
	batches, err := a.Batches(ctx, detail, 0, 0, 50)
	require.NoError(t, err)
	var count int32
	for _, batch := range batches {
		count += batch.Count
	}
	require.Equal(t, int32(50), count)

	records.Seed++
	require.NoError(t, Produce(ctx, second.Bootstrap(), topic, records, toOne, plain))
	require.ErrorContains(t, Different(ctx, a, b, topic, false), "judge-0: batch 0")
}

func TestTransactionsInterleave(t *testing.T) {
	ctx := t.Context()
	source := sourceOf(t)
	a, err := NewSide("A", source.Bootstrap())
	require.NoError(t, err)
	defer a.Close()
	const topic = "judge-tx"
	_, err = a.Admin.CreateTopic(ctx, 1, 1, nil, topic)
	require.NoError(t, err)
	end, err := Transactions(ctx, source.Bootstrap(), topic, 4, true)
	require.NoError(t, err)
	committed, err := a.Admin.ListCommittedOffsets(ctx, topic)
	require.NoError(t, err)
	lso, _ := committed.Lookup(topic, 0)
	ends, err := a.TopicEnds(ctx, topic)
	require.NoError(t, err)
	require.Less(t, lso.Offset, ends[0].End, "one is open")
	end()
	require.NoError(t, kafka.Poll(ctx, func() error { return a.lsoAtEnd(ctx, topic) }))
}
