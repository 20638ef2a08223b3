package fetch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/fetch"
	"kagami/messages"
	"kagami/test/kafka/stub"
)

func TestDecide(t *testing.T) {
	batchOf := func(base int64, epoch int32) []byte {
		return stub.Build(stub.Spec{Base: base, Epoch: epoch, Records: value(3)})
	}
	join := func(bs ...[]byte) (out []byte) {
		for _, b := range bs {
			out = append(out, b...)
		}
		return out
	}
	local := fetch.LocalState{End: 10, HighWatermark: 10, LeaderEpoch: 20, LatestEpoch: 5}
	type short struct {
		Verdict  fetch.Verdict
		Offset   int64
		Batches  int
		Near     bool
		Fails    bool
		LogStart int64
	}
	none := fetch.Reply{HighWatermark: 10, LogStart: 0, DivergingEpoch: -1, DivergingEnd: -1, Leader: fetch.Leader{ID: -1, Epoch: -1}}
	with := func(f func(*fetch.Reply)) fetch.Reply { r := none; f(&r); return r }
	code := func(c int16, l fetch.Leader) fetch.Reply {
		return with(func(r *fetch.Reply) { r.Code, r.Leader = c, l })
	}
	nobody := fetch.Leader{ID: -1, Epoch: -1}
	for name, row := range map[string]struct {
		reply fetch.Reply
		view  func(*fetch.View)
		want  short
	}{
		"1 another offset than the log end": {
			with(func(r *fetch.Reply) { r.Batches = batchOf(10, 5) }), func(v *fetch.View) { v.FetchOffset = 8 }, short{Verdict: fetch.VerdictDrop},
		},
		"1 comes before the code": {code(6, nobody), func(v *fetch.View) { v.FetchOffset = 8 }, short{Verdict: fetch.VerdictDrop}},
		"2 a code":                {code(75, nobody), nil, short{Verdict: fetch.VerdictCode, Offset: 10}},
		"2 comes before diverging": {
			with(func(r *fetch.Reply) { r.Code, r.DivergingEpoch, r.DivergingEnd = 56, 1, 3 }), nil, short{Verdict: fetch.VerdictCode, Offset: 10},
		},
		"2 leader moved":                 {code(6, fetch.Leader{ID: 4, Epoch: 9}), nil, short{Verdict: fetch.VerdictMoved, Offset: 10}},
		"2 no hint":                      {code(74, nobody), nil, short{Verdict: fetch.VerdictLeaderUnknown, Offset: 10}},
		"2 fenced, the same leader":      {code(74, fetch.Leader{ID: 1, Epoch: 9}), nil, short{Verdict: fetch.VerdictNewEpoch, Offset: 10}},
		"2 sent to itself, nothing new":  {code(6, fetch.Leader{ID: 1, Epoch: 6}), nil, short{Verdict: fetch.VerdictCode, Offset: 10}},
		"3 ours of that epoch is longer": {with(func(r *fetch.Reply) { r.DivergingEpoch, r.DivergingEnd = 3, 4 }), nil, short{Verdict: fetch.VerdictTruncate, Offset: 4}},
		"3 ours of that epoch is shorter": {
			with(func(r *fetch.Reply) { r.DivergingEpoch, r.DivergingEnd = 3, 9 }), nil, short{Verdict: fetch.VerdictTruncate, Offset: 7},
		},
		"3 nothing of ours is that old": {with(func(r *fetch.Reply) { r.DivergingEpoch, r.DivergingEnd = 2, 9 }), nil, short{Verdict: fetch.VerdictTruncate}},
		"4 nothing":                     {none, nil, short{Verdict: fetch.VerdictAppend, LogStart: -1}},
		"4 a gap is normal":             {with(func(r *fetch.Reply) { r.Batches = batchOf(15, 5) }), nil, short{Verdict: fetch.VerdictAppend, Batches: 1, LogStart: -1}},
		"4 first batch reaches below": {with(func(r *fetch.Reply) {
			r.Batches = stub.Build(stub.Spec{Base: 8, LastOffsetDelta: 4, Epoch: 5, Records: value(3)})
		}), nil, short{Verdict: fetch.VerdictAppend, Fails: true, LogStart: -1}},
		"4 below the log end": {with(func(r *fetch.Reply) { r.Batches = batchOf(9, 5) }), nil, short{Verdict: fetch.VerdictAppend, Fails: true, LogStart: -1}},
		"4 going back":        {with(func(r *fetch.Reply) { r.Batches = join(batchOf(11, 5), batchOf(11, 5)) }), nil, short{Verdict: fetch.VerdictAppend, Batches: 1, Fails: true, LogStart: -1}},
		"4 a cut-off tail": {
			with(func(r *fetch.Reply) { r.Batches = join(batchOf(10, 5), batchOf(11, 5)[:40]) }), nil, short{Verdict: fetch.VerdictAppend, Batches: 1, LogStart: -1},
		},
		"4 magic 1": {
			with(func(r *fetch.Reply) { r.Batches = batchOf(10, 5); r.Batches[16] = 1 }), nil, short{Verdict: fetch.VerdictAppend, Fails: true, LogStart: -1},
		},
		"5a refuses all, the older batches too": {
			with(func(r *fetch.Reply) { r.Batches = join(batchOf(10, 5), batchOf(11, 21)) }), func(v *fetch.View) { v.SourceEpoch = 30 }, short{Verdict: fetch.VerdictAboveDLE, Batches: 2, LogStart: -1},
		},
		"5a comes before 5b": {with(func(r *fetch.Reply) { r.Batches = batchOf(10, 21) }), nil, short{Verdict: fetch.VerdictAboveDLE, Batches: 1, LogStart: -1}},
		"5b":                 {with(func(r *fetch.Reply) { r.Batches = batchOf(10, 7) }), nil, short{Verdict: fetch.VerdictAboveSLE, Batches: 1, LogStart: -1}},
		"5b without a source epoch": {
			with(func(r *fetch.Reply) { r.Batches = batchOf(10, 7) }), func(v *fetch.View) { v.SourceEpoch = -1 }, short{Verdict: fetch.VerdictAppend, Batches: 1, LogStart: -1},
		},
		"5c two below is near": {
			with(func(r *fetch.Reply) { r.Batches = batchOf(10, 18) }), func(v *fetch.View) { v.SourceEpoch = 18 }, short{Verdict: fetch.VerdictAppend, Batches: 1, Near: true, LogStart: -1},
		},
		"5c three below isn't": {
			with(func(r *fetch.Reply) { r.Batches = batchOf(10, 17) }), func(v *fetch.View) { v.SourceEpoch = 17 }, short{Verdict: fetch.VerdictAppend, Batches: 1, LogStart: -1},
		},
		"epoch went back, by name": {
			with(func(r *fetch.Reply) { r.Batches = batchOf(10, 4) }), func(v *fetch.View) { v.Unidentified = true }, short{Verdict: fetch.VerdictAppend, Fails: true, LogStart: -1},
		},
		"8 log start": {with(func(r *fetch.Reply) { r.LogStart = 3 }), nil, short{Verdict: fetch.VerdictAppend, LogStart: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			v := fetch.View{TopicPartition: tp("t", 0), FetchOffset: 10, SourceEpoch: 6, SourceBroker: 1, Local: local, BatchBytesMax: 1 << 20}
			if row.view != nil {
				row.view(&v)
			}
			// Local epochs: 3 from 0, 5 from 7.
			d := fetch.Decide(v, row.reply, func(epoch int32) (int32, int64, bool) {
				switch {
				case epoch < 3:
					return -1, -1, false
				case epoch < 5:
					return 3, 7, true
				default:
					return 5, 10, true
				}
			})
			got := short{d.Verdict, d.Offset, d.Scan.Batches, d.Near, d.Fail != nil, d.LogStart}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzScan(f *testing.F) {
	b := stub.Build(stub.Spec{Base: 3, Epoch: 1, Records: value(20)})
	f.Add(b, int64(0))
	f.Add(b[:40], int64(3))
	f.Add(append(append([]byte{}, b...), b...), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, from int64) {
		// Invariants: no panic; Good is a prefix; offsets never go back; damage and a
		// cut-off tail exclude each other.
		s := fetch.Scan(tp("t", 0), b, from, 1<<20)
		if len(s.Good) > len(b) || s.Next < from || (s.Err != nil && s.Partial != 0) {
			t.Fatalf("%+v", s)
		}
		if len(s.Good) > 0 {
			again := fetch.Scan(tp("t", 0), s.Good, from, 1<<20)
			if again.Err != nil || again.Batches != s.Batches || again.Next != s.Next {
				t.Fatalf("%+v then %+v", s, again)
			}
		}
	})
}

// handClock is a clock that a test moves.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }
func (c *handClock) AfterFunc(time.Duration, func()) (stop func() bool) {
	return func() bool { return true }
}
func (c *handClock) Sleep(context.Context, time.Duration) error { return nil }

// C42b: 5000 bytes at once against 1000 bytes/s, then 1000 bytes/s for 20 s.
func TestC42MeterLetsABatchThrough(t *testing.T) {
	c := &handClock{now: time.Unix(1000, 0)}
	m := fetch.NewMeter(c, 1000)
	require.False(t, m.Exceeded())
	source, copied := 5000, 0 // what the source has, what was let through
	for range 300 {
		c.now = c.now.Add(100 * time.Millisecond)
		if !m.Exceeded() && source > copied {
			m.Record(source - copied)
			copied = source
		}
		if source < 25000 {
			source += 100
		}
	}
	require.InDelta(t, 1000, float64(copied)/30, 500)
	require.Equal(t, source, copied)

	m.Record(50000)
	require.True(t, m.Exceeded())
	require.Zero(t, m.Room())
	m.SetLimit(fetch.Unlimited)
	require.False(t, m.Exceeded())
	require.Equal(t, fetch.Unlimited, m.Room())
	m.SetLimit(1000)
	c.now = c.now.Add(11 * time.Second)
	require.Zero(t, m.Rate())
	require.EqualValues(t, 10_000, m.Room(), "ten seconds' worth")
	m.Record(4000)
	require.EqualValues(t, 6000, m.Room())
}

func TestBudget(t *testing.T) {
	b := fetch.NewBudget(100)
	require.NoError(t, b.Reserve(t.Context(), 150), "the first may overdraw")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	require.ErrorIs(t, b.Reserve(ctx, 1), stop)
	done := make(chan error, 1)
	go func() { done <- b.Reserve(t.Context(), 10) }()
	b.Take(5)
	b.Give(100)
	require.NoError(t, <-done)
	require.Equal(t, int64(65), b.Used())
}

func TestRetriable(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":    {nil, false},
		"recreated":  {fetch.ErrTopicRecreated, false},
		"loop":       {fetch.ErrMirrorLoop, false},
		"config":     {messages.ErrInvalidConfig, false},
		"closed":     {fetch.ErrClosed, false},
		"corrupt":    {&fetch.CorruptError{}, true},
		"connection": {&fetch.ConnectionError{Err: errors.New("refused")}, true},
		"disk":       {messages.ErrStorage, true},
		"code":       {&fetch.CodeError{Code: 29}, true},
		"old source": {&fetch.CodeError{Code: 35}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, fetch.Retriable(row.err)) })
	}
}
