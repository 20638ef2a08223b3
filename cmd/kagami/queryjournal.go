package main

import (
	"context"

	"kagami/messages"
)

// journal is one row per shard as this node sees it; none on a cluster of one,
// whose journal is direct.
func (q queries) journal(ctx context.Context) []row {
	rows := []row{}
	if q.n.journal == nil {
		return rows
	}
	for _, s := range q.n.journal.States(ctx) {
		r := row{"shard": s.Name, "node": q.n.settings.nodeID, "applied": s.Applied, "needs": s.Stable, "isolated": s.Isolated}
		rows = append(rows, r)
		if s.Err != nil {
			r["streamLeader"], r["error"] = messages.NoNode, s.Err.Error()
			continue
		}
		r["streamLeader"], r["first"], r["last"], r["bytes"] = s.Leader, s.First, s.Last, s.Bytes
		r["behind"] = max(s.Last, s.Applied) - s.Applied
		r["current"], r["copies"] = s.Current, s.Replicas
	}
	return rows
}
