package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
	"kagami/messages/batch"
	"kagami/persistence"
)

// copier asks the other nodes for the log of a partition.
type copier interface {
	// Copy returns whole batches of the partition from an offset on, at most about a
	// MiB, with the state that they belong to, from a replica that has applied its
	// shard up to sequence. Without such a replica the error wraps ErrNoReplica.
	Copy(ctx context.Context, key messages.PartitionKey, offset int64, sequence uint64) (piece, error)
}

// piece is a part of another replica's log.
type piece struct {
	from     messages.NodeID
	position int64 // everything up to it is in the state
	state    journal.State
	cuts     CutCount
	purged   int64  // below it, tombstones and markers may be gone, see [persistence.Log]
	batches  []byte // from the offset on; empty at the end
}

// copyBytesMax is about what one piece carries.
const copyBytesMax = 1 << 20

// repairJob is a replica that is behind.
type repairJob struct {
	of    *streamed
	wait  time.Duration // before it is tried
	began time.Time
}

// repair has a replica that is behind brought up to date, once however often it
// is asked for.
func (j *Journal) repair(o *streamed) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.repairs[o] != nil {
		return
	}
	job := &repairJob{of: o, began: j.clock.Now()}
	j.repairs[o] = job
	j.queueLocked(job)
}

func (j *Journal) queueLocked(job *repairJob) {
	j.repairable = append(j.repairable, job)
	j.wakeRepairer()
}

func (j *Journal) wakeRepairer() {
	select {
	case j.repairWake <- struct{}{}:
	default:
	}
}

// nextRepair takes the oldest job, nil if there is none.
func (j *Journal) nextRepair() *repairJob {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.repairable) == 0 {
		return nil
	}
	job := j.repairable[0]
	j.repairable[0] = nil
	if j.repairable = j.repairable[1:]; len(j.repairable) > 0 {
		j.wakeRepairer()
	}
	return job
}

// repairer repairs one replica after the other.
func (j *Journal) repairer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.repairWake:
		}
		for job := j.nextRepair(); job != nil; job = j.nextRepair() {
			err := job.of.repair(ctx, j.opts.Copier)
			if ctx.Err() != nil {
				return
			}
			j.repaired(job, err)
		}
	}
}

func (j *Journal) repaired(job *repairJob, err error) {
	gone := job.of.gone()
	j.mu.Lock()
	if err == nil || gone {
		delete(j.repairs, job.of)
		data := j.data
		j.mu.Unlock()
		switch {
		case gone:
		case job.of.isBehind(): // it fell behind again, and was in the list then
			j.repair(job.of)
		case data != nil:
			data.claimNow(job.of.d.key.TopicID)
		}
		return
	}
	defer j.mu.Unlock()
	job.wait = min(max(2*job.wait, j.opts.RepairRetry), time.Minute)
	level := zap.WarnLevel
	if errors.Is(err, ErrNoReplica) {
		level = zap.ErrorLevel
	}
	j.log.Log(level, "replica is behind its journal, tried again", zap.Stringer("replica", job.of.d.key),
		zap.Duration("in", job.wait), zap.Duration("behind for", j.clock.Now().Sub(job.began)), zap.Error(err))
	j.clock.AfterFunc(job.wait, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if !j.closed {
			j.queueLocked(job)
		}
	})
}

// gone: closed or deleted.
func (s *streamed) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// repair renews the log if its disk has failed, carries out what was kept, or copies what was missed from another
// replica and goes on from there.
func (s *streamed) repair(ctx context.Context, from copier) error {
	if err := s.renew(); err != nil {
		s.findSpare(ctx, from)
		return err
	}
	if ok, err := s.catchUp(); ok || err != nil {
		if err != nil {
			s.findSpare(ctx, from)
		}
		return err
	}
	if ok, err := s.reread(ctx); ok || err != nil {
		return err
	}
	for at := s.d.log.End(); ; {
		p, err := from.Copy(ctx, s.d.key, at, s.keptFrom())
		if errors.Is(err, errAllBlank) && s.beginBlank(errors.Is(err, errSole)) {
			return nil
		}
		if err != nil {
			return err
		}
		done, next, err := s.takePiece(p, at)
		if done {
			s.applied()
		}
		if done || err != nil {
			return err
		}
		at = next
	}
}

// blankLocked: nothing was ever known here of the partition. Its log may have bytes, of
// an earlier life of the topic or of one whose checkpoint is lost: no copy begins with them.
func (s *streamed) blankLocked() bool {
	return s.behind && !s.whole && s.cause == nil && s.d.state == journal.NewState()
}

// beginBlank begins at nothing, because nobody has anything: the nodes stopped
// between the creation of the topic and its first operation. A node that has had a
// hole in the shard since the topic was created can't tell that from operations that
// everybody missed: it begins only if it has the one replica (sole), whose log is gone
// then. Else it stays behind, for an operator to see.
func (s *streamed) beginBlank(sole bool) bool {
	newborn := journal.Newborn(s.d.key, s.shard.covered.Load(), false)
	s.mu.Lock()
	ok := s.blankLocked() && (newborn || sole && s.d.log.End() == 0)
	if ok && s.d.log.End() > 0 {
		_, err := s.d.log.RestartAt(0)
		ok = err == nil
	}
	if ok {
		s.replayLocked()
		s.markLocked()
		ok = !s.behind
	}
	s.mu.Unlock()
	if ok {
		s.applied()
	}
	return ok
}

// keptFrom is the shard's sequence from which on every operation is kept.
func (s *streamed) keptFrom() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return journal.SequenceOf(s.keptAt)
}

