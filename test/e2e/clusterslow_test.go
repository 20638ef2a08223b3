package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka"
	"kagami/test/kafka/stub"
)

const (
	slowMirror     = "slow"
	slowTopic      = "slow"
	slowPartitions = 24
	slowStep       = 200 // records of a partition in each part of the test
)

// slowWorld is three nodes that mirror a stub broker.
type slowWorld struct {
	t      *testing.T
	ctx    context.Context
	nodes  *Cluster
	source *stub.Cluster
}

// TestClusterSlowNode: a node that hardly runs, and then not at all, doesn't slow the
// others: what they lead is mirrored, and takes records of clients, before it runs again.
func TestClusterSlowNode(t *testing.T) {
	t.Parallel() // has a world of its own
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := newSlowWorld(ctx, t)
	slow := w.nodes.IDs()[len(w.nodes.IDs())-1]
	others := w.nodes.Others(slow)

	stop := w.pulses(slow)
	w.source.Update(func(s *stub.State) { w.more(s) })
	w.await(others, 2*slowStep, func(r MirrorRow) bool { return r.Leader != slow })
	stop()

	require.NoError(t, w.nodes.Pause(slow))
	w.source.Update(func(s *stub.State) { w.more(s) })
	w.await(others, 3*slowStep, func(r MirrorRow) bool { return r.Leader != slow })
	for _, id := range others {
		require.NoError(t, Produce(ctx, w.nodes.Node(id).Bootstrap(), "plain", Records{Count: slowStep}, kgo.RequiredAcks(kgo.AllISRAcks())))
	}
	require.NoError(t, w.nodes.Continue(slow))
	w.await(w.nodes.IDs(), 3*slowStep, func(MirrorRow) bool { return true })
	side, err := w.nodes.Side()
	require.NoError(t, err)
	defer side.Close()
	require.NoError(t, w.nodes.AwaitReplicas(ctx, side, 3, slowTopic, "plain"))
}

func newSlowWorld(ctx context.Context, t *testing.T) *slowWorld {
	t.Helper()
	w := &slowWorld{t: t, ctx: ctx}
	var err error
	w.source, err = stub.Start(stub.Options{Brokers: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.source.Close()) })
	id := messages.NewTopicID()
	w.source.Update(func(s *stub.State) {
		s.NewTopic(slowTopic, id, slowPartitions)
		w.more(s)
	})
	w.nodes = StartCluster(t, ClusterOptions{})
	adm, err := w.nodes.Admin()
	require.NoError(t, err)
	defer adm.Close()
	bootstrap := w.source.Address()
	require.NoError(t, adm.CreateClusterMirror(ctx, slowMirror, map[string]*string{"bootstrap.servers": &bootstrap}))
	res, err := adm.StartMirrorTopics(ctx, slowMirror, []string{slowTopic}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{
		slowTopic: {ID: id, Partitions: slowPartitions},
	}})
	require.NoError(t, err)
	require.NoError(t, res.Err())
	side, err := w.nodes.Side()
	require.NoError(t, err)
	defer side.Close()
	_, err = side.Admin.CreateTopic(ctx, slowPartitions, 3, nil, "plain")
	require.NoError(t, err)
	w.await(w.nodes.IDs(), slowStep, func(MirrorRow) bool { return true })
	led := map[int]int{}
	rows, err := w.nodes.Node(1).MirrorRows(ctx, slowMirror)
	require.NoError(t, err)
	for _, r := range rows {
		led[r.Leader]++
	}
	require.Len(t, led, 3, "leaders are balanced over the nodes")
	return w
}

// more gives every partition of the source slowStep records.
func (w *slowWorld) more(s *stub.State) {
	for _, p := range s.Topics[slowTopic].Partitions {
		p.Fill(slowStep)
	}
}

// await waits until some nodes show that those partitions are mirrored up to end.
func (w *slowWorld) await(nodes []int, end int64, which func(MirrorRow) bool) {
	w.t.Helper()
	defer func(begun time.Time) { w.t.Logf("mirrored up to %d after %v", end, time.Since(begun)) }(time.Now())
	for _, id := range nodes {
		require.NoError(w.t, kafka.Poll(w.ctx, func() error {
			rows, err := w.nodes.Node(id).MirrorRows(w.ctx, slowMirror)
			if err != nil {
				return err
			}
			found := 0
			for _, r := range rows {
				if !which(r) {
					continue
				}
				found++
				if r.End != end {
					return fmt.Errorf("node %d: partition %d of node %d is %s and ends at %d, not at %d", id, r.Partition, r.Leader, r.State, r.End, end)
				}
			}
			if found == 0 {
				return fmt.Errorf("node %d shows no such partition", id)
			}
			return nil
		}))
	}
}

// pulses has a node run for a tenth of the time, in breaks shorter than those after which
// it counts as dead, until stop. It runs then.
func (w *slowWorld) pulses(id int) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var work sync.WaitGroup
	var failed error
	work.Go(func() {
		for ctx.Err() == nil && failed == nil {
			failed = w.nodes.Pause(id)
			wait(ctx, 900*time.Millisecond)
			if err := w.nodes.Continue(id); failed == nil {
				failed = err
			}
			wait(ctx, 100*time.Millisecond)
		}
	})
	return func() {
		cancel()
		work.Wait()
		require.NoError(w.t, failed)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
