package logtest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/batch"
	"kagami/persistence"
)

func marker(b []byte, base int64, epoch int32) []byte {
	batch.SetOffsetAndEpoch(b, base, epoch)
	return b
}

func header(tb testing.TB, s Spec) batch.Header {
	tb.Helper()
	h, err := batch.ParseHeader(Build(s))
	require.NoError(tb, err)
	return h
}

func testC22(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	b.append(
		Build(Spec{Base: 0, Count: 1, Producer: 1, Txn: true}),
		Build(Spec{Base: 1, Count: 1}),
		Build(Spec{Base: 2, Count: 1, Producer: 2, Txn: true}),
		marker(batch.AbortMarker(1, 0, 3, 9), 3, 0),
		marker(batch.CommitMarker(2, 0, 3, 9), 4, 0),
		Build(Spec{Base: 5, Count: 1, Producer: 3, Txn: true, ProdEp: 4}),
	)
	want := []persistence.AbortedTxn{{ProducerID: 1, FirstOffset: 0, LastOffset: 3, LastStableOffset: 2}}
	check := func() {
		t.Helper()
		off, ok := b.log.FirstUnstable()
		require.True(t, ok)
		require.EqualValues(t, 5, off)
		require.Equal(t, []persistence.OpenTransaction{{ProducerID: 3, ProducerEpoch: 4, FirstOffset: 5}}, b.log.OpenTransactions())
		for from := b.log.LogStart(); from <= 3; from++ {
			got, err := b.log.AbortedTxns(from, 6)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		got, err := b.log.AbortedTxns(4, 6)
		require.NoError(t, err)
		require.Empty(t, got)
	}
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		check()
	}
	require.NoError(t, b.log.RaiseLogStart(1))
	check()
	b.crash()
	check()
	_, err := b.log.Truncate(3) // the marker goes, both transactions are open again
	require.NoError(t, err)
	require.Len(t, b.log.OpenTransactions(), 2)
	off, _ := b.log.FirstUnstable()
	require.EqualValues(t, 1, off, "at least the log start")
	got, err := b.log.AbortedTxns(1, 3)
	require.NoError(t, err)
	require.Empty(t, got)
}

func testProducers(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	for i := range int32(7) {
		b.append(Build(Spec{Base: int64(i) * 2, Count: 2, Producer: 5, ProdEp: 1, Seq: i * 2}))
	}
	b.append(Build(Spec{Base: 14, Count: 3, Producer: 6, Seq: math.MaxInt32 - 1}))
	b.append(Build(Spec{Base: 17, Count: 1, Producer: 8, Txn: true}))
	var dup *persistence.DuplicateError
	for _, c := range []struct {
		name string
		spec Spec
		want error
		dup  int64 // -1 = none
	}{
		{"next", Spec{Count: 1, Producer: 5, ProdEp: 1, Seq: 14}, nil, -1},
		{"no producer", Spec{Count: 1}, nil, -1},
		{"unknown producer, any sequence", Spec{Count: 1, Producer: 99, Seq: 50}, nil, -1},
		{"last again", Spec{Count: 2, Producer: 5, ProdEp: 1, Seq: 12}, nil, 12},
		{"fifth last again", Spec{Count: 2, Producer: 5, ProdEp: 1, Seq: 4}, nil, 4},
		{"sixth last is forgotten", Spec{Count: 2, Producer: 5, ProdEp: 1, Seq: 2}, persistence.ErrOutOfOrderSequence, -1},
		{"same first, other length", Spec{Count: 1, Producer: 5, ProdEp: 1, Seq: 12}, persistence.ErrOutOfOrderSequence, -1},
		{"hole", Spec{Count: 1, Producer: 5, ProdEp: 1, Seq: 15}, persistence.ErrOutOfOrderSequence, -1},
		{"old epoch", Spec{Count: 1, Producer: 5, ProdEp: 0, Seq: 14}, persistence.ErrInvalidProducerEpoch, -1},
		{"new epoch from 0", Spec{Count: 1, Producer: 5, ProdEp: 2, Seq: 0}, nil, -1},
		{"new epoch from 14", Spec{Count: 1, Producer: 5, ProdEp: 2, Seq: 14}, persistence.ErrOutOfOrderSequence, -1},
		{"wrapped around", Spec{Count: 1, Producer: 6, Seq: 1}, nil, -1},
		{"wrapped around, again", Spec{Count: 3, Producer: 6, Seq: math.MaxInt32 - 1}, nil, 14},
		{"outside its transaction", Spec{Count: 1, Producer: 8, Seq: 1}, persistence.ErrInvalidTxnState, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.log.CheckProducer(header(t, c.spec))
			switch {
			case c.dup >= 0:
				require.ErrorAs(t, err, &dup)
				require.Equal(t, c.dup, dup.FirstOffset)
			case c.want == nil:
				require.NoError(t, err)
			default:
				require.ErrorIs(t, err, c.want)
			}
		})
	}
	for _, again := range []func(){b.crash, b.reopen} {
		again()
		require.ErrorAs(t, b.log.CheckProducer(header(t, Spec{Count: 2, Producer: 5, ProdEp: 1, Seq: 12})), &dup)
		require.NoError(t, b.log.CheckProducer(header(t, Spec{Count: 2, Producer: 5, ProdEp: 1, Seq: 14})))
	}
}

func testPIDReset(t *testing.T, h Harness) {
	t.Helper()
	b := newBench(t, h, small)
	for i := range int64(4) {
		b.append(Build(Spec{Base: i, Count: 1, Producer: 10, Seq: int32(i)}))
	}
	b.append(marker(batch.MirrorPIDReset(7, 1, "src"), 4, 7))
	first := header(t, Spec{Count: 1, Producer: 10})
	for _, again := range []func(){func() {}, b.crash, b.reopen} {
		again()
		require.EqualValues(t, 5, b.log.End())
		require.Empty(t, b.log.Producers())
		require.NoError(t, b.log.CheckProducer(first))
		require.EqualValues(t, 7, b.log.LatestEpoch())
	}
	_, err := b.log.Truncate(4)
	require.NoError(t, err)
	require.Len(t, b.log.Producers(), 1, "a cut below it brings the producers back")
	b.append(Build(Spec{Base: 4, Count: 1, Producer: 11, Txn: true}))
	b.append(marker(batch.MirrorPIDReset(7, 1, "src"), 5, 7))
	b.crash()
	require.Empty(t, b.log.OpenTransactions(), "what a reset finds open counts as aborted")
	got, err := b.log.AbortedTxns(0, 6)
	require.NoError(t, err)
	require.Equal(t, []persistence.AbortedTxn{{ProducerID: 11, FirstOffset: 4, LastOffset: 5, LastStableOffset: 6}}, got)
}
