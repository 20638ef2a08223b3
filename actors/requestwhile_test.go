package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/cluster"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// muteBus has subjects that take requests and never answer, as a node that is stopped
// does, ones that nobody serves, and ones that answer.
type muteBus struct {
	localBus
	mute, none map[string]bool
	answer     []byte
	asked      []string
}

func (b *muteBus) ControllerBump(node messages.NodeID) string { return fmt.Sprintf("bump.%d", node) }

func (b *muteBus) Request(ctx context.Context, subject string, _ []byte) ([]byte, error) {
	b.asked = append(b.asked, subject)
	switch {
	case b.none[subject]:
		return nil, cluster.ErrNoResponders
	case b.mute[subject]:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return b.answer, nil
}

// TestStateClientLeavesASilentCoordinator: a coordinator that is stopped isn't waited
// for once another node is it.
func TestStateClientLeavesASilentCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var image atomic.Pointer[metadata.Image]
		image.Store(stateImage(t, "m", messages.DesiredActive, 5, 1))
		bus := &muteBus{mute: map[string]bool{"read.0.5": true}, answer: []byte("states")}
		states := NewStateClient(bus, image.Load, clock.Wall{})
		time.AfterFunc(400*time.Millisecond, func() { image.Store(stateImage(t, "m", messages.DesiredActive, 6, 1)) })
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("the deadline was waited for"))
		defer cancel()
		_, err := states.ReadMirrorStates(ctx, "m", nil)
		require.ErrorIs(t, err, messages.ErrNotCoordinator)
		out, err := states.ReadMirrorStates(ctx, "m", nil)
		require.NoError(t, err)
		require.Equal(t, "states", string(out))
	})
}

// controlledBy is an image with a controller.
func controlledBy(t *testing.T, node messages.NodeID, epoch int32) *metadata.Image {
	t.Helper()
	r := wire.NewPtrControllerClaimRecord()
	r.NodeID, r.Epoch = int32(node), epoch
	d, err := metadata.EmptyImage().Apply(1, []metadata.Record{r})
	require.NoError(t, err)
	return d.New
}

// TestBumpLeavesASilentController: a bump goes to the next controller when the one
// before is stopped, and waits while there is none.
func TestBumpLeavesASilentController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var image atomic.Pointer[metadata.Image]
		image.Store(controlledBy(t, 1, 1))
		resp := wire.NewPtrBumpLeaderEpochsResponse()
		topic := wire.NewBumpLeaderEpochsResponseTopicResult()
		topic.Partitions = append(topic.Partitions, wire.NewBumpLeaderEpochsResponsePartitionResult())
		resp.Topics = append(resp.Topics, topic)
		bus := &muteBus{mute: map[string]bool{"bump.1": true}, none: map[string]bool{"bump.2": true}, answer: resp.AppendTo(nil)}
		time.AfterFunc(time.Second, func() { image.Store(controlledBy(t, 2, 2)) })
		time.AfterFunc(2*time.Second, func() { image.Store(controlledBy(t, 3, 3)) })
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("the deadline was waited for"))
		defer cancel()
		errs, err := bumpAnywhere(ctx, bus, image.Load, clock.Wall{}, 9, []messages.EpochBump{{}})
		require.NoError(t, err)
		require.Equal(t, []error{nil}, errs)
		require.Equal(t, "bump.3", bus.asked[len(bus.asked)-1])
		require.Contains(t, bus.asked, "bump.2")
	})
}

// TestForwardedCommandLeavesASilentController: whoever waits for a controller that is
// stopped is told so when another one has claimed.
func TestForwardedCommandLeavesASilentController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := startControllers(t, 1, 1, 2, 3)
		cs.awaitController(1)
		cs.mu.Lock()
		cs.silent = 1
		cs.mu.Unlock()
		time.AfterFunc(time.Second, func() { cs.give(2) })
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("the deadline was waited for"))
		defer cancel()
		out := cs.nodes[3].Submit(ctx, alice, newTopic("a"))
		require.ErrorIs(t, out.Err, messages.ErrTimedOut)
		require.ErrorIs(t, out.Err, errControllerMoved)
		out = cs.nodes[3].Submit(ctx, alice, newTopic("a"))
		require.NoError(t, out.Err)
	})
}
