package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/messages"
	"kagami/persistence/metadata"
)

// forwardRetry is the wait before a command is tried again that found no controller.
const forwardRetry = 50 * time.Millisecond

// submitAnywhere has the controller decide, wherever it is. What isn't the
// controller refuses without having done anything, so that is tried again.
func (c *Controller) submitAnywhere(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome {
	for {
		out := c.submitOnce(ctx, who, cmd)
		if !errors.Is(out.Err, messages.ErrNotController) || c.closing.Load() {
			return out
		}
		if err := c.opts.Clock.Sleep(ctx, forwardRetry); err != nil {
			return messages.Outcome{Err: fmt.Errorf("%w: %w", context.Cause(ctx), out.Err), Offset: messages.NoOffset}
		}
	}
}

func (c *Controller) submitOnce(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome {
	switch target := c.opts.Store.Image().Controller(); target {
	case messages.NoNode:
		return messages.Outcome{Err: fmt.Errorf("%w: there is none yet", messages.ErrNotController), Offset: messages.NoOffset}
	case c.opts.Node:
		return c.submitHere(ctx, who, cmd)
	default:
		still := func() bool { return c.opts.Store.Image().Controller() == target }
		out, _ := requestWhile(ctx, c.opts.Clock, still, errControllerMoved, func(ctx context.Context) (messages.Outcome, error) {
			return c.opts.Others.Remote(ctx, target, messages.ForwardedCommand{From: c.opts.Node, Who: who, Command: cmd}), nil
		})
		if out.Err == nil && out.Offset >= 0 {
			if err := c.opts.Others.WaitFor(ctx, out.Offset); err != nil {
				return messages.Outcome{Err: fmt.Errorf("%w: %w", messages.ErrTimedOut, err), Offset: messages.NoOffset}
			}
		}
		return out
	}
}

// HandleCommand serves a command that another node forwards: bytes of a
// messages.ForwardedCommand come in, those of an outcome go out. It never forwards
// on.
func (c *Controller) HandleCommand(ctx context.Context, payload []byte) []byte {
	f, err := messages.DecodeForwardedCommand(payload)
	out := messages.Outcome{Err: err, Offset: messages.NoOffset}
	if err == nil {
		out = c.submitHere(ctx, f.Who, f.Command)
	}
	b, err := messages.EncodeOutcome(out)
	if err != nil {
		b, _ = messages.EncodeOutcome(messages.Outcome{Err: fmt.Errorf("%w: %w", messages.ErrTimedOut, err), Offset: messages.NoOffset})
	}
	return b
}

// RequestCommand is the other side of HandleCommand, over request.
func RequestCommand(ctx context.Context, request func(ctx context.Context, payload []byte) ([]byte, error), f messages.ForwardedCommand) messages.Outcome {
	refuse := func(err error) messages.Outcome { return messages.Outcome{Err: err, Offset: messages.NoOffset} }
	payload, err := f.Encode()
	if err != nil {
		return refuse(fmt.Errorf("%w: %w", messages.ErrInvalidRequest, err))
	}
	answer, err := request(ctx, payload)
	switch {
	case errors.Is(err, messages.ErrNotController):
		return refuse(err)
	case err != nil:
		return refuse(fmt.Errorf("%w: whether the change was made isn't known: %w", messages.ErrTimedOut, err))
	}
	out, err := messages.DecodeOutcome(answer)
	if err != nil {
		return refuse(fmt.Errorf("%w: %w", messages.ErrTimedOut, err))
	}
	return out
}

// refuse answers what waits while this node isn't the controller.
func (a *controllerActor) refuse() {
	for _, s := range a.pending {
		s.reply <- messages.Outcome{Err: fmt.Errorf("%w: node %d isn't it", messages.ErrNotController, a.c.opts.Node), Offset: messages.NoOffset}
	}
	a.pending = nil
}

func (a *controllerActor) tickLater() {
	if o := a.c.opts.Others; o != nil {
		a.stopTick = a.c.opts.Clock.AfterFunc(o.Interval, func() { a.c.root.Send(a.self, controllerTick{}) })
	}
}

// tick claims when it is this node's turn, steps down when another one has
// claimed or the order of the metadata log doesn't reach this node any more, and
// does what a controller does by itself.
func (a *controllerActor) tick() {
	if a.stop == nil {
		return
	}
	img := a.c.opts.Store.Image()
	others := img.ControllerEpoch() > a.epoch || img.Controller() != a.c.opts.Node
	switch {
	case a.busy:
		if a.epoch != 0 && (others || !a.c.opts.Others.Candidate()) {
			a.refuse() // they needn't wait for what is on its way, which can't but fail
		}
	case a.epoch == 0:
		a.claim()
	case others, !a.c.opts.Others.Candidate():
		a.log.Info("this node is the controller no more", zap.Int32(messages.FieldEpoch, img.ControllerEpoch()), zap.Int32("node", int32(img.Controller())))
		a.epoch = 0
		a.refuse()
	default:
		a.duty(img)
	}
}

// duty does what is due.
func (a *controllerActor) duty(img *metadata.Image) {
	cmd := a.c.opts.Others.Duty(img)
	if cmd == nil {
		return
	}
	a.pending = append(a.pending, &controllerSubmit{
		cmd: cmd, who: messages.Requester{Principal: fmt.Sprintf("User:node-%d", a.c.opts.Node), RequestID: "placement"},
		reply: make(chan messages.Outcome, 1), // nobody reads it: the image tells
	})
	a.next()
}

// ControllerView is what a node knows of who is the controller.
type ControllerView struct {
	Node, Incumbent messages.NodeID // Incumbent by the image, NoNode if there was none
	Founder         messages.NodeID // who founded the cluster
	On              cluster.FoundedOn
	HasLog          bool // this node's metadata log isn't empty
	Isolated        bool // the order of the metadata log doesn't reach this node
	// Silence is how long nothing of the incumbent, of the founder if there is none, came
	// through that log, DeadAfter how long that may be.
	Silence, DeadAfter time.Duration
	Left               bool              // the incumbent has said that it is about to end
	Live               []messages.NodeID // without those that are about to end
}

// Turn reports whether the node may claim the metadata log, or stay the
// controller: the incumbent stays while its beats come through the metadata log's
// journal and it isn't about to end; after it the live node that ranks first follows,
// and if that one doesn't for long, whoever can.
func (v ControllerView) Turn() bool {
	switch {
	case v.Isolated, len(v.Live) > 0 && !slices.Contains(v.Live, v.Node):
		return false
	case v.Incumbent == messages.NoNode:
		return v.begins()
	case v.Incumbent == v.Node:
		return true
	case v.Silence < v.DeadAfter && !v.Left:
		return false
	case v.Silence > 3*v.DeadAfter:
		return true
	}
	return v.first()
}

// begins reports whether the node may begin an empty metadata log. Of a cluster of one
// that grows only the founder may: it has the log to put there, which another one's
// claim, or its own without that log, would shut out for good. Where all were empty it
// is the founder's turn first, and that of others when it is away for long.
func (v ControllerView) begins() bool {
	switch {
	case v.On == cluster.FoundedOnData:
		return v.Node == v.Founder && v.HasLog
	case v.Node == v.Founder:
		return true
	case v.On != cluster.FoundedOnNothing || slices.Contains(v.Live, v.Founder):
		return false
	}
	return v.Silence > 3*v.DeadAfter && v.first() || v.Silence > 6*v.DeadAfter
}

// first reports whether the node ranks first of those that are alive.
func (v ControllerView) first() bool {
	return len(v.Live) > 0 &&
		slices.MinFunc(v.Live, func(a, b messages.NodeID) int { return cmp.Compare(controllerRank(a), controllerRank(b)) }) == v.Node
}

// controllerRank is an order of all node ids that favours none by its number.
func controllerRank(id messages.NodeID) uint64 { return mix64(uint64(uint32(id))) }
