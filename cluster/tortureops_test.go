package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"kagami/messages"
	"kagami/messages/batch"
	"kagami/messages/wire"
	"kagami/persistence"
	"kagami/persistence/metadata"
)

// change writes metadata through some running node that can; false if none could.
func (x *torture) change(build func(img *metadata.Image) []metadata.Record) bool {
	for range 3 {
		n := x.nodes[x.intn(len(x.nodes))]
		run := n.run.Load()
		if run == nil || n.frozen.is() {
			continue
		}
		ctx, cancel := x.within(x.t.Context(), 3*time.Second)
		err := run.meta.Claim(ctx, run.meta.State().LeaderEpoch+1)
		if err == nil {
			if err = run.store.WaitFor(ctx, run.meta.State().End-1); err == nil {
				if records := build(run.store.Image()); len(records) > 0 {
					_, err = run.store.Append(ctx, records, messages.Requester{Principal: "User:test"})
				}
			}
		}
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// createTopic creates a topic of two partitions.
func (x *torture) createTopic() {
	x.names++
	name := fmt.Sprint("t", x.names)
	x.change(func(img *metadata.Image) []metadata.Record {
		if img.Topic(name) != nil {
			return nil
		}
		return x.topicRecords(name)
	})
}

func (x *torture) topicRecords(name string) []metadata.Record {
	r := wire.NewPtrTopicRecord()
	r.Name = name
	copy(r.TopicID[:], name)
	out := []metadata.Record{r}
	for p := range int32(2) {
		replicas := x.someNodes()
		out = append(out, metadata.PartitionRecord(r.TopicID, p, metadata.Partition{Leader: replicas[0], Replicas: replicas, ISR: replicas}))
	}
	return out
}

func (x *torture) someNodes() []messages.NodeID {
	ids := []messages.NodeID{1, 2, 3}
	x.rndMu.Lock()
	x.rnd.Shuffle(3, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	x.rndMu.Unlock()
	return ids[:1+x.intn(3)]
}

// deleteTopic deletes one; mostly it comes again at once, with its old id.
func (x *torture) deleteTopic() {
	again := x.intn(3) > 0
	x.change(func(img *metadata.Image) []metadata.Record {
		t := x.anyTopic(img)
		if t == nil {
			return nil
		}
		r := wire.NewPtrRemoveTopicRecord()
		r.TopicID = t.ID
		out := []metadata.Record{r}
		if again {
			out = append(out, x.topicRecords(t.Name)...)
		}
		return out
	})
}

func (x *torture) anyTopic(img *metadata.Image) *metadata.Topic {
	ts := slices.Collect(func(yield func(*metadata.Topic) bool) {
		for _, t := range img.Topics() {
			if !yield(t) {
				return
			}
		}
	})
	if len(ts) == 0 {
		return nil
	}
	return ts[x.intn(len(ts))]
}

func (x *torture) moveLeader() {
	x.change(func(img *metadata.Image) []metadata.Record {
		t := x.anyTopic(img)
		if t == nil {
			return nil
		}
		i := x.intn(len(t.Partitions))
		p := t.Partitions[i]
		r := wire.NewPtrPartitionChangeRecord()
		r.TopicID, r.PartitionID, r.Leader = t.ID, int32(i), int32(p.Replicas[x.intn(len(p.Replicas))])
		return []metadata.Record{r}
	})
}

// changeReplicas adds a replica, or removes one if another one is whole.
func (x *torture) changeReplicas() {
	x.change(func(img *metadata.Image) []metadata.Record {
		t := x.anyTopic(img)
		if t == nil {
			return nil
		}
		i := x.intn(len(t.Partitions))
		p := t.Partitions[i]
		id := messages.NodeID(1 + x.intn(3))
		replicas := slices.Clone(p.Replicas)
		if !slices.Contains(replicas, id) {
			replicas = append(replicas, id)
		} else {
			replicas = slices.DeleteFunc(replicas, func(o messages.NodeID) bool { return o == id })
			if id == p.Leader || !slices.ContainsFunc(replicas, func(o messages.NodeID) bool { return x.inSync(o, t.Key(int32(i))) }) {
				return nil
			}
		}
		r := wire.NewPtrPartitionChangeRecord()
		r.TopicID, r.PartitionID = t.ID, int32(i)
		for _, o := range replicas {
			r.Replicas = append(r.Replicas, int32(o))
		}
		return []metadata.Record{r}
	})
}

// inSync: the node runs, and its replica is whole and as far as the journal is.
func (x *torture) inSync(id messages.NodeID, key messages.PartitionKey) bool {
	n := x.nodes[id-1]
	run := n.run.Load()
	if run == nil || n.away() {
		return false
	}
	r := run.journal.replica(key)
	if r == nil {
		return false
	}
	shard := x.shardOf(key)
	st := x.shared[shard]
	st.mu.Lock()
	hole := run.journal.shards[shard].applied.Load()+1 < st.first // it hasn't met it yet
	st.mu.Unlock()
	if hole {
		return false
	}
	s := r.order.State()
	return !r.order.(*streamed).isBehind() && s.Sequence == x.oracle.now(key).Sequence
}

// operation begins one operation of a partition, mostly on its leader.
func (x *torture) operation() {
	n := x.nodes[x.intn(len(x.nodes))]
	run := n.run.Load()
	if run == nil {
		return
	}
	t := x.anyTopic(run.store.Image())
	if t == nil {
		return
	}
	p := x.intn(len(t.Partitions))
	if leader := t.Partitions[p].Leader; x.intn(10) > 0 && leader > 0 {
		if run = x.nodes[leader-1].run.Load(); run == nil {
			return
		}
	}
	r, err := run.replicas.ByID(t.ID, int32(p))
	if err != nil {
		return
	}
	kind := x.intn(100)
	wait := time.Duration(1+x.intn(4000)) * time.Millisecond
	x.ops.Go(func() {
		ctx, cancel := x.within(x.t.Context(), wait)
		defer cancel()
		x.operate(ctx, r, kind)
	})
}

func (x *torture) operate(ctx context.Context, r *Replica, kind int) {
	s := r.State()
	switch {
	case kind < 70:
		x.append(ctx, r, s)
	case kind < 82:
		_, _ = r.SetMode(ctx, messages.Mode(1+x.intn(3)))
	case kind < 90:
		_, _ = r.Truncate(ctx, max(0, s.End-int64(x.intn(12))), "torture")
	case kind < 93:
		_, _, _ = r.RestartAt(ctx, max(0, s.End+int64(x.intn(20))-5), "torture")
	case kind < 98:
		_ = r.RaiseLogStart(ctx, s.LogStart+int64(x.intn(8)))
	default:
		_ = r.Claim(ctx, s.LeaderEpoch)
	}
}

// append appends by the class that the mode takes, sometimes another one. The bytes
// are overwritten when they come back to us.
func (x *torture) append(ctx context.Context, r *Replica, s persistence.ReplicaState) {
	rs := make([]batch.Record, 1+x.intn(4))
	for i := range rs {
		rs[i].Value = fmt.Appendf(nil, "%d %0*d", x.intn(1<<30), x.intn(200), i)
	}
	b := batch.Append(nil, batch.Plain(), rs...)
	var err error
	class := x.intn(20)
	switch {
	case s.Mode == messages.ModeMirroring && class > 0:
		base := s.End + int64(x.intn(2)*x.intn(3))
		batch.SetOffsetAndEpoch(b, base, max(0, min(s.LeaderEpoch, int32(x.intn(4)))))
		if r.Log().LatestEpoch() > 0 {
			batch.SetOffsetAndEpoch(b, base, s.LeaderEpoch)
		}
		_, err = r.AppendMirrorAt(ctx, s.Generation, s.End, b)
	case class < 6:
		_, err = r.AppendInternal(ctx, b)
	default:
		_, err = r.AppendClient(ctx, b, anyEpoch)
	}
	if err == nil {
		x.acknowledged(r.key, b)
	}
	for i := range b {
		b[i] = 0xee
	}
}

// cutAndCrash cuts logs of a node while its checkpoint rounds go on, and has it crash
// soon after: of a cut and a round that began before it the cut must win.
func (x *torture) cutAndCrash(n *tortureNode) {
	run := n.run.Load()
	if run == nil || n.away() {
		return
	}
	var cut []*Replica
	run.replicas.Range(func(r *Replica) bool {
		if r.Leads() {
			cut = append(cut, r)
		}
		return true
	})
	n.cutting.Store(true)
	for _, r := range cut {
		x.ops.Go(func() {
			ctx, cancel := x.within(x.t.Context(), 4*time.Second)
			defer cancel()
			for ctx.Err() == nil && n.cutting.Load() {
				x.operate(ctx, r, 0)
				_, _ = r.SetMode(ctx, messages.ModeSealed)
				_, _ = r.Truncate(ctx, max(0, r.State().End-int64(1+x.intn(8))), "torture")
				_, _ = r.SetMode(ctx, messages.ModeWritable)
			}
		})
	}
	x.sleep(time.Duration(500+x.intn(1500)) * time.Millisecond)
	n.crash()
	n.cutting.Store(false)
}
