package cluster

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/txns"
	"kagami/persistence"
)

// sequenced is a producer's batch of n records.
func sequenced(p txns.Producer, sequence int32, attributes int16, n int) []byte {
	rs := make([]batch.Record, n)
	for i := range rs {
		rs[i] = batch.Record{Timestamp: 1, Value: []byte("v")}
	}
	return batch.Append(nil, batch.Props{ProducerID: p.ID, ProducerEpoch: p.Epoch, BaseSequence: sequence, Attributes: attributes}, rs...)
}

// TestTxnGuards: the first batch of a transaction needs a guard that no marker has
// taken away (KIP-890).
func TestTxnGuards(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer n.stop()
	n.change(topicRecords("t", 1, 1)...)
	r := n.get("t", 0)
	ctx := t.Context()
	me := txns.Producer{ID: 7, Epoch: 2}
	write := func(p txns.Producer, sequence int32, guard *persistence.TxnGuard) error {
		opts := anyEpoch
		opts.Txn = guard
		_, err := r.AppendClient(ctx, sequenced(p, sequence, batch.AttrTransactional, 1), opts)
		return err
	}
	mark := func(epoch int16, v txns.Version) error {
		return r.AppendMarker(ctx, txns.Marker{Producer: txns.Producer{ID: 7, Epoch: epoch}, Commit: true, CoordinatorEpoch: 4, Version: v}, 1)
	}
	require.ErrorIs(t, write(me, 0, nil), persistence.ErrInvalidTxnState)
	guard := r.GuardTxn(me, txns.V2, 0)
	require.ErrorIs(t, write(me, 3, guard), persistence.ErrOutOfOrderSequence, "a transaction begins at 0")
	require.NoError(t, write(me, 0, guard))
	r.ReleaseTxn(me.ID, guard)
	require.Nil(t, r.GuardTxn(me, txns.V2, 1), "it is open")
	require.NoError(t, write(me, 1, nil))
	require.NoError(t, mark(3, txns.V2))

	next := txns.Producer{ID: 7, Epoch: 3}
	guard = r.GuardTxn(next, txns.V2, 0)
	require.NoError(t, mark(3, txns.V2), "a repetition of the marker before")
	require.True(t, r.HoldsTxn(next, guard), "it isn't that of the transaction to come")
	require.NoError(t, write(next, 0, guard))
	require.ErrorIs(t, mark(3, txns.V2), persistence.ErrInvalidProducerEpoch, "the epoch is that of the open transaction")
	require.NoError(t, mark(4, txns.V2))
	require.ErrorIs(t, write(next, 1, guard), persistence.ErrInvalidProducerEpoch)
	r.ReleaseTxn(next.ID, guard)

	old := txns.Producer{ID: 7, Epoch: 4}
	guard = r.GuardTxn(old, txns.V0, 0)
	require.NoError(t, mark(4, txns.V0))
	require.False(t, r.HoldsTxn(old, guard))
	require.ErrorIs(t, write(old, 0, guard), persistence.ErrInvalidTxnState, "ended between the question and the append")
	r.ReleaseTxn(old.ID, guard)
	require.Empty(t, r.guards.byID)
	require.Empty(t, r.guards.users)
}

