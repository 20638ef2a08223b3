package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// TestTransactionRefusals: codes of what a transaction may not do, as Kafka 4.4 answers
// them (test/diff).
func TestTransactionRefusals(t *testing.T) {
	w := newWorld(t)
	w.groups.image = w.Image
	w.topic("t", 2, nil)
	w.topic(messages.ConsumerOffsetsTopic, 1, nil)
	p := &txnClient{t: t, c: w.dial(), id: "x"}
	require.Zero(t, p.init(4))
	join := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	join.Version, join.Group, join.MemberID, join.RebalanceTimeoutMillis = 1, "g", "m", 1000
	join.SubscribedTopicNames, join.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	joined := p.c.call(join).(*kmsg.ConsumerGroupHeartbeatResponse)
	require.Zero(t, joined.ErrorCode)
	commit := func(group, member string, epoch int32) int16 {
		r := kmsg.NewPtrTxnOffsetCommitRequest()
		r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch = 5, p.id, p.ID, p.Epoch
		r.Group, r.MemberID, r.Generation = group, member, epoch
		r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 3}}}}
		return p.c.call(r).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}
	require.Zero(t, commit("g", "m", joined.MemberEpoch))
	require.Equal(t, kerr.IllegalGeneration.Code, commit("g", "m", joined.MemberEpoch+1), "producers don't know STALE_MEMBER_EPOCH")
	require.Equal(t, kerr.InvalidGroupID.Code, commit("", "m", 1))

	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{"nobody", ""}
	states := p.c.call(describe).(*kmsg.DescribeTransactionsResponse).TransactionStates
	require.Equal(t, []int16{kerr.TransactionalIDNotFound.Code, kerr.InvalidRequest.Code}, []int16{states[0].ErrorCode, states[1].ErrorCode})

	verify := kmsg.NewPtrAddPartitionsToTxnRequest()
	verify.Version = 4
	verify.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{
		TransactionalID: p.id, ProducerID: p.ID, ProducerEpoch: p.Epoch, VerifyOnly: true,
		Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{1}}},
	}}
	got := p.c.call(verify).(*kmsg.AddPartitionsToTxnResponse).Transactions[0].Topics[0].Partitions[0]
	require.Equal(t, kerr.TransactionAbortable.Code, got.ErrorCode, "not part of it")

	markers := kmsg.NewPtrWriteTxnMarkersRequest()
	markers.Version = 1
	markers.Markers = []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: 99}}
	require.Empty(t, p.c.call(markers).(*kmsg.WriteTxnMarkersResponse).Markers, "one of no partitions isn't answered")
}
