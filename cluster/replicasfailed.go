package cluster

import (
	"context"
	"maps"
	"time"

	"kagami/messages"
)

// openRetry is the first wait before partitions that couldn't be opened are tried again,
// doubled up to the interval of retention.
const openRetry = 5 * time.Second

// reopen has partitions that couldn't be opened, and files that take no writes, tried
// again and again.
func (rs *Replicas) reopen(ctx context.Context) {
	for wait := openRetry; rs.opts.Clock.Sleep(ctx, wait) == nil; {
		rs.renew(ctx)
		if rs.retry() {
			wait = min(2*wait, max(rs.opts.RetentionInterval, openRetry))
		} else {
			wait = openRetry
		}
	}
}

// retry has partitions that couldn't be opened tried once more, if there are any.
func (rs *Replicas) retry() bool {
	again := make(map[string]struct{})
	for _, t := range rs.all() {
		if t.failed != nil {
			again[t.topic.Name] = struct{}{}
		}
	}
	if len(again) == 0 {
		return false
	}
	rs.work.Lock()
	defer rs.work.Unlock()
	if rs.closed {
		return false
	}
	maps.Copy(rs.todo, again)
	rs.target = rs.newest
	rs.pokeLocked()
	return true
}

// unopened are the replicas of this node that couldn't be opened.
func (rs *Replicas) unopened() map[messages.PartitionKey]struct{} {
	out := make(map[messages.PartitionKey]struct{})
	for _, t := range rs.all() {
		for p, err := range t.failed {
			if err != nil {
				out[t.topic.Key(int32(p))] = struct{}{}
			}
		}
	}
	return out
}
