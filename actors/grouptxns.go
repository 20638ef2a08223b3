package actors

import (
	"context"
	"fmt"

	"kagami/cluster"
	"kagami/fsm/group"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/groups"
	"kagami/messages/txns"
	"kagami/persistence"
)

// EndTxn has the coordinator of a partition of __consumer_offsets store a marker, so
// that the offsets of the transaction count or are forgotten.
func (gs *Groups) EndTxn(ctx context.Context, partition int32, m txns.Marker) error {
	child, ok := gs.shards.all()[partition]
	if !ok {
		return fmt.Errorf("groups of shard %d: %w", partition, messages.ErrNotLeader)
	}
	reply := make(chan groups.Answer, 1)
	gs.shards.send(child.pid, groupRequest{req: groups.EndTxn{Marker: m}, reply: reply})
	select {
	case a := <-reply:
		if done, ok := a.(*groups.Done); ok {
			return done.Err
		}
		return fmt.Errorf("%w: answered %T", messages.ErrInvalidRequest, a)
	case <-child.ctx.Done():
		return messages.ErrNotLeader
	case <-ctx.Done():
		return fmt.Errorf("marker of shard %d: %w", partition, messages.ErrTimedOut)
	}
}

// txnGuards is a replica that guards transactions which are being verified.
// *cluster.Replica is one.
type txnGuards interface{ EndTxnGuard(m txns.Marker) }

// refusesTxn checks what a transaction wants against the log.
func (s *groupShard) refusesTxn(req groups.Request) error {
	switch r := req.(type) {
	case groups.EndTxn:
		if err := cluster.CheckMarker(s.replica.Log(), r.Marker); err != nil {
			return err
		}
		if g, ok := s.replica.(txnGuards); ok {
			g.EndTxnGuard(r.Marker)
		}
	case groups.Commit:
		if r.Txn == nil {
			return nil
		}
		if e, ok := s.replica.Log().Producer(r.Txn.ID); ok && e.ProducerEpoch > r.Txn.Epoch {
			return fmt.Errorf("%w: producer %d has epoch %d, current is %d", persistence.ErrInvalidProducerEpoch, r.Txn.ID, r.Txn.Epoch, e.ProducerEpoch)
		}
		if r.Holds != nil && !r.Holds() {
			return fmt.Errorf("%w: the transaction of producer %d has ended meanwhile", messages.ErrInvalidTxnState, r.Txn.ID)
		}
	}
	return nil
}

// replayGroupMarker ends a transaction whose marker is in the log.
func replayGroupMarker(core *group.Core, h batch.Header, whole []byte) {
	c, err := batch.ParseControl(whole)
	if err == nil && (c.Type == batch.ControlCommit || c.Type == batch.ControlAbort) {
		core.ApplyMarker(h.ProducerID, c.Type == batch.ControlCommit)
	}
}

// groupBatchProps are those of the batch of a write. A producer's has base sequence 0,
// as Kafka's coordinators write it.
func groupBatchProps(w group.Write) batch.Props {
	props := batch.Plain()
	if w.Txn != nil {
		props.Attributes = batch.AttrTransactional
		props.ProducerID, props.ProducerEpoch, props.BaseSequence = w.Txn.ID, w.Txn.Epoch, 0
	}
	return props
}
