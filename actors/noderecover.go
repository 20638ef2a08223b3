package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/messages"
)

// recoverLimit is how long another node is waited for.
const recoverLimit = 5 * time.Second

// recoverRequest asks a node for its share of RecoverMirrorTopics.
type recoverRequest struct {
	Who    messages.Requester
	Mirror string
	Topics []string
}

// recoverAnswer says how many partitions of each topic were recovered there, in
// order, or why not.
type recoverAnswer struct {
	Recovered []int
	Error     string
}

// Recover takes the FAILED partitions of topics back to their previous state
// (OP-25), each on the node that leads it. One item per topic in order; a topic with
// partitions on a node that doesn't answer is an error, whatever the others did.
func (n *Node) Recover(ctx context.Context, who messages.Requester, mirror string, topics []string) []messages.Item {
	image := n.config.Store.Image()
	leaders := map[messages.NodeID][]int{} // indexes of topics
	for i, name := range topics {
		t := image.Topic(name)
		if t == nil {
			continue
		}
		for _, p := range t.Partitions {
			if !slices.Contains(leaders[p.Leader], i) {
				leaders[p.Leader] = append(leaders[p.Leader], i)
			}
		}
	}
	type answer struct {
		node   messages.NodeID
		counts []int
		err    error
	}
	answers := make(chan answer, len(leaders))
	for node, indexes := range leaders {
		names := make([]string, len(indexes))
		for k, i := range indexes {
			names[k] = topics[i]
		}
		go func() {
			counts, err := n.recoverOn(ctx, node, recoverRequest{Who: who, Mirror: mirror, Topics: names})
			answers <- answer{node: node, counts: counts, err: err}
		}()
	}
	items, recovered := make([]messages.Item, len(topics)), make([]int, len(topics))
	for range leaders {
		a := <-answers
		for k, i := range leaders[a.node] {
			if a.err != nil {
				items[i].Err = fmt.Errorf("%w: node %d, which leads partitions of it: %w", messages.ErrTimedOut, a.node, a.err)
				continue
			}
			recovered[i] += a.counts[k]
		}
	}
	for i, topic := range topics {
		items[i].Name = topic
		if items[i].Err == nil && recovered[i] == 0 {
			items[i].Err = fmt.Errorf("%w: no partition of topic %s is FAILED", messages.ErrInvalidMirrorStates, topic)
		}
	}
	return items
}

var errRecoverAnswer = errors.New("malformed answer")

func (n *Node) recoverOn(ctx context.Context, node messages.NodeID, r recoverRequest) ([]int, error) {
	if node == n.config.Node {
		return n.recoverHere(ctx, r)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recoverLimit, messages.ErrTimedOut)
	defer cancel()
	payload, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	body, err := n.config.Bus.Request(ctx, n.config.Bus.NodeRecover(node), payload)
	if errors.Is(err, cluster.ErrNoResponders) {
		return nil, fmt.Errorf("it doesn't run: %w", err)
	}
	if err != nil {
		return nil, err
	}
	var a recoverAnswer
	switch err := json.Unmarshal(body, &a); {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errRecoverAnswer, err)
	case a.Error != "":
		return nil, errors.New(a.Error)
	case len(a.Recovered) != len(r.Topics):
		return nil, errRecoverAnswer
	}
	return a.Recovered, nil
}

func (n *Node) recoverHere(ctx context.Context, r recoverRequest) ([]int, error) {
	counts := make([]int, len(r.Topics))
	for i, topic := range r.Topics {
		var err error
		if counts[i], err = n.Partitions.Recover(ctx, r.Who, r.Mirror, topic); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// serveRecover answers other nodes until the node is closed.
func (n *Node) serveRecover() {
	stop, err := n.config.Bus.Serve(n.config.Bus.NodeRecover(n.config.Node), n.handleRecover)
	if err != nil {
		n.config.Log.Error("partitions here can't be recovered by way of other nodes", zap.Error(err))
		return
	}
	n.cancels = append(n.cancels, stop)
}

func (n *Node) handleRecover(ctx context.Context, payload []byte) []byte {
	var r recoverRequest
	var a recoverAnswer
	err := json.Unmarshal(payload, &r)
	if err == nil {
		a.Recovered, err = n.recoverHere(ctx, r)
	}
	if err != nil {
		a = recoverAnswer{Error: err.Error()}
	}
	out, err := json.Marshal(a)
	if err != nil {
		return nil // the asking side can't read it
	}
	return out
}
