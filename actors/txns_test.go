package actors

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/txns"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// txnWorld is the coordinators of a node over one log, whose markers go to a function.
type txnWorld struct {
	t   *testing.T
	log *stateLog
	ts  *Txns

	mu      sync.Mutex
	refuse  []error // of the next markers, in order
	markers []txns.Marker
	nodes   []messages.NodeID
	idsErr  error
}

func newTxnWorld(t *testing.T, log *stateLog) *txnWorld {
	t.Helper()
	w := &txnWorld{t: t, log: log}
	system := NewSystem(zap.NewNop())
	w.ts = NewTxns(t.Context(), TxnsConfig{
		System: system, Node: 1, Clock: clock.Wall{}, Log: zap.NewNop(), Static: map[string]string{},
		Replica:     func(messages.TopicPartition) (StateReplica, error) { return log, nil },
		ProducerIDs: func(context.Context) ([]int64, error) { w.mu.Lock(); defer w.mu.Unlock(); return []int64{77}, w.idsErr },
		WriteMarkers: func(_ context.Context, node messages.NodeID, markers []txns.Marker) ([]error, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			var errs []error
			for _, m := range markers {
				for range m.Partitions {
					var err error
					if len(w.refuse) > 0 {
						err, w.refuse = w.refuse[0], w.refuse[1:]
					}
					errs = append(errs, err)
				}
			}
			w.markers, w.nodes = append(w.markers, markers...), append(w.nodes, node)
			return errs, nil
		},
	})
	t.Cleanup(func() {
		require.NoError(t, w.ts.Close())
		system.Shutdown()
	})
	w.ts.Apply(txnImage(t, 1, ""))
	return w
}

// txnImage has __transaction_state with one partition of node 1, and t with two, the
// second of another node.
func txnImage(t *testing.T, epoch int32, mirror string) *metadata.Image {
	t.Helper()
	var recs []metadata.Record
	for _, topic := range []string{messages.TransactionStateTopic, "t"} {
		rec := wire.NewTopicRecord()
		rec.Name, rec.TopicID = topic, messages.TopicID{byte(len(topic))}
		recs = append(recs, &rec)
		for p := range int32(2) {
			leader := messages.NodeID(1)
			if topic == "t" && p == 1 {
				leader = 2
			}
			if topic == "t" || p == 0 {
				recs = append(recs, metadata.PartitionRecord(rec.TopicID, p, metadata.Partition{Leader: leader, LeaderEpoch: epoch, Replicas: []messages.NodeID{1, 2}, ISR: []messages.NodeID{1, 2}}))
			}
		}
	}
	if mirror != "" {
		recs = append(recs, metadata.ConfigRecord(messages.ResourceTopic, "t", messages.MirrorNameConfig, &mirror))
	}
	d, err := metadata.EmptyImage().Apply(10, recs)
	require.NoError(t, err)
	return d.New
}

// ask repeats what is refused because a coordinator isn't ready or at work.
func (w *txnWorld) ask(req txns.Request) txns.Answer {
	w.t.Helper()
	var a txns.Answer
	require.Eventually(w.t, func() bool {
		a = w.ts.Ask(w.t.Context(), req)
		var err error
		switch a := a.(type) {
		case *txns.Inited:
			err = a.Err
		case *txns.Added:
			err = a.Err
		case *txns.Ended:
			err = a.Err
		case *txns.Described:
			err = a.Err
		}
		return !errors.Is(err, messages.ErrCoordinatorLoading) && !errors.Is(err, messages.ErrNotCoordinator) &&
			!errors.Is(err, messages.ErrConcurrentTransactions) && !errors.Is(err, messages.ErrCoordinatorNotAvailable)
	}, 10*time.Second, time.Millisecond)
	return a
}

func (w *txnWorld) status(want txns.Status) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.ask(txns.Describe{Txn: "x"}).(*txns.Described).Status == want
	}, 10*time.Second, time.Millisecond)
}

func (w *txnWorld) begin() txns.Producer {
	w.t.Helper()
	in := w.ask(txns.Init{Txn: "x", TimeoutMillis: 60_000, Producer: txns.None()}).(*txns.Inited)
	require.NoError(w.t, in.Err)
	added := w.ask(txns.Add{Txn: "x", Producer: in.Producer, Version: txns.V2, Partitions: []messages.TopicPartition{{Topic: "t"}, {Topic: "t", Partition: 1}}}).(*txns.Added)
	require.NoError(w.t, added.Err)
	return in.Producer
}

// TestTxnMarkersAreRepeated: markers go to the leaders of their partitions until each
// is written; who has gone on without one needs none.
func TestTxnMarkersAreRepeated(t *testing.T) {
	w := newTxnWorld(t, &stateLog{})
	w.idsErr = errors.New("no controller")
	require.ErrorIs(t, w.askOnce(txns.Init{Txn: "x", TimeoutMillis: 60_000, Producer: txns.None()}), messages.ErrCoordinatorNotAvailable)
	w.mu.Lock()
	w.idsErr = nil
	w.mu.Unlock()
	p := w.begin()
	require.Equal(t, txns.Producer{ID: 77}, p)
	w.mu.Lock()
	w.refuse = []error{messages.ErrNotLeader, messages.ErrTimedOut, persistence.ErrInvalidProducerEpoch}
	w.mu.Unlock()
	require.NoError(t, w.ask(txns.End{Txn: "x", Producer: p, Version: txns.V2, Commit: true}).(*txns.Ended).Err)
	w.status(txns.CompleteCommit)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.GreaterOrEqual(t, len(w.markers), 4)
	require.Contains(t, w.nodes, messages.NodeID(1))
	require.Contains(t, w.nodes, messages.NodeID(2))
	require.Zero(t, w.ts.Counts().Pending)
	for _, m := range w.markers {
		require.True(t, m.Commit)
		require.Equal(t, txns.Producer{ID: 77, Epoch: 1}, m.Producer)
	}
}

