package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/actors"
	"kagami/admin"
	"kagami/cluster"
	"kagami/messages"
	"kagami/messages/txns"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// startTxns starts the coordinators of transactions, which follow the replicas, and
// what nodes ask of one another for them.
func (n *node) startTxns(ctx context.Context) error {
	ids := &txnProducerIDs{node: n}
	n.markers = &actors.TxnMarkers{
		Clock: n.clock,
		Replica: func(tp messages.TopicPartition) (actors.MarkedReplica, error) {
			r, err := n.replicas.Leading(tp, messages.TopicID{})
			if err != nil {
				return nil, err
			}
			return r, nil
		},
		Offsets: n.groups.EndTxn,
	}
	n.txns = actors.NewTxns(ctx, actors.TxnsConfig{
		System: n.system, Node: n.settings.nodeID, Static: n.settings.static, Clock: n.clock, Log: n.log,
		ProducerIDs: ids.take, WriteMarkers: n.writeMarkers,
		Replica: func(tp messages.TopicPartition) (actors.StateReplica, error) {
			r, err := n.replicas.Get(tp)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
	})
	n.defers(func(context.Context) error { return n.txns.Close() })
	settings := n.store.Subscribe(func(d metadata.Delta) {
		if d.Brokers {
			n.txns.Settle(d.New)
		}
	})
	n.txns.Settle(n.store.Image())
	applied := n.replicas.Subscribe(func(a cluster.AppliedImage) { n.txns.Apply(a.Image) })
	n.defers(func(context.Context) error { settings(); applied(); return nil })
	for subject, handle := range map[string]cluster.Handler{
		n.bus.NodeTxnJoin(n.settings.nodeID):    n.answerJoin,
		n.bus.NodeTxnMarkers(n.settings.nodeID): n.answerMarkers,
	} {
		stop, err := n.bus.Serve(subject, handle)
		if err != nil {
			return err
		}
		n.defers(func(context.Context) error { stop(); return nil })
	}
	return nil
}

// sampleTxns counts transactional ids by state; no state while a coordinator loads.
func (n *node) sampleTxns(s *admin.Sample) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), groupSampleLimit, messages.ErrTimedOut)
	defer cancel()
	s.Txns = admin.TxnSample{Counts: admin.TxnCounts(n.txns.Counts())}
	listed, err := n.txns.List(ctx)
	if err != nil {
		return
	}
	s.Txns.States = map[string]int{}
	for _, l := range listed {
		s.Txns.States[l.Status.String()]++
	}
}

// txnProducerIDs hands out this node's block of producer ids for transactional ids.
// The mutex is held while a new block is fetched: everybody waits for the same one.
type txnProducerIDs struct {
	node      *node
	mu        sync.Mutex
	next, end int64
}

const (
	txnIDBlock = 1000
	txnIDsEach = 5 // to a coordinator at a time
)

func (p *txnProducerIDs) take(ctx context.Context) ([]int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		out := p.node.controller.Submit(ctx, p.node.self("producer-ids"), messages.AllocateProducerIDs{Count: txnIDBlock})
		if err := errors.Join(out.Err, itemErrors(out.Items)); err != nil {
			return nil, fmt.Errorf("allocate producer ids: %w", err)
		}
		if len(out.Items) != 1 || out.Items[0].Count <= 0 {
			return nil, fmt.Errorf("allocate producer ids: controller answered %d items", len(out.Items))
		}
		p.next = out.Items[0].FirstProducerID
		p.end = p.next + int64(out.Items[0].Count)
	}
	var ids []int64
	for ; p.next < p.end && len(ids) < txnIDsEach; p.next++ {
		ids = append(ids, p.next)
	}
	return ids, nil
}

// transactions are the coordinators, for the broker.
type transactions struct {
	*actors.Txns
	node *node
}

// WriteMarkers writes into partitions of this node.
func (t transactions) WriteMarkers(ctx context.Context, markers []txns.Marker) []error {
	return t.node.markers.Write(ctx, markers)
}

