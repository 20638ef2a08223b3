package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/persistence"
)

// Replica is this node's copy of one partition and the only way to change it.
//
// Changes are serialised by the replica and may be asked for from any
// goroutine; readers use Log and State, which never wait for a writer. A
// replica of a partition that nothing happens to holds no goroutine, no buffer
// and, beyond its log, well below 1.5 KB.
//
// Errors of all changes: a stale generation, or a replica that isn't led here
// (never claimed, closed, deleted) wraps messages.ErrNotLeader; a stale epoch
// messages.ErrFencedLeaderEpoch; a closed gate or a mode that doesn't take the
// batches messages.ErrReadOnlyTopic; a failing disk persistence.ErrStorage or
// messages.ErrStorage.
type Replica struct {
	key  messages.PartitionKey
	tp   messages.TopicPartition
	node messages.NodeID
	log  persistence.Log
	cps  *Checkpoints
	zl   *zap.Logger

	mu    sync.Mutex // held for the whole of a change
	order orderer
	// localStart: the log start is this node's own business, with a stream too.
	localStart bool
	claimed    atomic.Bool   // by this process; what a checkpoint says is history. Written under pubMu
	resigned   atomic.Uint64 // so many times; written under pubMu
	closed     atomic.Bool
	tenure     atomic.Uint64 // see Tenure; written under pubMu

	gate     atomic.Uint32
	retained atomic.Int64 // log end at open, or when retention last looked

	// Counts of cuts, see cuts.go.
	cutsAtOpen atomic.Pointer[CutCount] // nil without any
	cutsStored atomic.Pointer[CutCount] // not yet taken over by the journal
	hasCuts    atomic.Bool
	cutSince   atomic.Bool // this process has cut
	watchers   atomic.Pointer[[]*watcher]
	watchMu    sync.Mutex // held to change watchers
	guards     txnGuards

	// The published state, a sequence lock: version is odd while it is written.
	// pubMu is held to write it.
	pubMu      sync.Mutex
	version    atomic.Uint64
	epoch      atomic.Int32
	mode       atomic.Int32
	generation atomic.Int64
	logStart   atomic.Int64
	end        atomic.Int64
}

type watcher struct{ f func() }

// The gate in front of client writes.
//
//	forced  the image says that the topic is being mirrored or paused: closed,
//	        whatever a partition actor believes, for its belief may be older
//	admit   the partition actor knows STOPPED, or the topic is no mirror topic
const (
	gateAdmit  uint32 = 1
	gateForced uint32 = 2
)

// ReplicaOptions of OpenReplica; all fields are required.
type ReplicaOptions struct {
	Key         messages.PartitionKey
	Partition   messages.TopicPartition
	Node        messages.NodeID // this node
	Log         persistence.Log // owned by the replica from now on
	Checkpoints *Checkpoints
	Admit       bool // gate open: true for everything but mirror topics
	Logger      *zap.Logger

	shard   *shard // nil: the journal is direct
	newborn bool   // its topic was created just now: there was no operation yet
	late    bool   // the shard is followed already: operations may have been missed
}

// OpenReplica makes a replica out of a log and its checkpoint; a cut that a
// crash interrupted is finished here. Nothing can be appended before Claim.
// [Replicas] does this for topics; the metadata log's owner does it itself.
func OpenReplica(o ReplicaOptions) (*Replica, error) {
	r := &Replica{key: o.Key, tp: o.Partition, node: o.Node, log: o.Log, cps: o.Checkpoints, zl: o.Logger}
	if err := r.openOrder(o); err != nil {
		return nil, fmt.Errorf("open replica %s: %w", o.Partition, err)
	}
	r.retained.Store(r.order.State().LogEnd)
	if cuts := r.order.cutCount(); cuts.To > 0 {
		r.cutsAtOpen.Store(&cuts)
		r.hasCuts.Store(true)
	}
	if o.Admit {
		r.gate.Store(gateAdmit)
	}
	r.publish()
	return r, nil
}

