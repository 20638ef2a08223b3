package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kagami/test/kafka"
)

// TestClusterSmallJournal: a node stands still while more is written, to the metadata and
// to partitions, than the journal keeps for it. It is given up, everything goes on, and it
// copies what it missed when it is back.
func TestClusterSmallJournal(t *testing.T) {
	t.Parallel() // has a world of its own
	nodes := StartCluster(t, ClusterOptions{Properties: map[string]string{
		"kagami.journal.max.bytes": "1048576", "kagami.journal.checkpoint.interval.ms": "1000",
	}})
	listensOnly(t, nodes)
	w := clusterWorldOf(t, nil, nodes)
	_, err := w.b.Admin.CreateTopic(w.ctx, 6, 3, nil, "small")
	require.NoError(t, err)
	w.led([]string{"small"}, nodes.IDs()...)
	stopped := w.holder("controller", "", "small")
	require.NoError(t, nodes.Pause(stopped))
	alive := nodes.Others(stopped)
	w.ledAt(alive, "small")
	// A client that is told of the one that stands still asks it, and waits.
	require.NoError(t, kafka.Poll(w.ctx, func() (err error) {
		w.through(alive, func(w *world) {
			m, asked := w.b.Admin.BrokerMetadata(w.ctx)
			if err = asked; err == nil && int(m.Controller) == stopped {
				err = fmt.Errorf("node %d is the controller yet", stopped)
			}
		})
		return err
	}))
	w.through(alive, func(w *world) {
		for n := range 50 {
			began := time.Now()
			require.NoError(t, w.changeTopic("small", strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d:1,", 10+n), 6_000), ",")), "change %d", n)
			t.Logf("metadata change %d took %v", n, time.Since(began).Round(time.Millisecond))
		}
		for n := range 30 {
			require.NoError(t, Produce(w.ctx, nodes.BootstrapOf(alive...), "small", Records{Count: 100, Size: 10_000, From: 100 * n, Seed: uint64(n)}))
		}
	})
	require.NoError(t, nodes.Continue(stopped))
	w.inSync([]string{"small"}, nodes.IDs()...)
	w.replicas(3, "small")
	w.owners()
}

// changeTopic sets a config of a topic whose value may be of any size, until that works.
func (w *world) changeTopic(topic, value string) error {
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	return kafka.Poll(ctx, func() error {
		ask, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		res, err := w.b.Admin.AlterTopicConfigs(ask, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "follower.replication.throttled.replicas", Value: &value}}, topic)
		if err != nil {
			return err
		}
		_, err = res.On(topic, nil)
		if err == nil {
			err = res[0].Err
		}
		return err
	})
}
