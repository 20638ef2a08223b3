package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// refreshTimeout bounds one cycle, so that a source that hangs costs its own
// mirror only, and only for so long.
const refreshTimeout = 2 * time.Minute

// refreshResult is what a cycle came back with.
type refreshResult struct {
	view     *SourceView // nil if the source didn't answer
	err      error       // why it didn't
	replaced string      // text of OP-26: another cluster answers; nothing else was done
	faults   []topicFault
	healthy  []string
}

// refresh begins a cycle, or notes that another one is wanted after the one on
// its way. A cycle runs in a goroutine that only sends its result back.
func (m *mirror) refresh(c actor.Context, reason string) {
	if m.refreshing {
		m.refreshAgain = true
		return
	}
	m.refreshWait, m.refreshNext = append(m.refreshWait, m.refreshNext...), nil
	if m.source == nil {
		m.tellRefresh(c, refreshSeen{err: m.fault})
		m.arm(c)
		return
	}
	m.refreshing, m.refreshAgain = true, false
	r := refresher{
		mirror: m.name, source: m.source, outside: m.outside, clock: m.clock,
		view: m.view, log: m.log.With(zap.String("refresh", reason)),
		who: messages.Requester{Principal: fmt.Sprintf("User:node-%d", m.node), ClientID: "mirror-" + m.name, RequestID: fmt.Sprintf("refresh-%d", m.clock.Now().UnixMilli())},
	}
	root, self, connection, ctx := c.ActorSystem().Root, c.Self(), m.connection, m.ctx
	m.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, refreshTimeout, fmt.Errorf("the source answers too slowly: %w", messages.ErrTimedOut))
		defer cancel()
		root.Send(self, refreshDone{connection: connection, result: r.run(ctx)})
	})
}

// arm sets the timer for the next cycle.
func (m *mirror) arm(c actor.Context) {
	m.timerEpoch++
	if m.stopTimer != nil {
		m.stopTimer()
	}
	root, self, epoch := c.ActorSystem().Root, c.Self(), m.timerEpoch
	m.stopTimer = m.clock.AfterFunc(max(refreshPauseMin, m.settings().Refresh), func() { root.Send(self, mirrorTick{epoch: epoch}) })
}

// refreshed takes in what a cycle found.
func (m *mirror) refreshed(c actor.Context, done refreshDone) {
	m.refreshing = false
	if done.connection != m.connection {
		m.refresh(c, "connection changed")
		return
	}
	r := done.result
	m.lastError = r.err
	switch {
	case r.replaced != "":
		m.foreign, m.lastError = true, errors.New(r.replaced)
		m.log.Error("source cluster id changed, nothing is copied from it", zap.String("why", r.replaced))
		m.listener.SourceChanged(m.name, r.replaced)
		m.tellRefresh(c, refreshSeen{err: m.lastError})
	case r.err != nil:
		m.log.Warn("source refresh failed", zap.Error(r.err))
		m.listener.Refreshed(m.name, false)
		m.tellRefresh(c, refreshSeen{err: r.err})
	default:
		m.answered(c, r)
	}
	m.arm(c)
	if m.refreshAgain || len(m.refreshNext) > 0 {
		m.refresh(c, "again")
	}
}

// answered takes in a cycle in which the right source answered.
func (m *mirror) answered(c actor.Context, r refreshResult) {
	m.lastRefresh = r.view.At
	m.view.Store(r.view)
	if m.foreign {
		m.foreign = false
		m.listener.SourceBack(m.name)
	}
	now := map[string]struct{}{}
	for _, f := range r.faults {
		now[f.topic] = struct{}{}
		m.listener.TopicFault(m.name, f.topic, f.text)
	}
	for _, topic := range r.healthy {
		if _, was := m.faulted[topic]; was {
			m.listener.TopicWell(m.name, topic)
		}
	}
	m.faulted = now
	m.respread(c)
	m.listener.Refreshed(m.name, true)
	m.tellRefresh(c, refreshSeen{view: r.view})
}

func (m *mirror) tellRefresh(c actor.Context, seen refreshSeen) {
	for _, pid := range m.refreshWait {
		c.ActorSystem().Root.Send(pid, seen)
	}
	m.refreshWait = nil
}

