package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// txnSample is a request about transactions, nil for other keys.
func txnSample(key, version int16) kmsg.Request {
	switch key {
	case 24:
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID = "x", 1
		req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		req.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{
			TransactionalID: "x", ProducerID: 1, VerifyOnly: version%2 == 0,
			Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{0}}},
		}}
		return req
	case 25:
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.Group = "x", 1, "g"
		return req
	case 26:
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID = "x", 1
		return req
	case 27:
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Markers = []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: 99, Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: []int32{0}}}}}
		return req
	case 28:
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.ProducerID, req.Group = "x", 1, "g"
		req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 1}}}}
		return req
	case 61:
		req := kmsg.NewPtrDescribeProducersRequest()
		req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		return req
	case 65:
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{"x"}
		return req
	case 66:
		return kmsg.NewPtrListTransactionsRequest()
	}
	return nil
}
