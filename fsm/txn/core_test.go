package txn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/txns"
)

// desk is a core whose writes are stored at once, and markers written where asked.
type desk struct {
	t     *testing.T
	c     *Core
	now   int64
	marks []Marking
	ids   int64
	last  txns.Answer
}

func newDesk(t *testing.T, states ...txns.Record) *desk {
	t.Helper()
	d := &desk{t: t, c: New(Config{TimeoutMax: 1000, Expiration: 5000}, 7), now: 100, ids: 50}
	for _, r := range states {
		d.c.Apply(r)
	}
	d.do(d.c.Loaded(d.now))
	return d
}

func (d *desk) do(e Effects) {
	for _, r := range e.Replies {
		d.last = r.Answer
	}
	d.marks = append(d.marks, e.Markers...)
	for _, w := range e.Writes {
		d.do(d.c.Stored(d.now, w.ID))
	}
	if e.NeedID {
		d.ids++
		d.do(d.c.Supply(d.now, d.ids))
	}
}

func (d *desk) mark() {
	for _, m := range d.marks {
		d.do(d.c.Marked(d.now, m.Txn, m.Number, m.Marker.Partitions...))
	}
	d.marks = nil
}

func (d *desk) ask(req txns.Request) txns.Answer {
	d.last = nil
	d.do(d.c.Handle(d.now, 1, req))
	return d.last
}

func (d *desk) init(p txns.Producer) *txns.Inited {
	return d.ask(txns.Init{Txn: "x", TimeoutMillis: 1000, Producer: p}).(*txns.Inited)
}

func stored(status txns.Status, v txns.Version, epoch int16) txns.Record {
	s := &txns.State{Producer: txns.Producer{ID: 5, Epoch: epoch}, PreviousID: -1, NextID: -1, TimeoutMillis: 1000, Status: status, StartedMillis: 100, UpdatedMillis: 100, Version: v}
	if status == txns.Ongoing || status.Preparing() {
		s.Partitions = []messages.TopicPartition{{Topic: "t", Partition: 1}}
	}
	return txns.Record{ID: "x", State: s}
}

// TestInit: which epoch a producer gets in every status, and after what it says it is.
func TestInit(t *testing.T) {
	const last = math.MaxInt16 - 1 // the last epoch that a producer gets
	none := txns.None()
	for _, row := range []struct {
		name   string
		status txns.Status
		epoch  int16
		says   txns.Producer
		want   txns.Producer
		err    error
	}{
		{"empty", txns.Empty, 3, none, txns.Producer{ID: 5, Epoch: 4}, nil},
		{"committed", txns.CompleteCommit, 3, none, txns.Producer{ID: 5, Epoch: 4}, nil},
		{"aborted", txns.CompleteAbort, 3, none, txns.Producer{ID: 5, Epoch: 4}, nil},
		{"open", txns.Ongoing, 3, none, none, messages.ErrConcurrentTransactions},
		{"being committed", txns.PrepareCommit, 3, none, none, messages.ErrConcurrentTransactions},
		{"being aborted", txns.PrepareAbort, 3, none, none, messages.ErrConcurrentTransactions},
		{"goes on", txns.Empty, 3, txns.Producer{ID: 5, Epoch: 3}, txns.Producer{ID: 5, Epoch: 4}, nil},
		{"older epoch", txns.Empty, 3, txns.Producer{ID: 5, Epoch: 2}, none, messages.ErrProducerFenced},
		{"another id", txns.Empty, 3, txns.Producer{ID: 6, Epoch: 3}, none, messages.ErrProducerFenced},
		{"exhausted", txns.Empty, last, none, txns.Producer{ID: 51, Epoch: 0}, nil},
		{"exhausted, goes on", txns.Empty, last, txns.Producer{ID: 5, Epoch: last}, txns.Producer{ID: 51, Epoch: 0}, nil},
		{"nearly exhausted", txns.Empty, last - 1, none, txns.Producer{ID: 5, Epoch: last}, nil},
		{"fenced at the last epoch", txns.CompleteAbort, math.MaxInt16, none, txns.Producer{ID: 51, Epoch: 0}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDesk(t, stored(row.status, txns.V2, row.epoch))
			got := d.init(row.says)
			require.ErrorIs(t, got.Err, row.err)
			require.Equal(t, row.want, got.Producer)
		})
	}
	for _, timeout := range []int32{-1, 0, 1001} {
		got := newDesk(t).ask(txns.Init{Txn: "x", TimeoutMillis: timeout, Producer: none}).(*txns.Inited)
		require.ErrorIs(t, got.Err, messages.ErrInvalidTxnTimeout, timeout)
	}
}

