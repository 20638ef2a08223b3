package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// Limits of a plan.
const (
	planTimeout   = 20 * time.Second // for all answers of the source
	planRoundsMax = 100              // cuts of one partition, one for each epoch
)

// mirrorLend asks a mirror for its connection; answered by sourceLent.
type (
	mirrorLend struct{}
	sourceLent struct {
		source *fetch.Source // its requests fail when the mirror connects anew
		err    error
	}
)

// planSource is what a plan asks the source; *fetch.Source is one.
type planSource interface {
	Topics(ctx context.Context, names []string) (fetch.Cluster, error)
	EpochEnds(ctx context.Context, asks map[messages.TopicPartition]int32) map[messages.TopicPartition]fetch.EpochEnd
	Ranges(ctx context.Context, topics []string) map[messages.TopicPartition]fetch.Range
	FindsDivergence(ctx context.Context) (bool, error)
}

// PlanStart says what a start of topics would cut, of the partitions that this
// node leads, and changes nothing. It asks the source what LOG_TRUNCATION and the
// first fetches would ask it. What the source doesn't answer is unknown, with the
// reason; an error is for bad patterns.
func (n *Node) PlanStart(ctx context.Context, mirror string, patterns messages.TopicPatterns) ([]messages.PlannedStart, error) {
	image := n.config.Store.Image()
	mi := image.Mirror(mirror)
	if mi == nil {
		return nil, fmt.Errorf("%w: %s", messages.ErrUnknownMirror, mirror)
	}
	lists := messages.EffectiveTopicPatterns(mi.Configs).Start(patterns.Include, patterns.Exclude)
	selector, err := messages.TopicPatterns{Include: patterns.Include, Exclude: lists.Exclude}.Compile()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, planTimeout, fmt.Errorf("%w within %s", errNoSource, planTimeout))
	defer cancel()
	p := &planner{node: n, image: image, mirror: mirror, clusterID: mi.Configs[configs.MirrorSourceClusterID]}
	if err := p.ask(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if rows := p.unknown(selector, err); len(rows) > 0 {
			return rows, nil
		}
		return nil, fmt.Errorf("%w: the source of mirror %s can't be asked which topics match: %w", messages.ErrTimedOut, mirror, err)
	}
	return p.plan(ctx, selector), nil
}

// planner plans one start.
type planner struct {
	node      *Node
	image     *metadata.Image
	mirror    string
	clusterID string

	source   planSource
	mirrors  fetch.Mirrors
	topics   fetch.Cluster
	diverges bool
	ranges   map[messages.TopicPartition]fetch.Range

	rows []messages.PlannedStart
	cuts []*cutPlan // of those rows that have a log to look at
}

// ask learns what is the same for all partitions.
func (p *planner) ask(ctx context.Context) (err error) {
	answer, err := p.node.Mirrors.Link().ask(ctx, p.mirror, mirrorLend{})
	if err != nil {
		return err
	}
	lent, ok := answer.(sourceLent)
	if !ok || lent.err != nil {
		return errors.Join(lent.err, ctx.Err())
	}
	p.source = lent.source
	if p.mirrors, err = p.node.Mirrors.SourceMirrors(ctx, p.mirror); err != nil {
		return err
	}
	if p.topics, err = p.source.Topics(ctx, nil); err != nil {
		return err
	}
	p.diverges, err = p.source.FindsDivergence(ctx)
	return err
}

// unknown are the rows of the stopped topics that match, when the source can't
// be asked; which others would be started isn't known either.
func (p *planner) unknown(selector messages.TopicSelector, err error) []messages.PlannedStart {
	for _, t := range p.image.TopicsOfMirror(p.mirror) {
		if t.Desired != messages.DesiredStopped || !selector.Discovers(t.Name) {
			continue
		}
		for i := range t.Partitions {
			row := p.row(t, int32(i))
			if row == nil {
				continue
			}
			row.Reason = err.Error()
			row.Unknown = !errors.Is(err, fetch.ErrMirrorLoop) && !errors.Is(err, errForeignSource)
			row.Refused = !row.Unknown
			p.rows = append(p.rows, *row)
		}
	}
	return p.rows
}

// row is nil where another node leads.
func (p *planner) row(t *metadata.Topic, n int32) *messages.PlannedStart {
	if t.Partitions[n].Leader != p.node.config.Node {
		return nil
	}
	row := &messages.PlannedStart{
		Topic: t.Name, Partition: n, LogEnd: messages.NoOffset, CutTo: messages.NoOffset, Records: -1, Bytes: -1, LME: messages.NoEpoch,
	}
	if r, err := p.node.config.Replicas.Get(messages.TopicPartition{Topic: t.Name, Partition: n}); err == nil {
		row.LogEnd = r.Log().End()
	}
	return row
}

