package metadata

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
)

// readBytes is how much of the log one read takes.
const readBytes = 1 << 20

// load builds the first image: the newest good snapshot, then the log.
func (s *Store) load(ctx context.Context) error {
	log := s.opts.Source.Log()
	if err := s.removeParts(); err != nil {
		return err
	}
	img, err := s.loadSnapshot()
	if err != nil {
		return err
	}
	switch start, end := log.LogStart(), log.End(); {
	case img.Offset()+1 < start:
		return fmt.Errorf("%w: the metadata log starts at offset %d, the newest good snapshot ends before %d",
			persistence.ErrCorrupt, start, img.Offset()+1)
	case img.Offset()+1 > end:
		return fmt.Errorf("%w: the metadata log ends at offset %d, below the snapshot at %d: the folder was put together from different times",
			persistence.ErrCorrupt, end, img.Offset()+1)
	}
	s.snap.last = img.Offset()
	s.image.Store(img)
	s.applied = img.Offset()
	for {
		more, err := s.step(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	left, err := s.oldSecrets()
	if left {
		s.snap.forgetUpTo(s.Image().Offset() + 1)
	}
	return err
}

// run follows the log until the store is closed or the log can't be applied.
func (s *Store) run(ctx context.Context) {
	defer close(s.done)
	defer s.snap.wait()
	for {
		select {
		case <-ctx.Done():
			s.fail(context.Cause(ctx))
			return
		case <-s.wake:
		}
		s.greet()
		for {
			more, err := s.step(ctx)
			if err != nil {
				s.fail(err)
				if ctx.Err() == nil {
					s.log.Error("metadata log can't be applied", zap.Error(err))
					s.opts.Failed(err)
				}
				return
			}
			if !more {
				break
			}
		}
		s.snapshotIfDue(ctx)
	}
}

// step applies one read of the log; more is false at the high watermark.
func (s *Store) step(ctx context.Context) (more bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	upTo := s.opts.Source.State().HighWatermark
	from := s.Image().Offset() + 1
	if from >= upTo {
		return false, nil
	}
	if start := s.opts.Source.Log().LogStart(); start > from {
		return true, s.jump(ctx, start)
	}
	chunk, err := s.opts.Source.Log().Read(from, readBytes, upTo, true)
	if err != nil {
		return false, fmt.Errorf("read metadata log at offset %d: %w", from, err)
	}
	defer chunk.Release()
	b, err := chunk.ReadAll()
	if err != nil {
		return false, fmt.Errorf("read metadata log at offset %d: %w", from, err)
	}
	if len(b) == 0 {
		return false, nil
	}
	for len(b) > 0 {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return false, fmt.Errorf("read metadata log: %w", err)
		}
		if err := batch.CheckCRC(b); err != nil {
			return false, fmt.Errorf("read metadata log: %w", err)
		}
		if err := s.applyBatch(h, b[:h.Size()]); err != nil {
			return false, fmt.Errorf("apply metadata batch at offset %d: %w", h.BaseOffset, err)
		}
		b = b[h.Size():]
	}
	return true, nil
}

// jump goes on from a snapshot of another node: the log was copied, and what it had
// between the image and its start is gone. Subscribers are told all of it as one change.
func (s *Store) jump(ctx context.Context, start int64) error {
	old := s.Image()
	missed := fmt.Errorf("%w: it starts at offset %d, the image is at %d", ErrMissed, start, old.Offset())
	if s.opts.Missed == nil {
		return missed
	}
	s.log.Warn("metadata goes on from a snapshot of another node", zap.Error(missed))
	if err := s.opts.Missed(ctx); err != nil {
		return fmt.Errorf("%w: %w", missed, err)
	}
	img, err := s.loadSnapshot()
	if err != nil {
		return fmt.Errorf("%w: %w", missed, err)
	}
	if img.Offset() <= old.Offset() || img.ClusterID() != old.ClusterID() {
		return fmt.Errorf("%w: the newest snapshot ends at %d, of cluster %s", missed, img.Offset(), img.ClusterID())
	}
	s.mu.Lock()
	s.jumpedFrom, s.jumpedOver = old.Offset(), img.Offset()
	s.mu.Unlock()
	s.snap.wait()
	s.snap.last, s.snap.records, s.snap.bytes = img.Offset(), 0, 0
	s.snap.forgetUpTo(img.Offset() + 1) // the other node's snapshot may have come over a change of keys
	s.publish(wholeDelta(old, img))
	return nil
}

// unseen reports whether a change was jumped over.
func (s *Store) unseen(offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return offset > s.jumpedFrom && offset <= s.jumpedOver
}

// wholeDelta says of everything in two images that it may have changed.
func wholeDelta(old, img *Image) Delta {
	d := Delta{
		Old: old, New: img, Topics: make(map[string]struct{}), Mirrors: make(map[string]struct{}),
		Brokers: true, Groups: true, Quotas: true, ClientMetrics: true, Controller: true, Features: true, ACLs: true, Secrets: true,
	}
	for _, i := range []*Image{old, img} {
		for _, t := range i.sorted {
			d.Topics[t.Name] = struct{}{}
		}
		for _, m := range i.mirrors {
			d.Mirrors[m.Name] = struct{}{}
		}
	}
	return d
}

// applyBatch moves the image by one batch and tells the subscribers. Batches of
// an older claim, and control batches, move only the offset.
func (s *Store) applyBatch(h batch.Header, b []byte) error {
	old := s.Image()
	if h.LastOffset() <= old.Offset() {
		return nil // the snapshot ends inside the first batch that was read
	}
	if h.BaseOffset <= old.Offset() {
		return fmt.Errorf("%w: image at offset %d ends inside it", ErrBadRecord, old.Offset())
	}
	var records []Record
	if !h.IsControl() {
		raw, err := readRecords(h, b)
		if err != nil {
			return err
		}
		if records, err = decodeRecords(raw); err != nil {
			return err
		}
		if claim := claimOf(raw, records); claim < old.ControllerEpoch() {
			s.noteStale(h.LastOffset())
			s.log.Warn("metadata batch of an older claim ignored", zap.Int64(messages.FieldOffset, h.BaseOffset),
				zap.Int32("claim", claim), zap.Int32("newest", old.ControllerEpoch()))
			records = nil
		}
	}
	bld := newBuilder(old)
	for n, r := range records {
		if err := bld.apply(h.BaseOffset+int64(n), r); err != nil {
			return err
		}
	}
	s.snap.records += int64(h.Records)
	s.snap.bytes += int64(h.Size())
	s.snap.epoch = h.LeaderEpoch
	delta := bld.finish(h.LastOffset())
	if delta.Rekeyed {
		s.snap.forgetUpTo(h.LastOffset() + 1)
	}
	s.publish(delta)
	return nil
}

func decodeRecords(raw []rawRecord) ([]Record, error) {
	out := make([]Record, len(raw))
	for i, r := range raw {
		rec, err := readFrame(r.value)
		if err != nil {
			return nil, err
		}
		out[i] = rec
	}
	return out, nil
}

// claimOf is the claim a batch stands under. Batches written without one are
// never ignored: theirs is the largest number. A claim itself counts as the
// epoch below its own, so that the second of two equal claims is ignored.
func claimOf(raw []rawRecord, records []Record) int32 {
	for _, r := range records {
		if c, ok := r.(*wire.ControllerClaimRecord); ok {
			return c.Epoch - 1
		}
	}
	if len(raw) > 0 {
		for _, h := range raw[0].headers {
			if h.key != HeaderClaim {
				continue
			}
			if n, err := strconv.ParseInt(h.value, 10, 32); err == nil {
				return int32(n)
			}
		}
	}
	return math.MaxInt32
}

// publish makes the new image visible, then calls the subscribers, then wakes
// who waits: after WaitFor returns, every subscriber has seen the change.
func (s *Store) publish(d Delta) {
	s.image.Store(d.New)
	s.mu.Lock()
	subs := s.subs
	s.mu.Unlock()
	for _, sub := range subs {
		switch {
		case !sub.greeted: // it came since the last look: what it is told includes d
			sub.greet(d.New)
		case !sub.gone.Load():
			sub.f(d)
		}
	}
	s.mu.Lock()
	s.applied = d.New.Offset()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// greet calls new subscribers with everything that is there already.
func (s *Store) greet() {
	s.mu.Lock()
	subs := s.subs
	s.mu.Unlock()
	img := s.Image()
	for _, sub := range subs {
		if !sub.greeted {
			sub.greet(img)
		}
	}
}

// greet tells a new subscriber all that img has, as one delta from nothing.
func (sub *subscription) greet(img *Image) {
	sub.greeted = true
	if sub.gone.Load() {
		return
	}
	sub.f(wholeDelta(EmptyImage(), img))
}

func (s *Store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// noteStale remembers that the batch that ends at offset was ignored, for the
// Append that waits for it. Offsets nobody asks for are dropped.
func (s *Store) noteStale(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const keep = 1024
	if len(s.stale) >= keep {
		clear(s.stale)
	}
	s.stale[offset] = struct{}{}
}

func (s *Store) takeStale(offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.stale[offset]
	delete(s.stale, offset)
	return ok
}
