package main

import (
	"context"
	"time"

	"kagami/actors"
	"kagami/admin"
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
	n.groupsNow.Store(n.groups)
	n.defers(func(context.Context) error { return n.groups.Close() })
	n.shares = actors.NewShareGroups(ctx, actors.ShareGroupsConfig{
		System: n.system, Node: n.settings.nodeID, Groups: n.groups, Bus: n.bus, Image: n.store.Image, Submit: n.controller.Submit, Clock: n.clock, Log: n.log,
		Replica: func(tp messages.TopicPartition) (actors.StateReplica, error) {
			r, err := n.replicas.Get(tp)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
	})
	n.sharesNow.Store(n.shares)
	n.defers(func(context.Context) error { return n.shares.Close() })
	settings := n.store.Subscribe(func(d metadata.Delta) {
		if d.Brokers || d.Groups {
			n.groups.Settle(d.New)
		}
	})
	n.groups.Settle(n.store.Image())
	applied := n.replicas.Subscribe(func(a cluster.AppliedImage) {
		n.groups.Apply(a.Image, a.Topics)
		n.shares.Apply(a.Image, a.Topics)
	})
	n.defers(func(context.Context) error { settings(); applied(); return nil })
	return nil
}

// groupSampleLimit is how long metrics wait for the coordinators.
const groupSampleLimit = time.Second

// groupSample counts groups by type and state; nothing while a coordinator loads.
func (n *node) groupSample() []admin.GroupSample {
	ctx, cancel := context.WithTimeoutCause(context.Background(), groupSampleLimit, messages.ErrTimedOut)
	defer cancel()
	listed, err := n.groups.List(ctx)
	if err != nil {
		return nil
	}
	byState := map[[2]string]*admin.GroupSample{}
	for _, l := range listed {
		key := [2]string{l.Type, l.State}
		if byState[key] == nil {
			byState[key] = &admin.GroupSample{Type: l.Type, State: l.State}
		}
		byState[key].Groups++
		byState[key].Members += l.Members
		byState[key].Offsets += l.Offsets
	}
	out := make([]admin.GroupSample, 0, len(byState))
	for _, s := range byState {
		out = append(out, *s)
	}
	return out
}
