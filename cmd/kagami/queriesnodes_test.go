package main

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/messages"
)

// mirrored starts three nodes and a source, and a mirror m of its topic t.
func mirrored(t *testing.T, partitions int32, options ...string) (*testNodes, *node) {
	t.Helper()
	src := startTestNode(t, t.TempDir())
	_, cl, _ := connectTo(t, src.kafka())
	topic(t, cl, "t", partitions, 20, nil)
	c := newTestNodes(t, []messages.NodeID{1, 2, 3}, options...)
	c.start(1, 2, 3)
	adm, _, _ := c.connect(1)
	bootstrap := src.kafka()
	require.NoError(t, adm.CreateClusterMirror(t.Context(), "m", map[string]*string{"bootstrap.servers": &bootstrap}))
	res, err := adm.StartMirrorTopics(t.Context(), "m", []string{"t"}, client.StartOptions{TopicMetadata: map[string]client.TopicMetadata{
		"t": {ID: src.store.Image().Topic("t").ID, Partitions: partitions},
	}})
	require.NoError(t, errors.Join(err, res.Err()))
	await(t, "all partitions mirror", func() error {
		for id := range c.nodes {
			rows, err := c.nodes[id].queries().Query(t.Context(), "partitions", url.Values{})
			if err != nil {
				return err
			}
			got := rows.([]row)
			if len(got) != int(partitions) {
				return fmt.Errorf("node %d: %d rows", id, len(got))
			}
			for _, r := range got {
				if r["state"] != "MIRRORING" || r["unreachable"] != nil {
					return fmt.Errorf("node %d: %v", id, r)
				}
			}
		}
		return nil
	})
	return c, src
}

func TestQueriesSeeTheWholeClusterFromAnyNode(t *testing.T) {
	c, _ := mirrored(t, 6)
	one := func(id messages.NodeID, what string) []row {
		t.Helper()
		rows, err := c.nodes[id].queries().Query(t.Context(), what, url.Values{})
		require.NoError(t, err)
		return rows.([]row)
	}
	for id := range c.nodes {
		m := one(id, "mirrors")
		require.Len(t, m, 1)
		require.Equal(t, map[string]int32{"MIRRORING": 6}, m[0]["states"], "node %d", id)
		require.Equal(t, true, m[0]["reachable"], "node %d: %v", id, m[0])
		nodes := one(id, "nodes")
		require.Len(t, nodes, 3)
		controllers, leaders := 0, 0
		for _, n := range nodes {
			require.Equal(t, true, n["live"])
			require.Len(t, n["applied"], journalShards+1)
			if leaders += n["leaders"].(int); n["controller"] == true {
				controllers++
			}
		}
		require.Equal(t, []int{1, 6 + 3}, []int{controllers, leaders})
		seen := map[any]bool{}
		for _, r := range one(id, "actors") {
			seen[r["node"]] = true
		}
		require.Len(t, seen, 3)
	}
	// A dead node costs its rows, at once.
	c.stop(3)
	await(t, "node 3 is marked", func() error {
		nodes := one(1, "nodes")
		if nodes[2]["node"] != messages.NodeID(3) || nodes[2]["live"] != false {
			return fmt.Errorf("%v", nodes[2])
		}
		for _, r := range one(1, "actors") {
			if r["node"] == messages.NodeID(3) && r["unreachable"] == true {
				return nil
			}
		}
		return fmt.Errorf("no row says that node 3 doesn't answer")
	})
	await(t, "its partitions go on elsewhere", func() error {
		for _, r := range one(2, "partitions") {
			if r["state"] != "MIRRORING" || r["node"] == messages.NodeID(3) {
				return fmt.Errorf("%v", r)
			}
		}
		return nil
	})
}