// TestInitRepeated: the same request again gets the same epoch (KIP-360), and the id
// that took over from an exhausted one.
func TestInitRepeated(t *testing.T) {
	d := newDesk(t, stored(txns.Empty, txns.V2, 3))
	was := txns.Producer{ID: 5, Epoch: 3}
	require.Equal(t, txns.Producer{ID: 5, Epoch: 4}, d.init(was).Producer)
	require.Equal(t, txns.Producer{ID: 5, Epoch: 4}, d.init(was).Producer)
	require.Equal(t, txns.Producer{ID: 5, Epoch: 5}, d.init(txns.None()).Producer)
	require.ErrorIs(t, d.init(was).Err, messages.ErrProducerFenced)
}

// TestEnd: what ends in every status, for clients of both kinds.
func TestEnd(t *testing.T) {
	type outcome struct {
		err   error
		epoch int16 // of the answer
	}
	fenced, concurrent, wrong := outcome{messages.ErrProducerFenced, -1}, outcome{messages.ErrConcurrentTransactions, -1}, outcome{messages.ErrInvalidTxnState, -1}
	for _, row := range []struct {
		name   string
		status txns.Status
		v      txns.Version
		epoch  int16 // of the request; the state's is 3
		commit outcome
		abort  outcome
	}{
		{"open", txns.Ongoing, txns.V2, 3, outcome{nil, 4}, outcome{nil, 4}},
		{"open, old client", txns.Ongoing, txns.V0, 3, outcome{nil, 3}, outcome{nil, 3}},
		{"open, older epoch", txns.Ongoing, txns.V2, 2, fenced, fenced},
		{"open, newer epoch", txns.Ongoing, txns.V0, 4, fenced, fenced},
		{"empty", txns.Empty, txns.V2, 3, wrong, outcome{nil, 4}},
		{"empty, old client", txns.Empty, txns.V0, 3, wrong, wrong},
		{"committed, again", txns.CompleteCommit, txns.V2, 2, outcome{nil, 3}, wrong},
		{"committed, next", txns.CompleteCommit, txns.V2, 3, wrong, outcome{nil, 4}},
		{"committed, old client", txns.CompleteCommit, txns.V0, 3, outcome{nil, 3}, wrong},
		{"aborted, again", txns.CompleteAbort, txns.V2, 2, wrong, outcome{nil, 3}},
		{"aborted, next", txns.CompleteAbort, txns.V2, 3, wrong, outcome{nil, 4}},
		{"aborted, long ago", txns.CompleteAbort, txns.V2, 1, fenced, fenced},
		{"being committed", txns.PrepareCommit, txns.V2, 2, concurrent, concurrent},
		{"being aborted", txns.PrepareAbort, txns.V0, 3, concurrent, concurrent},
	} {
		for _, commit := range []bool{true, false} {
			want := row.abort
			if commit {
				want = row.commit
			}
			d := newDesk(t, stored(row.status, row.v, 3))
			got := d.ask(txns.End{Txn: "x", Producer: txns.Producer{ID: 5, Epoch: row.epoch}, Version: row.v, Commit: commit}).(*txns.Ended)
			require.ErrorIs(t, got.Err, want.err, "%s, commit %v", row.name, commit)
			require.Equal(t, want.epoch, got.Epoch, "%s, commit %v", row.name, commit)
		}
	}
	d := newDesk(t, stored(txns.Ongoing, txns.V2, 3))
	other := d.ask(txns.End{Txn: "x", Producer: txns.Producer{ID: 6, Epoch: 3}, Version: txns.V2}).(*txns.Ended)
	require.ErrorIs(t, other.Err, messages.ErrInvalidProducerIDMapping)
}

// TestEndExhausted: the last epoch of an id ends with another id; who asks again is
// told the same.
func TestEndExhausted(t *testing.T) {
	const last = math.MaxInt16 - 1
	d := newDesk(t, stored(txns.Ongoing, txns.V2, last))
	end := txns.End{Txn: "x", Producer: txns.Producer{ID: 5, Epoch: last}, Version: txns.V2, Commit: true}
	require.Equal(t, txns.Producer{ID: 51}, d.ask(end).(*txns.Ended).Producer)
	require.Equal(t, int16(math.MaxInt16), d.marks[0].Marker.Epoch)
	d.mark()
	require.Equal(t, txns.Producer{ID: 51}, d.ask(end).(*txns.Ended).Producer)
	got := d.ask(txns.Add{Txn: "x", Producer: txns.Producer{ID: 51}, Version: txns.V2, Partitions: []messages.TopicPartition{{Topic: "t"}}}).(*txns.Added)
	require.NoError(t, got.Err)
}

