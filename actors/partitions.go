package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/fsm"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// replicaRetryDelay is before a partition whose log couldn't be opened is looked
// at again.
const replicaRetryDelay = 5 * time.Second

// PartitionsConfig of NewPartitions. Required unless said otherwise.
type PartitionsConfig struct {
	System *actor.ActorSystem
	Node   messages.NodeID
	// Replica finds this node's replica; an error means that there is none (yet).
	Replica  func(tp messages.TopicPartition) (PartitionReplica, error)
	Source   PartitionSource
	Fetchers PartitionFetchers
	States   StateClient
	Bumper   EpochBumper
	// Policy is read anew each time, so that dynamic configs take effect; call
	// PolicyChanged after a change.
	Policy func() fsm.RetryPolicy
	// Random is in [0, 1); from many goroutines.
	Random func() float64
	// Convergence says how far the replicas of a partition are, waited after its cut;
	// nil on one node.
	Convergence func(tp messages.TopicPartition, waited time.Duration) fsm.Convergence
	// DiskParallel is how many partitions do short disk work (seal, cut, markers) at
	// a time. Default 256: they share syncs.
	DiskParallel int
	Clock        clock.Clock
	Log          *zap.Logger
}

// Partitions are the mirror partitions that a node leads: one actor each. They
// follow the metadata image and listen to the mirrors' refreshes.
type Partitions struct {
	config    PartitionsConfig
	principal string // of transitions that nobody asked for
	pid       *actor.PID
	keeper    *actor.PID
	handles   sync.Map // messages.TopicPartition -> *PartitionHandle, of partitions led
	slots     chan struct{}
	lives     atomic.Int64
	helpers   sync.WaitGroup
	cancel    context.CancelFunc
	closed    atomic.Bool
}

// PartitionHandle is what others see of a partition actor, at any time.
type PartitionHandle struct {
	TopicPartition messages.TopicPartition
	Mirror         string
	Key            messages.PartitionKey

	pid      *actor.PID
	replica  PartitionReplica
	tenure   uint64 // of the replica, that it began in
	assigned atomic.Pointer[assignment]
	status   atomic.Pointer[PartitionStatus]
	lag      atomic.Pointer[fetch.Lag]
}

// PartitionStatus is a partition as its actor sees it.
type PartitionStatus struct {
	fsm.View
	Since     time.Time // of the state, on this leader
	NextRetry time.Time // zero: none is set
}

// Status is the newest one.
func (h *PartitionHandle) Status() PartitionStatus {
	if s := h.status.Load(); s != nil {
		return *s
	}
	return PartitionStatus{View: fsm.View{PartitionState: messages.UnknownPartitionState(), LeaderEpoch: messages.NoEpoch}}
}

// Lag is nil before the first fetcher. Its numbers count in MIRRORING only.
func (h *PartitionHandle) Lag() *fetch.Lag { return h.lag.Load() }

// partitionsImage is an image that the replicas have carried out; topics nil
// stands for all.
type partitionsImage struct {
	image  *metadata.Image
	topics map[string]struct{}
}

// NewPartitions starts with none; ctx carries values only, they live until Close.
func NewPartitions(ctx context.Context, config PartitionsConfig) *Partitions {
	if config.DiskParallel <= 0 {
		config.DiskParallel = 256
	}
	ps := &Partitions{
		config: config, principal: fmt.Sprintf("User:node-%d", config.Node), slots: make(chan struct{}, config.DiskParallel),
	}
	ctx, ps.cancel = context.WithCancel(context.WithoutCancel(ctx))
	root := config.System.Root
	ps.keeper = root.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		k := &keeper{
			states: config.States, bumper: config.Bumper, clock: config.Clock, log: config.Log.Named("keeper"),
			helpers: &ps.helpers, mirrors: map[string]*keeperQueue{},
		}
		k.ctx, k.cancel = context.WithCancel(ctx)
		return k
	}), "keeper")
	ps.pid = root.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		return &partitionParent{shared: ps, ctx: ctx, watches: map[messages.TopicPartition]*partitionWatch{}, children: map[messages.TopicPartition]*PartitionHandle{}, ending: map[messages.TopicPartition]struct{}{}, ids: map[string]messages.TopicPartition{}}
	}), "partitions")
	return ps
}

// Apply takes an image that the replicas have carried out, in order
// (cluster.Replicas.Subscribe). It doesn't block.
func (ps *Partitions) Apply(image *metadata.Image, topics map[string]struct{}) {
	ps.config.System.Root.Send(ps.pid, partitionsImage{image: image, topics: topics})
}