func (r *Replica) openOrder(o ReplicaOptions) error {
	if o.shard == nil {
		d, err := openDirect(o)
		r.order = d
		return err
	}
	s, err := openStreamed(o)
	if err != nil {
		return err
	}
	s.applied = func() {
		r.publish()
		r.notify()
	}
	r.order = s
	return nil
}

// replicated: changes go through a stream that other replicas follow too.
func (r *Replica) replicated() bool {
	_, ok := r.order.(*streamed)
	return ok
}

// Key names this life of the partition.
func (r *Replica) Key() messages.PartitionKey { return r.key }

// TopicPartition names the partition for people and clients.
func (r *Replica) TopicPartition() messages.TopicPartition { return r.tp }

// Log is for reading. Whoever writes to it directly breaks the journal.
func (r *Replica) Log() persistence.Log { return r.log }

// State is a consistent snapshot; it takes no lock. LeaderEpoch is the epoch
// last claimed by anybody, NoEpoch before the first claim.
func (r *Replica) State() persistence.ReplicaState {
	for {
		v := r.version.Load()
		s := persistence.ReplicaState{
			LeaderEpoch: r.epoch.Load(),
			Generation:  r.generation.Load(),
			Mode:        messages.Mode(r.mode.Load()),
			LogStart:    r.logStart.Load(),
			End:         r.end.Load(),
		}
		if v&1 == 1 || r.version.Load() != v {
			runtime.Gosched() // a writer is between a few stores; it never waits there
			continue
		}
		s.HighWatermark = s.End
		s.ReadOnly = r.gate.Load() != gateAdmit || s.Mode != messages.ModeWritable
		return s
	}
}

// publish makes the journal's state visible to readers.
func (r *Replica) publish() {
	r.pubMu.Lock()
	defer r.pubMu.Unlock()
	s := r.order.State()
	r.version.Add(1)
	r.epoch.Store(s.Epoch)
	r.generation.Store(s.Generation)
	r.mode.Store(int32(s.Mode))
	r.logStart.Store(s.LogStart)
	r.end.Store(s.LogEnd)
	r.version.Add(1)
	if leads := r.isLedHere(s); leads != (r.tenure.Load()&1 == 1) {
		r.tenure.Add(1)
	}
}

// Leads reports whether this node has claimed the partition and still holds it, as
// far as it can know: not while nothing has come back from the journal for long.
func (r *Replica) Leads() bool { return r.tenure.Load()&1 == 1 && r.order.reaches() }

// Tenure is odd while this node leads and grows with each change of that: who sees
// the number that he began under knows that nobody else led in between. Watchers are
// told of changes. It takes no lock.
func (r *Replica) Tenure() uint64 { return r.tenure.Load() }

// propose runs one operation under the lock and publishes what came of it. The
// caller calls notify after unlocking.
func (r *Replica) proposeLocked(ctx context.Context, op journal.Operation) (Applied, error) {
	if r.closed.Load() {
		return Applied{}, fmt.Errorf("%s on %s: replica is closed: %w", op.Kind, r.tp, messages.ErrNotLeader)
	}
	if op.Kind != journal.OpClaim && r.replicated() {
		// The generation may be another node's by now, whose operations are its own.
		if s := r.order.State(); s.Generation == op.Generation {
			if err := r.ledHere(s); err != nil {
				return Applied{}, fmt.Errorf("%s: %w", op.Kind, err)
			}
		}
	}
	done, err := r.order.Propose(ctx, op)
	r.publish()
	if err != nil {
		return done, fmt.Errorf("%s: %w", r.tp, err)
	}
	return done, nil
}

// change is propose for operations that need nothing else under the lock. An
// op without generation goes under the current one.
func (r *Replica) change(ctx context.Context, op journal.Operation) (Applied, error) {
	r.mu.Lock()
	op.Generation = r.order.State().Generation
	done, err := r.proposeLocked(ctx, op)
	if now := r.order.State().Generation; errors.Is(err, messages.ErrNotLeader) && now != op.Generation && r.finishedLocked() {
		op.Generation = now // a cut that had found no room was finished first
		done, err = r.proposeLocked(ctx, op)
	}
	r.mu.Unlock()
	if err == nil {
		r.notify()
	}
	return done, err
}