// TestRefusedBatchKeepsItsPlace: of an older client that sends several batches at a time,
// the first is refused while its coordinator can't be asked; the second may not come
// before it (KAFKA-14920). What is kept for that is bounded, and goes with the marker.
func TestRefusedBatchKeepsItsPlace(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer n.stop()
	n.change(topicRecords("t", 1, 1)...)
	r := n.get("t", 0)
	me := txns.Producer{ID: 7, Epoch: 2}
	write := func(sequence int32) error {
		guard := r.GuardTxn(me, txns.V0, sequence)
		defer r.ReleaseTxn(me.ID, guard)
		opts := anyEpoch
		opts.Txn = guard
		_, err := r.AppendClient(t.Context(), sequenced(me, sequence, batch.AttrTransactional, 1), opts)
		return err
	}
	r.ReleaseTxn(me.ID, r.GuardTxn(me, txns.V0, 0)) // the coordinator wasn't there
	require.ErrorIs(t, write(1), persistence.ErrOutOfOrderSequence)
	require.NoError(t, write(0))
	require.NoError(t, write(1))
	require.Empty(t, r.guards.byID)

	for id := range int64(2 * txnGuardsRefusedMax) {
		r.ReleaseTxn(100+id, r.GuardTxn(txns.Producer{ID: 100 + id}, txns.V0, 0))
	}
	require.Len(t, r.guards.byID, txnGuardsRefusedMax)
	require.Empty(t, r.guards.users)
	for id := range int64(2 * txnGuardsRefusedMax) {
		r.EndTxnGuard(txns.Marker{Producer: txns.Producer{ID: 100 + id}})
	}
	require.Empty(t, r.guards.byID)
}

// TestMarkersAreFenced: by the producer's epoch, by the coordinator's, and by mirrors.
func TestMarkersAreFenced(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer n.stop()
	n.change(topicRecords("t", 1, 1)...)
	r := n.get("t", 0)
	ctx := t.Context()
	marker := func(epoch int16, coordinator int32, v txns.Version) error {
		return r.AppendMarker(ctx, txns.Marker{Producer: txns.Producer{ID: 7, Epoch: epoch}, CoordinatorEpoch: coordinator, Version: v}, 1)
	}
	require.NoError(t, marker(5, 3, txns.V0))
	require.NoError(t, marker(5, 3, txns.V0))
	require.ErrorIs(t, marker(4, 3, txns.V0), persistence.ErrInvalidProducerEpoch)
	require.ErrorIs(t, marker(5, 2, txns.V0), messages.ErrTxnCoordinatorFenced)
	require.NoError(t, marker(6, 4, txns.V2))
	before := r.State().End
	r.SetAdmit(false)
	require.ErrorIs(t, marker(7, 4, txns.V2), messages.ErrReadOnlyTopic)
	r.SetAdmit(true)
	_, err := r.SetMode(ctx, messages.ModeMirroring)
	require.NoError(t, err)
	require.ErrorIs(t, marker(7, 4, txns.V2), messages.ErrReadOnlyTopic)
	require.Equal(t, before, r.State().End)
}

// told is what a producer was told of a batch.
type told struct {
	first int64 // offset
	err   error
}

// model has Kafka's rules for the sequences of one producer.
type model struct {
	known   bool
	epoch   int16
	batches []modelBatch // the last five
}

type modelBatch struct {
	first, last int32
	offset      int64
}

func (m *model) produce(epoch int16, first int32, n int, end int64) told {
	last := after(first, n-1)
	if m.known && epoch == m.epoch {
		for _, b := range m.batches {
			if b.first == first && b.last == last {
				return told{first: b.offset}
			}
		}
	}
	expected := int32(0)
	if k := len(m.batches); k > 0 && epoch == m.epoch {
		expected = after(m.batches[k-1].last, 1)
	}
	switch {
	case m.known && epoch < m.epoch:
		return told{err: persistence.ErrInvalidProducerEpoch}
	case m.known && first != expected:
		return told{err: persistence.ErrOutOfOrderSequence}
	}
	if !m.known || epoch != m.epoch {
		*m = model{known: true, epoch: epoch}
	}
	m.batches = append(m.batches, modelBatch{first, last, end})
	m.batches = m.batches[max(0, len(m.batches)-5):]
	return told{first: end}
}

// after is a sequence n later: they wrap around at 2^31.
func after(sequence int32, n int) int32 { return int32((int64(sequence) + int64(n)) & math.MaxInt32) }

