package cluster

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/metadata"
)

// tortureLog fails the test on messages that must never come.
func (x *torture) tortureLog(id messages.NodeID) *zap.Logger {
	c := zap.NewDevelopmentEncoderConfig()
	c.TimeKey = zapcore.OmitKey
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(c), zapcore.AddSync(tortureWriter{x, id}), zapcore.DebugLevel))
}

type tortureWriter struct {
	x  *torture
	id messages.NodeID
}

func (w tortureWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("log ends elsewhere than its checkpoint")) || bytes.Contains(b, []byte("another message is at")) && !w.x.rewound.Load() {
		w.x.errorf("node %d: %s", w.id, b)
	}
	if bytes.Contains(b, []byte("claim partition, tried again")) && w.x.quiet.Load() {
		return len(b), nil // again and again
	}
	w.x.note("node %d: %s", w.id, bytes.TrimSpace(b))
	return len(b), nil
}

// tortureNode is one node; run is nil while it is down.
type tortureNode struct {
	x        *torture
	id       messages.NodeID
	fs       *faultfs.FS
	fuse     atomic.Int64 // effects until the process dies; negative: never
	dead     atomic.Bool
	diskFull atomic.Int32 // writes that find no room
	hurt     bool         // a fault may have left a log that only a restart makes good
	run      atomic.Pointer[tortureRun]
	paused   atomic.Bool
	resumed  chan struct{} // closed when not paused
	frozen   freezer
	cutting  atomic.Bool // see cutAndCrash
	holdMu   sync.Mutex
	held     []func()
	beat     atomic.Pointer[[]ShardProgress] // the last one heard
	image    atomic.Pointer[metadata.Image]
}

// tortureRun is a running node.
type tortureRun struct {
	manager     *persistence.Manager
	checkpoints *Checkpoints
	journal     *Journal
	meta        *Replica
	store       *metadata.Store
	replicas    *Replicas
	cancel      func()
}

func (run *tortureRun) each(f func(*Replica)) {
	f(run.meta)
	run.replicas.Range(func(r *Replica) bool { f(r); return true })
}

// disk gives the node a file system.
func (n *tortureNode) disk(fs *faultfs.FS) {
	n.fs = fs
	fs.SpaceLeft = -1
	n.fuse.Store(-1)
	n.dead.Store(false)
	fs.OnSync = func(string) {
		// Something is applied meanwhile.
		if n.frozen.wait(); n.cutting.Load() && n.x.percent(70) {
			time.Sleep(time.Duration(1+n.x.intn(3)) * time.Millisecond)
		} else if n.x.percent(8) {
			time.Sleep(2 * time.Millisecond)
		}
	}
	fs.Fault = func(op faultfs.Op) error {
		n.frozen.wait()
		if left := n.fuse.Load(); left == 0 {
			n.dead.Store(true)
		} else if left > 0 {
			n.fuse.CompareAndSwap(left, left-1)
		}
		if n.dead.Load() {
			return faultfs.ErrCrashed
		}
		if op.Kind == "write" && n.diskFull.Load() > 0 && n.diskFull.Add(-1) >= 0 {
			return syscall.ENOSPC
		}
		return nil
	}
}

// Copy is that of [BusCopier] without a bus.
func (n *tortureNode) Copy(ctx context.Context, key messages.PartitionKey, offset int64, sequence uint64) (piece, error) {
	if n.frozen.wait(); n.x.percent(5) || n.paused.Load() {
		return piece{}, messages.ErrTimedOut
	}
	n.x.sleep(time.Duration(n.x.intn(20)) * time.Millisecond)
	var holders []messages.NodeID
	if key.TopicID == MetadataTopicID {
		holders = []messages.NodeID{1, 2, 3}
	} else if run := n.run.Load(); run != nil {
		if t := run.store.Image().TopicByID(key.TopicID); t != nil {
			if p, ok := t.Partition(key.Partition); ok {
				holders = p.Replicas
			}
		}
	}
	if holders == nil { // the node is starting or ending, or the topic was deleted
		return piece{}, ErrNoReplica
	}
	blank, others := 0, 0
	err := ErrNoReplica
	for _, id := range holders {
		if id == n.id {
			continue
		}
		others++
		other := n.x.nodes[id-1]
		run := other.run.Load()
		if run == nil || other.away() {
			continue
		}
		r := run.journal.replica(key)
		if r == nil {
			continue
		}
		ctx, cancel := n.x.within(ctx, copyTimeout)
		p, e := r.order.(*streamed).offer(ctx, offset, sequence)
		cancel()
		if e == nil {
			n.x.copied.Add(1)
			if n.x.percent(3) {
				n.x.nodes[id-1].crash()
			}
			return p, nil
		}
		if errors.Is(e, errBlank) {
			blank++
		}
		err = errors.Join(err, e)
	}
	if others == 0 && key.TopicID != MetadataTopicID {
		return piece{}, errSole
	}
	if blank == others && key.TopicID != MetadataTopicID {
		return piece{}, errAllBlank
	}
	return piece{}, err
}

