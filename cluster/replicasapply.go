package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// run opens and closes what images want, one round after the other. It never
// waits for the journal: what applies the journal waits for it.
func (rs *Replicas) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-rs.wake:
		}
		rs.work.Lock()
		img, topics, broker := rs.target, rs.todo, rs.broker
		rs.target, rs.todo, rs.broker = nil, make(map[string]struct{}), false
		rs.work.Unlock()
		if img != nil {
			rs.round(ctx, img, topics, broker)
			if ctx.Err() != nil {
				return
			}
			rs.before = img
		}
		rs.handOver(img, topics)
		if j := rs.opts.Journal; j != nil && img != nil && !rs.follows {
			rs.follows = true
			j.startData(ctx, rs)
		}
	}
}

// task is one partition of a round.
type task struct {
	topic    *metadata.Topic
	next     *topicReplicas
	settings topicSettings
	p        int32
	fresh    bool // opened in this round
}

func (rs *Replicas) round(ctx context.Context, img *metadata.Image, topics map[string]struct{}, broker bool) {
	began := rs.opts.Clock.Now()
	rs.findStrays(ctx, img)
	rs.remove(ctx, img, topics)
	if broker {
		for _, t := range rs.all() {
			topics[t.topic.Name] = struct{}{}
		}
	}
	node := rs.nodeConfig(img)
	left := make(map[messages.TopicID]*metadata.Topic, len(topics))
	order := make([]*metadata.Topic, 0, len(topics))
	for name := range topics {
		if t := img.Topic(name); t != nil {
			left[t.ID] = t
			order = append(order, t)
		}
	}
	// All nodes in one order: what the first of them claims the others are about to open.
	slices.SortFunc(order, func(a, b *metadata.Topic) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	partitions := 0
	for len(left) > 0 {
		var now []*metadata.Topic
		now, order = rs.nextTopics(left, order)
		partitions += rs.part(ctx, now, node)
	}
	if partitions > 1000 {
		rs.log.Info("replicas follow the image", zap.Int("partitions", partitions),
			zap.Int64(messages.FieldOffset, img.Offset()), zap.Duration("took", rs.opts.Clock.Now().Sub(began)))
	}
}

// partPartitions is about how many partitions are opened before they can be found: an
// operation that comes for one of them holds up its shard until then.
const partPartitions = 256

// nextTopics takes topics of about partPartitions partitions out of left, those first
// that the journal waits for, then by order, of which it returns what is left.
func (rs *Replicas) nextTopics(left map[messages.TopicID]*metadata.Topic, order []*metadata.Topic) (out, rest []*metadata.Topic) {
	partitions := 0
	take := func(t *metadata.Topic) {
		out, partitions = append(out, t), partitions+len(t.Partitions)
		delete(left, t.ID)
	}
	rs.work.Lock()
	for id := range rs.wanted {
		if t := left[id]; t != nil {
			take(t)
		}
	}
	clear(rs.wanted)
	rs.work.Unlock()
	for len(order) > 0 && partitions < partPartitions {
		if t := order[0]; left[t.ID] == t {
			take(t)
		}
		order = order[1:]
	}
	return out, order
}

// part brings a part of a round's topics up to date and makes them visible.
func (rs *Replicas) part(ctx context.Context, topics []*metadata.Topic, node map[string]string) (partitions int) {
	var tasks []*task
	next := make(map[string]*topicReplicas, len(topics))
	for _, t := range topics {
		n := rs.nextReplicas(t, rs.settings(t, node))
		next[t.Name] = n
		for p := range t.Partitions {
			tasks = append(tasks, &task{topic: t, next: n, settings: n.settings, p: int32(p)})
		}
	}
	rs.parallel(len(tasks), func(i int) {
		if ctx.Err() == nil {
			rs.reconcile(ctx, tasks[i])
		}
	})
	rs.remember(tasks)
	rs.publish(next, tasks)
	rs.watch(tasks)
	rs.work.Lock()
	if !rs.closed {
		rs.movedLocked()
	}
	rs.work.Unlock()
	return len(tasks)
}

// nextReplicas starts from the replicas that are there.
func (rs *Replicas) nextReplicas(t *metadata.Topic, s topicSettings) *topicReplicas {
	n := &topicReplicas{topic: t, settings: s, replicas: make([]*Replica, len(t.Partitions))}
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	if have := rs.byName[t.Name]; have != nil {
		copy(n.replicas, have.replicas)
	}
	n.failed = make([]error, len(t.Partitions))
	return n
}

// publish makes the round's topics visible. Gates of fresh replicas are set
// under the lock by the newest image, which Apply may have seen since.
func (rs *Replicas) publish(next map[string]*topicReplicas, tasks []*task) {
	for _, n := range next {
		failed := false
		for _, err := range n.failed {
			failed = failed || err != nil
		}
		if !failed {
			n.failed = nil
		}
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, k := range tasks {
		if r := k.next.replicas[k.p]; k.fresh && r != nil {
			g := gateFor(r, rs.latest.Topic(k.topic.Name))
			r.force(g.close) // nobody watches it yet
			if g.admit {
				r.SetAdmit(true)
			}
		}
	}
	for name, n := range next {
		rs.byName[name] = n
		rs.byID[n.topic.ID] = n
	}
}

// remember has the journal remember newborn replicas before anything is applied to them.
// Those that it can't remember aren't there: after a crash nobody would know that they
// ever had anything.
func (rs *Replicas) remember(tasks []*task) {
	if rs.opts.Journal == nil {
		return
	}
	err := rs.opts.Journal.remember(freshReplicas(tasks))
	if err == nil {
		return
	}
	rs.log.Error("remember new replicas, tried again later", zap.Error(err))
	for _, k := range tasks {
		if r := k.next.replicas[k.p]; k.fresh && r.order.(*streamed).newborn {
			k.next.replicas[k.p], k.next.failed[k.p], k.fresh = nil, errors.Join(err, r.Close()), false
		}
	}
}

// watch has the journal repair fresh replicas that may have missed something.
func (rs *Replicas) watch(tasks []*task) {
	if rs.opts.Journal == nil {
		return
	}
	for _, r := range freshReplicas(tasks) {
		rs.opts.Journal.watched(r)
	}
}

func freshReplicas(tasks []*task) (out []*Replica) {
	for _, k := range tasks {
		if k.fresh {
			out = append(out, k.next.replicas[k.p])
		}
	}
	return out
}

// reconcile makes one replica what the image wants it to be.
func (rs *Replicas) reconcile(ctx context.Context, k *task) {
	want := k.topic.Partitions[k.p]
	r := k.next.replicas[k.p]
	if r == nil {
		if !slices.Contains(want.Replicas, rs.opts.Node) && want.Leader != rs.opts.Node {
			rs.release(ctx, k, false)
			return
		}
		var err error
		if r, err = rs.open(ctx, k); err != nil {
			k.next.failed[k.p] = err
			rs.release(ctx, k, true)
			rs.log.Error("open replica", zap.String(messages.FieldTopic, k.topic.Name), zap.Int32(messages.FieldPartition, k.p), zap.Error(err))
			return
		}
		k.next.replicas[k.p], k.fresh = r, true
	} else {
		rs.reconfigure(r, k)
	}
	if want.Leader != rs.opts.Node && r.Leads() {
		r.resign()
	}
}

// release has the journal ask whether it must go on keeping what comes for a replica
// that isn't open.
func (rs *Replicas) release(ctx context.Context, k *task, ours bool) {
	if rs.opts.Journal != nil && rs.follows {
		rs.opts.Journal.release(ctx, k.topic.Key(k.p), ours)
	}
}

// reconfigure sets the log's config if it changed.
func (rs *Replicas) reconfigure(r *Replica, k *task) {
	rs.mu.RLock()
	have := rs.byName[k.topic.Name]
	rs.mu.RUnlock()
	if have == nil || have.settings.log != k.settings.log {
		r.SetConfig(k.settings.log)
	}
}

// open opens or creates the log of a partition. A log of an earlier life (same
// name, other id or creation) is what a crash kept from being deleted.
func (rs *Replicas) open(ctx context.Context, k *task) (*Replica, error) {
	info := persistence.Info{TopicPartition: messages.TopicPartition{Topic: k.topic.Name, Partition: k.p}, Key: k.topic.Key(k.p)}
	if err := rs.settleDisk(ctx, info); err != nil {
		return nil, err
	}
	reachedReplica(info.TopicPartition, "open", "before")
	log, err := openOrCreate(ctx, rs.opts.Logs, info, k.settings.log)
	if err != nil {
		return nil, err
	}
	reachedReplica(info.TopicPartition, "open", "after")
	r, err := OpenReplica(ReplicaOptions{
		Key: info.Key, Partition: info.TopicPartition, Node: rs.opts.Node,
		Log: log, Checkpoints: rs.opts.Checkpoints, Admit: k.topic.Desired == messages.DesiredNone, Logger: rs.log,
		shard: rs.shardOf(info.Key), newborn: rs.newborn(k), late: rs.follows,
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return r, nil
}

func (rs *Replicas) shardOf(key messages.PartitionKey) *shard {
	if rs.opts.Journal == nil {
		return nil
	}
	return rs.opts.Journal.shardOf(key)
}

// newborn: the partition came with this round's image, so no operation of it has
// been passed by yet.
func (rs *Replicas) newborn(k *task) bool {
	if rs.opts.Journal == nil || rs.before == nil {
		return false
	}
	t := rs.before.Topic(k.topic.Name)
	if t != nil && t.ID == k.topic.ID && t.CreatedAt == k.topic.CreatedAt && int(k.p) < len(t.Partitions) {
		return false
	}
	return rs.opts.Journal.newborn(k.topic.Key(k.p))
}

// settleDisk deletes what the start found under the partition's name if it is
// another life of it.
func (rs *Replicas) settleDisk(ctx context.Context, want persistence.Info) error {
	tp := want.TopicPartition
	rs.diskMu.Lock()
	have, ok := rs.disk[tp]
	rs.diskMu.Unlock()
	if !ok {
		return nil
	}
	if rs.otherLife(have.Key, want.Key) {
		rs.log.Warn("delete a log of another life of its topic", zap.Stringer("log", tp), zap.Stringer("old", have.Key), zap.Stringer("new", want.Key))
		if err := rs.opts.Logs.Delete(ctx, tp); err != nil {
			return fmt.Errorf("delete log of another life: %w", err)
		}
	}
	rs.offDisk(tp)
	return nil
}

func (rs *Replicas) offDisk(tp messages.TopicPartition) {
	rs.diskMu.Lock()
	defer rs.diskMu.Unlock()
	delete(rs.disk, tp)
}

func openOrCreate(ctx context.Context, logs LogStore, info persistence.Info, cfg persistence.Config) (persistence.Log, error) {
	log, err := logs.Open(ctx, info.TopicPartition, cfg)
	if errors.Is(err, persistence.ErrNotFound) {
		return logs.Create(ctx, info, cfg)
	}
	return log, err
}

// otherLife reports whether a folder is another life of the partition. One that
// doesn't know its topic (its creation never became durable) is this life if
// the checkpoint file has it, for a claim is durable before any append. With a
// journal that goes for one that doesn't know its creation too: a topic comes again
// with the same id, and a log without a checkpoint is copied anyway.
func (rs *Replicas) otherLife(have, want messages.PartitionKey) bool {
	if have.TopicID.IsZero() || have.TopicID == want.TopicID && have.CreatedAt == 0 && rs.opts.Journal != nil {
		return !rs.opts.Checkpoints.Known(want)
	}
	return have.TopicID != want.TopicID || have.CreatedAt > 0 && have.CreatedAt != want.CreatedAt
}

// remove closes and deletes the replicas of topics that are gone, or came again.
func (rs *Replicas) remove(ctx context.Context, img *metadata.Image, topics map[string]struct{}) {
	var gone []goneReplica
	rs.mu.Lock()
	for name := range topics {
		have, now := rs.byName[name], img.Topic(name)
		if have == nil || now != nil && now.ID == have.topic.ID && now.CreatedAt == have.topic.CreatedAt {
			continue
		}
		delete(rs.byName, name)
		if rs.byID[have.topic.ID] == have {
			delete(rs.byID, have.topic.ID)
		}
		for p, r := range have.replicas {
			if r != nil || have.failed != nil && have.failed[p] != nil {
				tp := messages.TopicPartition{Topic: name, Partition: int32(p)}
				gone = append(gone, goneReplica{r: r, tp: tp, key: have.topic.Key(int32(p))})
			}
		}
	}
	rs.mu.Unlock()
	rs.parallel(len(gone), func(i int) {
		g := gone[i]
		if g.r != nil {
			g.r.retire()
		}
		reachedReplica(g.tp, "delete", "before")
		err := rs.opts.Logs.Delete(ctx, g.tp)
		reachedReplica(g.tp, "delete", "deleted")
		if errors.Is(err, persistence.ErrNotFound) {
			err = nil
		}
		rs.offDisk(g.tp)
		if rs.opts.Journal != nil {
			rs.opts.Journal.shardOf(g.key).settled(g.key)
		}
		if err = errors.Join(err, rs.opts.Checkpoints.Delete(g.key)); err != nil {
			rs.log.Error("delete replica", zap.Stringer("replica", g.tp), zap.Error(err))
		}
		reachedReplica(g.tp, "delete", "after")
	})
}

// goneReplica is one to delete; r is nil if it could never be opened.
type goneReplica struct {
	r   *Replica
	tp  messages.TopicPartition
	key messages.PartitionKey
}

// findStrays looks once, at the first image, at what is on disk, and deletes
// logs whose topic was deleted while this node was down. A topic created above
// the image's offset is kept: then it is the metadata that is missing.
func (rs *Replicas) findStrays(ctx context.Context, img *metadata.Image) {
	if rs.strays || img.ClusterID() == "" {
		return
	}
	rs.strays = true
	disk := make(map[messages.TopicPartition]persistence.Info)
	for _, info := range rs.opts.Logs.Infos() {
		tp := info.TopicPartition
		if tp.Topic == messages.ClusterMetadataTopic {
			continue
		}
		disk[tp] = info
		if t := img.Topic(tp.Topic); t != nil && int(tp.Partition) < len(t.Partitions) {
			continue
		}
		if info.Key.CreatedAt > img.Offset() {
			rs.log.Error("log of a topic that the metadata doesn't know yet: kept", zap.Stringer("log", tp), zap.Stringer("key", info.Key))
			continue
		}
		rs.log.Info("delete log of a topic that is gone", zap.Stringer("log", tp), zap.Stringer("key", info.Key))
		if err := rs.opts.Logs.Delete(ctx, tp); err != nil {
			rs.log.Error("delete log", zap.Stringer("log", tp), zap.Error(err))
			continue
		}
		delete(disk, tp)
	}
	rs.diskMu.Lock()
	rs.disk = disk
	rs.diskMu.Unlock()
	err := rs.opts.Checkpoints.Forget(func(key messages.PartitionKey) bool {
		t := img.TopicByID(key.TopicID)
		return key.TopicID == MetadataTopicID || key.CreatedAt > img.Offset() || t != nil && t.CreatedAt == key.CreatedAt
	})
	if err != nil {
		rs.log.Error("forget checkpoints of topics that are gone", zap.Error(err))
	}
}
