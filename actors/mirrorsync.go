package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// SyncTask is one of the things that a mirror's coordinator copies in each cycle
// beside the data (spec: metadata-sync.md, Cycle).
type SyncTask int8

// The tasks, in the order of a cycle.
const (
	SyncTopicConfigs SyncTask = iota + 1
	SyncGroups
	SyncShareGroups
	SyncACLs
)

// String names the task in logs.
func (t SyncTask) String() string {
	switch t {
	case SyncTopicConfigs:
		return "topic configs"
	case SyncGroups:
		return "offsets of consumer groups"
	case SyncShareGroups:
		return "offsets of share groups"
	case SyncACLs:
		return "ACLs"
	default:
		return "unknown"
	}
}

// syncTasks says who carries the tasks out. topics are those that take part.
var syncTasks = []struct {
	task SyncTask
	run  func(s *syncer, ctx context.Context, topics []*metadata.Topic) error
}{
	{SyncTopicConfigs, (*syncer).topicConfigs},
	{SyncGroups, (*syncer).groups},
	{SyncShareGroups, (*syncer).shareGroups},
	{SyncACLs, (*syncer).acls},
}

// syncTaskTimeout bounds one task: one that hangs costs the others that long at most.
const syncTaskTimeout = 2 * time.Minute

// syncCounts are of all mirrors of a node, since its start.
type syncCounts struct {
	failed [SyncACLs + 1]atomic.Int64 // by task
	cycles atomic.Int64               // that ended
}

// SyncErrors is how often a task has failed since the start.
func (ms *Mirrors) SyncErrors(t SyncTask) int64 { return ms.syncs.failed[t].Load() }

// syncDone is sent when all tasks of a cycle have ended.
type syncDone struct{ cycle int64 }

// syncGap is between the beginnings of two syncs that follow one another because
// something has changed meanwhile: many topics that are started one by one don't keep
// the source busy.
const syncGap = time.Second

// sync begins the tasks of a cycle after a good refresh, if they are due: each
// interval, and soon when something of the mirror has changed. They run beside
// refreshes, which partitions wait for, one cycle of them at a time. Only a mirror's
// coordinator has any.
func (m *mirror) sync(c actor.Context, r refreshResult) {
	now := m.clock.Now()
	m.syncWanted = m.syncWanted || now.Sub(m.syncBegun) >= m.settings().Refresh
	if !m.syncDue() || now.Sub(m.syncBegun) < m.syncGap() {
		return // later, or by whoever coordinates
	}
	m.syncing, m.syncWanted, m.syncBegun = true, false, now
	s := &syncer{
		refresher: m.refresher("sync"), peers: m.peers, wall: m.clock, view: r.view, healthy: map[string]struct{}{}, told: m.told, count: func(t SyncTask) { m.syncs.failed[t].Add(1) },
	}
	s.source, s.authorizes = m.syncSource, m.settings().Authorizes
	for _, name := range r.healthy {
		s.healthy[name] = struct{}{}
	}
	root, self, cycle, ctx := c.ActorSystem().Root, c.Self(), m.cycle, m.linked
	m.syncCycle = cycle
	m.helpers.Go(func() {
		s.run(ctx)
		root.Send(self, syncDone{cycle: cycle})
	})
}

// synced: the tasks have ended. If they took longer than the interval, or something
// changed meanwhile, the next cycle begins.
func (m *mirror) synced(c actor.Context, done syncDone) {
	if !m.syncing || done.cycle != m.syncCycle {
		return // of an earlier life
	}
	m.syncing = false
	m.syncs.cycles.Add(1)
	if m.syncDue() {
		m.tickAfter(c, m.syncGap())
	}
}

// syncDue reports whether a sync is wanted that none is on its way for.
func (m *mirror) syncDue() bool {
	return m.syncWanted && !m.syncing && m.syncSource != nil && m.outside.Coordinates(m.name)
}

func (m *mirror) syncGap() time.Duration { return min(syncGap, m.settings().Refresh) }

// syncer carries out the tasks of one cycle. It is used by one goroutine and
// forgotten.
type syncer struct {
	refresher
	listed  []fetch.SourceGroup // groups of the source, once they are known
	peers   mirrorPeers
	wall    clock.Clock
	view    *SourceView
	healthy map[string]struct{} // topics that are the same ones on both sides
	told    *onceTold
	count   func(SyncTask)

	authorizes bool // there is an authorizer here
}

// run carries out one task after the other; one that fails stops none.
func (s *syncer) run(ctx context.Context) {
	for _, t := range syncTasks {
		topics := s.topics()
		if ctx.Err() != nil || len(topics) == 0 || !s.outside.Coordinates(s.mirror) {
			return
		}
		limited, cancel := context.WithTimeoutCause(ctx, syncTaskTimeout, fmt.Errorf("%s are copied too slowly: %w", t.task, messages.ErrTimedOut))
		err := t.run(s, limited, topics)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.count(t.task)
			s.log.Warn("metadata sync failed, the next cycle tries again", zap.Stringer("task", t.task), zap.Error(err))
		}
	}
}

// topics are the mirror's topics that take part: active ones that are the same ones on
// the source.
func (s *syncer) topics() []*metadata.Topic {
	var out []*metadata.Topic
	for _, t := range s.outside.Image().TopicsOfMirror(s.mirror) {
		if _, ok := s.healthy[t.Name]; ok && t.Desired == messages.DesiredActive {
			out = append(out, t)
		}
	}
	return out
}

// same is nil if the source still is the cluster, and topics still the ones, that the
// refresh saw: what was read of them meanwhile is of these.
func (s *syncer) same(ctx context.Context, topics []string) error {
	now, err := s.source.Topics(ctx, topics)
	if err != nil {
		return err
	}
	if now.ID != s.view.ClusterID {
		return fmt.Errorf("%w: cluster id %s after %s", errForeignSource, now.ID, s.view.ClusterID)
	}
	for _, name := range topics {
		if is, was := now.Topics[name], s.view.Topics[name]; is.Err != nil || is.ID != was.ID {
			return fmt.Errorf("topic %s of the source changed during the sync: %w", name, errors.Join(errTopicChanged, is.Err))
		}
	}
	return nil
}

var errTopicChanged = errors.New("another topic of that name, or none")

// onceTold remembers what the log has been told, of one mirror. One sync uses it at a
// time.
type onceTold struct{ keys map[string]struct{} }

// onceToldMax bounds it: beyond that things are told again.
const onceToldMax = 10_000

// first reports whether that has not been told yet.
func (o *onceTold) first(key string) bool {
	if _, ok := o.keys[key]; ok {
		return false
	}
	if o.keys == nil || len(o.keys) >= onceToldMax {
		o.keys = map[string]struct{}{}
	}
	o.keys[key] = struct{}{}
	return true
}