// Get finds a partition that this node leads, nil if there is none.
func (ps *Partitions) Get(tp messages.TopicPartition) *PartitionHandle {
	if h, ok := ps.handles.Load(tp); ok {
		return h.(*PartitionHandle) //nolint:forcetypeassert // nothing else is stored
	}
	return nil
}

// Range calls f for every partition that this node leads, in no order, until it
// returns false.
func (ps *Partitions) Range(f func(*PartitionHandle) bool) {
	ps.handles.Range(func(_, h any) bool { return f(h.(*PartitionHandle)) }) //nolint:forcetypeassert // nothing else is stored
}

// Recover takes the FAILED partitions of a topic that this node leads through
// row 22 and returns how many there were (workflows.md, "Recover").
func (ps *Partitions) Recover(ctx context.Context, by messages.Requester, mirror, topic string) (recovered int, err error) {
	var replies []chan bool
	ps.Range(func(h *PartitionHandle) bool {
		if h.Mirror == mirror && h.TopicPartition.Topic == topic {
			reply := make(chan bool, 1)
			ps.config.System.Root.Send(h.pid, partitionRecover{by: by, reply: reply})
			replies = append(replies, reply)
		}
		return true
	})
	for _, reply := range replies {
		select {
		case ok := <-reply:
			if ok {
				recovered++
			}
		case <-ctx.Done():
			return recovered, fmt.Errorf("recover topic %s: %w", topic, messages.ErrTimedOut)
		}
	}
	return recovered, nil
}

// readStatesLimit is how long ReadStates waits for a coordinator that is moving.
const readStatesLimit = 10 * time.Second

// ReadStates asks the mirror's coordinator for stored states, again and again while
// the coordinator is moving or loads. Partitions that it can't answer for after that
// are an error.
func (ps *Partitions) ReadStates(ctx context.Context, mirror string, tps []messages.TopicPartition) (map[messages.TopicPartition]messages.PartitionState, error) {
	until := ps.config.Clock.Now().Add(readStatesLimit)
	for {
		states, err := ReadMirrorStates(ctx, ps.config.States, mirror, tps)
		moving := errors.Is(err, messages.ErrNotCoordinator) || errors.Is(err, messages.ErrCoordinatorLoading)
		if !moving || !ps.config.Clock.Now().Before(until) || ps.config.Clock.Sleep(ctx, keeperDelayFirst) != nil {
			return states, err
		}
	}
}

// PolicyChanged tells every partition that the retry limits are other ones.
func (ps *Partitions) PolicyChanged() { ps.tell("", "", true, fsm.PolicyChanged{}) }

// The following are a mirror's news (mirrorListener); they don't block.

// Refreshed tells that a refresh ended; ok says whether the source answered,
// well which topics are free of faults. It is told anew after each refresh, so a
// partition that failed, or read its state, meanwhile misses nothing.
func (ps *Partitions) Refreshed(mirror string, ok bool, well map[string]struct{}) {
	root := ps.config.System.Root
	ps.Range(func(h *PartitionHandle) bool {
		if h.Mirror != mirror || h.Status().State != messages.StateFailed {
			return true
		}
		if _, over := well[h.TopicPartition.Topic]; over {
			root.Send(h.pid, partitionTell{in: fsm.FaultOver{}})
		}
		root.Send(h.pid, partitionTell{in: fsm.Refreshed{OK: ok}})
		return true
	})
}

// SourceChanged tells: another cluster answers (OP-26).
func (ps *Partitions) SourceChanged(mirror, text string) {
	ps.tell(mirror, "", false, fsm.SourceChanged{Text: text})
}

// SourceBack tells: the remembered one answers again.
func (ps *Partitions) SourceBack(mirror string) { ps.tell(mirror, "", false, fsm.SourceBack{}) }

// TopicFault tells: the topic can't be mirrored until somebody acts.
func (ps *Partitions) TopicFault(mirror, topic, text string) {
	ps.tell(mirror, topic, false, fsm.Fault{Text: text})
}

// Reconnect tells: the connection settings changed, fetchers are gone.
func (ps *Partitions) Reconnect(mirror string) { ps.tell(mirror, "", false, fsm.Reconnect{}) }

var _ mirrorListener = (*Partitions)(nil)

