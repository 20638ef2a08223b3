package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"kagami/messages"
)

// forsakable is a stream whose lead can be given up.
type forsakable interface {
	GiveUp(ctx context.Context) error
}

// forsakeTimeout bounds one try: who leads a stream here answers at once.
const forsakeTimeout = time.Second

// forsakes has this node's server give up the streams that it leads while it hears no
// other one: what such a leader takes down is never committed, and it undoes it message
// by message, two seconds each, before its copy is whole again. By itself it gives up
// after ten seconds at the earliest.
func (j *Journal) forsakes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.forsakeWake:
		}
		for again := true; again; again = j.clock.Sleep(ctx, j.opts.BeatInterval) == nil {
			left := j.unforsaken()
			if len(left) == 0 {
				break
			}
			if j.lonely() {
				j.forsake(ctx, left)
			}
		}
	}
}

// unforsaken are the isolated shards whose streams weren't given up yet.
func (j *Journal) unforsaken() (out []*shard) {
	for _, s := range j.shards {
		if s.isolated.Load() && !s.forsaken.Load() {
			out = append(out, s)
		}
	}
	return out
}

// lonely: this node hears of no majority of the nodes.
func (j *Journal) lonely() bool {
	v := j.opts.Trim()
	live := 0
	for _, node := range v.Nodes {
		if _, alive, ok := v.Beat(node); node == j.opts.Node || ok && alive {
			live++
		}
	}
	return 2*live <= len(v.Nodes)
}

func (j *Journal) forsake(ctx context.Context, shards []*shard) {
	ctx, cancel := context.WithTimeoutCause(ctx, forsakeTimeout, messages.ErrTimedOut)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range shards {
		st, ok := s.stream.(forsakable)
		if s.forsaken.Store(true); !ok {
			continue
		}
		all.Go(func() {
			if err := st.GiveUp(ctx); err == nil {
				j.log.Info("nobody hears this node: it gives up the lead of a journal stream", zap.Int32("shard", s.id))
			} // else another one leads it, or nobody
		})
	}
	all.Wait()
}

// GiveUp has the embedded server of this node give up the lead of the stream, if it has
// it. It asks once.
func (st *Stream) GiveUp(ctx context.Context) error {
	if !st.streams.server.Embedded() {
		return nil
	}
	if err := st.streams.tryAPI(ctx, "STREAM.LEADER.STEPDOWN."+st.stream, struct{}{}, nil); err != nil {
		return fmt.Errorf("give up the lead of journal %s: %w", st.name, err)
	}
	return nil
}