// TestIdempotenceAgainstModel: producers with batches in flight that arrive twice,
// late or never, epochs that grow and fall back, sequences that wrap around, with
// restarts of the node, cuts of the log and new leader epochs in between.
func TestIdempotenceAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := startNode(t, t.TempDir())
		n.change(topicRecords("t", 1, 1)...)
		part := n.get("t", 0)
		var history []map[int64]model // by the number of appends, to go back to
		var ends []int64
		models := map[int64]*model{}
		remember := func() {
			at := map[int64]model{}
			for id, m := range models {
				c := *m
				c.batches = append([]modelBatch(nil), m.batches...)
				at[id] = c
			}
			history, ends = append(history, at), append(ends, part.State().End)
		}
		remember()
		for step := range 250 {
			switch k := r.IntN(100); {
			case k < 3:
				n.stop()
				n.start()
				var err error
				part, err = n.replicas.Get(messages.TopicPartition{Topic: "t"})
				require.NoError(t, err)
				require.NoError(t, part.Claim(t.Context(), part.State().LeaderEpoch+1))
				for _, m := range models { // a snapshot has each producer's last batch only
					m.batches = m.batches[max(0, len(m.batches)-1):]
				}
				history, ends = nil, nil
				remember()
			case k < 6 && len(history) > 1: // what an unclean end or a failback cuts
				i := r.IntN(len(history))
				_, err := part.SetMode(t.Context(), messages.ModeSealed)
				require.NoError(t, err)
				_, err = part.Truncate(t.Context(), ends[i], "test")
				require.NoError(t, err)
				_, err = part.SetMode(t.Context(), messages.ModeWritable)
				require.NoError(t, err)
				models = map[int64]*model{}
				for id, e := range history[i] {
					models[id] = &e
				}
				// What a rebuild knows beyond the last batches depends on its snapshot.
				for id, m := range models {
					e, ok := part.Log().Producer(id)
					require.True(t, ok)
					m.batches = m.batches[max(0, len(m.batches)-len(e.Batches)):]
				}
				history, ends = history[:i+1], ends[:i+1]
			case k < 8:
				require.NoError(t, part.Claim(t.Context(), part.State().LeaderEpoch+1))
			default:
				id := int64(r.IntN(3))
				m := models[id]
				if m == nil {
					m = &model{}
					models[id] = m
				}
				epoch, first, count := m.epoch, int32(0), 1+r.IntN(3)
				if k := len(m.batches); k > 0 {
					first = after(m.batches[k-1].last, 1)
				}
				switch r.IntN(8) {
				case 0:
					first = after(first, r.IntN(3)) // a hole, perhaps
				case 1:
					if k := len(m.batches); k > 0 { // again
						b := m.batches[r.IntN(k)]
						first, count = b.first, int(after(b.last, 1)-b.first)
						if count <= 0 {
							count = 1
						}
					}
				case 2:
					epoch += int16(r.IntN(3) - 1)
					first = int32(r.IntN(5) / 4)
				case 3:
					if !m.known {
						first = math.MaxInt32 - int32(r.IntN(4))
					}
				}
				epoch = max(epoch, 0)
				end := part.State().End
				want := m.produce(epoch, first, count, end)
				if !m.known {
					delete(models, id)
				}
				info, err := part.AppendClient(t.Context(), sequenced(txns.Producer{ID: id, Epoch: epoch}, first, 0, count), anyEpoch)
				got := told{first: info.FirstOffset, err: err}
				if dup, ok := errors.AsType[*persistence.DuplicateError](err); ok {
					got = told{first: dup.FirstOffset}
				}
				require.ErrorIs(t, got.err, want.err, "seed %d step %d: producer %d epoch %d sequence %d", seed, step, id, epoch, first)
				if want.err == nil {
					require.NoError(t, got.err, "seed %d step %d: producer %d epoch %d sequence %d", seed, step, id, epoch, first)
					require.Equal(t, want.first, got.first, "seed %d step %d", seed, step)
				}
				if part.State().End > end {
					remember()
				}
			}
		}
		n.stop()
	}
}