// start starts the node if it is down. It waits for the metadata as a process does.
func (n *tortureNode) start() bool {
	if n.run.Load() != nil {
		return true
	}
	x, log := n.x, n.x.tortureLog(n.id)
	ctx, cancel := x.within(x.t.Context(), 10*time.Minute)
	defer cancel()
	run := &tortureRun{}
	if err := run.open(ctx, n, log); err != nil {
		log.Warn("start", zap.Error(err))
		x.note(storyStep+"node %d doesn't start: %v", n.id, err)
		_ = run.close()
		if n.dead.Load() {
			n.disk(n.fs.Restart(faultfs.LoseNothing, nil))
		}
		return false
	}
	n.hurt = false
	n.run.Store(run)
	return true
}

func (run *tortureRun) open(ctx context.Context, n *tortureNode, log *zap.Logger) (err error) {
	x := n.x
	flush := []time.Duration{-1, time.Second, 100 * time.Millisecond}[x.intn(3)]
	if run.manager, err = persistence.Open(ctx, "/data", persistence.Options{NodeID: n.id, Logger: log, FS: n.fs, FlushInterval: flush, Clock: n.clock()}); err != nil {
		return err
	}
	if run.checkpoints, err = OpenCheckpoints(n.fs, "/data", log); err != nil {
		return err
	}
	run.journal, err = NewJournal(x.t.Context(), JournalOptions{
		Node: n.id, Incarnation: messages.NewTopicID(), Shards: severalShards, Checkpoints: run.checkpoints, Copier: n, Logger: log,
		CheckpointInterval: 700 * time.Millisecond, BeatInterval: 200 * time.Millisecond, IsolatedAfter: tortureIsolatedAfter, Clock: n.clock(),
		Trim: func() TrimView { return n.trimView() }, TrimInterval: 1500 * time.Millisecond, TrimBytes: 20 << 10,
		copyBytes: []int{100, 1000, 0}[x.intn(3)],
		open:      func(_ context.Context, shard int32) (stream, error) { return &nodeStream{x.shared[shard], n}, nil },
	})
	if err != nil {
		return err
	}
	if run.meta, err = run.journal.OpenMetadataReplica(ctx, run.manager); err != nil {
		return err
	}
	run.journal.StartMetadata(run.meta)
	if err = run.journal.WaitCaughtUp(ctx, MetadataShard); err != nil {
		return err
	}
	run.store, err = metadata.Open(ctx, metadata.Options{
		Journal: run.meta, Source: run.meta, Dir: "/data/" + messages.ClusterMetadataTopic + "-0", FS: n.fs,
		Now: func() int64 { return time.Now().UnixMilli() }, SnapshotRecords: -1, SnapshotBytes: -1, Logger: log,
	})
	if err != nil {
		return err
	}
	run.replicas = NewReplicas(ctx, ReplicasOptions{
		Node: n.id, Logs: run.manager, Checkpoints: run.checkpoints, Journal: run.journal, Logger: log,
		ClaimRetry: 200 * time.Millisecond, ClaimTimeout: 3 * time.Second / tortureSpeed, Clock: n.clock(),
	})
	run.cancel = run.store.Subscribe(run.replicas.Apply)
	return nil
}

// close ends what runs, in order, and returns what went wrong.
func (run *tortureRun) close() (err error) {
	if run.cancel != nil {
		run.cancel()
	}
	if run.journal != nil {
		run.journal.Close()
	}
	if run.replicas != nil {
		err = run.replicas.Close()
	}
	if run.store != nil {
		err = errors.Join(err, run.store.Close())
	}
	if run.meta != nil {
		err = errors.Join(err, run.meta.Close())
	}
	if run.journal != nil && run.meta != nil && run.replicas != nil {
		err = errors.Join(err, run.journal.Finish())
	}
	if run.checkpoints != nil {
		err = errors.Join(err, run.checkpoints.Close())
	}
	if run.manager != nil {
		err = errors.Join(err, run.manager.Close())
	}
	return err
}

// stop ends the node as a process that is told to.
func (n *tortureNode) stop() {
	n.freeze(false)
	n.x.image()
	run := n.run.Swap(nil)
	if run == nil {
		return
	}
	hurt := n.hurt || n.diskFull.Load() > 0
	if err := run.close(); err != nil && !n.dead.Load() && !hurt {
		n.x.errorf("stop node %d: %v", n.id, err)
	}
	if n.dead.Load() {
		n.reboot()
	}
}

