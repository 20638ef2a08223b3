package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/messages"
)

// stream is the ordered stream of one shard; *Stream is one.
type stream interface {
	// Publish sends in order and calls done, from another goroutine, with the
	// sequence or an error after which the message may be there or not.
	Publish(id string, payload []byte, done func(sequence uint64, err error))
	// Follow calls f with every message from a sequence on, in order, until ctx or f
	// ends it. *HoleError: messages are gone.
	Follow(ctx context.Context, from uint64, f func(sequence uint64, payload []byte) error) error
	// Bounds are the first and the last sequence; last is first-1 if there is none.
	Bounds(ctx context.Context) (first, last uint64, err error)
	// Purge removes everything up to a sequence, which included.
	Purge(ctx context.Context, upTo uint64) error
	// State is the stream's numbers.
	State(ctx context.Context) (StreamState, error)
}

// shard carries the operations of its partitions through one stream: a pump
// publishes what is proposed, a follower applies what comes back. Both goroutines
// belong to the [Journal].
type shard struct {
	j      *Journal
	id     int32
	stream stream
	log    *zap.Logger
	// find returns this node's replica of a partition, nil if it has none. It waits
	// until the metadata image knows the partition. Set before ready is closed.
	find func(ctx context.Context, key messages.PartitionKey) (*Replica, error)

	ready chan struct{} // closed when the shard is to be followed

	mu       sync.Mutex
	proposer *journal.Proposer
	waiting  map[journal.Ticket]*proposal
	closed   bool
	pumpWake chan struct{}             // capacity 1
	backoff  time.Duration             // of the pump after a message that got lost
	heard    map[messages.NodeID]int64 // when a message of a node came last, ns
	beats    []beatOut                 // of ours, oldest first
	moves    bool                      // something has come since the last of them
	starved  atomic.Bool               // the pump waits for room in the node's window
	sending  uint64                    // number of the message that the pump has but may not have published yet; 0 for none

	applied  atomic.Uint64 // sequence of the last message applied
	moved    atomic.Pointer[chan struct{}]
	began    atomic.Int64 // when this node began to follow, ns
	beatAt   atomic.Int64 // when the last own beat that came back was sent, ns
	isolated atomic.Bool
	forsaken atomic.Bool // the lead of its stream was given up since it is isolated
	// lapsed: alone was true without isolated, so that replicas may have published that
	// they don't lead. They publish again at the next look.
	lapsed atomic.Bool
	tell   atomic.Bool // the replicas are to publish again
	// covered: topics created at that metadata offset or above had no operation
	// before this node began to follow.
	covered atomic.Int64
	holes   atomic.Int64 // that this process has met

	dirtyMu sync.Mutex
	owed    map[messages.PartitionKey]struct{} // replicas that couldn't be opened: the record is held
	hole    uint64                             // end of the last hole, or a sequence behind it; 0 for none
	dirty   map[*streamed]struct{}
	held    atomic.Bool         // closed with a replica that needs what comes after the last round
	last    journal.ShardRecord // of the last message applied
	stable  journal.ShardRecord // durable
}

// proposal is one operation that somebody waits for.
type proposal struct {
	ticket journal.Ticket // under the shard's lock
	free   bool           // a claim: no generation's end refuses it
	once   sync.Once
	done   chan verdict // capacity 1
}

type verdict struct {
	applied Applied
	err     error
}

// settle answers once; later verdicts are dropped.
func (p *proposal) settle(v verdict) { p.once.Do(func() { p.done <- v }) }

// errUnknownOutcome: the operation may have been applied.
var errUnknownOutcome = fmt.Errorf("%w: whether the operation was applied isn't known", messages.ErrTimedOut)

// propose queues an entry and waits for its verdict.
func (s *shard) propose(ctx context.Context, p *proposal, e journal.Entry) (Applied, error) {
	s.mu.Lock()
	if s.closed || s.alone() {
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return Applied{}, fmt.Errorf("%s: %w: %w", e.Op.Kind, ErrClosed, messages.ErrNotLeader)
		}
		return Applied{}, fmt.Errorf("%s: journal shard %d doesn't reach this node: %w", e.Op.Kind, s.id, messages.ErrNotLeader)
	}
	p.ticket = s.proposer.Add(e)
	s.waiting[p.ticket] = p
	s.mu.Unlock()
	s.pumpNow()
	select {
	case v := <-p.done:
		s.forget(p)
		return v.applied, v.err
	case <-ctx.Done():
		s.forget(p)
		p.settle(verdict{err: fmt.Errorf("%s: %w: %w", e.Op.Kind, errUnknownOutcome, context.Cause(ctx))})
		v := <-p.done // one that came in time counts
		return v.applied, v.err
	}
}

