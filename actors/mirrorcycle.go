package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// Limits of the commands of a cycle: the controller writes a command as one
// batch, so what a source adds at once goes there in parts (commandRecordsMax).
const (
	cycleRecordsMax = 50_000
	cycleTopicsMax  = 2_000
	cycleBumpsMax   = 10_000
	cycleNamesShown = 20 // topic names in a log line
)

// refresher runs one cycle. It is used by one goroutine and forgotten.
type refresher struct {
	mirror     string
	source     *fetch.Source
	outside    mirrorOutside
	clock      interface{ Now() time.Time }
	connection map[string]string // settings that source was made with
	who        messages.Requester
	loops      []string // topics that may be in a loop (OP-35)
	log        *zap.Logger
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
	if replaced, err := r.checkClusterID(ctx, mi, cluster.ID, image.ClusterID()); replaced != nil || err != nil {
		return refreshResult{replaced: replaced, err: err}
	}
	in := refreshInput{
		image: image, mirror: r.mirror, described: map[string]sourceTopic{},
		coordinator: r.outside.Coordinates(r.mirror),
		included:    selector.Include.Match, excluded: selector.Exclude.Match,
		discovering: len(selector.Include.Items()) > 0,
	}
	view := &SourceView{ClusterID: cluster.ID, At: r.clock.Now(), Topics: map[string]fetch.SourceTopic{}, Brokers: cluster.Brokers}
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
	for _, n := range plan.notes {
		r.log.Warn("topic of the source isn't mirrored", zap.String(messages.FieldTopic, n.topic), zap.String("why", n.text))
	}
	r.execute(ctx, plan, view)
	result := refreshResult{view: view, faults: plan.faults, healthy: plan.healthy}
	r.judgeLoops(ctx, image.ClusterID(), &result)
	return result
}

// list adds all topics of the source, for discovery and as the second opinion on
// a topic that looks deleted.
func (r refresher) list(ctx context.Context, in *refreshInput, view *SourceView) {
	all, err := r.source.Topics(ctx, nil)
	if err == nil && all.ID != view.ClusterID {
		err = fmt.Errorf("%w: cluster id %s after %s", errForeignSource, all.ID, view.ClusterID)
	}
	if err != nil {
		r.log.Warn("topics of the source can't be listed, nothing is discovered or taken for deleted", zap.Error(err))
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

// foreign is why a cluster can't be the source of the mirror, nil if it may be.
func foreign(mirror, known, id, own string) error {
	switch {
	case id == "":
		return nil // a source without ids can't be checked
	case id == own:
		return fmt.Errorf("%w: the source of mirror %s is this cluster itself (%s): give it the address of another one", fetch.ErrMirrorLoop, mirror, id)
	case known == "", known == id:
		return nil
	}
	return fmt.Errorf("%w: the source's cluster id is %s, but mirror %s was made with %s: alter its connection settings if that is intended", errForeignSource, id, mirror, known)
}

// checkClusterID remembers the first id that the source gives, durably (OP-36).
// replaced: the id is another one now (OP-26).
func (r refresher) checkClusterID(ctx context.Context, mi *metadata.Mirror, id, own string) (replaced, err error) {
	known := mi.Configs[configs.MirrorSourceClusterID]
	if replaced := foreign(r.mirror, known, id, own); replaced != nil || id == "" || known == id {
		return replaced, nil
	}
	// An alter may have come meanwhile, or come right now: the answer of the old
	// source must not become the id of the new one, so the controller compares.
	out := r.outside.Submit(ctx, r.who, messages.AlterConfigs{Internal: true, Expect: r.connection, Resources: []messages.ResourceChange{{
		Type: messages.ResourceClusterMirror, Name: r.mirror,
		Changes: []messages.ConfigChange{{Name: configs.MirrorSourceClusterID, Op: messages.ConfigSet, Value: &id}},
	}}})
	switch err := outcomeError(out); {
	case errors.Is(err, messages.ErrSettingsChanged):
		return nil, fmt.Errorf("%w: the settings changed during the refresh: %w", errForeignSource, err)
	case err != nil:
		r.log.Warn("remember the source's cluster id", zap.Error(err))
	}
	return nil, nil
}

func outcomeError(out messages.Outcome) error {
	errs := []error{out.Err}
	for _, i := range out.Items {
		errs = append(errs, i.Err)
	}
	return errors.Join(errs...)
}

// step submits one command. One that fails is logged and tried again by the next
// cycle.
func (r refresher) step(ctx context.Context, what string, cmd messages.Command) {
	r.failed(what, outcomeError(r.outside.Submit(ctx, r.who, cmd)))
}

func (r refresher) failed(what string, err error) {
	if err != nil {
		r.log.Warn("mirror refresh step failed, the next cycle tries again", zap.String("step", what), zap.Error(err))
	}
}

// execute carries a plan out.
func (r refresher) execute(ctx context.Context, plan refreshPlan, view *SourceView) {
	for part := range parts(plan.grow, cycleTopicsMax, func(t messages.PartitionCount) int { return int(t.Count) }) {
		r.log.Info("partitions were added on the source", zap.Int("count", len(part)), names(part, func(t messages.PartitionCount) string { return t.Topic }))
		r.step(ctx, "add partitions", messages.CreatePartitions{Topics: part, Mirror: true})
	}
	for part := range parts(plan.gone, cycleTopicsMax, nil) {
		r.log.Warn("topics were deleted on the source, mirroring stops and the data is kept", zap.Int("count", len(part)), names(part, topicName))
		r.step(ctx, "stop deleted topics", messages.StopMirrorTopics{Mirror: r.mirror, Topics: part})
	}
	for part := range parts(plan.bumps, cycleBumpsMax, nil) {
		reached("mirror", "bump", "before")
		errs, err := r.outside.Bump(ctx, part)
		reached("mirror", "bump", "after")
		r.failed("raise leader epochs", errors.Join(append(errs, err)...))
	}
	for part := range parts(r.withoutLoops(ctx, plan.discovered, view.ClusterID), cycleTopicsMax, func(t messages.MirrorTopic) int { return int(t.NumPartitions) }) {
		r.log.Info("topics discovered on the source", zap.Int("count", len(part)), names(part, topicName))
		r.step(ctx, "start discovered topics", messages.StartMirrorTopics{Mirror: r.mirror, Topics: part})
	}
	for part := range parts(plan.excluded, cycleTopicsMax, nil) {
		r.log.Info("topics match an exclude pattern, mirroring stops", zap.Int("count", len(part)), names(part, topicName))
		r.step(ctx, "stop excluded topics", messages.StopMirrorTopics{Mirror: r.mirror, Topics: part})
	}
}

func topicName(t messages.MirrorTopic) string { return t.Name }

// names shows the first few.
func names[T any](items []T, name func(T) string) zap.Field {
	var out []string
	for _, i := range items[:min(len(items), cycleNamesShown)] {
		out = append(out, name(i))
	}
	return zap.Strings("topics", out)
}

// parts cuts items into runs of at most limit items and of a weight that a
// command takes; an item that is too heavy alone stands alone. weight nil = 1.
func parts[T any](items []T, limit int, weight func(T) int) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		from, sum := 0, 0
		for i, it := range items {
			w := 1
			if weight != nil {
				w += weight(it)
			}
			if i > from && (i-from >= limit || sum+w > cycleRecordsMax) {
				if !yield(items[from:i]) {
					return
				}
				from, sum = i, 0
			}
			sum += w
		}
		if from < len(items) {
			yield(items[from:])
		}
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
