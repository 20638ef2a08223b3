package main

import (
	"context"

	"kagami/actors"
	"kagami/cluster"
	"kagami/persistence/metadata"
)

// startCleaner starts the compaction of this node's logs. It ends before the replicas
// are closed.
func (n *node) startCleaner(ctx context.Context) error {
	cleaner := actors.NewCleaner(ctx, actors.CleanerConfig{
		Node: n.settings.nodeID, Static: n.settings.static, Clock: n.clock, Log: n.log,
		Each: func(f func(actors.CleanableLog, cluster.CompactionSettings) bool) {
			n.replicas.Compacted(func(r *cluster.Replica, s cluster.CompactionSettings) bool { return f(r, s) })
		},
	})
	n.defers(func(context.Context) error { cleaner.Close(); return nil })
	n.cleaner = cleaner
	cancel := n.store.Subscribe(func(d metadata.Delta) {
		if d.Brokers {
			cleaner.Settle(d.New)
		}
	})
	n.defers(func(context.Context) error { cancel(); return nil })
	cleaner.Settle(n.store.Image())
	return nil
}
