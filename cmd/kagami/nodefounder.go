package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/messages"
)

// errFounderEmpty: the data that a cluster was founded on isn't there any more.
var errFounderEmpty = errors.New("this node founded the cluster with the data that it had, and its folder is empty now: put that folder back, no other node has the data yet. If it is lost, empty the folders of all nodes and start them, to found a new cluster")

// founderEmpty is errFounderEmpty where that is so.
func (n *node) founderEmpty() error {
	if n.formed.On != cluster.FoundedOnData || n.formed.Founder != n.settings.nodeID || n.metaReplica.Log().End() > 0 ||
		n.store.Image().Controller() != messages.NoNode {
		return nil
	}
	return fmt.Errorf("%w (cluster %s, folder %s)", errFounderEmpty, n.clusterID, n.settings.dataDir)
}

// missesController says what a node waits for that knows no controller.
func (n *node) missesController() string {
	founder := n.formed.Founder
	switch {
	case n.formed.On == cluster.FoundedOnNothing || founder == n.settings.nodeID:
		return "no node has begun the cluster's metadata yet"
	case slices.Contains(n.members.Live(), founder):
		return fmt.Sprintf("node %d, which founded the cluster, hasn't begun its metadata yet", founder)
	}
	return fmt.Sprintf("node %d founded the cluster and is away, with data that no other node has yet: start it with its folder. If that is lost, empty the folders of all nodes and start them, to found a new cluster", founder)
}

// missesMetadata says what a node waits for that lacks a part of the metadata log.
func (n *node) missesMetadata() string {
	founder := n.formed.Founder
	if others := n.members.Live(); n.formed.On == cluster.FoundedOnData && founder != n.settings.nodeID && !slices.Contains(others, founder) {
		return fmt.Sprintf("it has to be copied from a node that has it, alive are %v: start the others, node %d founded the cluster with it", others, founder)
	}
	return fmt.Sprintf("it has to be read to its end, or copied from a node that has it; alive are %v", n.members.Live())
}

// Waits until a node that is starting says for what it waits, and says it again.
const (
	waitTell  = 5 * time.Second
	waitAgain = time.Minute
)

// telling logs why this node doesn't start yet, from time to time until stop is called.
func (n *node) telling(ctx context.Context, why func() string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := waitTell; n.clock.Sleep(ctx, wait) == nil; wait = waitAgain {
			n.log.Warn("this node waits for the cluster's metadata", zap.String("why", why()))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
