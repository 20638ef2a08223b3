package cluster

import (
	"context"
	"errors"
	"maps"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// claimWork is what the opening goroutine hands to the claiming one. The lock of
// Replicas guards it.
type claimWork struct {
	img    *metadata.Image
	last   *metadata.Image // the newest that was handed over
	topics map[string]struct{}
	retry  map[string]struct{} // topics with claims that came to nothing
	timed  bool                // a timer will have them tried again
	greet  bool                // a subscriber came
	wake   chan struct{}       // capacity 1
}

func (w *claimWork) pokeLocked() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// handOver tells the claiming goroutine that the replicas of img (nil: none new)
// are open.
func (rs *Replicas) handOver(img *metadata.Image, topics map[string]struct{}) {
	rs.work.Lock()
	defer rs.work.Unlock()
	w := &rs.claims
	if img != nil {
		w.img, w.last = img, img
		maps.Copy(w.topics, topics)
		if !rs.closed {
			rs.opened = img.Offset()
			rs.movedLocked()
		}
	}
	w.greet = true
	w.pokeLocked()
}

func (rs *Replicas) movedLocked() {
	close(rs.moved)
	rs.moved = make(chan struct{})
}

// claim claims what images say that this node leads, then tells subscribers.
func (rs *Replicas) claim(ctx context.Context) {
	var applied *metadata.Image
	for {
		select {
		case <-ctx.Done():
			return
		case <-rs.claims.wake:
		}
		rs.work.Lock()
		w := &rs.claims
		img, topics, greet := w.img, w.topics, w.greet
		w.img, w.topics, w.greet = nil, make(map[string]struct{}), false
		rs.work.Unlock()
		if img != nil {
			rs.claimTopics(ctx, img, topics)
			if ctx.Err() != nil {
				return
			}
			applied = img
		}
		if greet {
			rs.tell(applied, topics, img != nil)
		}
	}
}

// claimsMax is how many claims wait for the journal at a time, which gathers them.
const claimsMax = 1024

// claimTopics claims the partitions of topics that img says are led here.
func (rs *Replicas) claimTopics(ctx context.Context, img *metadata.Image, topics map[string]struct{}) {
	type claim struct {
		r    *Replica
		want metadata.Partition
		none bool // its topic is in no mirror
	}
	var todo []claim
	for name := range topics {
		t := img.Topic(name)
		if t == nil {
			continue
		}
		for p, want := range t.Partitions {
			if want.Leader != rs.opts.Node {
				continue
			}
			r, err := rs.Get(messages.TopicPartition{Topic: name, Partition: int32(p)})
			if err == nil && r.key == t.Key(int32(p)) {
				todo = append(todo, claim{r: r, want: want, none: t.Desired == messages.DesiredNone})
			}
		}
	}
	again, unready := make([]bool, len(todo)), make([]bool, len(todo))
	at := rs.opts.Parallel
	if rs.opts.Journal != nil {
		at = max(at, claimsMax)
	}
	inParallel(at, len(todo), func(i int) {
		c := todo[i]
		if ctx.Err() == nil {
			unready[i] = !c.r.order.inOrder()
			again[i] = !rs.lead(ctx, c.r, c.want, c.none)
		}
	})
	retry := make(map[string]struct{})
	for i, c := range todo {
		if again[i] {
			retry[c.r.tp.Topic] = struct{}{}
		}
	}
	if len(retry) == 0 || ctx.Err() != nil {
		return
	}
	rs.claimLater(retry)
	for i, c := range todo { // what it waited for may have come before it was in the list
		if again[i] && unready[i] && c.r.order.inOrder() {
			rs.claimNow(c.r.key.TopicID)
		}
	}
}

// claimLater has the claims of some topics tried again, after ClaimRetry or when a
// shard of the journal reaches this node again, or a replica isn't behind any more.
func (rs *Replicas) claimLater(topics map[string]struct{}) {
	rs.work.Lock()
	defer rs.work.Unlock()
	w := &rs.claims
	maps.Copy(w.retry, topics)
	if w.timed {
		return
	}
	w.timed = true
	rs.opts.Clock.AfterFunc(rs.opts.ClaimRetry, func() {
		rs.work.Lock()
		defer rs.work.Unlock()
		w.timed = false
		rs.claimNowLocked(w.retry)
	})
}

// claimAllNow tries claims again that came to nothing. It doesn't block.
func (rs *Replicas) claimAllNow() {
	rs.work.Lock()
	defer rs.work.Unlock()
	rs.claimNowLocked(rs.claims.retry)
}

// claimNow is claimAllNow of one topic.
func (rs *Replicas) claimNow(id messages.TopicID) {
	rs.work.Lock()
	defer rs.work.Unlock()
	w := &rs.claims
	if w.last == nil {
		return
	}
	t := w.last.TopicByID(id)
	if t == nil {
		return
	}
	if _, ok := w.retry[t.Name]; ok {
		rs.claimNowLocked(map[string]struct{}{t.Name: {}})
	}
}

func (rs *Replicas) claimNowLocked(topics map[string]struct{}) {
	w := &rs.claims
	if rs.closed || w.last == nil || len(topics) == 0 {
		return
	}
	if w.img == nil {
		w.img = w.last
	}
	maps.Copy(w.topics, topics)
	maps.DeleteFunc(w.retry, func(topic string, _ struct{}) bool { _, ok := topics[topic]; return ok })
	w.pokeLocked()
}

// lead claims a partition under the image's epoch. It reports false if that has
// to be tried again. A topic that is in no mirror has no actor that would open
// it: a crash between STOPPED and the end of its mirror may have left it sealed.
func (rs *Replicas) lead(ctx context.Context, r *Replica, want metadata.Partition, open bool) bool {
	if !r.order.reaches() {
		return false // the shard has said so, once for all its partitions
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rs.opts.ClaimTimeout, messages.ErrTimedOut)
	defer cancel()
	fields := func(err error) []zap.Field {
		return []zap.Field{
			zap.String(messages.FieldTopic, r.tp.Topic), zap.Int32(messages.FieldPartition, r.tp.Partition),
			zap.Int32(messages.FieldEpoch, want.LeaderEpoch), zap.Error(err),
		}
	}
	if !r.Leads() || r.State().LeaderEpoch != want.LeaderEpoch {
		err := r.Claim(ctx, want.LeaderEpoch)
		switch {
		case err == nil:
		case errors.Is(err, messages.ErrFencedLeaderEpoch), r.closed.Load():
			return true // a newer image will tell
		case errors.Is(err, messages.ErrNotLeader): // the shard has said why, once for all its partitions
			rs.log.Debug("claim partition, tried again", fields(err)...)
			return false
		default:
			rs.log.Error("claim partition", fields(err)...)
			return false
		}
	}
	if open && r.State().Mode != messages.ModeWritable {
		if _, err := r.SetMode(ctx, messages.ModeWritable); err != nil {
			rs.log.Warn("open a topic that left its mirror", fields(err)...)
			return false
		}
	}
	return true
}

// tell announces an applied image to waiters and subscribers.
func (rs *Replicas) tell(img *metadata.Image, topics map[string]struct{}, isNew bool) {
	if img == nil {
		return
	}
	rs.work.Lock()
	subs := append([]*replicaSub(nil), rs.subs...)
	rs.work.Unlock()
	for _, s := range subs {
		switch {
		case !s.greeted:
			s.greeted = true
			s.f(AppliedImage{Image: img})
		case isNew:
			s.f(AppliedImage{Image: img, Topics: topics})
		}
	}
	rs.work.Lock()
	defer rs.work.Unlock()
	if isNew && !rs.closed {
		rs.done = img.Offset()
		rs.movedLocked()
	}
}