// lookUpEpochs asks the source once for all partitions that wait for their last
// mirror epoch. Who asks while a look-up is on its way gets the next one's
// answer: an older one may be from before the source's own stop.
func (m *mirror) lookUpEpochs(c actor.Context) {
	if m.lookingUp || len(m.epochsNext) == 0 {
		return
	}
	m.epochsWait, m.epochsNext = m.epochsNext, nil
	if m.source == nil {
		m.tellEpochs(c, epochsSeen{err: m.fault})
		return
	}
	m.lookingUp = true
	source, root, self, connection, ctx := m.source, c.ActorSystem().Root, c.Self(), m.connection, m.ctx
	m.helpers.Go(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, refreshTimeout, fmt.Errorf("the source answers too slowly: %w", messages.ErrTimedOut))
		defer cancel()
		mirrors, err := source.AllMirrors(ctx)
		root.Send(self, epochsDone{connection: connection, mirrors: mirrors, err: err})
	})
}

func (m *mirror) epochsKnown(c actor.Context, done epochsDone) {
	m.lookingUp = false
	if done.connection != m.connection {
		m.epochsNext = append(m.epochsWait, m.epochsNext...)
		m.epochsWait = nil
	} else {
		m.tellEpochs(c, epochsSeen{mirrors: done.mirrors, err: done.err})
	}
	m.lookUpEpochs(c)
}

func (m *mirror) tellEpochs(c actor.Context, seen epochsSeen) {
	for _, pid := range m.epochsWait {
		c.ActorSystem().Root.Send(pid, seen)
	}
	m.epochsWait = nil
}

// refresher runs one cycle. It is used by one goroutine and forgotten.
type refresher struct {
	mirror  string
	source  *fetch.Source
	outside mirrorOutside
	view    interface{ Load() *SourceView }
	clock   interface{ Now() time.Time }
	who     messages.Requester
	log     *zap.Logger
}

func (r refresher) run(ctx context.Context) refreshResult {
	image := r.outside.Image()
	mi := image.Mirror(r.mirror)
	if mi == nil {
		return refreshResult{err: fmt.Errorf("%w: %s", messages.ErrUnknownMirror, r.mirror)}
	}
	selector, err := messages.EffectiveTopicPatterns(mi.Configs).Compile()
	if err != nil {
		return refreshResult{err: err}
	}
	names := []string{}
	for _, t := range image.TopicsOfMirror(r.mirror) {
		if t.Desired == messages.DesiredActive {
			names = append(names, t.Name)
		}
	}
	cluster, err := r.source.Topics(ctx, names)
	if err != nil {
		return refreshResult{err: err}
	}
	if text := r.checkClusterID(ctx, mi, cluster.ID, image.ClusterID()); text != "" {
		return refreshResult{replaced: text}
	}
	in := refreshInput{
		image: image, mirror: r.mirror, described: map[string]sourceTopic{},
		coordinator: r.outside.Coordinates(r.mirror),
		included:    selector.Include.Match, excluded: selector.Exclude.Match,
		discovering: len(selector.Include.Items()) > 0,
	}
	view := &SourceView{ClusterID: cluster.ID, At: r.clock.Now(), Topics: map[string]fetch.SourceTopic{}}
	missing := false
	for name, t := range cluster.Topics {
		view.Topics[name] = t
		s := neutral(t)
		missing = missing || s.missing
		in.described[name] = s
	}
	if in.coordinator && (missing || in.discovering) {
		r.list(ctx, &in, view)
	}
	plan := planRefresh(in)
	for _, w := range plan.warnings {
		r.log.Warn(w) //nolint:forbidigo // the plan's text names topics; it is rare
	}
	r.execute(ctx, plan, view)
	return refreshResult{view: view, faults: plan.faults, healthy: plan.healthy}
}

// list adds all topics of the source, for discovery and as the second opinion on
// a topic that looks deleted.
func (r refresher) list(ctx context.Context, in *refreshInput, view *SourceView) {
	all, err := r.source.Topics(ctx, nil)
	if err != nil || all.ID != view.ClusterID {
		r.log.Warn("list topics of the source", zap.Error(err))
		return
	}
	in.listed = map[string]sourceTopic{}
	for name, t := range all.Topics {
		if t.Internal {
			continue
		}
		s := neutral(t)
		in.listed[name] = s
		if _, described := view.Topics[name]; !described && !s.missing && s.err == nil && in.included(name) {
			view.Topics[name] = t // leaders are remembered before the topic is created
		}
	}
}

