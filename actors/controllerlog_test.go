package actors

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/secrets"
	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/metadata"
)

// controllerNode is a controller on the real metadata log: segments, journal,
// checkpoints, store and snapshots, on a file system that crashes.
type controllerNode struct {
	// claim wraps how the metadata log is claimed; nil: it doesn't.
	claim   func(func(context.Context, int32) error) func(context.Context, int32) error
	secrets *secrets.Ring
	log     *zap.Logger // of the store; nil: nobody reads it
	c       *Controller
	store   *metadata.Store
	close   []func()
}

func (n *controllerNode) shut() {
	for _, f := range slices.Backward(n.close) {
		f()
	}
}

// openControllerNode returns nil where the file system crashed on the way.
func openControllerNode(ctx context.Context, t *testing.T, fsys *faultfs.FS) *controllerNode {
	t.Helper()
	n := &controllerNode{}
	err := n.open(ctx, fsys)
	if err == nil {
		return n
	}
	n.shut()
	if !fsys.Crashed() {
		t.Fatalf("open: %v", err)
	}
	return nil
}

func (n *controllerNode) open(ctx context.Context, fsys *faultfs.FS) error {
	const dir = "/data"
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	manager, err := persistence.Open(ctx, dir, persistence.Options{ClusterID: "c", NodeID: 1, FS: fsys})
	if err != nil {
		return err
	}
	n.close = append(n.close, func() { _ = manager.Close() }) // after a crash it can't but fail
	checkpoints, err := cluster.OpenCheckpoints(fsys, dir, zap.NewNop())
	if err != nil {
		return err
	}
	n.close = append(n.close, func() { _ = checkpoints.Close() })
	replica, err := cluster.OpenMetadataReplica(ctx, 1, manager, checkpoints, zap.NewNop())
	if err != nil {
		return err
	}
	n.close = append(n.close, func() { _ = replica.Close() })
	n.store, err = metadata.Open(ctx, metadata.Options{
		Journal: replica, Source: replica, Dir: dir + "/" + replica.TopicPartition().String(), FS: fsys,
		SnapshotRecords: 20, Now: func() int64 { return 1 }, SecretsKey: n.secrets.Primary(), Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.close = append(n.close, func() { _ = n.store.Close() })
	system := NewSystem(zap.NewNop())
	n.close = append(n.close, func() { system.Shutdown() })
	claim := replica.Claim
	if n.claim != nil {
		claim = n.claim(claim)
	}
	n.c, err = NewController(ctx, system, ControllerOptions{
		Node: 1, ClusterID: "c", Store: n.store, Claim: claim, Live: func() []messages.NodeID { return []messages.NodeID{1} },
		RetryDelay: 10 * time.Millisecond, Clock: clock.Wall{}, Logger: zap.NewNop(), Secrets: n.secrets,
	})
	if err != nil {
		return err
	}
	n.close = append(n.close, func() { _ = n.c.Close() })
	claimed, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // nothing comes after a crash: don't wait for it
		for !fsys.Crashed() && claimed.Err() == nil {
			_ = clock.Wall{}.Sleep(claimed, 5*time.Millisecond)
		}
		stop()
	}()
	return n.c.WaitClaimed(claimed)
}

// TestControllerCrashes: whatever the controller has acknowledged is there after
// any crash, power cuts included, and nothing is half there.
func TestControllerCrashes(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			fsys := faultfs.New()
			if err := errors.Join(fsys.MkdirAll("/data"), fsys.SyncDir("/")); err != nil {
				t.Fatal(err)
			}
			acked := make(map[string]int32) // topic -> leader epoch of partition 1
			next := 0
			for range 8 {
				fsys.CrashAt = fsys.Effects() + 1 + rng.IntN(400)
				if n := openControllerNode(t.Context(), t, fsys); n != nil {
					checkAcked(t, n.store.Image(), acked)
					next = driveController(t, n, acked, next)
					n.shut()
				}
				fsys = fsys.Restart([]faultfs.Loss{faultfs.LoseNothing, faultfs.LoseUnsynced, faultfs.LoseSome}[rng.IntN(3)], rng)
			}
			if len(acked) == 0 {
				t.Fatal("nothing was acknowledged: the test tests nothing")
			}
		})
	}
}

func checkAcked(t *testing.T, img *metadata.Image, acked map[string]int32) {
	t.Helper()
	for topic, epoch := range acked {
		if have := img.Topic(topic); have == nil || len(have.Partitions) != 3 || have.Partitions[1].LeaderEpoch < epoch {
			t.Fatalf("topic %s, acknowledged with epoch %d, is %+v", topic, epoch, have)
		}
	}
	for _, topic := range img.Topics() {
		if len(topic.Partitions) != 3 {
			t.Fatalf("topic %s is half there", topic.Name)
		}
	}
}

// driveController creates topics and bumps epochs until the file system crashes.
func driveController(t *testing.T, n *controllerNode, acked map[string]int32, next int) int {
	t.Helper()
	for range 200 {
		next++
		name := fmt.Sprintf("t%d", next)
		out := n.c.Submit(t.Context(), alice, messages.CreateTopics{Topics: []messages.NewTopic{{Name: name, Partitions: 3, ReplicationFactor: 1}}})
		if out.Err != nil {
			if !errors.Is(out.Err, messages.ErrStorage) {
				t.Fatal(out.Err)
			}
			return next
		}
		acked[name] = 0
		out = n.c.Submit(t.Context(), alice, messages.BumpLeaderEpochs{Bumps: []messages.EpochBump{{TopicID: out.Items[0].TopicID, Partition: 1, MinLeaderEpoch: int32(next)}}})
		if out.Err != nil {
			return next
		}
		acked[name] = int32(next) + 1
	}
	return next
}