// Join asks the coordinator wherever it is.
func (t transactions) Join(ctx context.Context, req txns.Add) *txns.Added {
	n := t.node
	img := n.store.Image()
	topic := img.Topic(messages.TransactionStateTopic)
	if topic == nil || len(topic.Partitions) == 0 {
		return &txns.Added{Err: fmt.Errorf("%w: %s doesn't exist yet", messages.ErrCoordinatorNotAvailable, messages.TransactionStateTopic)}
	}
	leader := topic.Partitions[messages.CoordinatorShard(req.TransactionalID(), int32(len(topic.Partitions)))].Leader
	switch leader {
	case n.settings.nodeID:
		return t.joined(ctx, req)
	case messages.NoNode:
		return &txns.Added{Err: messages.ErrCoordinatorNotAvailable}
	}
	reply, err := n.bus.Request(ctx, n.bus.NodeTxnJoin(leader), encodeJoin(req))
	if err != nil {
		return &txns.Added{Err: fmt.Errorf("%w: ask node %d: %w", messages.ErrCoordinatorNotAvailable, leader, err)}
	}
	return decodeJoined(reply)
}

func (t transactions) joined(ctx context.Context, req txns.Add) *txns.Added {
	a := t.Ask(ctx, req)
	if out, ok := a.(*txns.Added); ok {
		return out
	}
	return &txns.Added{Err: fmt.Errorf("%w: answered %T", messages.ErrInvalidRequest, a)}
}

// Between nodes go the bodies of AddPartitionsToTxn 5, with one transaction, and of
// WriteTxnMarkers 2.
const (
	joinVersion    = 5
	markersVersion = 2
)

func encodeJoin(req txns.Add) []byte {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version = joinVersion
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = req.TransactionalID(), req.Producer.ID, req.Epoch, req.VerifyOnly
	for _, p := range req.Partitions {
		rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		rt.Topic, rt.Partitions = p.Topic, []int32{p.Partition}
		t.Topics = append(t.Topics, rt)
	}
	r.Transactions = append(r.Transactions, t)
	return r.AppendTo(nil)
}

// answerJoin takes partitions for a producer from another node.
func (n *node) answerJoin(ctx context.Context, body []byte) []byte {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = joinVersion
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	resp.Version = joinVersion
	if err := req.ReadFrom(body); err != nil || len(req.Transactions) != 1 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp.AppendTo(nil)
	}
	t := &req.Transactions[0]
	add := txns.Add{Txn: txns.Txn(t.TransactionalID), Producer: txns.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch}, Version: txns.V2, VerifyOnly: t.VerifyOnly}
	for _, rt := range t.Topics {
		for _, p := range rt.Partitions {
			add.Partitions = append(add.Partitions, messages.TopicPartition{Topic: rt.Topic, Partition: p})
		}
	}
	out := transactions{Txns: n.txns, node: n}.joined(ctx, add)
	if out.Err != nil {
		resp.ErrorCode = txnErrorCode(out.Err)
		return resp.AppendTo(nil)
	}
	rt := kmsg.NewAddPartitionsToTxnResponseTransaction()
	topic := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
	for _, err := range out.Partitions {
		topic.Partitions = append(topic.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{ErrorCode: txnErrorCode(err)})
	}
	rt.Topics = append(rt.Topics, topic)
	resp.Transactions = append(resp.Transactions, rt)
	return resp.AppendTo(nil)
}

func decodeJoined(body []byte) *txns.Added {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	resp.Version = joinVersion
	if err := resp.ReadFrom(body); err != nil {
		return &txns.Added{Err: fmt.Errorf("%w: read answer: %w", messages.ErrCoordinatorNotAvailable, err)}
	}
	if resp.ErrorCode != 0 {
		return &txns.Added{Err: txnError(resp.ErrorCode)}
	}
	out := &txns.Added{}
	for _, t := range resp.Transactions {
		for _, topic := range t.Topics {
			for _, p := range topic.Partitions {
				out.Partitions = append(out.Partitions, txnError(p.ErrorCode))
			}
		}
	}
	return out
}

// writeMarkers has a node write markers.
func (n *node) writeMarkers(ctx context.Context, to messages.NodeID, markers []txns.Marker) ([]error, error) {
	if to == n.settings.nodeID {
		return n.markers.Write(ctx, markers), nil
	}
	reply, err := n.bus.Request(ctx, n.bus.NodeTxnMarkers(to), encodeMarkers(markers))
	if err != nil {
		return nil, fmt.Errorf("markers to node %d: %w", to, err)
	}
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	resp.Version = markersVersion
	if err := resp.ReadFrom(reply); err != nil {
		return nil, fmt.Errorf("markers to node %d: read answer: %w", to, err)
	}
	var errs []error
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				errs = append(errs, txnError(p.ErrorCode))
			}
		}
	}
	return errs, nil
}

