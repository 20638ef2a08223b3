package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"kagami/client"
	"kagami/internal/ports"
	"kagami/messages"
)

// testNodes are nodes of one cluster in this process, each with a folder that
// outlives it.
type testNodes struct {
	t       *testing.T
	dir     string
	peers   map[messages.NodeID]string
	options []string                          // of every node
	own     func(id messages.NodeID) []string // of one; nil: none
	logs    *observer.ObservedLogs
	log     *zap.Logger

	mu    sync.Mutex
	nodes map[messages.NodeID]*node
}

const severalPatience = 90 * time.Second

func newTestNodes(t *testing.T, ids []messages.NodeID, options ...string) *testNodes {
	t.Helper()
	c := &testNodes{t: t, dir: t.TempDir(), peers: map[messages.NodeID]string{}, options: options, nodes: map[messages.NodeID]*node{}}
	level := zapcore.InfoLevel
	var core zapcore.Core
	core, c.logs = observer.New(level)
	if os.Getenv("KAGAMI_TEST_LOG") != "" {
		d, err := zap.NewDevelopment()
		require.NoError(t, err)
		core = zapcore.NewTee(core, d.Core())
	}
	c.log = zap.New(core)
	for _, id := range ids {
		c.peers[id] = testAddress(t)
	}
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for id := range maps.Clone(c.nodes) {
			closing.Go(func() { c.stop(id) })
		}
		closing.Wait()
	})
	return c
}

func testAddress(t *testing.T) string {
	t.Helper()
	a, err := ports.FreeAddr()
	require.NoError(t, err)
	return a
}

func (c *testNodes) folder(id messages.NodeID) string {
	return filepath.Join(c.dir, fmt.Sprint("n", id))
}

// settings of a node; more win.
func (c *testNodes) settings(id messages.NodeID, more ...string) []string {
	peers := make([]string, 0, len(c.peers))
	for _, p := range slices.Sorted(maps.Keys(c.peers)) {
		peers = append(peers, fmt.Sprintf("%d@%s", p, c.peers[p]))
	}
	out := options(c.folder(id), fmt.Sprint("node.id=", id), "default.replication.factor=3",
		"mirror.state.topic.replication.factor=3", "kagami.journal.checkpoint.interval.ms=200", "kagami.journal.sync.interval.ms=60000")
	if len(peers) > 0 {
		out = append(out, "cluster.peers="+strings.Join(peers, ","))
	}
	out = append(out, c.options...)
	if c.own != nil {
		out = append(out, c.own(id)...)
	}
	return append(out, more...)
}

// try starts a node and waits until it serves.
func (c *testNodes) try(id messages.NodeID, more ...string) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), severalPatience)
	defer cancel()
	return c.tryFor(ctx, id, more...)
}

func (c *testNodes) tryFor(ctx context.Context, id messages.NodeID, more ...string) error {
	s, err := loadSettings("", c.settings(id, more...))
	if err != nil {
		return err
	}
	n, err := startNode(ctx, s, c.log.With(zap.Int32("at", int32(id))), zap.NewAtomicLevel())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = n
	return nil
}

// start starts nodes at the same time.
func (c *testNodes) start(ids ...messages.NodeID) {
	c.t.Helper()
	errs := make([]error, len(ids))
	var starting sync.WaitGroup
	for i, id := range ids {
		starting.Go(func() { errs[i] = c.try(id) })
	}
	starting.Wait()
	require.NoError(c.t, errors.Join(errs...))
}

func (c *testNodes) stop(id messages.NodeID) {
	c.mu.Lock()
	n := c.nodes[id]
	delete(c.nodes, id)
	c.mu.Unlock()
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.close(ctx); err != nil {
		c.t.Errorf("stop node %d: %v", id, err)
	}
}

func (c *testNodes) connect(id messages.NodeID) (*client.Client, *kgo.Client, *kadm.Client) {
	c.t.Helper()
	return connectTo(c.t, c.nodes[id].kafka())
}

// create makes a topic with three replicas.
func (c *testNodes) create(adm *kadm.Client, name string, partitions int32) {
	c.t.Helper()
	resp, err := adm.CreateTopic(c.t.Context(), partitions, 3, nil, name)
	require.NoError(c.t, err)
	require.NoError(c.t, resp.Err)
}

// equal waits until a node's replicas of a topic hold the same bytes as those of
// another one.
func (c *testNodes) equal(topic string, partitions int32, a, b messages.NodeID) {
	c.t.Helper()
	read := func(id messages.NodeID, p int32) (string, error) {
		r, err := c.nodes[id].replicas.Get(messages.TopicPartition{Topic: topic, Partition: p})
		if err != nil {
			return "", err
		}
		log := r.Log()
		if log.End() == log.LogStart() {
			return fmt.Sprint(log.LogStart()), nil
		}
		chunk, err := log.Read(log.LogStart(), 64<<20, log.End(), true)
		if err != nil {
			return "", err
		}
		defer chunk.Release()
		bytes, err := chunk.ReadAll()
		return fmt.Sprint(log.LogStart(), log.End()) + string(bytes), err
	}
	for p := range partitions {
		await(c.t, fmt.Sprintf("%s-%d of nodes %d and %d", topic, p, a, b), func() error {
			x, errX := read(a, p)
			y, errY := read(b, p)
			if err := errors.Join(errX, errY); err != nil {
				return err
			}
			if x != y {
				return fmt.Errorf("%d and %d bytes", len(x), len(y))
			}
			return nil
		})
	}
}