// Claim takes the partition for this node under a leader epoch; what is still
// proposed under an older generation fails from here on. An epoch below the
// claimed one wraps messages.ErrFencedLeaderEpoch. Claiming the epoch that is
// claimed already starts a new generation and costs no write.
//
// One that the node has resigned from since it was called wraps messages.ErrNotLeader.
func (r *Replica) Claim(ctx context.Context, epoch int32) error {
	before := r.resigned.Load()
	r.mu.Lock()
	_, err := r.proposeLocked(ctx, journal.Operation{Kind: journal.OpClaim, Epoch: epoch, Node: r.node})
	if err == nil && !r.takeOver(before) {
		err = fmt.Errorf("claim %s: another node leads by now: %w", r.tp, messages.ErrNotLeader)
	}
	r.mu.Unlock()
	r.notify()
	return err
}

// takeOver is the end of a claim that began after so many resignations; false if there
// was another one since.
func (r *Replica) takeOver(resigned uint64) bool {
	r.pubMu.Lock()
	ok := r.resigned.Load() == resigned
	if ok {
		r.claimed.Store(true)
	}
	r.pubMu.Unlock()
	if ok {
		r.publish()
	}
	return ok
}

// resign ends the leadership: another node leads now, or none. It doesn't wait: a claim
// that is on its way, and may be for long, came before it and doesn't count.
func (r *Replica) resign() {
	r.pubMu.Lock()
	r.resigned.Add(1)
	r.claimed.Store(false)
	if r.tenure.Load()&1 == 1 {
		r.tenure.Add(1)
	}
	r.pubMu.Unlock()
	r.order.abort(fmt.Errorf("%s is led by another node: %w", r.tp, messages.ErrNotLeader))
	r.notify()
}

// SetMode is durable before it returns. Its result is the offset of the seal
// for ModeSealed (the log end when the partition was sealed: a repeated seal
// gives the first one's offset, also after a restart, so that LME is the same
// however often it is computed), and the log end for the other modes.
func (r *Replica) SetMode(ctx context.Context, mode messages.Mode) (offset int64, err error) {
	done, err := r.change(ctx, journal.Operation{Kind: journal.OpMode, Mode: mode})
	if err != nil {
		return messages.NoOffset, err
	}
	if mode == messages.ModeSealed {
		return done.State.ModeOffset, nil
	}
	return done.State.LogEnd, nil
}

// Truncate cuts the log to offset, whole batches only, so the new end may be
// lower; reason goes into the log line. The cut is durable before it returns,
// and once begun it is finished, after a crash when the replica is opened
// again. A writable partition wraps ErrWritable: seal it first.
func (r *Replica) Truncate(ctx context.Context, offset int64, reason string) (persistence.Cut, error) {
	r.mu.Lock()
	done, err := r.cutLocked(ctx, journal.OpTruncate, r.wholeBatches(offset), reason)
	r.mu.Unlock()
	r.notify()
	return done.Cut, err
}

// RestartAt removes everything and goes on empty at offset, because retention
// on the source overtook this copy. Otherwise like Truncate. It returns the
// generation that begins with it, for an append that belongs to the restart.
func (r *Replica) RestartAt(ctx context.Context, offset int64, reason string) (persistence.Cut, int64, error) {
	r.mu.Lock()
	done, err := r.cutLocked(ctx, journal.OpRestartAt, offset, reason)
	r.mu.Unlock()
	r.notify()
	return done.Cut, done.State.Generation, err
}

