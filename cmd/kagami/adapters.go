package main

import (
	"context"
	"fmt"
	"net"

	"kagami/actors"
	"kagami/broker"
	"kagami/cluster"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// partitions finds the partitions that this node leads, for the broker.
type partitions struct{ replicas *cluster.Replicas }

func (p partitions) Partition(tp messages.TopicPartition, id messages.TopicID) (broker.Partition, error) {
	r, err := p.replicas.Leading(tp, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// images waits for the image and for the replicas that follow it, so that a
// client that created a topic can use it at once.
type images struct {
	*metadata.Store
	replicas *cluster.Replicas
}

func (i images) WaitFor(ctx context.Context, offset int64) error {
	if err := i.Store.WaitFor(ctx, offset); err != nil {
		return err
	}
	return i.replicas.WaitApplied(ctx, offset)
}

// mirrors answers the broker's questions about mirrors.
type mirrors struct {
	*actors.Node
	replicas *cluster.Replicas
	states   actors.StateClient
	clock    clock.Clock
}

func (m mirrors) ReadMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error) {
	return m.states.ReadMirrorStates(ctx, mirror, body)
}

func (m mirrors) WriteMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error) {
	return m.states.WriteMirrorStates(ctx, mirror, body)
}

// Describe lists the partitions of a mirror that this node leads.
func (m mirrors) Describe(_ context.Context, mirror string) ([]broker.MirrorPartition, error) {
	var out []broker.MirrorPartition
	m.Partitions.Range(func(h *actors.PartitionHandle) bool {
		if h.Mirror != mirror {
			return true
		}
		row := broker.MirrorPartition{
			Topic: h.TopicPartition.Topic, Partition: h.TopicPartition.Partition,
			SourceOffset: messages.NoOffset, DestinationOffset: messages.NoOffset, Lag: -1,
			LeaderEpoch: messages.NoEpoch, OpenTransactions: -1, State: h.Status().PartitionState,
			LogEnd: messages.NoOffset, SeenSourceOffset: messages.NoOffset, SeenSourceAge: -1,
		}
		if l := h.Lag(); l != nil {
			s := l.Snapshot()
			if !s.SeenAt.IsZero() {
				row.SeenSourceOffset, row.SeenSourceAge = s.Seen, max(0, m.clock.Now().Sub(s.SeenAt))
			}
			if s.LastError != nil && row.State.Error == "" && row.State.State == messages.StateMirroring {
				row.State.Error = s.LastError.Err.Error() // it stays in MIRRORING, and stands still
			}
		}
		if r, err := m.replicas.Get(h.TopicPartition); err == nil {
			st := r.State()
			row.LeaderEpoch, row.OpenTransactions, row.LogEnd = st.LeaderEpoch, int32(len(r.Log().OpenTransactions())), st.End
			if row.State.State == messages.StateStopped && st.ReadOnly && h.Status().Desired == messages.DesiredStopped {
				// Stored, not opened yet. Who sees STOPPED writes at once, and the refusal
				// isn't one that clients try again (C33).
				row.State.State = messages.StateStopping
			}
		}
		if src, end, lag, ok := m.Progress(h); ok {
			row.SourceOffset, row.DestinationOffset, row.Lag = src, end, lag
		}
		out = append(out, row)
		return true
	})
	return out, nil
}

// State is for texts shown to people.
func (m mirrors) State(tp messages.TopicPartition) messages.State {
	if h := m.Partitions.Get(tp); h != nil {
		return h.Status().State
	}
	return messages.StateUnknown
}

func (n *node) brokerDeps() broker.Deps {
	m := mirrors{Node: n.mirroring, replicas: n.replicas, states: n.mirroring.States(), clock: n.clock}
	return broker.Deps{
		Partitions: partitions{n.replicas}, Images: images{n.store, n.replicas}, Controller: n.controller, Mirrors: m, Planner: m,
		History: n.store, Bus: m, Groups: n.groups, Shares: n.shares, Transactions: transactions{Txns: n.txns, node: n},
		Authorizer: n.authorizer(),
	}
}

func portOf(a net.Addr) (int32, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("listener has no port: %v", a)
	}
	return int32(tcp.Port), nil
}
