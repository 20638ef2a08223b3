package main

import (
	"context"

	"kagami/actors"
	"kagami/cluster"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// startGroups starts the coordinators of consumer groups, which follow the
// replicas.
func (n *node) startGroups(ctx context.Context) error {
	n.groups = actors.NewGroups(ctx, actors.GroupsConfig{
		System: n.system, Node: n.settings.nodeID, Static: n.settings.static, Clock: n.clock, Log: n.log,
		Replica: func(tp messages.TopicPartition) (actors.StateReplica, error) {
			r, err := n.replicas.Get(tp)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
	})
	n.defers(func(context.Context) error { return n.groups.Close() })
	settings := n.store.Subscribe(func(d metadata.Delta) {
		if d.Brokers || d.Groups {
			n.groups.Settle(d.New)
		}
	})
	n.groups.Settle(n.store.Image())
	applied := n.replicas.Subscribe(func(a cluster.AppliedImage) { n.groups.Apply(a.Image, a.Topics) })
	n.defers(func(context.Context) error { settings(); applied(); return nil })
	return nil
}