// forget drops a proposal that nobody waits for any more.
func (s *shard) forget(p *proposal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[p.ticket] == p {
		delete(s.waiting, p.ticket)
		s.proposer.Abandon(p.ticket)
		s.pumpNow() // a lost message that is given up makes room
	}
}

func (s *shard) pumpNow() {
	select {
	case s.pumpWake <- struct{}{}:
	default:
	}
}

// run waits until the shard is to be followed, then runs f.
func (s *shard) run(ctx context.Context, f func(context.Context)) {
	select {
	case <-s.ready:
		f(ctx)
	case <-ctx.Done():
	}
}

// pump publishes what the proposer gives out, in order.
func (s *shard) pump(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pumpWake:
		}
		for ctx.Err() == nil {
			s.mu.Lock()
			number, payload, ok := s.proposer.Next()
			author, wait, starved := s.proposer.Author(), s.backoff, s.proposer.Starved()
			s.sending = number
			s.mu.Unlock()
			if !ok {
				s.starve(starved)
				break
			}
			if wait > 0 && s.j.clock.Sleep(ctx, wait) != nil {
				return
			}
			s.stream.Publish(author.MessageID(number), payload, func(sequence uint64, err error) { s.published(number, sequence, err) })
			s.mu.Lock()
			s.sending = 0
			s.mu.Unlock()
		}
	}
}

// starve has the pump woken when there is room for so many bytes; 0: it needn't be.
func (s *shard) starve(bytes int) {
	s.starved.Store(bytes > 0)
	if bytes > 0 && s.j.window.Room(bytes) { // it came before anybody could know
		s.pumpNow()
	}
}

// fed wakes the pumps that wait for room: some of this shard's may be free.
func (s *shard) fed() {
	s.pumpNow()
	for _, other := range s.j.shards {
		if other.starved.Load() {
			other.pumpNow()
		}
	}
}

// published takes the stream's answer to a message.
func (s *shard) published(number, sequence uint64, err error) {
	s.mu.Lock()
	var unknown []journal.Ticket
	if err == nil {
		unknown, s.backoff = s.proposer.Acked(number, sequence), 0
	} else {
		s.proposer.Lost(number)
		s.backoff = min(max(2*s.backoff, s.j.opts.LostBackoff), s.j.opts.LostBackoffMax)
	}
	closed := s.closed
	s.failLocked(unknown, errUnknownOutcome)
	s.mu.Unlock()
	if err != nil && !closed {
		s.log.Warn("journal message is sent again", zap.Uint64("number", number), zap.Error(err))
	}
	s.fed()
}

// cutOff fails everything that waits: the shard's order doesn't reach this node.
func (s *shard) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failAllLocked(fmt.Errorf("journal shard %d doesn't reach this node: %w: %w", s.id, messages.ErrNotLeader, errUnknownOutcome))
}

// failAllLocked fails everything that waits. What was sent may still land; of what
// wasn't, nothing is read any more.
func (s *shard) failAllLocked(err error) {
	for t, p := range s.waiting {
		delete(s.waiting, t)
		s.proposer.Abandon(t)
		p.settle(verdict{err: err})
	}
}

func (s *shard) failLocked(tickets []journal.Ticket, err error) {
	for _, t := range tickets {
		if p := s.waiting[t]; p != nil {
			delete(s.waiting, t)
			p.settle(verdict{err: err})
		}
	}
}

// follow applies the stream until ctx ends. It begins with the message that the
// record names: a stream that has another one there isn't the one that this node
// followed.
func (s *shard) follow(ctx context.Context) {
	if s.covered.Load() == math.MaxInt64 {
		s.j.cover(ctx, s)
	}
	for ctx.Err() == nil {
		s.dirtyMu.Lock()
		last := s.last
		s.dirtyMu.Unlock()
		known := last.Print != 0
		err := s.stream.Follow(ctx, last.Needs(), func(sequence uint64, payload []byte) error {
			if known && sequence == last.Sequence {
				if last.Compare(sequence, sequence, payload) == journal.StartRewound {
					return fmt.Errorf("%w: another message is at %d", ErrJournalWentBack, sequence)
				}
				return nil
			}
			return s.apply(ctx, sequence, payload)
		})
		if ctx.Err() != nil {
			return
		}
		if hole := (*HoleError)(nil); errors.As(err, &hole) {
			s.log.Warn("journal messages are gone: replicas are copied", zap.Uint64("next", hole.Next), zap.Uint64("first", hole.First))
			if err = s.skip(ctx, hole.First-1); err == nil {
				continue
			}
		}
		if errors.Is(err, ErrJournalWentBack) {
			s.log.Error("journal shard isn't the one that this node followed: it leads nothing there. Put the newer journal folder back, or empty this node's data folder to copy from the others", zap.Error(err))
		} else {
			s.log.Error("follow journal shard, tried again", zap.Error(err))
		}
		_ = s.j.clock.Sleep(ctx, s.j.opts.FollowRetry)
	}
}

