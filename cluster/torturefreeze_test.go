package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"kagami/internal/clock"
)

// freezer stops a process in its tracks: whatever it does with its disk, its clock or the
// streams waits there, while time goes on.
type freezer struct {
	mu    sync.Mutex
	thaw  chan struct{} // closed at the end; nil: it isn't frozen
	since time.Time     // of the nodes' clock
}

func (f *freezer) is() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw != nil
}

func (f *freezer) wait() {
	f.mu.Lock()
	thaw := f.thaw
	f.mu.Unlock()
	if thaw != nil {
		<-thaw
	}
}

// tortureIsolatedAfter is the nodes' [JournalOptions.IsolatedAfter].
const tortureIsolatedAfter = 3 * time.Second

// freeze begins or ends that. Who wakes up after longer than the others wait for it leads
// nothing: they may have gone on with another leader.
func (n *tortureNode) freeze(on bool) {
	n.frozen.mu.Lock()
	defer n.frozen.mu.Unlock()
	switch {
	case on && n.frozen.thaw == nil && n.run.Load() != nil:
		n.frozen.thaw, n.frozen.since = make(chan struct{}), n.x.clock.Now()
	case !on && n.frozen.thaw != nil:
		if run := n.run.Load(); run != nil && n.x.clock.Now().Sub(n.frozen.since) > tortureIsolatedAfter+time.Second {
			run.replicas.Range(func(r *Replica) bool {
				if r.Leads() {
					n.x.blame(r.key, r.tp.String())
					n.x.errorf("node %d was stopped since %s and leads %s", n.id, n.frozen.since.Sub(n.x.clock.began), r.tp)
				}
				return true
			})
		}
		close(n.frozen.thaw)
		n.frozen.thaw = nil
	}
}

// away: nobody hears of the node.
func (n *tortureNode) away() bool { return n.paused.Load() || n.dead.Load() || n.frozen.is() }

// clock is that of the node's process.
func (n *tortureNode) clock() clock.Clock { return frozenClock{n.x.clock, &n.frozen} }

type frozenClock struct {
	fastClock
	f *freezer
}

func (c frozenClock) AfterFunc(d time.Duration, f func()) func() bool {
	return c.fastClock.AfterFunc(d, func() { c.f.wait(); f() })
}

func (c frozenClock) Sleep(ctx context.Context, d time.Duration) error {
	err := c.fastClock.Sleep(ctx, d)
	c.f.wait()
	return err
}

// unanswered says what a node still waits for though all has been answered: a message that
// got lost and was taken for stored would be in flight for ever.
func (run *tortureRun) unanswered() string {
	for id, s := range run.journal.shards {
		s.mu.Lock()
		messages, bytes := s.proposer.InFlight()
		entries, _ := s.proposer.Len()
		s.mu.Unlock()
		if messages > 0 || bytes > 0 || entries > 0 {
			return fmt.Sprintf("shard %d has %d messages of %d bytes in flight, and %d entries to send", id, messages, bytes, entries)
		}
	}
	return ""
}