// crashIn lets the process die after some more effects.
func (n *tortureNode) crashIn(effects int) {
	if n.run.Load() != nil {
		n.fuse.Store(int64(effects))
	}
}

// crash ends the node at once, and its machine too in some cases.
func (n *tortureNode) crash() {
	n.x.image()
	run := n.run.Swap(nil)
	if run == nil {
		return
	}
	n.dead.Store(true)
	n.freeze(false)
	_ = run.close()
	n.reboot()
}

func (n *tortureNode) reboot() {
	loss := []faultfs.Loss{faultfs.LoseNothing, faultfs.LoseUnsynced, faultfs.LoseSome}[n.x.intn(3)]
	n.disk(n.fs.Restart(loss, rand.New(rand.NewPCG(uint64(n.x.intn(1<<30)), 3))))
	n.x.passed(n, loss)
}

// passed: what a crash has left of the checkpoint file says of no shard that it is past an
// operation of a replica which hasn't had it.
func (x *torture) passed(n *tortureNode, loss faultfs.Loss) {
	b, err := n.fs.ReadFile("/data/" + CheckpointFileName)
	if err != nil {
		return // it crashed before there was one
	}
	live, _, damaged, err := replayCheckpoints(b)
	if err != nil {
		return
	}
	for key, cp := range live {
		if isShardKey(key) || cp.Behind || !cp.Replicated {
			continue
		}
		record := shardRecord(live[shardKey(x.shardOf(key))])
		if want := x.oracle.at(key, journal.At(record.Sequence+1, 0)-1); want.Sequence > cp.State.Sequence {
			x.blame(key, key.String())
			x.errorf("node %d after %s: the record of shard %d is at %d, the checkpoint of %s at %s, its operation at %s is in neither (pending %s, %d damaged)",
				n.id, loss, x.shardOf(key), record.Sequence, key, storyPosition(cp.State.Sequence), storyPosition(want.Sequence), cp.Pending, damaged)
		}
	}
}

// pause cuts the node off from all others, or ends that.
func (n *tortureNode) pause(on bool) {
	n.holdMu.Lock()
	var held []func()
	if was := n.paused.Swap(on); on && !was {
		n.resumed = make(chan struct{})
	} else if was && !on {
		close(n.resumed)
		held, n.held = n.held, nil
	}
	n.holdMu.Unlock()
	for _, f := range held {
		f()
	}
}

// trimView is what the node would know of the others by their beats.
func (n *tortureNode) trimView() TrimView {
	v := TrimView{Turn: n.run.Load() != nil && !n.x.quiet.Load(), Nodes: []messages.NodeID{1, 2, 3}}
	v.Beat = func(id messages.NodeID) (Beat, bool, bool) {
		other := n.x.nodes[id-1]
		run := other.run.Load()
		if run != nil && !other.away() {
			shards := run.journal.Shards()
			other.beat.Store(&shards)
		} else {
			run = nil
		}
		heard := other.beat.Load()
		if heard == nil {
			return Beat{}, false, false
		}
		return Beat{Shards: *heard}, run != nil, true
	}
	v.Sole = n.x.sole
	return v
}

// image is the newest that any node has had.
func (x *torture) image() *metadata.Image {
	newest := &metadata.Image{}
	for _, n := range x.nodes {
		if run := n.run.Load(); run != nil {
			n.image.Store(run.store.Image())
		}
		if img := n.image.Load(); img != nil && img.Offset() >= newest.Offset() {
			newest = img
		}
	}
	return newest
}

// sole: no live node but id has all of id's replicas in a shard whole.
func (x *torture) sole(id messages.NodeID, shard int32) bool {
	whole := func(other *tortureNode, key messages.PartitionKey) bool {
		run := other.run.Load()
		if other.id == id || run == nil || other.away() {
			return false
		}
		r := run.journal.replica(key)
		return r != nil && !r.order.(*streamed).isBehind()
	}
	has := func(key messages.PartitionKey, replicas []messages.NodeID) bool {
		return slices.ContainsFunc(replicas, func(id messages.NodeID) bool { return whole(x.nodes[id-1], key) })
	}
	if shard == MetadataShard {
		return !has(messages.PartitionKey{TopicID: MetadataTopicID}, []messages.NodeID{1, 2, 3})
	}
	for _, t := range x.image().Topics() {
		for i, p := range t.Partitions {
			if key := t.Key(int32(i)); ShardOf(key, severalShards) == shard && slices.Contains(p.Replicas, id) && !has(key, p.Replicas) {
				return true
			}
		}
	}
	return false
}
