package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"kagami/cluster/journal"
	"kagami/internal/clock"
	"kagami/messages"
)

// MetadataShard is the shard of the metadata log; data shards count from 0.
const MetadataShard int32 = -1

// JournalOptions of NewJournal. Node, Shards, Streams, Checkpoints, Copier and Logger
// are required.
type JournalOptions struct {
	Node        messages.NodeID
	Incarnation messages.TopicID // of this process; random
	Shards      int32            // data shards, the same on every node for good
	// Streams has the shards' streams; one that isn't there is created with Replicas
	// copies.
	Streams     *Streams
	Replicas    int
	Checkpoints *Checkpoints
	// Copier asks other nodes for what a replica that is behind lacks.
	Copier copier

	// CheckpointInterval between two checkpoint rounds. Default 5 s.
	CheckpointInterval time.Duration
	// BeatInterval between two beats through every shard, IsolatedAfter how long one
	// of them may take to come back. Defaults 1 s and 3 s.
	BeatInterval, IsolatedAfter time.Duration
	// LostBackoff and LostBackoffMax: the wait before a lost message is sent again.
	// Defaults 20 ms and 250 ms: a stream that has a leader again isn't to wait long.
	LostBackoff, LostBackoffMax time.Duration
	// FollowRetry after a shard couldn't be followed. Default 1 s.
	FollowRetry time.Duration
	// RepairRetry is the first wait before a replica that is behind is tried again,
	// doubled up to a minute. Default 500 ms.
	RepairRetry time.Duration
	// Repairs at a time. Default 4.
	Repairs int
	// Trim says what the streams still have to keep; nil: nothing is ever removed.
	// TrimInterval between two looks, default 10 s. A stream larger than TrimBytes
	// doesn't wait for dead nodes; default 1 GiB.
	Trim         func() TrimView
	TrimInterval time.Duration
	TrimBytes    int64
	Clock        clock.Clock // default clock.Wall
	Logger       *zap.Logger

	open      func(ctx context.Context, shard int32) (stream, error) // of tests
	copyBytes int                                                    // about what a piece of a copy carries; of tests
}

func (o JournalOptions) withDefaults() JournalOptions {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.CheckpointInterval, 5 * time.Second},
		{&o.BeatInterval, time.Second},
		{&o.IsolatedAfter, 3 * time.Second},
		{&o.LostBackoff, 20 * time.Millisecond},
		{&o.LostBackoffMax, 250 * time.Millisecond},
		{&o.FollowRetry, time.Second},
		{&o.RepairRetry, 500 * time.Millisecond},
		{&o.TrimInterval, 10 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if o.Repairs == 0 {
		o.Repairs = 4
	}
	if o.TrimBytes == 0 {
		o.TrimBytes = 1 << 30
	}
	if o.Clock == nil {
		o.Clock = clock.Wall{}
	}
	if o.copyBytes == 0 {
		o.copyBytes = copyBytesMax
	}
	if o.open == nil {
		o.open = func(ctx context.Context, shard int32) (stream, error) {
			return o.Streams.Open(ctx, ShardName(shard), o.Replicas)
		}
	}
	return o
}

// Journal is the journal of a node of several: it follows every shard, applies
// what comes to the replicas of this node, proposes for those that lead, makes
// checkpoints, beats through each shard, and repairs replicas that are behind.
//
// Goroutines: per shard a pump and a follower, and after a hole one that asks for the
// metadata log's end; two for beats, one each for checkpoint rounds, trimming and isolation,
// and Repairs for repairs. Close ends them all. All methods may be called
// from any goroutine.
type Journal struct {
	opts        JournalOptions
	log         *zap.Logger
	clock       clock.Clock
	checkpoints *Checkpoints
	author      journal.Author
	shards      map[int32]*shard
	window      *journal.Window

	stop    context.CancelCauseFunc
	running sync.WaitGroup

	mu         sync.Mutex
	meta       *Replica
	data       *Replicas
	started    map[int32]bool
	closed     bool
	repairs    map[*streamed]*repairJob
	repairable []*repairJob  // those whose wait is over, oldest first
	repairWake chan struct{} // capacity 1

	beatReturned chan struct{} // one of an isolated shard; capacity 1
	tellWake     chan struct{} // a shard's replicas are to be told; capacity 1
	forsakeWake  chan struct{} // a shard is isolated; capacity 1
	lookMu       sync.Mutex    // one look at a shard at a time

	unclean atomic.Bool // a replica's last checkpoint couldn't be written
}

