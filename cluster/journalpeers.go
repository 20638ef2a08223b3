package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"kagami/messages"
)

// PeersView is what the keeper of the journal's copies has to know of the cluster.
type PeersView struct {
	Turn   bool // this node is the controller
	Nodes, // of the cluster
	Live, // that aren't about to end
	Gone []messages.NodeID // that were taken out of the cluster
}

// peersAction is one step; at most one of the fields is set, NoNode is none.
type peersAction struct {
	remove messages.NodeID // this server, for good

	shard    int32
	evacuate messages.NodeID // the copy of the shard on this node goes to another one
	lead     messages.NodeID // this node shall lead the shard's stream
}

// decidePeers is the next step, if there is one: dead servers of nodes that were taken
// out go, and while all servers are there and all copies are whole, copies and then
// leads of the streams are evened out, one at a time.
func decidePeers(v PeersView, servers []messages.NodeID, streams map[int32]StreamState) (peersAction, bool) {
	none := peersAction{remove: messages.NoNode, evacuate: messages.NoNode, lead: messages.NoNode}
	copies, leads := map[messages.NodeID]int{}, map[messages.NodeID]int{}
	for _, id := range servers {
		if slices.Contains(v.Gone, id) && !slices.Contains(v.Live, id) {
			none.remove = id
			return none, true
		}
		copies[id], leads[id] = 0, 0
	}
	for _, id := range servers {
		if !slices.Contains(v.Live, id) {
			return none, false
		}
	}
	for _, s := range streams {
		if s.Moving || s.Replicas == 0 || len(s.Current) < s.Replicas {
			return none, false
		}
		leads[s.Leader]++
		for _, id := range s.Current {
			copies[id]++
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(streams)) {
		s := streams[shard]
		for _, from := range s.Current {
			for to := range copies {
				if from != s.Leader && !slices.Contains(s.Current, to) && copies[from]-copies[to] >= 2 {
					none.shard, none.evacuate = shard, from
					return none, true
				}
			}
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(streams)) {
		for _, to := range streams[shard].Current {
			if leads[streams[shard].Leader]-leads[to] >= 2 {
				none.shard, none.lead = shard, to
				return none, true
			}
		}
	}
	return none, false
}

// KeepPeers keeps the copies and leads of the journal's streams on the servers that are
// there, until ctx ends. With an external cluster it does nothing: its servers are
// somebody else's to keep.
func (j *Journal) KeepPeers(ctx context.Context, every time.Duration, view func() PeersView) {
	if j.opts.Streams == nil || !j.opts.Streams.server.Embedded() {
		return
	}
	for j.clock.Sleep(ctx, every) == nil {
		v := view()
		if !v.Turn {
			continue
		}
		if err := j.keepPeers(ctx, v); err != nil && ctx.Err() == nil {
			j.log.Warn("keep the journal's copies on the servers that are there, tried again", zap.Error(err))
		}
	}
}

func (j *Journal) keepPeers(ctx context.Context, v PeersView) error {
	ctx, cancel := context.WithTimeoutCause(ctx, trimTimeout, messages.ErrTimedOut)
	defer cancel()
	// One that comes again has its server there before its first beat.
	connected := j.opts.Streams.server.Connected()
	v.Gone = slices.DeleteFunc(slices.Clone(v.Gone), func(id messages.NodeID) bool { return slices.Contains(connected, id) })
	known := slices.Concat(v.Nodes, v.Live, v.Gone)
	slices.Sort(known)
	servers, err := j.opts.Streams.server.JournalServers(slices.Compact(known))
	if err != nil {
		return err
	}
	states := map[int32]StreamState{}
	for id, s := range j.shards {
		if states[id], err = s.stream.State(ctx); err != nil {
			if a, ok := decidePeers(v, servers, nil); ok {
				return j.movePeers(ctx, a) // a server that is gone may be why
			}
			return err
		}
	}
	if a, ok := decidePeers(v, servers, states); ok {
		return j.movePeers(ctx, a)
	}
	return nil
}

func (j *Journal) movePeers(ctx context.Context, a peersAction) error {
	switch {
	case a.remove != messages.NoNode:
		j.log.Info("the journal's server of a node that was taken out is removed", zap.Int32("node", int32(a.remove)))
		return j.opts.Streams.server.RemoveServer(ctx, a.remove)
	case a.evacuate != messages.NoNode:
		st, ok := j.shards[a.shard].stream.(*Stream)
		if !ok {
			return nil
		}
		j.log.Info("a copy of a journal stream moves to another server", zap.Int32("shard", a.shard), zap.Int32("from", int32(a.evacuate)))
		return st.Evacuate(ctx, a.evacuate)
	case a.lead != messages.NoNode:
		st, ok := j.shards[a.shard].stream.(*Stream)
		if !ok {
			return nil
		}
		j.log.Info("another server leads a journal stream", zap.Int32("shard", a.shard), zap.Int32("node", int32(a.lead)))
		return st.StepDown(ctx, a.lead)
	default:
		return nil
	}
}

// Evacuate has another server take the copy of a node, which leaves when that one has
// caught up. It returns when the move was accepted.
func (st *Stream) Evacuate(ctx context.Context, node messages.NodeID) error {
	request := struct {
		Peer string `json:"peer"`
	}{natsName(node)}
	if err := st.streams.api(ctx, "STREAM.PEER.EVACUATE."+st.stream, request, nil); err != nil {
		return fmt.Errorf("move the copy of journal %s away from node %d: %w", st.name, node, err)
	}
	return nil
}
