package broker

// WriteTxnMarkers: served versions 1-2.
//
// v2 the transaction version of each marker (KIP-1228). It ends transactions in
// partitions that this node leads. Coordinators of this cluster do that among
// themselves; here administrators end transactions that hang (kafka-transactions.sh
// abort). CLUSTER_ACTION or ALTER on the cluster is needed.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/txns"
)

func (s *Server) handleWriteTxnMarkers(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.WriteTxnMarkersRequest)
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	resp.Version = req.Version
	markers := make([]txns.Marker, 0, len(req.Markers))
	partitions := 0
	for i := range req.Markers {
		m := &req.Markers[i]
		out := txns.Marker{
			Producer: txns.Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch}, Commit: m.Committed,
			CoordinatorEpoch: m.CoordinatorEpoch, Version: txns.Version(m.TransactionVersion),
		}
		for j := range m.Topics {
			out.Partitions = appendPartitions(out.Partitions, m.Topics[j].Topic, m.Topics[j].Partitions)
		}
		partitions += len(out.Partitions)
		markers = append(markers, out)
	}
	errs := make([]error, partitions)
	if s.allowedCluster(r, OpClusterAction) || s.allowedCluster(r, OpAlter) {
		errs = s.deps.Transactions.WriteMarkers(ctx, markers)
	} else {
		for i := range errs {
			errs[i] = messages.ErrClusterNotAuthorized
		}
	}
	for i := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = req.Markers[i].ProducerID
		for j := range req.Markers[i].Topics {
			t := &req.Markers[i].Topics[j]
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for n, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: r.code(errs[n])})
			}
			errs = errs[len(t.Partitions):]
			rm.Topics = append(rm.Topics, rt)
		}
		if len(rm.Topics) > 0 { // one of no partitions isn't answered, as in Kafka
			resp.Markers = append(resp.Markers, rm)
		}
	}
	return answer(resp)
}
