package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// epochLook is the pause between two looks at all epochs.
const epochLook = 100 * time.Millisecond

// clusterEpochs looks, until it is stopped, whether every partition's leader epoch on B
// is at least the one on A, and never falls, as each node knows it.
type clusterEpochs struct {
	stop   func()
	faults func() []string
	looks  func() int
}

func (w *world) watchClusterEpochs(mirror string, topics ...string) *clusterEpochs {
	w.t.Helper()
	return newClusterEpochs(w.ctx, w.a, w.nodes, mirror, topics)
}

func (e *clusterEpochs) check(t *testing.T) {
	t.Helper()
	e.stop()
	require.Empty(t, e.faults())
	require.Positive(t, e.looks())
}

// newClusterEpochs starts to look. First A is asked, then the nodes of B: what B knows then
// must be enough for what A had.
func newClusterEpochs(ctx context.Context, a *Side, nodes *Cluster, mirror string, topics []string) *clusterEpochs {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var faults []string
	looks := 0
	type at struct {
		node      int
		topic     string
		partition int32
	}
	seen := map[at]int32{}
	look := func(id int, source map[string]map[int32]int32) {
		rows, err := nodes.Node(id).MirrorRows(ctx, mirror)
		if err != nil {
			return // dead, or paused
		}
		mu.Lock()
		defer mu.Unlock()
		for _, row := range rows {
			if row.Epoch < 0 || row.End < 0 || !slices.Contains(topics, row.Topic) {
				continue // its leader didn't answer
			}
			looks++
			k := at{id, row.Topic, row.Partition}
			if row.Epoch < seen[k] {
				faults = append(faults, fmt.Sprintf("node %d: %s-%d goes from leader epoch %d to %d", id, row.Topic, row.Partition, seen[k], row.Epoch))
			}
			seen[k] = row.Epoch
			if sle := source[row.Topic][row.Partition]; row.Epoch < max(sle, row.Source) {
				faults = append(faults, fmt.Sprintf("node %d: %s-%d has leader epoch %d, its source had %d, node %d saw %d", id, row.Topic, row.Partition, row.Epoch, sle, row.Leader, row.Source))
			}
		}
	}
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(epochLook)
		defer tick.Stop()
		for ctx.Err() == nil {
			source := map[string]map[int32]int32{}
			if details, err := a.Admin.ListTopics(ctx, topics...); err == nil {
				for topic, d := range details {
					source[topic] = map[int32]int32{}
					for p, detail := range d.Partitions {
						source[topic][p] = detail.LeaderEpoch
					}
				}
			}
			var asking sync.WaitGroup
			for _, id := range nodes.IDs() {
				asking.Go(func() { look(id, source) })
			}
			asking.Wait()
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	var once sync.Once
	return &clusterEpochs{
		stop: func() { once.Do(func() { cancel(); running.Wait() }) },
		faults: func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(faults[:min(len(faults), 20)])
		},
		looks: func() int { mu.Lock(); defer mu.Unlock(); return looks },
	}
}