func (p *planner) plan(ctx context.Context, selector messages.TopicSelector) []messages.PlannedStart {
	var existing []string
	for _, name := range slices.Sorted(maps.Keys(p.topics.Topics)) {
		src := p.topics.Topics[name]
		if src.Err != nil || !selector.Discovers(name) {
			continue
		}
		t := p.image.Topic(name)
		if p.topic(name, src, t) {
			existing = append(existing, name)
		}
	}
	if len(existing) > 0 {
		p.ranges = p.source.Ranges(ctx, existing)
	}
	p.cut(ctx)
	for _, c := range p.cuts {
		c.finish(&p.rows[c.row])
	}
	return p.rows
}

// topic adds the rows of one topic; true if it has logs to cut.
func (p *planner) topic(name string, src fetch.SourceTopic, t *metadata.Topic) (cuts bool) {
	refused := p.refused(name, src, t)
	for i := range src.Partitions {
		n := int32(i)
		if t == nil || i >= len(t.Partitions) {
			row := messages.PlannedStart{Topic: name, Partition: n, LogEnd: messages.NoOffset, CutTo: 0, LME: messages.NoEpoch, Reason: "new partition, nothing to cut"}
			if refused != nil {
				row.Refused, row.Reason = true, refused.Error()
			}
			p.rows = append(p.rows, row)
			continue
		}
		row := p.row(t, n)
		if row == nil {
			continue
		}
		tp := messages.TopicPartition{Topic: name, Partition: n}
		replica, err := p.node.config.Replicas.Get(tp)
		switch {
		case errors.Is(refused, fetch.ErrMirrorMoving):
			row.Unknown, row.Reason = true, refused.Error()
		case refused != nil:
			row.Refused, row.Reason = true, refused.Error()
		case err != nil:
			row.Unknown, row.Reason = true, err.Error()
		default:
			if row.LME, err = p.mirrors.LME(p.mirror, tp); err != nil {
				row.Unknown, row.Reason = true, err.Error()
				break
			}
			p.cuts = append(p.cuts, newCutPlan(len(p.rows), tp, replica.Log(), row.LME, !src.ID.IsZero(), p.mirrors.Supported))
			cuts = true
		}
		p.rows = append(p.rows, *row)
	}
	return cuts
}

// refused is why the start would refuse the topic, nil if it wouldn't.
func (p *planner) refused(name string, src fetch.SourceTopic, t *metadata.Topic) error {
	if err := p.mirrors.CheckLoop(name, p.image.ClusterID(), p.clusterID); err != nil || t == nil {
		return err
	}
	switch {
	case t.Desired == messages.DesiredActive || t.Desired == messages.DesiredPaused:
		return fmt.Errorf("%w: the topic is in mirror %s", messages.ErrTopicInMirror, t.Mirror)
	case !src.ID.IsZero() && src.ID != t.ID:
		return fmt.Errorf("%w: the topic has id %s here, %s on the source", messages.ErrInconsistentTopicID, t.ID, src.ID)
	case len(t.Partitions) > len(src.Partitions):
		return fmt.Errorf("%w: the topic has %d partitions here, %d on the source", messages.ErrInvalidRequest, len(t.Partitions), len(src.Partitions))
	}
	for i := range t.Partitions {
		tp := messages.TopicPartition{Topic: name, Partition: int32(i)}
		if h := p.node.Partitions.Get(tp); h != nil && h.Mirror != "" {
			if s := h.Status().State; s != messages.StateStopped && s != messages.StateUnknown {
				return fmt.Errorf("%w: %s is %s, it must be STOPPED", messages.ErrInvalidMirrorStates, tp, s)
			}
		}
	}
	return nil
}

// cut finds the cuts of the first fetches: in each round the source is asked for
// all partitions whose last epoch isn't settled.
func (p *planner) cut(ctx context.Context) {
	for _, c := range p.cuts {
		r, ok := p.ranges[c.tp]
		if !ok {
			r = p.ranges[messages.TopicPartition{Topic: c.tp.Topic}] // why nothing is known of the topic
		}
		c.within(r, ok, p.diverges)
	}
	for range planRoundsMax {
		asks := map[messages.TopicPartition]int32{}
		for _, c := range p.cuts {
			if epoch, ok := c.next(); ok {
				asks[c.tp] = epoch
			}
		}
		if len(asks) == 0 {
			return
		}
		answers := p.source.EpochEnds(ctx, asks)
		for _, c := range p.cuts {
			if _, asked := asks[c.tp]; asked {
				c.answer(asks[c.tp], answers[c.tp])
			}
		}
	}
	for _, c := range p.cuts {
		if _, ok := c.next(); ok {
			c.fault(fmt.Errorf("the source's answers don't settle after %d cuts", planRoundsMax))
		}
	}
}

func joinReasons(reasons []string) string { return strings.Join(reasons, "; ") }