// TestAbortOfTime: a transaction that lasts too long is aborted under the next epoch,
// and an id that nobody uses goes.
func TestAbortOfTime(t *testing.T) {
	for _, v := range []txns.Version{txns.V0, txns.V2} {
		d := newDesk(t, stored(txns.Ongoing, v, 3))
		at, ok := d.c.Wake()
		require.True(t, ok)
		require.Equal(t, int64(1100), at)
		d.now = 1099
		d.do(d.c.Tick(d.now))
		require.Empty(t, d.marks)
		d.now = at
		d.do(d.c.Tick(d.now))
		require.Len(t, d.marks, 1)
		require.Equal(t, txns.Marker{Producer: txns.Producer{ID: 5, Epoch: 4}, CoordinatorEpoch: 7, Version: v, Partitions: []messages.TopicPartition{{Topic: "t", Partition: 1}}}, d.marks[0].Marker)
		d.mark()
		described := d.ask(txns.Describe{Txn: "x"}).(*txns.Described)
		require.Equal(t, txns.CompleteAbort, described.Status)
		late := d.ask(txns.End{Txn: "x", Producer: txns.Producer{ID: 5, Epoch: 3}, Version: v, Commit: true}).(*txns.Ended)
		require.Error(t, late.Err)
		d.now += 4999
		d.do(d.c.Expire(d.now))
		require.Equal(t, 1, d.c.Size())
		d.now++
		d.do(d.c.Expire(d.now))
		require.Zero(t, d.c.Size())
		require.ErrorIs(t, d.ask(txns.Describe{Txn: "x"}).(*txns.Described).Err, messages.ErrTransactionalIDNotFound)
	}
}

// TestVerify: only partitions of the open transaction are in it.
func TestVerify(t *testing.T) {
	verify := func(d *desk, p txns.Producer) *txns.Added {
		return d.ask(txns.Add{Txn: "x", Producer: p, VerifyOnly: true, Partitions: []messages.TopicPartition{{Topic: "t", Partition: 1}, {Topic: "t", Partition: 2}}}).(*txns.Added)
	}
	me := txns.Producer{ID: 5, Epoch: 3}
	got := verify(newDesk(t, stored(txns.Ongoing, txns.V0, 3)), me)
	require.NoError(t, got.Err)
	require.NoError(t, got.Partitions[0])
	require.ErrorIs(t, got.Partitions[1], messages.ErrTransactionAbortable)
	require.ErrorIs(t, verify(newDesk(t, stored(txns.CompleteCommit, txns.V0, 3)), me).Partitions[0], messages.ErrTransactionAbortable)
	require.ErrorIs(t, verify(newDesk(t, stored(txns.PrepareCommit, txns.V0, 3)), me).Err, messages.ErrConcurrentTransactions)
	require.ErrorIs(t, verify(newDesk(t, stored(txns.Ongoing, txns.V0, 4)), me).Err, messages.ErrProducerFenced)
	require.ErrorIs(t, verify(newDesk(t), me).Err, messages.ErrInvalidProducerIDMapping)
}

// TestLoadedGoesOn: what was decided before a crash is carried out.
func TestLoadedGoesOn(t *testing.T) {
	d := newDesk(t, stored(txns.PrepareCommit, txns.V2, 3))
	require.Len(t, d.marks, 1)
	require.True(t, d.marks[0].Marker.Commit)
	d.mark()
	require.Equal(t, txns.CompleteCommit, d.ask(txns.Describe{Txn: "x"}).(*txns.Described).Status)
}

// TestFencedProducerGoesOn: who was too late, or asks for a new epoch while its own
// transaction is open, gets the epoch that the abort has fenced it with (KIP-588), until
// somebody else has asked for one.
func TestFencedProducerGoesOn(t *testing.T) {
	for _, v := range []txns.Version{txns.V0, txns.V2} {
		me := txns.Producer{ID: 5, Epoch: 3}
		fenced := txns.Producer{ID: 5, Epoch: 4}
		late := func() *desk {
			d := newDesk(t, stored(txns.Ongoing, v, 3))
			d.now = 2000
			d.do(d.c.Tick(d.now))
			d.mark()
			return d
		}
		require.Equal(t, fenced, late().init(me).Producer, "after the time-out")

		d := late()
		require.Equal(t, int16(5), d.init(txns.None()).Producer.Epoch)
		require.ErrorIs(t, d.init(me).Err, messages.ErrProducerFenced)

		d = newDesk(t, stored(txns.Ongoing, v, 3))
		require.ErrorIs(t, d.init(me).Err, messages.ErrConcurrentTransactions)
		d.mark()
		require.Equal(t, fenced, d.init(me).Producer, "over its own transaction")
	}
}
