package group

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/txns"
)

// txnWorld is a world whose log keeps whole writes, as batches do.
type txnWorld struct {
	*world
	writes []Write
}

func newTxnWorld(t *testing.T) *txnWorld {
	t.Helper()
	w := &txnWorld{world: newWorld(t)}
	w.hold = true
	return w
}

func (w *txnWorld) stored() {
	for len(w.out) > 0 {
		next := w.out[0]
		w.out = w.out[1:]
		w.writes = append(w.writes, next)
		w.perform(w.core.Stored(w.now, next.ID))
	}
}

func (w *txnWorld) ask(req groups.Request) Ticket {
	t := w.world.ask(req)
	w.stored()
	return t
}

// again is the core that a replay makes.
func (w *txnWorld) again() *Core {
	c := New(testConfig())
	for _, wr := range w.writes {
		if wr.Marker != nil {
			c.ApplyMarker(wr.Marker.ID, wr.Marker.Commit)
		}
		for _, r := range wr.Records {
			if wr.Txn != nil {
				c.ApplyTxn(wr.Txn.ID, r)
			} else {
				c.ApplyLoaded(r)
			}
		}
	}
	return c
}

func (w *txnWorld) commitTxn(producer int64, offset int64) Ticket {
	c := commitOf(outside, "t", offset)
	c.Txn = &txns.Producer{ID: producer, Epoch: 1}
	return w.ask(c)
}

func (w *txnWorld) end(producer int64, commit bool) error {
	return answerOf[*groups.Done](w.world, w.ask(groups.EndTxn{Marker: txns.Marker{Producer: txns.Producer{ID: producer, Epoch: 2}, Commit: commit}})).Err
}

// at is the committed offset, and whether it is stable.
func (w *txnWorld) at() (int64, bool) {
	w.t.Helper()
	fetch := func(stable bool) groups.Position {
		return answerOf[*groups.Fetched](w.world, w.ask(groups.Fetch{Group: "g", Epoch: -1, RequireStable: stable, Topics: []groups.Partitions{{Topic: "t", Partitions: []int32{0}}}})).Positions[0]
	}
	return fetch(false).Offset, fetch(true).Err == nil
}

// TestTxnOffsets: pending until the marker; what is committed meanwhile without a
// transaction wins, and a deleted group stays deleted.
func TestTxnOffsets(t *testing.T) {
	for _, row := range []struct {
		name    string
		between func(w *txnWorld)
		commit  bool
		want    int64
	}{
		{"committed", func(*txnWorld) {}, true, 9},
		{"aborted", func(*txnWorld) {}, false, 5},
		{"overtaken", func(w *txnWorld) { w.ask(commitOf(outside, "t", 7)) }, true, 7},
		{"twice", func(w *txnWorld) { w.commitTxn(1, 10) }, true, 10},
		{"another transaction ends first", func(w *txnWorld) {
			w.commitTxn(2, 8)
			require.NoError(w.t, w.end(2, true))
		}, true, 9},
		{"deleted", func(w *txnWorld) {
			require.NoError(w.t, answerOf[*groups.Done](w.world, w.ask(groups.Delete{Group: "g"})).Err)
		}, true, -1},
		{"expired", func(w *txnWorld) {
			w.now += 2 * retention
			w.perform(w.core.Expire(w.now))
			w.stored()
		}, true, 9},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newTxnWorld(t)
			w.ask(commitOf(outside, "t", 5))
			require.NoError(t, answerOf[*groups.Committed](w.world, w.commitTxn(1, 9)).Err)
			at, stable := w.at()
			require.Equal(t, int64(5), at)
			require.False(t, stable)
			row.between(w)
			require.NoError(t, w.end(1, row.commit))
			at, stable = w.at()
			require.Equal(t, row.want, at)
			require.True(t, stable)
		})
	}
}

// TestTxnOffsetsWhileEnding: while a marker is being stored its transaction takes no
// more offsets, and no second marker.
func TestTxnOffsetsWhileEnding(t *testing.T) {
	w := newTxnWorld(t)
	w.commitTxn(1, 9)
	end := groups.EndTxn{Marker: txns.Marker{Producer: txns.Producer{ID: 1, Epoch: 2}, Commit: true}}
	first := w.world.ask(end)
	require.NotContains(t, w.answers, first)
	require.ErrorIs(t, answerOf[*groups.Done](w.world, w.world.ask(end)).Err, messages.ErrCoordinatorLoading)
	late := commitOf(outside, "t", 11)
	late.Txn = &txns.Producer{ID: 1, Epoch: 1}
	require.ErrorIs(t, answerOf[*groups.Committed](w.world, w.world.ask(late)).Err, messages.ErrCoordinatorLoading)
	w.stored()
	require.NoError(t, answerOf[*groups.Done](w.world, first).Err)
	require.NoError(t, answerOf[*groups.Committed](w.world, w.commitTxn(1, 12)).Err)
}

// TestTxnOffsetsReplay: any order of commits, transactions and deletions is what a
// replay makes of it.
func TestTxnOffsetsReplay(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newTxnWorld(t)
		for step := range 40 {
			producer := int64(r.IntN(3))
			switch r.IntN(8) {
			case 0:
				w.ask(commitOf(outside, "t", int64(step)))
			case 1:
				w.ask(groups.Delete{Group: "g"})
			case 2:
				w.ask(groups.DeleteOffsets{Group: "g", Topics: []groups.Partitions{{Topic: "t", Partitions: []int32{0}}}})
			case 3, 4:
				require.NoError(t, w.end(producer, r.IntN(2) == 0))
			default:
				w.commitTxn(producer, int64(step))
			}
			again := w.again()
			g, o := w.core.groups["g"], again.groups["g"]
			require.Equal(t, g == nil, o == nil, "seed %d step %d", seed, step)
			if g != nil {
				require.Equal(t, o.offsets, g.offsets, "seed %d step %d", seed, step)
				require.Equal(t, len(o.txns), len(g.txns), "seed %d step %d", seed, step)
			}
		}
	}
}
