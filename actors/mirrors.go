package actors

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
)

// MirrorsConfig of NewMirrors. All fields are required.
type MirrorsConfig struct {
	System   *actor.ActorSystem
	Node     messages.NodeID
	Outside  mirrorOutside
	Peers    mirrorPeers
	Settings func() MirrorSettings
	Secrets  *secrets.Ring // opens mirrors' settings; nil opens what isn't encrypted
	Clock    clock.Clock
	Log      *zap.Logger
}

// Mirrors are the mirror actors of a node, one for each mirror of the image.
type Mirrors struct {
	config   MirrorsConfig
	listener mirrorListener
	pid      *actor.PID
	handles  sync.Map                       // mirror name -> *mirrorHandle
	newest   atomic.Pointer[metadata.Image] // for a parent that is restarted
	failures atomic.Int64                   // refreshes that failed
	syncs    syncCounts
	helpers  sync.WaitGroup
	cancel   context.CancelFunc
	closed   atomic.Bool
}

// mirrorHandle is how others reach a mirror.
type mirrorHandle struct {
	pid  *actor.PID
	view atomic.Pointer[SourceView]
	// fetchers are the names of its fetchers, for lists.
	fetchers atomic.Pointer[[]string]
	// numbers gives out numbers of connections and requests: none is used twice,
	// whatever restarts.
	numbers atomic.Int64
}

// Messages to the parent of the mirrors.
type (
	mirrorsImage struct {
		image  *metadata.Image
		topics map[string]struct{} // touched, nil = all
	}
	mirrorsSettled struct{} // dynamic node settings may have changed
)

// NewMirrors starts with none; ctx carries values only, they live until Close.
func NewMirrors(ctx context.Context, config MirrorsConfig, listener mirrorListener) *Mirrors {
	ms := &Mirrors{config: config, listener: listener}
	ctx, ms.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ms.pid = config.System.Root.SpawnPrefix(props(config.Clock, config.Log, func() actor.Actor {
		return &mirrorParent{owner: ms, ctx: ctx, children: map[string]mirrorChild{}}
	}), "mirrors")
	return ms
}

// Apply takes an image that the replicas have carried out, in order. topics are
// the names it touched, nil stands for all. It doesn't block.
func (ms *Mirrors) Apply(image *metadata.Image, topics map[string]struct{}) {
	ms.newest.Store(image)
	ms.config.System.Root.Send(ms.pid, mirrorsImage{image: image, topics: topics})
}

// Settled tells the mirrors that dynamic node settings may have changed.
func (ms *Mirrors) Settled() { ms.config.System.Root.Send(ms.pid, mirrorsSettled{}) }

// View is the newest view of a mirror's source, nil if there is none.
func (ms *Mirrors) View(name string) *SourceView {
	if h := ms.handle(name); h != nil {
		return h.view.Load()
	}
	return nil
}

// Fetchers are the names of a mirror's fetchers: source broker and number.
func (ms *Mirrors) Fetchers(mirror string) []string {
	if h := ms.handle(mirror); h != nil {
		if names := h.fetchers.Load(); names != nil {
			return *names
		}
	}
	return nil
}

func (ms *Mirrors) handle(name string) *mirrorHandle {
	v, ok := ms.handles.Load(name)
	if !ok {
		return nil
	}
	h, _ := v.(*mirrorHandle)
	return h
}

// RefreshErrors is how many refreshes have failed since the start.
func (ms *Mirrors) RefreshErrors() int64 { return ms.failures.Load() }

// PID is the actor of a mirror, nil if there is none.
func (ms *Mirrors) PID(mirror string) *actor.PID {
	if h := ms.handle(mirror); h != nil {
		return h.pid
	}
	return nil
}

// Link is the way from partitions to these mirrors.
func (ms *Mirrors) Link() MirrorLink {
	return MirrorLink{System: ms.config.System, Mirror: ms.PID, Image: ms.config.Outside.Image, Clock: ms.config.Clock}
}

// SourceMirrors asks the source for all mirrors of its own, for loops; the
// answer is from after the call.
func (ms *Mirrors) SourceMirrors(ctx context.Context, mirror string) (fetch.Mirrors, error) {
	answer, err := ms.Link().ask(ctx, mirror, mirrorAwaitEpochs{})
	if err != nil {
		return fetch.Mirrors{}, err
	}
	seen, ok := answer.(epochsSeen)
	if !ok {
		return fetch.Mirrors{}, fmt.Errorf("ask mirror %s: unexpected answer %T", mirror, answer)
	}
	return seen.mirrors, seen.err
}

// Status is a mirror as its actor sees it.
func (ms *Mirrors) Status(ctx context.Context, mirror string) (MirrorStatus, error) {
	answer, err := ms.Link().ask(ctx, mirror, mirrorAsk{})
	if err != nil {
		return MirrorStatus{Mirror: mirror}, err
	}
	s, ok := answer.(MirrorStatus)
	if !ok {
		return MirrorStatus{Mirror: mirror}, fmt.Errorf("ask mirror %s: unexpected answer %T", mirror, answer)
	}
	return s, nil
}

