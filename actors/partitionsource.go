package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"kagami/fetch"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// sourceAnswerLimit is how long a mirror is given to answer; above the limit of
// its own requests to the source.
const sourceAnswerLimit = 150 * time.Second

// MirrorLink is the way from partitions to the mirrors of their node: it is both
// [PartitionSource] and [PartitionFetchers].
type MirrorLink struct {
	System *actor.ActorSystem
	// Mirror finds the actor of a mirror, nil if there is none.
	Mirror func(mirror string) *actor.PID
	// Image is the newest one.
	Image func() *metadata.Image
	Clock clock.Clock
}

var (
	_ PartitionSource   = MirrorLink{}
	_ PartitionFetchers = MirrorLink{}
)

// ask sends to a mirror and waits. A short-lived actor takes the answer: the
// question of a mirror that stopped would otherwise never end.
func (l MirrorLink) ask(ctx context.Context, mirror string, question any) (any, error) {
	to := l.Mirror(mirror)
	if to == nil {
		return nil, fmt.Errorf("%w: mirror %s", messages.ErrUnknownMirror, mirror)
	}
	answer := make(chan any, 1)
	self := l.System.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
		default:
			select {
			case answer <- m:
			default: // a second answer
			}
		}
	}))
	defer l.System.Root.Stop(self)
	limit := make(chan struct{})
	stop := l.Clock.AfterFunc(sourceAnswerLimit, func() { close(limit) })
	defer stop()
	l.System.Root.RequestWithCustomSender(to, question, self)
	select {
	case a := <-answer:
		return a, nil
	case <-limit:
		return nil, fmt.Errorf("%w: mirror %s", errNoSource, mirror)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// LastMirrorEpoch is described at [PartitionSource].
func (l MirrorLink) LastMirrorEpoch(ctx context.Context, mirror string, tp messages.TopicPartition) (int32, error) {
	a, err := l.ask(ctx, mirror, mirrorAwaitEpochs{})
	if err != nil {
		return messages.NoEpoch, err
	}
	seen, ok := a.(epochsSeen)
	if !ok {
		return messages.NoEpoch, fmt.Errorf("%w: mirror %s answers %T", errNoSource, mirror, a)
	}
	if seen.err != nil {
		return messages.NoEpoch, seen.err
	}
	if err := seen.mirrors.CheckLoop(tp.Topic, l.Image().ClusterID(), l.SourceClusterID(mirror)); err != nil {
		return messages.NoEpoch, err
	}
	return seen.mirrors.LME(mirror, tp), nil
}

// SourceEpoch is described at [PartitionSource].
func (l MirrorLink) SourceEpoch(ctx context.Context, mirror string, tp messages.TopicPartition) (int32, error) {
	a, err := l.ask(ctx, mirror, mirrorAwaitRefresh{})
	if err != nil {
		return messages.NoEpoch, err
	}
	seen, ok := a.(refreshSeen)
	if !ok {
		return messages.NoEpoch, fmt.Errorf("%w: mirror %s answers %T", errNoSource, mirror, a)
	}
	if seen.err != nil {
		return messages.NoEpoch, seen.err
	}
	leader, _, ok := seen.view.Leader(tp)
	if !ok {
		return messages.NoEpoch, fmt.Errorf("%w: %s", errLeaderUnknown, tp)
	}
	return leader.Epoch, nil
}

// SourceClusterID is described at [PartitionSource].
func (l MirrorLink) SourceClusterID(mirror string) string {
	if m := l.Image().Mirror(mirror); m != nil {
		return m.Configs[configs.MirrorSourceClusterID]
	}
	return ""
}

// Refresh is described at [PartitionSource].
func (l MirrorLink) Refresh(mirror, reason string) {
	if to := l.Mirror(mirror); to != nil {
		l.System.Root.Send(to, mirrorRefreshNow{reason: reason})
	}
}

// Fetch is described at [PartitionFetchers].
func (l MirrorLink) Fetch(ctx context.Context, mirror string, a fetch.Assignment, leader *fetch.Leader) error {
	return l.change(ctx, mirror, mirrorFetch{
		tp: a.TopicPartition, sink: a.Sink, lag: a.Lag, notify: a.Notify, leader: leader, throttled: a.Throttled,
	})
}

// Unfetch is described at [PartitionFetchers].
func (l MirrorLink) Unfetch(ctx context.Context, mirror string, tp messages.TopicPartition) error {
	if l.Mirror(mirror) == nil {
		return nil
	}
	return l.change(ctx, mirror, mirrorUnfetch{tp: tp})
}

func (l MirrorLink) change(ctx context.Context, mirror string, question any) error {
	a, err := l.ask(ctx, mirror, question)
	if err != nil {
		return err
	}
	done, ok := a.(fetcherAnswer)
	if !ok {
		return fmt.Errorf("%w: mirror %s answers %T", errNoSource, mirror, a)
	}
	return done.err
}
