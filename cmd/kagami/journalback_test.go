package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/cluster"
	"kagami/messages"
)

// put puts a copy of one folder in the place of another.
func put(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to))
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
}

// One journal folder that is put back costs nothing: the others have what it lacks. All
// of them put back is noticed and told, nothing is led, and the newer ones put in their
// places again are the way out.
func TestSeveralNodesJournalPutBack(t *testing.T) {
	ids := []messages.NodeID{1, 2, 3}
	c := newTestNodes(t, ids)
	journal := func(id messages.NodeID) string { return filepath.Join(c.folder(id), journalFolder) }
	kept := func(what string, id messages.NodeID) string { return filepath.Join(c.dir, fmt.Sprint(what, id)) }
	c.start(ids...)
	_, cl, adm := c.connect(1)
	c.create(adm, "t", 3)
	produce(t, cl, "t", 20)
	for _, id := range ids {
		c.stop(id)
		put(t, journal(id), kept("old", id))
	}
	c.start(ids...)
	_, cl, _ = c.connect(1)
	produce(t, cl, "t", 20)
	c.stop(2)
	put(t, kept("old", 2), journal(2))
	c.start(2)
	produce(t, cl, "t", 20)
	c.equal("t", 3, 1, 2)

	for _, id := range ids {
		c.stop(id)
		put(t, journal(id), kept("new", id))
		put(t, kept("old", id), journal(id))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var starting sync.WaitGroup
	for _, id := range ids {
		starting.Go(func() {
			if err := c.tryFor(ctx, id); err == nil {
				t.Errorf("node %d serves", id)
			}
		})
	}
	awaitFor(t, severalPatience, "all nodes tell", func() error {
		told := map[any]bool{}
		for _, e := range c.logs.All() {
			if strings.Contains(e.Message, "isn't the one that this node followed") && strings.Contains(e.Message, "Put the newer journal folder back") {
				told[e.ContextMap()["at"]] = true
			}
		}
		if len(told) < len(ids) {
			return fmt.Errorf("told have %v", told)
		}
		return nil
	})
	cancel()
	starting.Wait()

	for _, id := range ids {
		put(t, kept("new", id), journal(id))
	}
	c.start(ids...)
	_, cl, adm = c.connect(1)
	require.EqualValues(t, 60, end(t, adm, "t"))
	produce(t, cl, "t", 5)
	c.equal("t", 3, 1, 2)
	c.equal("t", 3, 1, 3)
}

// A cluster of two that becomes one of three has its journal on all three.
func TestSeveralNodesJournalGrows(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2})
	c.start(1, 2)
	_, cl, adm := c.connect(1)
	resp, err := adm.CreateTopic(t.Context(), 2, 2, nil, "t")
	require.NoError(t, err)
	require.NoError(t, resp.Err)
	produce(t, cl, "t", 10)
	id := c.nodes[1].clusterID
	c.stop(1)
	c.stop(2)
	c.peers[3] = testAddress(t)
	c.start(1, 2, 3)
	require.Equal(t, id, c.nodes[3].clusterID)
	for _, shard := range []int32{cluster.MetadataShard, 0, journalShards - 1} {
		await(t, "three copies of the journal", func() error {
			st, err := c.nodes[1].streams.Lookup(t.Context(), cluster.ShardName(shard))
			if err != nil {
				return err
			}
			state, err := st.State(t.Context())
			if err == nil && (state.Replicas != 3 || len(state.Current) != 3) {
				err = fmt.Errorf("shard %d has %d, current are %v", shard, state.Replicas, state.Current)
			}
			return err
		})
	}
	c.stop(2) // no longer one of two
	_, cl, _ = c.connect(1)
	produce(t, cl, "t", 10)
}

// A node that was alone becomes one of three, with its id and its data.
func TestSeveralNodesGrowFromOne(t *testing.T) {
	c := newTestNodes(t, []messages.NodeID{1, 2, 3})
	alone, err := tryNode(t, c.folder(1), "node.id=1")
	require.NoError(t, err)
	_, cl, _ := connectTo(t, alone.kafka())
	topic(t, cl, "t", 2, 30, nil)
	cl.Close()
	id := alone.clusterID
	stopTestNode(t, alone)

	c.start(1, 2, 3)
	require.Equal(t, id, c.nodes[2].clusterID)
	_, cl, adm := c.connect(2)
	await(t, "the grown partition is led", func() error {
		offsets, err := adm.ListEndOffsets(t.Context(), "t")
		if o, ok := offsets.Lookup("t", 0); err != nil || !ok || o.Err != nil || o.Offset != 30 {
			return fmt.Errorf("end offset of t-0: %+v, there: %t: %w", o, ok, err)
		}
		return nil
	})
	produce(t, cl, "t", 10)
	c.create(adm, "new", 2)
	produce(t, cl, "new", 10)
	c.equal("new", 2, 1, 3)
	c.stop(3)
	c.start(3)
	c.equal("new", 2, 1, 3)
	require.EqualValues(t, 40, end(t, adm, "t"))
}