// Close stops all mirrors and waits for their helpers. It may be called twice.
func (ms *Mirrors) Close() error {
	if ms.closed.Swap(true) {
		ms.helpers.Wait()
		return nil
	}
	err := ms.config.System.Root.StopFuture(ms.pid).Wait()
	ms.cancel()
	ms.helpers.Wait()
	if err != nil {
		return fmt.Errorf("stop mirrors: %w", err)
	}
	return nil
}

// mirrorParent starts and stops mirrors as they come and go in the image.
type mirrorParent struct {
	owner    *Mirrors
	ctx      context.Context //nolint:containedctx // parent of the mirrors' contexts, ended by Close
	image    *metadata.Image
	children map[string]mirrorChild
}

type mirrorChild struct {
	pid  *actor.PID
	seen *metadata.Mirror
}

// Receive handles one message.
func (p *mirrorParent) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		if image := p.owner.newest.Load(); image != nil { // in a later life
			p.follow(c, mirrorsImage{image: image})
		}
	case mirrorsImage:
		p.follow(c, m)
	case mirrorsSettled:
		for _, child := range p.children {
			c.Send(child.pid, mirrorSettled{})
		}
	case *actor.Restarting, *actor.Stopping:
		p.owner.handles.Clear() // children stop with their parent
		clear(p.children)
	}
}

func (p *mirrorParent) follow(c actor.Context, m mirrorsImage) {
	old := p.image
	p.image = m.image
	for name, child := range p.children {
		if m.image.Mirror(name) == nil {
			p.owner.handles.Delete(name)
			c.Stop(child.pid)
			delete(p.children, name)
		}
	}
	touched := p.touched(old, m)
	for _, mi := range m.image.Mirrors() {
		child, ok := p.children[mi.Name]
		switch {
		case !ok:
			p.children[mi.Name] = mirrorChild{pid: p.spawn(c, mi.Name), seen: mi}
		case child.seen != mi || touched[mi.Name]:
			child.seen = mi
			p.children[mi.Name] = child
			c.Send(child.pid, mirrorChanged{})
		}
	}
	p.throttled(c, old, m)
}

// throttled tells mirrors of topics whose throttled replicas are other ones.
func (p *mirrorParent) throttled(c actor.Context, old *metadata.Image, m mirrorsImage) {
	if old == nil {
		return
	}
	for name := range m.topics {
		is, was := m.image.Topic(name), old.Topic(name)
		if is == nil || was == nil || is.Configs[configs.MirrorThrottledReplicas] == was.Configs[configs.MirrorThrottledReplicas] {
			continue
		}
		if child, ok := p.children[is.Mirror]; ok {
			c.Send(child.pid, mirrorThrottle{topic: name})
		}
	}
}

// touched are mirrors of which a topic became active, was added or grew: they
// refresh at once (metadata-sync.md, Cycle).
func (p *mirrorParent) touched(old *metadata.Image, m mirrorsImage) map[string]bool {
	out := map[string]bool{}
	for name := range m.topics {
		is := m.image.Topic(name)
		if is == nil || is.Desired != messages.DesiredActive {
			continue
		}
		var was *metadata.Topic
		if old != nil {
			was = old.Topic(name)
		}
		if was == nil || was.Desired != is.Desired || was.Mirror != is.Mirror || was.ID != is.ID || len(was.Partitions) != len(is.Partitions) {
			out[is.Mirror] = true
		}
	}
	return out
}

func (p *mirrorParent) spawn(c actor.Context, name string) *actor.PID {
	config, h := p.owner.config, &mirrorHandle{}
	plain := config.Log.Named("mirror")
	log := plain.With(zap.String(messages.FieldMirror, name))
	h.pid = c.SpawnPrefix(props(config.Clock, log, func() actor.Actor {
		m := &mirror{
			name: name, node: config.Node, outside: config.Outside, peers: config.Peers, listener: p.owner.listener, settings: config.Settings, secrets: config.Secrets,
			view: &h.view, shown: &h.fetchers, numbers: &h.numbers, failures: &p.owner.failures, syncs: &p.owner.syncs, clock: config.Clock, log: log, plain: plain, helpers: &p.owner.helpers,
			fetchers: map[fetcherKey]*fetcherChild{}, children: map[int64]*fetcherChild{}, places: map[messages.TopicPartition]*fetchPlace{},
			held: map[messages.TopicPartition]*heldFetch{}, suspects: map[string]suspect{}, told: &onceTold{},
		}
		m.ctx, m.cancel = context.WithCancel(p.ctx)
		return m
	}), "mirror-"+name)
	p.owner.handles.Store(name, h)
	return h.pid
}
