package actors

import (
	"context"
	"errors"
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

// mirrorStartLimit is how long a mirror that the image has may take to start;
// mirrorStartPause is between two looks.
const (
	mirrorStartLimit = 2 * time.Second
	mirrorStartPause = 5 * time.Millisecond
)

// find is the mirror's actor. Who has just seen the mirror in the image may be
// ahead of it.
func (l MirrorLink) find(ctx context.Context, mirror string) (*actor.PID, error) {
	for until := l.Clock.Now().Add(mirrorStartLimit); ; {
		if to := l.Mirror(mirror); to != nil {
			return to, nil
		}
		if l.Image().Mirror(mirror) == nil || !l.Clock.Now().Before(until) {
			return nil, fmt.Errorf("%w: mirror %s", messages.ErrUnknownMirror, mirror)
		}
		if err := l.Clock.Sleep(ctx, mirrorStartPause); err != nil {
			return nil, err
		}
	}
}

// errMirrorEnded: the mirror's actor ended before it answered.
var errMirrorEnded = errors.New("mirror ended")

// ask sends to a mirror and waits. A short-lived actor takes the answer, and the
// news that the mirror has ended: what it was asked last vanishes silently.
func (l MirrorLink) ask(ctx context.Context, mirror string, question any) (any, error) {
	to, err := l.find(ctx, mirror)
	if err != nil {
		return nil, err
	}
	answer := make(chan any, 1)
	self := l.System.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			c.Watch(to)
			c.Request(to, question)
		case *actor.Stopping:
			c.Unwatch(to)
		case *actor.Stopped, *actor.Restarting:
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
	select {
	case a := <-answer:
		switch a := a.(type) {
		case *actor.Terminated:
			return nil, fmt.Errorf("%w: mirror %s", errMirrorEnded, mirror)
		case askFailed:
			return nil, fmt.Errorf("ask mirror %s: %w", mirror, a.err)
		}
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
		if errors.Is(err, fetch.ErrMirrorLoop) {
			l.Suspect(mirror, tp.Topic, true) // the mirror watches for its end
		}
		return messages.NoEpoch, err
	}
	return seen.mirrors.LME(mirror, tp)
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
		return messages.NoEpoch, seen.view.leaderless(tp)
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

// Suspect is described at [PartitionSource].
func (l MirrorLink) Suspect(mirror, topic string, loop bool) {
	if to := l.Mirror(mirror); to != nil {
		l.System.Root.Send(to, mirrorSuspect{topic: topic, loop: loop})
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
	err := l.change(ctx, mirror, mirrorUnfetch{tp: tp})
	if errors.Is(err, messages.ErrUnknownMirror) {
		return nil // it ended meanwhile
	}
	return err
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