func (r *Replica) cutLocked(ctx context.Context, kind journal.OpKind, offset int64, reason string) (Applied, error) {
	s := r.order.State()
	if s.Mode == messages.ModeWritable {
		return Applied{}, fmt.Errorf("%s of %s to %d: %w", kind, r.tp, offset, ErrWritable)
	}
	if stored := r.cutsStored.Swap(nil); stored != nil {
		r.order.countCutsFrom(*stored)
	}
	done, err := r.proposeLocked(ctx, journal.Operation{Kind: kind, Generation: s.Generation, Base: s.LogEnd, Offset: offset, Reason: reason})
	r.hasCuts.Store(r.order.cutCount().To > 0)
	r.cutSince.Store(true)
	if c := done.Cut; err == nil && (c.Records > 0 || c.Bytes > 0 || c.From != c.To) {
		r.zl.Info("cut the log", zap.Stringer("op", kind), zap.String("reason", reason),
			zap.String(messages.FieldTopic, r.tp.Topic), zap.Int32(messages.FieldPartition, r.tp.Partition),
			zap.Int64("from", c.From), zap.Int64("to", c.To), zap.Int64("records", c.Records), zap.Int64("bytes", c.Bytes))
	}
	return done, err
}

// wholeBatches moves a cut down to the end that it leaves, so that the operation
// names that end and every replica comes to the same. A damaged or closed log
// keeps the offset: the log cuts whole batches itself.
func (r *Replica) wholeBatches(offset int64) int64 {
	plan, err := r.log.PlanCut(offset)
	if err != nil || plan.From == plan.To {
		return offset
	}
	return plan.From
}

// RaiseLogStart moves the log start up to offset, never down and at most to the
// log end, durably. The gate is the caller's business (DeleteRecords).
func (r *Replica) RaiseLogStart(ctx context.Context, offset int64) error {
	if offset <= r.logStart.Load() {
		return nil
	}
	if r.localStart && r.replicated() {
		return r.raiseHere(offset)
	}
	_, err := r.change(ctx, journal.Operation{Kind: journal.OpRaiseLogStart, Offset: offset})
	return err
}

// Roll begins a new segment of this node's copy, see [persistence.Log].
func (r *Replica) Roll(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return fmt.Errorf("begin a new segment of %s: %w", r.tp, ErrClosed)
	}
	if err := r.log.Roll(); err != nil {
		return fmt.Errorf("begin a new segment of %s: %w", r.tp, err)
	}
	return nil
}

// raiseHere moves the log start of this node's copy alone: its snapshot covers what
// goes, another node's perhaps not yet.
func (r *Replica) raiseHere(offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return fmt.Errorf("raise log start of %s: %w", r.tp, ErrClosed)
	}
	if err := r.log.RaiseLogStart(min(offset, r.order.State().LogEnd)); err != nil {
		return fmt.Errorf("raise log start of %s: %w", r.tp, err)
	}
	return nil
}

// ApplyRetention deletes old segments by p and returns how many went. The
// high watermark is filled in here.
func (r *Replica) ApplyRetention(ctx context.Context, p persistence.RetentionPolicy) (int, error) {
	r.mu.Lock()
	if r.closed.Load() {
		r.mu.Unlock()
		return 0, fmt.Errorf("retention of %s: %w", r.tp, ErrClosed)
	}
	if r.replicated() && !r.Leads() {
		r.mu.Unlock()
		return 0, nil // it follows the leader's log start
	}
	p.HighWatermark = r.order.State().LogEnd
	n, err := r.log.ApplyRetention(ctx, p)
	if r.order.settle(); r.replicated() && r.log.LogStart() > r.order.State().LogStart {
		s := r.order.State()
		_, raised := r.proposeLocked(ctx, journal.Operation{Kind: journal.OpRaiseLogStart, Generation: s.Generation, Offset: r.log.LogStart()})
		err = errors.Join(err, raised)
	}
	r.publish()
	r.retained.Store(r.end.Load())
	r.mu.Unlock()
	if n > 0 {
		r.notify()
	}
	if err != nil {
		return n, fmt.Errorf("retention of %s: %w", r.tp, err)
	}
	return n, nil
}

// Flush makes everything appended so far durable against power loss. What came back
// from a stream is: a quorum has it as durable as it ever gets.
func (r *Replica) Flush(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return fmt.Errorf("flush %s: %w", r.tp, ErrClosed)
	}
	if r.replicated() {
		return nil
	}
	if err := r.log.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", r.tp, err)
	}
	return nil
}

