package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/test/e2e"
)

// single is a world of one node under test and, if two, a source for it.
func single(t *testing.T, b, a *cluster) *world {
	t.Helper()
	w := newBareWorld(t, 1)
	w.nodes = [2]*cluster{a, b}
	return w
}

// TestDiskFull: a full disk costs the writes that need it, with the code for it,
// and nothing that was acknowledged; when there is room again, everything goes on
// by itself.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("1 test skipped: mounting a small file system needs root")
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(data, 0o755))
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("1 test skipped: mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(data, syscall.MNT_DETACH)) })
	a := startCluster(t, "A", nil)
	b := startClusterIn(t, "B", dir, nil)
	w := single(t, b, a)
	require.NoError(t, w.newTopic("t", 2))
	_, err := b.side.Admin.CreateTopic(w.ctx, 1, 1, nil, "own-0")
	require.NoError(t, err)
	w.topics["own-0"] = newTopic("own-0")
	w.poll(settleWithin, "mirror", w.create)
	w.normalise()
	w.poll(settleWithin, "mirroring", w.mirroring)

	for round := range 2 {
		require.NoError(t, w.topics["own-0"].write(b.node.Bootstrap(), 5*time.Millisecond))
		w.pause(300, 300)
		ballast := filepath.Join(data, "ballast")
		fill(t, ballast)
		w.note("full")
		w.writer("t-0")
		w.poll(20*time.Second, "KAFKA_STORAGE_ERROR", func(context.Context) error {
			if err := w.produceOnce(b, "own-0", -1); !errors.Is(err, kerr.KafkaStorageError) {
				return fmt.Errorf("produce on a full disk: %w", err)
			}
			return nil
		})
		w.poll(20*time.Second, "a mirror partition FAILED", func(ctx context.Context) error {
			ps, err := w.partitions(ctx)
			for _, p := range ps["t-0"] {
				if p.State == "FAILED" && p.ErrorText != "" {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("%v", ps))
		})
		if round == 1 { // and a crash while it is full
			w.kill(b)
			require.NoError(t, os.Remove(ballast))
			w.revive(b)
		} else {
			w.pause(1000, 1000)
			require.NoError(t, os.Remove(ballast))
		}
		w.note("room")
		w.pause(500, 500)
		require.NoError(t, w.topics["own-0"].end())
		w.settle()
		w.judgeStored(b, "own")
	}
	w.end()
}

// fill writes until the file system of the file is full to the last byte.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		b := make([]byte, size)
		for {
			if _, err := f.Write(b); err != nil {
				require.ErrorIs(t, err, syscall.ENOSPC)
				break
			}
		}
	}
}

// TestTwoProcessesOneFolder: the second one says why it won't, and the first one
// doesn't notice.
func TestTwoProcessesOneFolder(t *testing.T) {
	a := startCluster(t, "A", nil)
	w := single(t, a, a)
	require.NoError(t, w.newTopic("t", 2))
	w.writer("t-0")
	path, err := e2e.Program("kagami")
	require.NoError(t, err)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		out, err := exec.CommandContext(ctx, path, "server", "--set", "listeners=PLAINTEXT://127.0.0.1:0",
			"--set", "kagami.admin.listen=127.0.0.1:0", "--set", "log.dirs="+a.node.DataDir()).CombinedOutput()
		cancel()
		require.Error(t, err)
		require.Contains(t, string(out), "in use by another process")
	}
	require.NoError(t, w.topics["t-0"].end())
	w.judgeStored(a, "t")
	w.end()
}

// TestCopiedFolder: a data folder copied while the node runs is as good as one after
// a crash: what was acknowledged before the copy is in it.
func TestCopiedFolder(t *testing.T) {
	a := startCluster(t, "A", nil)
	w := single(t, a, a)
	require.NoError(t, w.newTopic("t", 3))
	for round := range 3 {
		tp := w.topics["t-0"]
		w.writer("t-0")
		w.pause(600, 1200)
		tp.mu.Lock()
		before := maps.Clone(tp.acked)
		tp.mu.Unlock()
		dir := t.TempDir()
		out, err := exec.CommandContext(t.Context(), "cp", "-a", a.node.DataDir(), filepath.Join(dir, "data")).CombinedOutput()
		require.NoError(t, err, string(out))
		require.NoError(t, tp.end())
		c := startClusterIn(t, fmt.Sprintf("copy %d", round), dir, nil)
		got, _, err := w.stored(c, "t-0")
		require.NoError(t, err)
		for v, at := range before {
			require.Equal(t, []place{at}, got[v], "%.40q", v)
		}
		for v, at := range got {
			require.Len(t, at, 1, "%.40q", v)
		}
		require.NoError(t, w.produceOnce(c, "t-0", -1))
		require.NoError(t, c.node.Stop())
		w.judgeLog(c)
	}
	w.judgeStored(a, "t")
}

// TestKill9UnderProduce kills a node again and again under several producers.
func TestKill9UnderProduce(t *testing.T) {
	a := startCluster(t, "A", nil)
	w := single(t, a, a)
	for range 3 {
		require.NoError(t, w.newTopic("t", 2))
	}
	for _, name := range w.names("t") {
		require.NoError(t, w.topics[name].write(a.node.Bootstrap(), time.Millisecond))
	}
	for range setting(t, "KAGAMI_CHAOS_KILLS", 4) {
		w.pause(50, 900)
		w.kill(a)
		w.revive(a)
	}
	w.pause(300, 300)
	for _, name := range w.names("t") {
		require.NoError(t, w.topics[name].end())
	}
	w.judgeStored(a, "t")
	w.end()
}