// askOnce is the error of an answer, once there is a coordinator.
func (w *txnWorld) askOnce(req txns.Request) error {
	w.t.Helper()
	var err error
	require.Eventually(w.t, func() bool {
		in, ok := w.ts.Ask(w.t.Context(), req).(*txns.Inited)
		err = in.Err
		return ok && !errors.Is(err, messages.ErrCoordinatorLoading) && !errors.Is(err, messages.ErrNotCoordinator)
	}, 10*time.Second, time.Millisecond)
	return err
}

// TestTxnDecisionOutlivesItsCoordinator: an outcome that is in the log is carried out
// by the next coordinator, under its epoch; what failed to be stored is read again.
func TestTxnDecisionOutlivesItsCoordinator(t *testing.T) {
	log := &stateLog{}
	w := newTxnWorld(t, log)
	p := w.begin()
	w.mu.Lock()
	for range 1000 {
		w.refuse = append(w.refuse, messages.ErrNotLeader)
	}
	w.mu.Unlock()
	require.NoError(t, w.ask(txns.End{Txn: "x", Producer: p, Version: txns.V2, Commit: true}).(*txns.Ended).Err)
	require.Equal(t, int64(2), w.ts.Counts().Pending)
	log.change(1) // another node leads
	require.Eventually(t, func() bool { return len(w.ts.shards.all()) == 0 && w.ts.Counts().Pending == 0 }, 10*time.Second, time.Millisecond)
	w.mu.Lock()
	w.refuse, w.markers = nil, nil
	w.mu.Unlock()
	w.ts.Apply(txnImage(t, 4, ""))
	log.change(1)
	w.status(txns.CompleteCommit)
	w.mu.Lock()
	require.True(t, slices.ContainsFunc(w.markers, func(m txns.Marker) bool { return m.CoordinatorEpoch == 4 && m.Commit }))
	w.mu.Unlock()
	require.Zero(t, w.ts.Counts().Pending)
	require.GreaterOrEqual(t, w.ts.Counts().Loads, int64(2))

	log.mu.Lock()
	log.fail = persistence.ErrStorage
	log.mu.Unlock()
	in := w.ts.Ask(t.Context(), txns.Init{Txn: "x", TimeoutMillis: 60_000, Producer: txns.None()}).(*txns.Inited)
	require.ErrorIs(t, in.Err, messages.ErrNotCoordinator)
	require.Equal(t, int16(2), w.begin().Epoch, "the epoch that wasn't stored was given to nobody")
}

// TestTxnTimesOut: a transaction that lasts too long is aborted, and counted.
func TestTxnTimesOut(t *testing.T) {
	w := newTxnWorld(t, &stateLog{})
	in := w.ask(txns.Init{Txn: "x", TimeoutMillis: 50, Producer: txns.None()}).(*txns.Inited)
	require.NoError(t, in.Err)
	require.NoError(t, w.ask(txns.Add{Txn: "x", Producer: in.Producer, Version: txns.V2, Partitions: []messages.TopicPartition{{Topic: "t"}}}).(*txns.Added).Err)
	w.status(txns.CompleteAbort)
	require.Equal(t, int64(1), w.ts.Counts().TimedOut)
}

// TestTxnPartitionsOfMirrors: a partition that a mirror has taken needs no marker, nor
// does one that is gone.
func TestTxnPartitionsOfMirrors(t *testing.T) {
	w := newTxnWorld(t, &stateLog{})
	p := w.begin()
	gone := txns.Add{Txn: "x", Producer: p, Version: txns.V2, Partitions: []messages.TopicPartition{{Topic: "gone"}}}
	require.NoError(t, w.ask(gone).(*txns.Added).Err)
	w.ts.Apply(txnImage(t, 1, "m"))
	require.NoError(t, w.ask(txns.End{Txn: "x", Producer: p, Version: txns.V2, Commit: true}).(*txns.Ended).Err)
	w.status(txns.CompleteCommit)
	require.Empty(t, w.markers)
	last, ok := lastTxn(t, w.log)
	require.True(t, ok)
	require.Equal(t, txns.CompleteCommit, last.State.Status)
}

// lastTxn is the last record of a log.
func lastTxn(t *testing.T, log *stateLog) (out txns.Record, ok bool) {
	t.Helper()
	_, err := replayShard(t.Context(), log.Log(), log.End(), func(rec batch.Record) {
		r, err := txns.Decode(rec.Key, rec.Value)
		require.NoError(t, err)
		out, ok = r, true
	})
	require.NoError(t, err)
	return out, ok
}