// SetConfig changes the log's segment and flush settings from the next batch on.
// It doesn't wait for changes on their way.
func (r *Replica) SetConfig(c persistence.Config) {
	if !r.closed.Load() {
		r.log.SetConfig(c)
	}
}

// SetAdmit opens or closes the gate for client writes of a mirror topic. Its
// partition actor calls it: true whenever it finds the partition STOPPED and
// the topic's desired state stopped, again after each new image, for a start
// that was taken back closes the gate without any change of state. While the
// image says that the topic is mirrored or paused the gate stays closed and
// true is ignored.
func (r *Replica) SetAdmit(admit bool) {
	r.setGate(func(g uint32) uint32 {
		if admit && g&gateForced == 0 {
			return g | gateAdmit
		}
		return g &^ gateAdmit
	})
}

// force is what a new image says about the gate. Entering force takes back
// every earlier admission.
func (r *Replica) force(closed bool) {
	r.setGate(func(g uint32) uint32 {
		if closed {
			return gateForced
		}
		return g &^ gateForced
	})
}

func (r *Replica) setGate(f func(uint32) uint32) {
	for {
		old := r.gate.Load()
		g := f(old)
		if g == old {
			return
		}
		if r.gate.CompareAndSwap(old, g) {
			r.notify()
			return
		}
	}
}

// Watch has f called after high watermark, log start, epoch, mode or gate
// changed, and when the replica is closed. f must not block and must not change
// the replica. It may still be running once when cancel returns.
func (r *Replica) Watch(f func()) (cancel func()) {
	w := &watcher{f: f}
	r.setWatchers(func(ws []*watcher) []*watcher { return append(ws, w) })
	return func() {
		r.setWatchers(func(ws []*watcher) []*watcher {
			kept := ws[:0]
			for _, o := range ws {
				if o != w {
					kept = append(kept, o)
				}
			}
			return kept
		})
	}
}

func (r *Replica) setWatchers(f func([]*watcher) []*watcher) {
	r.watchMu.Lock()
	defer r.watchMu.Unlock()
	var ws []*watcher
	if old := r.watchers.Load(); old != nil {
		ws = append(make([]*watcher, 0, len(*old)+1), *old...)
	}
	if ws = f(ws); len(ws) == 0 {
		r.watchers.Store(nil)
		return
	}
	r.watchers.Store(&ws)
}

func (r *Replica) notify() {
	if ws := r.watchers.Load(); ws != nil {
		for _, w := range *ws {
			w.f()
		}
	}
}

// Close closes the log and writes the checkpoint. It may be called twice.
func (r *Replica) Close() error {
	cp, dirty, err := r.shut()
	if dirty {
		if put := r.cps.Put(false, cp); put != nil {
			if s, ok := r.order.(*streamed); ok {
				s.shard.j.unclean.Store(true)
			}
			err = errors.Join(err, put)
		}
	}
	return err
}

// shut closes the log and returns the checkpoint to write, so that Replicas can
// write many at once.
func (r *Replica) shut() (cp Checkpoint, dirty bool, err error) {
	if !r.retire() {
		return Checkpoint{}, false, nil
	}
	if err := r.log.Close(); err != nil {
		if s, ok := r.order.(*streamed); ok {
			s.shard.held.Store(true) // its stream is applied again from the last round on
		}
		return Checkpoint{}, false, fmt.Errorf("close %s: %w", r.tp, err)
	}
	cp, dirty = r.order.closing()
	return cp, dirty, nil
}

// retire ends all changes and lets go of the log, which whoever deletes it
// closes. It reports whether it was the first to do so.
func (r *Replica) retire() bool {
	first := r.closed.CompareAndSwap(false, true)
	r.order.end() // nothing new after it
	r.order.abort(fmt.Errorf("%s is closed: %w", r.tp, messages.ErrNotLeader))
	r.mu.Lock()
	r.publish()
	r.mu.Unlock()
	if first {
		r.notify()
	}
	return first
}