// tell sends to the partitions of a mirror ("" = all) and topic ("" = all);
// failedOnly leaves out those that it can't concern.
func (ps *Partitions) tell(mirror, topic string, failedOnly bool, in fsm.Input) {
	ps.Range(func(h *PartitionHandle) bool {
		switch {
		case mirror != "" && h.Mirror != mirror, topic != "" && h.TopicPartition.Topic != topic:
		case failedOnly && h.Status().State != messages.StateFailed:
		default:
			ps.config.System.Root.Send(h.pid, partitionTell{in: in})
		}
		return true
	})
}

func (ps *Partitions) warn(tp messages.TopicPartition, what string, err error) {
	ps.config.Log.Warn("partition step failed, it is repeated", zap.String("step", what),
		zap.String(messages.FieldTopic, tp.Topic), zap.Int32(messages.FieldPartition, tp.Partition), zap.Error(err))
}

// Close stops all partitions and waits for their jobs. Fetchers are closed by
// their owner, before. It may be called twice.
func (ps *Partitions) Close() error {
	if ps.closed.Swap(true) {
		ps.helpers.Wait()
		return nil
	}
	ps.cancel()
	err := ps.config.System.Root.StopFuture(ps.pid).Wait()
	if kerr := ps.config.System.Root.StopFuture(ps.keeper).Wait(); err == nil {
		err = kerr
	}
	ps.helpers.Wait()
	if err != nil {
		return fmt.Errorf("stop partitions: %w", err)
	}
	return nil
}

// partitionParent starts and stops partition actors as leadership comes and
// goes, by the image and by what the replica knows of it (tenureWatch). A partition
// that comes back waits until its old actor has ended.
type partitionParent struct {
	shared   *Partitions
	ctx      context.Context //nolint:containedctx // parent of the partitions' contexts, ended by Close
	image    *metadata.Image
	watches  map[messages.TopicPartition]*partitionWatch // of those that the image says are led here
	children map[messages.TopicPartition]*PartitionHandle
	ending   map[messages.TopicPartition]struct{}
	ids      map[string]messages.TopicPartition // of actors that are ending
}

// partitionWatch is the replica of a partition.
type partitionWatch struct {
	replica PartitionReplica
	*tenureWatch
}

// partitionsAgain has a partition looked at whose replica wasn't there, or whose
// tenure changed.
type partitionsAgain struct{ tp messages.TopicPartition }

// Receive handles one message.
func (p *partitionParent) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case partitionsImage:
		p.apply(c, m)
	case *actor.Terminated:
		if tp, ok := p.ids[m.Who.GetId()]; ok {
			delete(p.ids, m.Who.GetId())
			delete(p.ending, tp)
			p.again(c, tp)
		}
	case partitionsAgain:
		p.again(c, m.tp)
	case *actor.Stopping, *actor.Restarting:
		for _, w := range p.watches {
			w.cancel()
		}
		clear(p.watches)
	}
}

// again looks at one partition by the newest image.
func (p *partitionParent) again(c actor.Context, tp messages.TopicPartition) {
	if t := p.image.Topic(tp.Topic); t != nil && int(tp.Partition) < len(t.Partitions) {
		p.partition(c, t, tp.Partition)
	}
}

func (p *partitionParent) apply(c actor.Context, m partitionsImage) {
	p.image = m.image
	if m.topics != nil {
		for name := range m.topics {
			p.topic(c, name)
		}
		return
	}
	for _, t := range m.image.Topics() {
		p.topic(c, t.Name)
	}
	for tp, h := range p.children {
		if m.image.Topic(tp.Topic) == nil {
			p.end(c, h)
		}
	}
	for tp := range p.watches {
		if m.image.Topic(tp.Topic) == nil {
			p.unwatch(tp)
		}
	}
}

// topic brings the partitions of one topic in step with the image.
func (p *partitionParent) topic(c actor.Context, name string) {
	t := p.image.Topic(name)
	count := 0
	if t != nil {
		count = len(t.Partitions)
		for n := range t.Partitions {
			p.partition(c, t, int32(n))
		}
	}
	for n := int32(count); ; n++ { // partitions of a topic that is gone
		tp := messages.TopicPartition{Topic: name, Partition: n}
		h, w := p.children[tp], p.watches[tp]
		if h == nil && w == nil {
			return
		}
		if p.unwatch(tp); h != nil {
			p.end(c, h)
		}
	}
}