// NewJournal opens the streams. Nothing is followed before Start. ctx carries
// values, and bounds the opening.
func NewJournal(ctx context.Context, o JournalOptions) (*Journal, error) {
	o = o.withDefaults()
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	j := &Journal{
		opts: o, log: o.Logger.Named("journal"), clock: o.Clock, checkpoints: o.Checkpoints,
		author: journal.Author{Node: o.Node, Incarnation: o.Incarnation}, shards: make(map[int32]*shard), window: journal.NewWindow(0),
		stop: stop, started: make(map[int32]bool), repairs: make(map[*streamed]*repairJob), repairWake: make(chan struct{}, 1),
		beatReturned: make(chan struct{}, 1), tellWake: make(chan struct{}, 1), forsakeWake: make(chan struct{}, 1),
	}
	for id := MetadataShard; id < o.Shards; id++ {
		st, err := o.open(ctx, id)
		if err != nil {
			stop(ErrClosed)
			return nil, fmt.Errorf("open journal shard %d: %w", id, err)
		}
		j.shards[id] = j.newShard(id, st)
	}
	for _, s := range j.shards {
		j.running.Go(func() { s.run(run, s.pump) })
		j.running.Go(func() { s.run(run, s.follow) })
	}
	j.running.Go(func() { j.beats(run) })
	j.running.Go(func() { j.tells(run) })
	j.running.Go(func() { j.returns(run) })
	j.running.Go(func() { j.rounds(run) })
	if o.Trim != nil {
		j.running.Go(func() { j.trims(run) })
		j.running.Go(func() { j.forsakes(run) })
	}
	for range o.Repairs {
		j.running.Go(func() { j.repairer(run) })
	}
	return j, nil
}

func (j *Journal) newShard(id int32, st stream) *shard {
	s := &shard{
		j: j, id: id, stream: st, log: j.log.With(zap.Int32("shard", id)),
		proposer: journal.NewProposer(j.author, journal.ProposerOptions{Window: j.window}), waiting: make(map[journal.Ticket]*proposal), heard: make(map[messages.NodeID]int64),
		ready: make(chan struct{}), pumpWake: make(chan struct{}, 1), dirty: make(map[*streamed]struct{}),
	}
	if cp, ok := j.checkpoints.Take(shardKey(id)); ok {
		s.stable = shardRecord(cp)
		s.last = s.stable
		s.applied.Store(s.stable.Sequence)
		s.covered.Store(s.stable.Covered)
		s.hole = s.stable.Sequence
	}
	return s
}

// shardOf is the shard of a partition: for good, whatever nodes come and go.
func (j *Journal) shardOf(key messages.PartitionKey) *shard {
	if key.TopicID == MetadataTopicID {
		return j.shards[MetadataShard]
	}
	return j.shards[ShardOf(key, j.opts.Shards)]
}

// ShardOf is the data shard that a partition's operations go through.
func ShardOf(key messages.PartitionKey, shards int32) int32 {
	h := binary.BigEndian.Uint64(key.TopicID[:8]) ^ binary.BigEndian.Uint64(key.TopicID[8:])
	h += uint64(uint32(key.Partition)) * 0x9e3779b97f4a7c15
	h ^= h >> 33 // the finaliser of a 64-bit mix: neighbours go to different shards
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return int32(h % uint64(shards))
}

// ShardName is the name of a shard's stream.
func ShardName(shard int32) string {
	if shard == MetadataShard {
		return "meta"
	}
	return strconv.Itoa(int(shard))
}

// shardKey names a shard's record in the checkpoint file.
func shardKey(id int32) messages.PartitionKey {
	return messages.PartitionKey{TopicID: messages.TopicID{15: 3}, Partition: id}
}

func isShardKey(key messages.PartitionKey) bool {
	return key.TopicID == shardKey(0).TopicID
}

