package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/test/kafka"
)

// smallDisk mounts a disk of so many bytes at a new folder, in memory. It needs root, so
// KAGAMI_DISK_FULL=1 has to ask for it.
func smallDisk(t *testing.T, dir string, bytes int) string {
	t.Helper()
	if os.Getenv("KAGAMI_DISK_FULL") == "" {
		t.Skip("set KAGAMI_DISK_FULL=1 to fill small disks; mounting them needs root")
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// fillDisk takes all room that a disk has, and returns what gives it back.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	require.NoError(t, err)
	_, err = io.Copy(f, noughts{})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	return func() { require.NoError(t, os.Remove(name)) }
}

type noughts struct{}

func (noughts) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// put produces one record of a few KB and returns the server's answer.
func put(ctx context.Context, bootstrap, topic string) error {
	cl, err := producer(bootstrap, kgo.RecordRetries(0), kgo.RequestRetries(0), kgo.DisableIdempotentWrite())
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 4<<10)}).FirstErr()
}

// TestDiskFull: producers of a node whose disk is full get KAFKA_STORAGE_ERROR, readers
// go on, and all goes on by itself when there is room, topics included that were made
// meanwhile.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t, filepath.Join(t.TempDir(), "disk"), 48<<20)
	node := StartNode(t, NodeOptions{Dir: dir})
	side, err := NewSide("B", node.Bootstrap())
	require.NoError(t, err)
	defer side.Close()
	ctx := t.Context()
	_, err = side.Admin.CreateTopic(ctx, 1, 1, nil, "full")
	require.NoError(t, err)
	require.NoError(t, kafka.Poll(ctx, func() error { return put(ctx, node.Bootstrap(), "full") }))
	free := fillDisk(t, dir)
	require.ErrorIs(t, put(ctx, node.Bootstrap(), "full"), kerr.KafkaStorageError)
	before, err := side.TopicEnds(ctx, "full")
	require.NoError(t, err)
	// A small change of the metadata may still fit; the topic's folder doesn't.
	_, made := side.Admin.CreateTopic(ctx, 1, 1, nil, "made-meanwhile")
	if made == nil {
		require.Error(t, put(ctx, node.Bootstrap(), "made-meanwhile"))
	}
	require.ErrorIs(t, put(ctx, node.Bootstrap(), "full"), kerr.KafkaStorageError)
	free()
	if made == nil {
		require.NoError(t, kafka.Poll(ctx, func() error { return put(ctx, node.Bootstrap(), "made-meanwhile") }))
	}
	require.NoError(t, kafka.Poll(ctx, func() error { return put(ctx, node.Bootstrap(), "full") }))
	after, err := side.TopicEnds(ctx, "full")
	require.NoError(t, err)
	require.Equal(t, before[0].End+1, after[0].End, "what was refused isn't there")
	require.NoError(t, kafka.Poll(ctx, func() error {
		_, err := side.Admin.CreateTopic(ctx, 1, 1, nil, "made")
		return err
	}))
	require.NoError(t, node.Stop())
	require.NoError(t, node.Start(ctx))
	require.NoError(t, kafka.Poll(ctx, func() error {
		ends, err := side.TopicEnds(ctx, "full")
		if err == nil && ends[0].End < after[0].End {
			err = errors.New("records are lost")
		}
		return err
	}))
}

// TestClusterDiskFull: one of three nodes has no room any more, its part of the journal
// included. The others go on, and it catches up by itself when it has.
func TestClusterDiskFull(t *testing.T) {
	dir := t.TempDir()
	const small = 3
	disk := smallDisk(t, filepath.Join(dir, fmt.Sprintf("node-%d", small)), 96<<20)
	nodes := StartCluster(t, ClusterOptions{Dir: dir})
	w := clusterWorldOf(t, nil, nodes)
	_, err := w.b.Admin.CreateTopic(w.ctx, 6, 3, nil, "full")
	require.NoError(t, err)
	w.led([]string{"full"}, nodes.IDs()...)
	require.NoError(t, Produce(w.ctx, nodes.Bootstrap(), "full", Records{Count: 100}))
	w.journalWhole()
	free := fillDisk(t, disk)
	began := time.Now()
	for n := range 20 {
		require.NoError(t, Produce(w.ctx, nodes.Bootstrap(), "full", Records{Count: 100, Size: 10_000, From: 100 * (n + 1), Seed: uint64(n)}))
	}
	t.Logf("20 times 1 MB took %v", time.Since(began).Round(time.Millisecond))
	w.led([]string{"full"}, nodes.Others(small)...)
	_, err = w.b.Admin.CreateTopic(w.ctx, 1, 3, nil, "made-meanwhile")
	require.NoError(t, err)
	free()
	began = time.Now()
	w.inSync([]string{"full", "made-meanwhile"}, nodes.IDs()...)
	t.Logf("in sync %v after there was room", time.Since(began).Round(time.Millisecond))
	w.journalWhole()
	t.Logf("journal whole %v after there was room", time.Since(began).Round(time.Millisecond))
	require.NoError(t, Produce(w.ctx, nodes.Bootstrap(), "full", Records{Count: 100, From: 9000, Seed: 99}))
	w.replicas(3, "full")
	w.owners()
}