// takePiece appends a piece, which was asked for from an offset on; at the end of
// their log it takes over their state and carries out what was kept since. done: the
// replica follows again. Else it is to be asked for from next on.
//
// Until it is whole nothing has to be durable: what the checkpoint file says of a replica
// that is behind, or was whole when it fell behind, stays true while bytes are appended.
func (s *streamed) takePiece(p piece, at int64) (done bool, next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, theirs := s.d.log, p.state
	theirs.Sequence = max(theirs.Sequence, p.position)
	switch {
	case s.ended:
		return false, 0, ErrClosed
	case !s.behind:
		return true, 0, nil
	case !journal.Extends(s.d.state, log.End(), theirs) || s.d.failed != nil || s.copy.lacks(log, p):
		if at != p.state.LogStart && p.state.LogStart < p.state.LogEnd {
			return false, p.state.LogStart, nil
		}
		if err := s.beginCopyLocked(p); err != nil {
			return false, 0, err
		}
	case at != log.End():
		return false, log.End(), nil
	}
	s.copy.takes(log, p)
	if err := s.appendPieceLocked(p); err != nil {
		return false, 0, err
	}
	if end := log.End(); end < p.state.LogEnd {
		if len(p.batches) == 0 {
			return false, 0, fmt.Errorf("node %d has nothing of %s from %d on, its log ends at %d", p.from, s.d.key, end, p.state.LogEnd)
		}
		return false, end, nil
	} else if end > p.state.LogEnd {
		return false, 0, fmt.Errorf("the log of %s on node %d ends at %d, that of another one at %d already", s.d.key, p.from, p.state.LogEnd, end)
	}
	state, ok := journal.Install(p.state, p.position, s.keptAt)
	if !ok {
		return false, log.End(), nil // more was dropped meanwhile: what they have got since is asked for
	}
	state.LogStart = max(state.LogStart, min(log.LogStart(), state.LogEnd))
	s.d.state, s.d.cuts, s.cause = state, p.cuts, nil
	s.baseline, s.whole, s.held = false, true, false
	s.markLocked()
	s.replayLocked()
	return !s.behind, log.End(), s.cause
}

// beginCopyLocked empties a log that isn't the beginning of the other one. It begins
// with their first batch, which may start below their log start.
func (s *streamed) beginCopyLocked(p piece) error {
	start := p.state.LogStart
	if len(p.batches) > 0 {
		h, err := batch.ParseHeader(p.batches)
		if err != nil {
			return fmt.Errorf("copy of %s from node %d: %w", s.d.key, p.from, err)
		}
		start = min(start, h.BaseOffset)
	}
	// Behind the restart the log is a beginning of theirs, as of the last cut or later.
	begun := s.d.state
	begun.Sequence = max(p.state.CutAt, 1)
	cp := s.d.checkpoint(begun)
	cp.Behind, cp.Pending, cp.PendingOffset = true, journal.OpRestartAt, start
	if err := s.d.checkpoints.Put(true, cp); err != nil {
		return err
	}
	if _, err := s.d.log.RestartAt(start); err != nil {
		return fmt.Errorf("empty the log of %s: %w", s.d.key, err)
	}
	s.d.state, s.d.failed, s.d.again = begun, nil, nil
	s.whole, s.held, s.cause = false, false, nil
	return s.d.checkpoints.Put(false, s.checkpointLocked())
}

func (s *streamed) appendPieceLocked(p piece) error {
	log := s.d.log
	if len(p.batches) > 0 {
		if _, err := log.Append(p.batches, persistence.AppendOptions{CheckCRC: true}); err != nil {
			return fmt.Errorf("append a copy to %s: %w", s.d.key, err)
		}
	}
	if start := min(p.state.LogStart, log.End()); start > log.LogStart() {
		if err := log.RaiseLogStart(start); err != nil {
			return fmt.Errorf("raise the log start of %s: %w", s.d.key, err)
		}
	}
	return nil
}

// offer is this replica's side of Copy.
func (s *streamed) offer(ctx context.Context, offset int64, sequence uint64) (piece, error) {
	if err := s.shard.waitApplied(ctx, sequence); err != nil {
		return piece{}, err
	}
	p, err := s.snapshot()
	if err != nil {
		return p, err
	}
	log := s.d.log
	if offset < max(p.state.LogStart, log.LogStart()) || offset >= p.state.LogEnd {
		return p, nil
	}
	chunk, err := log.Read(offset, s.shard.j.opts.copyBytes, p.state.LogEnd, true)
	if err != nil {
		return p, err
	}
	defer chunk.Release()
	if p.batches, err = chunk.ReadAll(); err != nil {
		return p, err
	}
	again, err := s.snapshot()
	if err == nil && again.state.CutAt != p.state.CutAt {
		err = fmt.Errorf("%s was cut: %w", s.d.key, messages.ErrNotLeader)
	}
	return p, err
}

// snapshot is the state and the position up to which it is whole.
func (s *streamed) snapshot() (piece, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blankLocked() {
		return piece{}, errBlank
	}
	if err := s.usableLocked(); err != nil {
		return piece{}, err
	}
	if s.baseline {
		return piece{}, fmt.Errorf("%s isn't in the journal yet: %w", s.d.key, messages.ErrNotLeader)
	}
	state := s.d.state
	state.LogStart = max(state.LogStart, s.d.log.LogStart())
	at := journal.At(s.shard.applied.Load()+1, 0) - 1
	return piece{from: s.shard.j.opts.Node, position: max(at, state.Sequence), state: state, cuts: s.d.cuts, purged: s.d.log.PurgedTo()}, nil
}