// shardCheckpoint is a shard's record as one of the checkpoint file.
func shardCheckpoint(id int32, r journal.ShardRecord) Checkpoint {
	cp := Checkpoint{Key: shardKey(id), State: journal.NewState(), Replicated: true}
	cp.State.Sequence, cp.State.Generation, cp.State.LogStart = int64(r.Sequence), int64(r.Print), r.Covered
	return cp
}

func shardRecord(cp Checkpoint) journal.ShardRecord {
	return journal.ShardRecord{Sequence: uint64(cp.State.Sequence), Print: uint64(cp.State.Generation), Covered: cp.State.LogStart}
}

// StartMetadata begins to follow the metadata log's shard.
func (j *Journal) StartMetadata(meta *Replica) {
	j.mu.Lock()
	j.meta = meta
	j.mu.Unlock()
	j.start(MetadataShard, func(context.Context, messages.PartitionKey) (*Replica, error) { return meta, nil })
	j.watched(meta)
}

// passBy makes durable that replicas which the first image has no place for are passed
// by from here on. For those that couldn't be opened the shards' records are held: what
// this node has acknowledged of them may be nowhere but in the stream.
func (j *Journal) passBy(unopened map[messages.PartitionKey]struct{}) error {
	var owed []messages.PartitionKey
	err := j.checkpoints.Rewrite(func(cp *Checkpoint) bool {
		if !cp.Replicated || cp.Behind || isShardKey(cp.Key) {
			return false
		}
		if _, ok := unopened[cp.Key]; ok {
			owed = append(owed, cp.Key)
			return false
		}
		cp.Behind = true
		return true
	})
	if err == nil {
		for _, key := range owed {
			j.shardOf(key).owe(key)
		}
	}
	return err
}

// startData begins to follow the data shards; the replicas of the first image are
// open.
func (j *Journal) startData(ctx context.Context, rs *Replicas) {
	unopened := rs.unopened()
	for err := j.passBy(unopened); err != nil; err = j.passBy(unopened) {
		j.log.Error("note replicas that aren't opened, tried again", zap.Error(err))
		if j.clock.Sleep(ctx, j.opts.FollowRetry) != nil {
			return
		}
	}
	j.mu.Lock()
	j.data = rs
	j.mu.Unlock()
	for id := range j.opts.Shards {
		j.start(id, rs.byKey)
	}
}

func (j *Journal) start(id int32, find func(context.Context, messages.PartitionKey) (*Replica, error)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.started[id] {
		return
	}
	j.started[id] = true
	s := j.shards[id]
	s.find = find
	now := j.clock.Now().UnixNano()
	s.beatAt.Store(now)
	s.began.Store(now)
	close(s.ready)
}

// watched says that the follower finds the replica from now on.
func (j *Journal) watched(r *Replica) {
	o := r.order.(*streamed)
	if o.watched(); o.isBehind() {
		j.repair(o)
	}
	o.shard.settled(r.key)
}

// remember makes the checkpoints of newborn replicas durable: that nothing was
// applied to them is known from here on.
func (j *Journal) remember(newborns []*Replica) error {
	cps := make([]Checkpoint, 0, len(newborns))
	for _, r := range newborns {
		o := r.order.(*streamed)
		o.mu.Lock()
		if o.newborn {
			cps = append(cps, o.checkpointLocked())
		}
		o.mu.Unlock()
	}
	if len(cps) == 0 {
		return nil
	}
	return j.checkpoints.Put(true, cps...)
}

// replicas calls f with the replicas of a shard on this node.
func (j *Journal) replicas(id int32, f func(*Replica)) {
	j.everyReplica(func(r *Replica) {
		if j.shardOf(r.key).id == id {
			f(r)
		}
	})
}

// everyReplica calls f with the replicas on this node, that of the metadata log first.
func (j *Journal) everyReplica(f func(*Replica)) {
	j.mu.Lock()
	meta, data := j.meta, j.data
	j.mu.Unlock()
	if meta != nil {
		f(meta)
	}
	if data != nil {
		data.Range(func(r *Replica) bool { f(r); return true })
	}
}

