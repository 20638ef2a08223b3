package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/messages"
	"kagami/persistence"
)

// foundOnly is a node that ends when it has founded the cluster: it has written nothing.
func (c *testNodes) foundOnly(id messages.NodeID) cluster.Formation {
	c.t.Helper()
	s, err := loadSettings("", c.settings(id))
	require.NoError(c.t, err)
	require.NoError(c.t, os.MkdirAll(s.dataDir, 0o750))
	meta, _, err := persistence.ReadMeta(persistence.OSFS{}, s.dataDir)
	require.NoError(c.t, err)
	srv, err := cluster.OpenServer(c.t.Context(), cluster.ServerOptions{Node: id, Cluster: s.cluster, Logger: zap.NewNop()})
	require.NoError(c.t, err)
	defer srv.Close()
	streams, err := cluster.OpenStreams(c.t.Context(), srv, cluster.StreamsOptions{BytesMax: s.cluster.JournalBytesMax, Logger: zap.NewNop()})
	require.NoError(c.t, err)
	formed, err := cluster.Form(c.t.Context(), cluster.FormationOptions{Streams: streams, Stored: meta.ClusterID, Logger: zap.NewNop()})
	require.NoError(c.t, err)
	require.NoError(c.t, streams.Close())
	require.True(c.t, formed.Founded)
	return formed
}

// starting starts nodes that can't serve yet; the channel gets what became of it.
func (c *testNodes) starting(ids ...messages.NodeID) <-chan error {
	out := make(chan error, 1)
	go func() {
		errs := make([]error, len(ids))
		var each sync.WaitGroup
		for i, id := range ids {
			each.Go(func() { errs[i] = c.try(id) })
		}
		each.Wait()
		out <- errors.Join(errs...)
	}()
	return out
}

// The founder of empty nodes is lost before it has written anything: another one begins
// the metadata, and the founder joins when it is back.
func TestSeveralNodesFounderLost(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, "kagami.cluster.node.timeout.ms=1000")
	started := c.starting(2, 3)
	formed := c.foundOnly(1)
	require.NoError(t, <-started)
	require.Equal(t, formed.ClusterID, c.nodes[2].clusterID)
	_, cl, adm := c.connect(2)
	resp, err := adm.CreateTopic(t.Context(), 4, 2, nil, "t")
	require.NoError(t, err)
	require.NoError(t, resp.Err)
	produce(t, cl, "t", 10)
	c.start(1)
	require.Equal(t, formed.ClusterID, c.nodes[1].clusterID)
	require.NotNil(t, c.nodes[1].store.Image().Topic("t"))
}

// A cluster of one grows and its node is lost before it has put its data there: the
// others wait and say for what; the node with an empty folder is refused, with its own
// it goes on where it was.
func TestSeveralNodesFounderWithDataLost(t *testing.T) {
	c := newTestNodes(t, nil, "kagami.cluster.node.timeout.ms=1000")
	c.start(1)
	_, cl, _ := c.connect(1)
	topic(t, cl, "t", 3, 10, nil)
	c.stop(1)
	for id := messages.NodeID(1); id <= 3; id++ {
		c.peers[id] = testAddress(t)
	}
	started := c.starting(2, 3)
	formed := c.foundOnly(1)
	await(t, "what the others say", func() error {
		for _, e := range c.logs.FilterMessage("this node waits for the cluster's metadata").All() {
			if strings.Contains(fmt.Sprint(e.ContextMap()["why"]), "start it with its folder") {
				return nil
			}
		}
		return fmt.Errorf("nothing")
	})
	kept := filepath.Join(c.dir, "kept")
	require.NoError(t, os.Rename(c.folder(1), kept))
	require.ErrorIs(t, c.try(1), errFounderEmpty)
	require.ErrorIs(t, c.try(1), errFounderEmpty, "again")
	require.NoError(t, os.RemoveAll(c.folder(1)))
	require.NoError(t, os.Rename(kept, c.folder(1)))
	c.start(1)
	require.NoError(t, <-started)
	require.Equal(t, formed.ClusterID, c.nodes[3].clusterID)
	await(t, "the data on all nodes", func() error {
		if n := len(c.nodes[2].store.Image().Topic("t").Partitions[0].Replicas); n != 3 {
			return fmt.Errorf("%d replicas", n)
		}
		return nil
	})
	c.equal("t", 3, 1, 2)
	c.equal("t", 3, 1, 3)
}