// watch is the replica of a partition that this node shall lead, nil if it isn't
// there (yet).
func (p *partitionParent) watch(c actor.Context, tp messages.TopicPartition) *partitionWatch {
	config := p.shared.config
	replica, err := config.Replica(tp)
	if err != nil {
		p.unwatch(tp)
		config.Log.Error("no replica for a mirror partition", zap.String(messages.FieldTopic, tp.Topic), zap.Int32(messages.FieldPartition, tp.Partition), zap.Error(err))
		root, self := c.ActorSystem().Root, c.Self()
		config.Clock.AfterFunc(replicaRetryDelay, func() { root.Send(self, partitionsAgain{tp: tp}) })
		return nil
	}
	w := p.watches[tp]
	if w == nil || w.replica != replica {
		p.unwatch(tp)
		w = &partitionWatch{replica: replica, tenureWatch: watchTenure(c, replica, partitionsAgain{tp: tp})}
		p.watches[tp] = w
	}
	return w
}

// leads is the replica of a partition and its tenure, nil unless the image says that
// this node leads it (led) and it does.
func (p *partitionParent) leads(c actor.Context, tp messages.TopicPartition, led bool) (PartitionReplica, uint64) {
	if !led {
		p.unwatch(tp)
		return nil, 0
	}
	w := p.watch(c, tp)
	if w == nil {
		return nil, 0
	}
	tenure, ok := w.tenureWatch.leads()
	if !ok {
		return nil, 0
	}
	return w.replica, tenure
}

func (p *partitionParent) unwatch(tp messages.TopicPartition) {
	if w := p.watches[tp]; w != nil {
		w.cancel()
		delete(p.watches, tp)
	}
}

func (p *partitionParent) partition(c actor.Context, t *metadata.Topic, n int32) {
	part := t.Partitions[n]
	tp := messages.TopicPartition{Topic: t.Name, Partition: n}
	want := assignment{
		key: t.Key(n), tp: tp, mirror: t.Mirror, desired: t.Desired, epoch: part.LeaderEpoch, replicas: len(part.Replicas),
		throttled: throttled(t.Configs[configs.MirrorThrottledReplicas], n, p.shared.config.Node),
	}
	replica, tenure := p.leads(c, tp, part.Leader == p.shared.config.Node && t.Mirror != "")
	led := replica != nil
	h := p.children[tp]
	switch {
	case h != nil && (!led || h.Key != want.key || h.Mirror != want.mirror || h.tenure != tenure || h.replica != replica):
		if h.Key == want.key {
			h.assigned.Store(&want) // DesiredNone: the gate isn't ours to close
		}
		p.end(c, h)
	case h != nil:
		if old := h.assigned.Swap(&want); *old != want || want.desired == messages.DesiredStopped {
			c.Send(h.pid, partitionAssigned{})
		}
	case led:
		if _, ending := p.ending[tp]; !ending {
			p.spawn(c, want, replica, tenure)
		}
	}
}

func (p *partitionParent) end(c actor.Context, h *PartitionHandle) {
	delete(p.children, h.TopicPartition)
	p.shared.handles.Delete(h.TopicPartition)
	p.ending[h.TopicPartition] = struct{}{}
	p.ids[h.pid.GetId()] = h.TopicPartition
	c.Watch(h.pid)
	c.Send(h.pid, partitionResign{})
}

func (p *partitionParent) spawn(c actor.Context, a assignment, replica PartitionReplica, tenure uint64) {
	ps := p.shared
	h := &PartitionHandle{TopicPartition: a.tp, Mirror: a.mirror, Key: a.key, replica: replica, tenure: tenure}
	h.assigned.Store(&a)
	h.pid = c.SpawnPrefix(props(ps.config.Clock, ps.config.Log, func() actor.Actor {
		w := &partition{
			shared: ps, handle: h,
			worker: partitionWorker{shared: ps, replica: replica, key: a.key, tp: a.tp, mirror: a.mirror, replicas: a.replicas, throttled: a.throttled},
			log: ps.config.Log.Named("partition").With(zap.String(messages.FieldMirror, a.mirror),
				zap.String(messages.FieldTopic, a.tp.Topic), zap.Int32(messages.FieldPartition, a.tp.Partition)),
		}
		w.ctx, w.cancel = context.WithCancel(p.ctx)
		return w
	}), "partition-"+a.tp.String())
	p.children[a.tp] = h
	ps.handles.Store(a.tp, h)
}

// throttled reads mirror.replication.throttled.replicas: "*", or items
// partition:node.
func throttled(value string, partition int32, node messages.NodeID) bool {
	value = strings.Trim(value, "[] ")
	if value == "*" {
		return true
	}
	want := fmt.Sprintf("%d:%d", partition, node)
	for item := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(item) == want {
			return true
		}
	}
	return false
}