func encodeMarkers(markers []txns.Marker) []byte {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = markersVersion
	for _, m := range markers {
		rm := kmsg.NewWriteTxnMarkersRequestMarker()
		rm.ProducerID, rm.ProducerEpoch, rm.Committed, rm.CoordinatorEpoch, rm.TransactionVersion = m.ID, m.Epoch, m.Commit, m.CoordinatorEpoch, int8(m.Version)
		for _, p := range m.Partitions {
			t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			t.Topic, t.Partitions = p.Topic, []int32{p.Partition}
			rm.Topics = append(rm.Topics, t)
		}
		req.Markers = append(req.Markers, rm)
	}
	return req.AppendTo(nil)
}

// answerMarkers writes what a coordinator on another node sends.
func (n *node) answerMarkers(ctx context.Context, body []byte) []byte {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = markersVersion
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	resp.Version = markersVersion
	if err := req.ReadFrom(body); err != nil {
		return resp.AppendTo(nil) // no answer per partition: the coordinator tries again
	}
	var markers []txns.Marker
	for _, rm := range req.Markers {
		m := txns.Marker{Producer: txns.Producer{ID: rm.ProducerID, Epoch: rm.ProducerEpoch}, Commit: rm.Committed, CoordinatorEpoch: rm.CoordinatorEpoch, Version: txns.Version(rm.TransactionVersion)}
		for _, t := range rm.Topics {
			for _, p := range t.Partitions {
				m.Partitions = append(m.Partitions, messages.TopicPartition{Topic: t.Topic, Partition: p})
			}
		}
		markers = append(markers, m)
	}
	out, topic := kmsg.NewWriteTxnMarkersResponseMarker(), kmsg.NewWriteTxnMarkersResponseMarkerTopic()
	for _, err := range n.markers.Write(ctx, markers) {
		topic.Partitions = append(topic.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{ErrorCode: txnErrorCode(err)})
	}
	out.Topics = append(out.Topics, topic)
	resp.Markers = append(resp.Markers, out)
	return resp.AppendTo(nil)
}

// txnErrors are the refusals that keep their meaning between nodes; any other is one
// that passes.
var txnErrors = []struct {
	is   error
	code int16
}{
	{messages.ErrUnknownTopicOrPartition, kerr.UnknownTopicOrPartition.Code},
	{messages.ErrNotLeader, kerr.NotLeaderForPartition.Code},
	{messages.ErrReadOnlyTopic, kerr.PolicyViolation.Code},
	{messages.ErrNotCoordinator, kerr.NotCoordinator.Code},
	{messages.ErrCoordinatorLoading, kerr.CoordinatorLoadInProgress.Code},
	{messages.ErrCoordinatorNotAvailable, kerr.CoordinatorNotAvailable.Code},
	{messages.ErrInvalidRequest, kerr.InvalidRequest.Code},
	{messages.ErrProducerFenced, kerr.ProducerFenced.Code},
	{messages.ErrInvalidProducerIDMapping, kerr.InvalidProducerIDMapping.Code},
	{messages.ErrConcurrentTransactions, kerr.ConcurrentTransactions.Code},
	{messages.ErrInvalidTxnState, kerr.InvalidTxnState.Code},
	{messages.ErrTransactionAbortable, kerr.TransactionAbortable.Code},
	{messages.ErrTxnCoordinatorFenced, kerr.TransactionCoordinatorFenced.Code},
	{persistence.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch.Code},
	{messages.ErrTimedOut, kerr.RequestTimedOut.Code},
}

func txnErrorCode(err error) int16 {
	if err == nil {
		return 0
	}
	for _, e := range txnErrors {
		if errors.Is(err, e.is) {
			return e.code
		}
	}
	return kerr.RequestTimedOut.Code
}

func txnError(code int16) error {
	if code == 0 {
		return nil
	}
	for _, e := range txnErrors {
		if e.code == code {
			return fmt.Errorf("another node: %w", e.is)
		}
	}
	return fmt.Errorf("another node: code %d: %w", code, messages.ErrTimedOut)
}