func neutral(t fetch.SourceTopic) sourceTopic {
	s := sourceTopic{name: t.Name, id: t.ID}
	if t.Err != nil {
		s.missing = fetch.IsUnknownTopic(t.Err)
		if !s.missing {
			s.err = t.Err
		}
		return s
	}
	for _, p := range t.Partitions {
		sp := sourcePartition{leader: int32(p.Leader.ID), epoch: p.Leader.Epoch}
		if p.Err != nil {
			sp.epoch = messages.NoEpoch
		}
		s.partitions = append(s.partitions, sp)
	}
	return s
}

// checkClusterID remembers the first id that the source gives, durably (OP-36),
// and returns a text when the id is another one now (OP-26).
func (r refresher) checkClusterID(ctx context.Context, mi *metadata.Mirror, id, own string) string {
	known := mi.Configs[configs.MirrorSourceClusterID]
	switch {
	case id == "":
		return "" // a source without ids can't be checked
	case id == own:
		return fmt.Sprintf("the source of mirror %s is this cluster itself (%s): give it the address of another one", r.mirror, id)
	case known == id:
		return ""
	case known != "":
		return fmt.Sprintf("the source's cluster id is %s, but mirror %s was made with %s: alter its connection settings if that is intended", id, r.mirror, known)
	}
	out := r.outside.Submit(ctx, r.who, messages.AlterConfigs{Internal: true, Resources: []messages.ResourceChange{{
		Type: messages.ResourceClusterMirror, Name: r.mirror,
		Changes: []messages.ConfigChange{{Name: configs.MirrorSourceClusterID, Op: messages.ConfigSet, Value: &id}},
	}}})
	if err := outcomeError(out); err != nil {
		r.log.Warn("remember the source's cluster id", zap.Error(err))
	}
	return ""
}

func outcomeError(out messages.Outcome) error {
	errs := []error{out.Err}
	for _, i := range out.Items {
		errs = append(errs, i.Err)
	}
	return errors.Join(errs...)
}

// execute carries a plan out. A step that fails is logged and tried again by the
// next cycle.
func (r refresher) execute(ctx context.Context, plan refreshPlan, view *SourceView) {
	step := func(what string, err error) {
		if err != nil {
			r.log.Warn("mirror refresh step failed, the next cycle tries again", zap.String("step", what), zap.Error(err))
		}
	}
	if len(plan.grow) > 0 {
		r.log.Info("partitions were added on the source", zap.Any("topics", plan.grow))
		step("add partitions", outcomeError(r.outside.Submit(ctx, r.who, messages.CreatePartitions{Topics: plan.grow, Mirror: true})))
	}
	if len(plan.gone) > 0 {
		r.log.Warn("topics were deleted on the source, mirroring stops and the data is kept", zap.Any("topics", plan.gone))
		step("stop deleted topics", outcomeError(r.outside.Submit(ctx, r.who, messages.StopMirrorTopics{Mirror: r.mirror, Topics: plan.gone})))
	}
	if len(plan.bumps) > 0 {
		errs, err := r.outside.Bump(ctx, plan.bumps)
		step("raise leader epochs", errors.Join(append(errs, err)...))
	}
	if topics := r.withoutLoops(ctx, plan.discovered, view.ClusterID); len(topics) > 0 {
		r.log.Info("topics discovered on the source", zap.Any("topics", topics))
		step("start discovered topics", outcomeError(r.outside.Submit(ctx, r.who, messages.StartMirrorTopics{Mirror: r.mirror, Topics: topics})))
	}
	if len(plan.excluded) > 0 {
		r.log.Info("topics match an exclude pattern, mirroring stops", zap.Any("topics", plan.excluded))
		step("stop excluded topics", outcomeError(r.outside.Submit(ctx, r.who, messages.StopMirrorTopics{Mirror: r.mirror, Topics: plan.excluded})))
	}
}

// withoutLoops leaves out topics that the source itself mirrors (OP-35).
func (r refresher) withoutLoops(ctx context.Context, topics []messages.MirrorTopic, sourceID string) []messages.MirrorTopic {
	if len(topics) == 0 {
		return nil
	}
	mirrors, err := r.source.AllMirrors(ctx)
	if err != nil {
		r.log.Warn("look for mirror loops before topics are discovered", zap.Error(err))
		return nil
	}
	var out []messages.MirrorTopic
	for _, t := range topics {
		if err := mirrors.CheckLoop(t.Name, r.outside.Image().ClusterID(), sourceID); err != nil {
			r.log.Warn("topic isn't discovered", zap.String(messages.FieldTopic, t.Name), zap.Error(err))
			continue
		}
		out = append(out, t)
	}
	return out
}