// apply carries out one message.
func (s *shard) apply(ctx context.Context, sequence uint64, payload []byte) error {
	m, err := journal.Parse(payload)
	if err != nil {
		return fmt.Errorf("journal message %d: %w", sequence, err)
	}
	now := s.j.clock.Now().UnixNano()
	s.mu.Lock()
	s.heard[m.Author.Node], s.moves = now, true
	s.mu.Unlock()
	var own []*proposal
	if mark, ok := journal.MarkOf(m); ok {
		s.marked(mark)
		m.Entries = nil
	} else if m.Author == s.j.author {
		if len(m.Entries) == 0 {
			s.beatBack(m.Number)
		}
		own = s.returned(m)
	}
	for i, e := range m.Entries {
		r, err := s.find(ctx, e.Key)
		if err != nil {
			return err // not applied, so not passed either
		}
		var done Applied
		if r != nil {
			if done, err = r.order.(*streamed).apply(journal.At(sequence, i), e.Op, own != nil && own[i] != nil); errors.Is(err, errPassed) {
				err = errUnknownOutcome // a copy had it already
			}
		} else {
			err = fmt.Errorf("%s is not on this node: %w", e.Key, messages.ErrNotLeader)
		}
		if own != nil && own[i] != nil {
			own[i].settle(verdict{applied: done, err: err})
		}
	}
	s.advance(journal.ShardRecord{Sequence: sequence, Print: journal.Fingerprint(payload)})
	if own != nil {
		s.fed()
	}
	return nil
}

// returned matches a message of ours with its proposals; nil if it isn't awaited.
func (s *shard) returned(m journal.Message) []*proposal {
	s.mu.Lock()
	defer s.mu.Unlock()
	tickets, ok := s.proposer.Applied(m)
	if !ok {
		return nil
	}
	own := make([]*proposal, len(tickets))
	for i, t := range tickets {
		own[i] = s.waiting[t]
		delete(s.waiting, t)
	}
	return own
}

// advance says that everything up to the record's message is applied.
func (s *shard) advance(at journal.ShardRecord) {
	s.dirtyMu.Lock()
	s.last = at
	s.dirtyMu.Unlock()
	s.applied.Store(at.Sequence)
	if ch := s.moved.Swap(nil); ch != nil {
		close(*ch)
	}
}

// waitApplied waits until everything up to sequence is applied here.
func (s *shard) waitApplied(ctx context.Context, sequence uint64) error {
	for s.applied.Load() < sequence {
		ch := s.moved.Load()
		if ch == nil {
			fresh := make(chan struct{})
			if !s.moved.CompareAndSwap(nil, &fresh) {
				continue
			}
			ch = &fresh
		}
		if s.applied.Load() >= sequence {
			return nil
		}
		select {
		case <-*ch:
		case <-ctx.Done():
			return fmt.Errorf("wait for journal shard %d at %d: %w", s.id, sequence, context.Cause(ctx))
		}
	}
	return nil
}

// skip goes on behind sequence: what was in between is gone, and every replica of
// the shard on this node has to copy. That is durable before anything goes on.
func (s *shard) skip(ctx context.Context, sequence uint64) error {
	s.holes.Add(1)
	s.dirtyMu.Lock()
	s.hole = sequence
	s.covered.Store(math.MaxInt64)
	s.dirtyMu.Unlock()
	var cps []Checkpoint
	var behind []*streamed
	s.j.replicas(s.id, func(r *Replica) {
		o := r.order.(*streamed)
		cps = append(cps, o.missed(journal.At(sequence+1, 0)-1))
		behind = append(behind, o)
	})
	if err := s.j.passOwed(s, s.owing()...); err != nil {
		return err
	}
	record := journal.AfterHole(sequence)
	if err := s.j.checkpoints.Put(true, cps...); err != nil { // before the record, not with it: see Checkpoint
		return err
	}
	if err := s.j.checkpoints.Put(true, shardCheckpoint(s.id, record)); err != nil {
		return err
	}
	s.mu.Lock()
	s.proposer.Passed(sequence)
	// Of what hasn't come back nobody knows whether it was in the hole: a second
	// landing would be told the verdict of the second.
	s.failAllLocked(errUnknownOutcome)
	s.mu.Unlock()
	s.dirtyMu.Lock()
	s.stable = record
	s.dirtyMu.Unlock()
	s.advance(record)
	for _, o := range behind {
		s.fellBehind(o)
	}
	s.j.cover(ctx, s)
	return nil
}

// changed notes that a replica has something to checkpoint.
func (s *shard) changed(o *streamed) {
	s.dirtyMu.Lock()
	s.dirty[o] = struct{}{}
	s.dirtyMu.Unlock()
}

func (s *shard) fellBehind(o *streamed) { s.j.repair(o) }
