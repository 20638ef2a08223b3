package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/cmd/internal/tool"
	"kagami/messages/batch"
	"kagami/persistence/metadata"
)

// answerTimeout is how long a cluster may take to answer at first.
const answerTimeout = 15 * time.Second

// running reads the mirror's states from a running cluster.
type running struct {
	client *kgo.Client
	mirror string
	log    *tool.StateLog // nil: look it up
	next   int64
}

// requestLog reads the metadata log of a running cluster.
type requestLog struct {
	log  tool.MetadataLog
	next int64
}

// openRequests adds the metadata log to a history, unless the caller may not
// read it: then a note says so.
func openRequests(ctx context.Context, cl *kgo.Client, h *history) error {
	r := &requestLog{log: tool.NewMetadataLog(cl)}
	snapshot, offset, err := r.log.Snapshot(ctx)
	if errors.Is(err, tool.ErrMetadataRefused) {
		h.refused = err
		return nil
	}
	if err != nil {
		return err
	}
	base := metadata.EmptyImage()
	if offset > 0 {
		if base, err = metadata.ReplaySnapshot(snapshot, offset); err != nil {
			return fmt.Errorf("read snapshot of the metadata log: %w", err)
		}
	}
	r.next = base.Offset() + 1
	h.readRequests(base, r.batches)
	return nil
}

// batches yields what is there and hasn't been yielded yet. It doesn't wait: the
// states' log does, which is read beside it.
func (r *requestLog) batches(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for {
			page, err := r.log.Read(ctx, r.next)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for len(page) > 0 {
				h, whole, rest, err := batch.Next(page)
				if err != nil {
					yield(nil, err)
					return
				}
				page = rest
				if h.LastOffset() < r.next {
					continue
				}
				r.next = h.LastOffset() + 1
				if !yield(whole, nil) {
					return
				}
			}
		}
	}
}

// openCluster connects and looks up the mirror's partition. close is the
// caller's to call.
func openCluster(ctx context.Context, bootstrap, commandConfig, mirror string) (h *history, closing func(), err error) {
	cl, err := tool.Connect(bootstrap, commandConfig)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("no answer of %s within %s", bootstrap, answerTimeout))
	defer cancel()
	known, err := mirrorNames(ctx, cl)
	if err != nil {
		cl.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, err
	}
	r := &running{client: cl, mirror: mirror}
	h = newHistory(mirror)
	h.known = known
	r.log, err = tool.OpenStateLog(ctx, cl, mirror)
	switch {
	case err == nil:
		h.states.batches = r.batches
	case errors.Is(err, kerr.UnknownTopicOrPartition) && !slices.Contains(known, mirror):
		err = nil
	}
	if err == nil {
		err = openRequests(ctx, cl, h)
	}
	if err != nil {
		cl.Close()
		return nil, nil, err
	}
	return h, cl.Close, nil
}

func mirrorNames(ctx context.Context, cl *kgo.Client) ([]string, error) {
	mirrors, err := client.Wrap(cl).ListClusterMirrors(ctx)
	if err != nil {
		return nil, fmt.Errorf("list mirrors: %w", err)
	}
	var out []string
	for _, m := range mirrors {
		out = append(out, m.Name)
	}
	return out, nil
}

// batches yields what is there and hasn't been yielded yet, and waits up to half
// a second where there is nothing new.
func (r *running) batches(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if r.log == nil {
			log, err := tool.OpenStateLog(ctx, r.client, r.mirror)
			if err != nil {
				yield(nil, err)
				return
			}
			r.log = log
		}
		r.next = max(r.next, r.log.Start)
		for {
			before := r.next
			answer, err := r.log.Fetch(ctx, r.next)
			if err != nil {
				r.log = nil // its leader may be another one now
				yield(nil, err)
				return
			}
			for len(answer) > 0 {
				h, whole, rest, err := batch.Next(answer)
				if err != nil {
					break // the last batch of an answer may be cut off
				}
				answer = rest
				if h.LastOffset() < r.next {
					continue
				}
				if err := batch.CheckCRC(whole); err != nil {
					yield(nil, err)
					return
				}
				r.next = h.LastOffset() + 1
				if !yield(whole, nil) {
					return
				}
			}
			if r.next == before || r.next >= r.log.End {
				return
			}
		}
	}
}

func joinNames(names []string) string {
	if len(names) == 0 {
		return "there are none"
	}
	return "there are: " + strings.Join(names, ", ")
}
