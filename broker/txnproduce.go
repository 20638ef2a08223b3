package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/configs"
	"kagami/messages/txns"
	"kagami/persistence"
)

// Versions from which Produce has a feature of transactions (KIP-890).
const (
	produceAbortable = 11 // TRANSACTION_ABORTABLE
	produceJoins     = 12 // adds its partitions to the transaction
)

// txnProduce is what a produce request's transactional batches need before they are
// stored: by place in the request, the guard or the refusal of a partition.
type txnProduce struct {
	guards map[[2]int]*persistence.TxnGuard
	errs   map[[2]int]error
	end    []func()
	// forbidden: the client has no right to the transactional id, and to nothing in the
	// request then.
	forbidden bool
}

func (t *txnProduce) refuse(at [2]int, err error) {
	if t.errs == nil {
		t.errs = map[[2]int]error{}
	}
	t.errs[at] = err
}

// release lets go of the guards.
func (t *txnProduce) release() {
	for _, f := range t.end {
		f()
	}
}

// joinTxn finds the partitions that begin a transaction with this request and has the
// coordinator add them to it, or for older clients verify that they are in it. What is
// wrong with a partition otherwise is found later.
func (s *Server) joinTxn(ctx context.Context, r *request, req *kmsg.ProduceRequest) *txnProduce {
	out := &txnProduce{}
	add := txns.Add{Producer: txns.None(), Version: txns.V2}
	if add.VerifyOnly = req.Version < produceJoins; add.VerifyOnly {
		add.Version = txns.V0
	}
	img := s.image()
	var places [][2]int
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			h, err := batch.ParseHeader(p.Records)
			if err != nil || !h.IsTransactional() || h.IsControl() {
				continue
			}
			at := [2]int{i, j}
			producer := txns.Producer{ID: h.ProducerID, Epoch: h.ProducerEpoch}
			switch {
			case req.TransactionID == nil || !s.allowed(r, OpWrite, KindTxn, *req.TransactionID):
				out.forbidden = true
				return out
			case h.ProducerID < 0:
				continue // refused with the batch
			case add.Producer != txns.None() && add.Producer != producer:
				out.refuse(at, fmt.Errorf("%w: transactional batches of more than one producer", messages.ErrInvalidProducerIDMapping))
				continue
			}
			add.Txn, add.Producer = txns.Txn(*req.TransactionID), producer
			topic, err := topicOf(img, keyOf(t.Topic, t.TopicID, p.Partition, req.Version >= produceTopicIDs), req.Version >= produceTopicIDs)
			if err != nil || s.mayProduce(r, req, topic) != nil {
				continue
			}
			part, err := s.checkPartition(topic, p.Partition, messages.NoEpoch)
			if err != nil || s.writable(ctx, topic, p.Partition, part) != nil {
				continue
			}
			guard := part.GuardTxn(producer, add.Version, h.BaseSequence)
			if guard == nil {
				continue // it is open here
			}
			if out.guards == nil {
				out.guards = map[[2]int]*persistence.TxnGuard{}
			}
			out.guards[at] = guard
			out.end = append(out.end, func() { part.ReleaseTxn(producer.ID, guard) })
			places = append(places, at)
			add.Partitions = append(add.Partitions, messages.TopicPartition{Topic: topic.Name, Partition: p.Partition})
		}
	}
	if len(places) == 0 || add.VerifyOnly && s.brokerConfig(configs.TransactionVerification) == "false" {
		return out
	}
	added := s.join(ctx, add)
	for n, at := range places {
		err := added.Err
		if err == nil && n < len(added.Partitions) {
			err = added.Partitions[n]
		}
		if err != nil {
			out.refuse(at, joinRefusal(err, req.Version >= produceAbortable, add.Version))
		}
	}
	return out
}

// joinPauseMin is the first pause before a coordinator is asked again; the next ones
// double up to the configured one. Most transactions end within a few ms.
const joinPauseMin = time.Millisecond

// join asks the coordinator; one that is still ending the transaction before is asked
// again for a while.
func (s *Server) join(ctx context.Context, add txns.Add) *txns.Added {
	left := s.brokerMillis(configs.TransactionAddBackoffMax)
	longest := s.brokerMillis(configs.TransactionAddBackoff)
	for pause := min(joinPauseMin, longest); ; pause = min(2*pause, longest) {
		out := s.deps.Transactions.Join(ctx, add)
		if !errors.Is(out.Err, messages.ErrConcurrentTransactions) || !add.Version.Bumps() || left < pause {
			return out
		}
		left -= pause
		if s.clock.Sleep(ctx, pause) != nil {
			return out
		}
	}
}

// joinRefusal says what a coordinator refused in words that producers know how to
// handle: what passes is told as NOT_ENOUGH_REPLICAS, which they try again without
// asking for metadata.
func joinRefusal(err error, abortable bool, v txns.Version) error {
	passes := errors.Is(err, messages.ErrNotCoordinator) || errors.Is(err, messages.ErrCoordinatorLoading) ||
		errors.Is(err, messages.ErrCoordinatorNotAvailable) || errors.Is(err, messages.ErrTimedOut) ||
		errors.Is(err, messages.ErrConcurrentTransactions) && !v.Bumps()
	switch {
	case passes:
		return refuse(kerr.NotEnoughReplicas, "can't verify that the partition is in the transaction: "+err.Error())
	case errors.Is(err, messages.ErrProducerFenced):
		return refuse(kerr.InvalidProducerEpoch, err.Error())
	case errors.Is(err, messages.ErrTransactionAbortable) && !abortable:
		return refuse(kerr.InvalidTxnState, err.Error())
	default:
		return err
	}
}