// beats sends a beat through every shard and judges by its return whether the
// shard's order reaches this node.
func (j *Journal) beats(ctx context.Context) {
	for j.clock.Sleep(ctx, j.opts.BeatInterval) == nil {
		var started []*shard
		j.mu.Lock()
		for id := MetadataShard; id < j.opts.Shards; id++ {
			if j.started[id] {
				started = append(started, j.shards[id])
			}
		}
		j.mu.Unlock()
		for _, s := range started { // all of them first: no beat waits for what another's absence means
			if now := j.clock.Now(); s.beatDue(now) {
				s.beat(now)
			}
		}
		for _, s := range started {
			j.look(s)
		}
	}
}

// returns looks at isolated shards as soon as a beat comes back, and not at the next
// beat: leaderships wait for it.
func (j *Journal) returns(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.beatReturned:
		}
		for _, s := range j.shards {
			if s.isolated.Load() {
				j.look(s)
			}
		}
	}
}

// look judges whether a shard's order reaches this node. What is proposed there is told of
// a change at once, and its replicas soon.
func (j *Journal) look(s *shard) {
	j.lookMu.Lock()
	defer j.lookMu.Unlock()
	silent := j.clock.Now().Sub(time.Unix(0, s.beatAt.Load()))
	alone := silent > j.opts.IsolatedAfter
	changed := s.isolated.Swap(alone) != alone
	if changed {
		s.log.Warn("journal shard", zap.Bool("isolated", alone), zap.Duration("own beat came back before", silent))
		if s.forsaken.Store(false); alone {
			s.cutOff()
			select {
			case j.forsakeWake <- struct{}{}:
			default:
			}
		}
	}
	if !s.lapsed.Swap(false) && !changed {
		return
	}
	s.tell.Store(true)
	select {
	case j.tellWake <- struct{}{}:
	default:
	}
}

// tells has the replicas of shards that look found changed publish again, whoever watches
// them told, and claims tried again. With many partitions that takes longer than a beat.
func (j *Journal) tells(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.tellWake:
		}
		changed, reached := map[*shard]bool{}, false
		for _, s := range j.shards {
			if s.tell.Swap(false) {
				changed[s] = true
				reached = reached || !s.isolated.Load()
			}
		}
		j.everyReplica(func(r *Replica) {
			if s, ok := r.order.(*streamed); ok && changed[s.shard] {
				r.publish()
				r.notify()
			}
		})
		j.mu.Lock()
		data := j.data
		j.mu.Unlock()
		if data != nil && reached {
			data.claimAllNow()
		}
	}
}

// Isolated reports whether a shard's order hasn't reached this node for
// IsolatedAfter; it leads nothing there then.
func (j *Journal) Isolated(shard int32) bool { return j.shards[shard].alone() }

// Progress is the sequence applied and the first one that this node still needs, by
// shard.
func (j *Journal) Progress() map[int32][2]uint64 {
	out := make(map[int32][2]uint64, len(j.shards))
	for id, s := range j.shards {
		s.dirtyMu.Lock()
		out[id] = [2]uint64{s.applied.Load(), s.stable.Needs()}
		s.dirtyMu.Unlock()
	}
	return out
}

// rounds makes a checkpoint round every CheckpointInterval. The server's part of the
// journal is looked after as often.
func (j *Journal) rounds(ctx context.Context) {
	for j.clock.Sleep(ctx, j.opts.CheckpointInterval) == nil {
		j.revive()
		if err := j.Checkpoint(); err != nil && ctx.Err() == nil {
			j.log.Error("checkpoint round, tried again", zap.Error(err))
		}
	}
}

// revive starts this node's part of the journal again if it has stopped.
func (j *Journal) revive() {
	if j.opts.Streams == nil {
		return
	}
	if done, err := j.opts.Streams.server.ReviveJournal(); err != nil {
		j.log.Error("journal server, tried again", zap.Error(err))
	} else if done {
		j.log.Info("the journal's folder has room again: this node takes part in it")
	}
}

