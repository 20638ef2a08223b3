package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/txns"
	"kagami/persistence"
)

// txnClient speaks the requests of one transactional producer.
type txnClient struct {
	t  *testing.T
	c  *rawConn
	id string
	txns.Producer
}

func (p *txnClient) init(version int16) int16 {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = version, &p.id, 60_000
	resp := p.c.call(req).(*kmsg.InitProducerIDResponse)
	p.Producer = txns.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
	return resp.ErrorCode
}

func (p *txnClient) add(version int16, topics ...string) []int16 {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = version, p.id, p.ID, p.Epoch
	for _, name := range topics {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = name, []int32{0}
		req.Topics = append(req.Topics, t)
	}
	var codes []int16
	for _, t := range p.c.call(req).(*kmsg.AddPartitionsToTxnResponse).Topics {
		for _, part := range t.Partitions {
			codes = append(codes, part.ErrorCode)
		}
	}
	return codes
}

func (p *txnClient) produce(version int16, topic string, sequence int32, value string) int16 {
	req := produceRequest(version, -1, topic, messages.TopicID{}, 0, idempotent(p.ID, p.Epoch, sequence, batch.AttrTransactional, value))
	req.TransactionID = &p.id
	return produceOne(p.t, p.c, req).ErrorCode
}

func (p *txnClient) end(version int16, commit bool) int16 {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = version, p.id, p.ID, p.Epoch, commit
	resp := p.c.call(req).(*kmsg.EndTxnResponse)
	if version >= endTxnBumps && resp.ErrorCode == 0 {
		p.Producer = txns.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
	}
	return resp.ErrorCode
}

// TestTransactionOfOldClient: partitions are added before they are written.
func TestTransactionOfOldClient(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	p := &txnClient{t: t, c: w.dial(), id: "x"}
	require.Zero(t, p.init(4))
	require.Equal(t, int16(0), p.Epoch)
	require.Equal(t, kerr.InvalidTxnState.Code, p.produce(9, "t", 0, "early"), "not added; this client doesn't know TRANSACTION_ABORTABLE")
	require.Equal(t, kerr.TransactionAbortable.Code, p.produce(11, "t", 0, "early"))
	require.Equal(t, []int16{0}, p.add(3, "t"))
	require.Zero(t, p.produce(11, "t", 0, "a"))
	require.Zero(t, p.produce(11, "t", 1, "b"))
	require.Len(t, w.txns.joins, 3, "the second batch needs no look")
	require.Zero(t, p.end(4, true))
	require.Equal(t, kerr.InvalidTxnState.Code, p.end(4, false))
	require.Zero(t, p.end(4, true), "a repetition")
	log := w.parts[messages.TopicPartition{Topic: "t"}].log
	require.Equal(t, int64(3), log.End())
	require.Empty(t, log.OpenTransactions())

	require.Equal(t, []int16{kerr.UnknownTopicOrPartition.Code, kerr.OperationNotAttempted.Code}, p.add(3, "none", "t"))
	old := *p
	require.Zero(t, p.init(4))
	require.Equal(t, []int16{kerr.ProducerFenced.Code}, old.add(3, "t"))
	require.Equal(t, []int16{kerr.InvalidProducerEpoch.Code}, old.add(1, "t"))
	require.Equal(t, kerr.InvalidProducerEpoch.Code, old.produce(11, "t", 2, "fenced"))
	require.Equal(t, kerr.ProducerFenced.Code, old.end(4, true))
	require.Equal(t, kerr.InvalidProducerEpoch.Code, old.end(1, true))
}

// TestTransactionByProduce: from Produce 12 on partitions are added by writing them,
// and each transaction has an epoch.
func TestTransactionByProduce(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1, nil)
	p := &txnClient{t: t, c: w.dial(), id: "x"}
	require.Zero(t, p.init(5))
	for n := range int16(3) {
		require.Equal(t, n, p.Epoch)
		require.Zero(t, p.produce(12, "t", 0, "v"))
		require.Zero(t, p.end(5, n != 1))
	}
	aborted, err := w.parts[messages.TopicPartition{Topic: "t"}].log.AbortedTxns(0, 6)
	require.NoError(t, err)
	require.Len(t, aborted, 1)
	require.Equal(t, int64(2), aborted[0].FirstOffset)

	w.txns.hold = true
	require.Zero(t, p.produce(12, "t", 0, "v"))
	require.Zero(t, p.end(5, true))
	require.Equal(t, kerr.ConcurrentTransactions.Code, p.produce(12, "t", 0, "too soon"), "after a while of trying")
	w.txns.release()
	require.Zero(t, p.produce(12, "t", 0, "v"))
}

// TestC33TransactionsKeepOutOfMirrors: no door of a transaction opens a mirror topic.
func TestC33TransactionsKeepOutOfMirrors(t *testing.T) {
	w := newWorld(t)
	w.topic("u", 1, nil)
	w.mirrorOf("m", nil)
	w.topic("t", 1, map[string]string{"mirror.name": "m"})
	w.part("t", 0).change(func(s *persistence.ReplicaState) { s.ReadOnly = true })
	p := &txnClient{t: t, c: w.dial(), id: "x"}
	require.Zero(t, p.init(4))
	require.Equal(t, []int16{kerr.OperationNotAttempted.Code, kerr.PolicyViolation.Code}, p.add(3, "u", "t"))
	require.Equal(t, kerr.PolicyViolation.Code, p.produce(12, "t", 0, "v"))
	require.Empty(t, w.txns.joins)
}