// TestStartManyAndKill: kill -9 while hundreds of partitions start; afterwards all
// of them mirror.
func TestStartManyAndKill(t *testing.T) {
	topics, partitions := setting(t, "KAGAMI_CHAOS_TOPICS", 30), setting(t, "KAGAMI_CHAOS_PARTITIONS", 5)
	a, b := startCluster(t, "A", nil), startCluster(t, "B", nil)
	w := single(t, b, a)
	for range topics {
		require.NoError(t, w.newTopic("t", int32(partitions)))
	}
	w.poll(settleWithin, "mirror", w.create)
	names := w.names("t")
	for round := range 3 {
		done := make(chan error, 1)
		go func() {
			ctx, cancel := w.short()
			defer cancel()
			done <- w.start(ctx, names)
		}()
		w.pause(0, 40*(1+topics/30))
		w.kill(b)
		w.note("round %d: start: %v", round, <-done)
		w.revive(b)
		w.poll(60*time.Second, "started", func(ctx context.Context) error { return w.startMissing(ctx, names) })
		w.poll(settleWithin, "mirroring", w.mirroring)
		w.stopAndForget(names)
	}
	w.end()
}

// startMissing starts what isn't wished to mirror yet.
func (w *world) startMissing(ctx context.Context, names []string) error {
	members, err := w.dest().adm.MirrorTopics(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range names {
		if members[name].Desired.String() != "active" {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.start(ctx, missing)
}

// stopAndForget stops everything, kills the node meanwhile, and waits for STOPPED.
func (w *world) stopAndForget(names []string) {
	w.t.Helper()
	go func() {
		ctx, cancel := w.short()
		defer cancel()
		_, _ = w.dest().adm.StopMirrorTopics(ctx, mirror, names, pattern)
	}()
	w.pause(0, 200)
	w.kill(w.dest())
	w.revive(w.dest())
	w.poll(settleWithin, "stop again", func(ctx context.Context) error {
		res, err := w.dest().adm.StopMirrorTopics(ctx, mirror, names, pattern)
		return errors.Join(err, res.Err())
	})
	begun := time.Now()
	w.poll(time.Minute, "STOPPED", func(ctx context.Context) error {
		return e2e.AwaitStates(ctx, w.dest().adm, mirror, names, 0, "STOPPED")
	})
	w.note("%d topics stopped in %s", len(names), time.Since(begun).Round(time.Millisecond))
}

// TestBrokenSnapshots: a metadata snapshot that can't be read is passed over as long
// as the log or an older one tells the same.
func TestBrokenSnapshots(t *testing.T) {
	a := startCluster(t, "A", nil)
	w := single(t, a, a)
	for range 25 {
		require.NoError(t, w.newTopic("t", 1))
	}
	broken := map[string]func(b []byte) []byte{
		"empty":        func([]byte) []byte { return nil },
		"cut off":      func(b []byte) []byte { return b[:len(b)/2] },
		"flipped byte": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"garbage":      func(b []byte) []byte { return []byte(strings.Repeat("garbage", len(b)/7)) },
	}
	most := 0
	for name, damage := range broken {
		require.NoError(t, w.newTopic("t", 1))
		w.manyRecords()
		w.poll(20*time.Second, "a snapshot", func(context.Context) error {
			snaps, err := filepath.Glob(filepath.Join(a.node.DataDir(), "__cluster_metadata-0", "*.checkpoint"))
			if len(snaps) == 0 {
				return errors.Join(err, errors.New("no snapshot"))
			}
			return nil
		})
		w.terminate(a)
		snaps, err := filepath.Glob(filepath.Join(a.node.DataDir(), "__cluster_metadata-0", "*.checkpoint"))
		require.NoError(t, err)
		most = max(most, len(snaps))
		newest := snaps[len(snaps)-1]
		text, err := os.ReadFile(newest)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(newest, damage(text), 0o644))
		w.revive(a)
		w.note("%s: %s", name, newest)
		w.poll(10*time.Second, "all topics are there", func(ctx context.Context) error { // the client may remember a list
			list, err := a.side.Admin.ListTopics(ctx)
			for _, topic := range w.names("t") {
				if !list.Has(topic) {
					return fmt.Errorf("%s is gone: %w", topic, err)
				}
			}
			return err
		})
		require.NoError(t, w.produceOnce(a, w.some("t"), -1))
	}
	require.Greater(t, most, 1, "snapshots")
	w.end()
}

// manyRecords writes so many metadata records (10,000) that a snapshot is due.
func (w *world) manyRecords() {
	w.t.Helper()
	keys := []string{
		"retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "flush.ms",
		"delete.retention.ms", "file.delete.delay.ms", "max.message.bytes", "index.interval.bytes", "segment.jitter.ms",
	}
	names := w.names("t")
	for i := range 10_000/(len(names)*len(keys)) + 1 {
		var alter []kadm.AlterConfig
		for _, key := range keys {
			value := strconv.Itoa(1_000_000 + i)
			alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
		}
		ctx, cancel := w.short()
		res, err := w.source().side.Admin.AlterTopicConfigs(ctx, alter, names...)
		cancel()
		require.NoError(w.t, err)
		for _, r := range res {
			require.NoError(w.t, r.Err)
		}
	}
}