// Checkpoint makes durable what is applied, so that the streams need no longer
// keep it for this node. Only one may run at a time.
func (j *Journal) Checkpoint() error {
	var ends []Checkpoint
	var errs []error
	records := make(map[int32]journal.ShardRecord)
	for id, s := range j.shards {
		s.dirtyMu.Lock()
		at, dirty := s.last, s.dirty
		s.dirty = make(map[*streamed]struct{})
		stable := s.stable
		s.dirtyMu.Unlock()
		if at.Sequence == stable.Sequence {
			s.restoreDirty(dirty)
			continue
		}
		if hold, err := s.stabilise(dirty); err != nil || hold || len(s.owing()) > 0 {
			errs = append(errs, err)
			continue
		}
		at.Covered = s.covered.Load()
		records[id] = at
		ends = append(ends, shardCheckpoint(id, at))
	}
	if len(ends) == 0 {
		return errors.Join(errs...)
	}
	// First what stabilise has put, then the records that rely on it: in one sync a loss of
	// power may take the one and leave the other.
	if err := j.checkpoints.Sync(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := j.checkpoints.Put(true, ends...); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for id, at := range records {
		s := j.shards[id]
		s.dirtyMu.Lock()
		if at.Sequence > s.stable.Sequence {
			s.stable = at
		}
		s.dirtyMu.Unlock()
	}
	return errors.Join(errs...)
}

// stabilise flushes the logs of dirty replicas and writes their checkpoints, which have
// to be durable before the shard's record is written. On an error all of them stay dirty. hold: the
// record has to stay where it is.
func (s *shard) stabilise(dirty map[*streamed]struct{}) (hold bool, err error) {
	var work errgroup.Group
	work.SetLimit(stabiliseMax)
	var holds atomic.Bool
	for o := range dirty {
		work.Go(func() error {
			held, err := o.stabilise()
			if err != nil {
				return fmt.Errorf("checkpoint %s: %w", o.d.key, err)
			}
			if held {
				holds.Store(true)
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		s.restoreDirty(dirty)
		return false, err
	}
	return holds.Load(), nil
}

// stabiliseMax is how many logs of a shard are flushed at a time: they hardly compute,
// and share syncs.
const stabiliseMax = 64

func (s *shard) restoreDirty(dirty map[*streamed]struct{}) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	maps.Copy(s.dirty, dirty)
	for o := range dirty {
		o.dirty.Store(true)
	}
}

// newborn says how a replica begins that has neither log nor checkpoint: as a
// newborn when this node follows the shard from before its topic was created.
//
// What was created before a cluster of one grew has a history that no stream has: the
// metadata log's own baseline says until where. (Its mode never changes after it.)
func (j *Journal) newborn(key messages.PartitionKey) bool {
	j.mu.Lock()
	meta := j.meta
	j.mu.Unlock()
	covered := j.shardOf(key).covered.Load()
	if meta != nil {
		covered = max(covered, meta.order.State().ModeOffset)
	}
	return journal.Newborn(key, covered, false)
}

// Close ends all goroutines and fails what is on its way. The replicas are closed
// after it; then Finish records how far the shards were applied. It may be called
// twice.
func (j *Journal) Close() {
	j.mu.Lock()
	first := !j.closed
	j.closed = true
	j.mu.Unlock()
	if !first {
		return
	}
	for _, s := range j.shards {
		s.mu.Lock()
		s.closed = true
		s.failAllLocked(fmt.Errorf("%w: %w", ErrClosed, messages.ErrNotLeader))
		s.mu.Unlock()
	}
	j.stop(ErrClosed)
	j.running.Wait()
}

// Finish records, after the replicas were closed, what they hold. If one of them
// couldn't be, nothing is recorded: the streams are applied again from the last round on.
func (j *Journal) Finish() error {
	if j.unclean.Load() {
		return nil
	}
	var ends []Checkpoint
	for id, s := range j.shards {
		if at := s.last; at.Sequence != s.stable.Sequence && !s.held.Load() && len(s.owing()) == 0 {
			at.Covered = s.covered.Load()
			ends = append(ends, shardCheckpoint(id, at))
		}
	}
	if len(ends) == 0 {
		return nil
	}
	if err := j.checkpoints.Sync(); err != nil { // see Checkpoint
		return err
	}
	return j.checkpoints.Put(true, ends...)
}
