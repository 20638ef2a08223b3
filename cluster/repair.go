package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
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
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil || job.of.gone() {
		delete(j.repairs, job.of)
		return
	}
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

// repair carries out what was kept, or copies what was missed from another
// replica and goes on from there.
func (s *streamed) repair(ctx context.Context, from copier) error {
	s.mu.Lock()
	whole := s.whole
	s.mu.Unlock()
	if whole {
		if ok, err := s.catchUp(); ok {
			return nil
		} else if err != nil {
			return err
		}
	}
	first, err := from.Copy(ctx, s.d.key, s.copiedTo(), s.keptFrom())
	if errors.Is(err, errAllBlank) && s.beginBlank() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.beginCopy(first.state); err != nil {
		return err
	}
	for {
		p, err := from.Copy(ctx, s.d.key, s.copiedTo(), s.keptFrom())
		if err != nil {
			return err
		}
		if p.state.CutAt != first.state.CutAt {
			return fmt.Errorf("the log of %s was cut while it was copied from node %d", s.d.key, p.from)
		}
		done, err := s.takePiece(p)
		if done {
			s.applied()
		}
		if done || err != nil {
			return err
		}
	}
}

// blankLocked: nothing was ever known here of the partition.
func (s *streamed) blankLocked() bool {
	return s.behind && !s.whole && s.cause == nil && s.d.state == journal.NewState() && s.d.log.End() == 0
}

// beginBlank begins at nothing, because nobody has anything: the nodes stopped
// between the creation of the topic and its first operation.
func (s *streamed) beginBlank() bool {
	s.mu.Lock()
	ok := s.blankLocked()
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

func (s *streamed) copiedTo() int64 { return s.d.log.End() }

// beginCopy keeps what this log has if it is the beginning of the other one, and
// else starts where that one starts.
func (s *streamed) beginCopy(theirs journal.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrClosed
	}
	mine, log := s.d.state, s.d.log
	if !journal.Extends(mine, log.End(), theirs) {
		if _, err := log.RestartAt(theirs.LogStart); err != nil {
			return fmt.Errorf("empty the log of %s: %w", s.d.key, err)
		}
	} else if err := log.RaiseLogStart(theirs.LogStart); err != nil {
		return fmt.Errorf("raise the log start of %s: %w", s.d.key, err)
	}
	// Until it is whole, what the log holds is a prefix of theirs as of now.
	s.d.state.Sequence = max(mine.Sequence, theirs.CutAt)
	s.whole = false
	return s.d.checkpoints.Put(true, s.checkpointLocked())
}

// takePiece appends a piece; at the end of their log it takes over their state
// and carries out what was kept since. done: the replica follows again.
func (s *streamed) takePiece(p piece) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false, ErrClosed
	}
	if len(p.batches) > 0 {
		if _, err := s.d.log.Append(p.batches, persistence.AppendOptions{CheckCRC: true}); err != nil {
			return false, fmt.Errorf("append a copy to %s: %w", s.d.key, err)
		}
	}
	if s.d.log.End() < p.state.LogEnd {
		return false, nil
	}
	state, ok := journal.Install(p.state, p.position, s.keptAt)
	if !ok {
		return false, nil // more was dropped meanwhile: what they have got since is asked for
	}
	if err := s.d.log.Flush(); err != nil {
		return false, err
	}
	s.d.state, s.d.cuts, s.cause = state, p.cuts, nil
	s.baseline = false
	s.whole = true
	s.replayLocked()
	if s.behind {
		return false, s.cause
	}
	s.markLocked()
	if err := s.d.checkpoints.Put(true, s.checkpointLocked()); err != nil {
		return false, err
	}
	return true, nil
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
	chunk, err := log.Read(offset, copyBytesMax, p.state.LogEnd, true)
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
	return piece{from: s.shard.j.opts.Node, position: max(at, state.Sequence), state: state, cuts: s.d.cuts}, nil
}
