package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
)

// controllerStore is the metadata log as the controller needs it; *metadata.Store
// is one.
type controllerStore interface {
	Image() *metadata.Image
	AppendAll(ctx context.Context, changes []metadata.Change) ([]int64, error)
}

// ControllerOptions of NewController. Node, ClusterID, Store, Live, Clock and
// Logger are required.
type ControllerOptions struct {
	Node messages.NodeID
	// ClusterID founds the cluster when the log is empty; it is not looked at later.
	ClusterID string
	Store     controllerStore
	// Claim makes the node the leader of the metadata partition under an epoch,
	// before the claim is written; cluster.Replica.Claim is one. nil: nothing to do.
	Claim func(ctx context.Context, epoch int32) error
	// Live lists the nodes that may get replicas now. It must not block.
	Live func() []messages.NodeID
	// Static is the settings of the node's file.
	Static map[string]string
	// Secrets are the keys that secrets are written with; nil: they are written in clear.
	Secrets *secrets.Ring
	// Others is nil in a cluster of one, whose node is always the controller.
	Others *ControllerOthers

	CommandsMax   int           // commands waiting at a time, more wait in Submit; default 1000
	SubmitTimeout time.Duration // of Submit without a deadline; default 30 s
	AppendTimeout time.Duration // of one append to the metadata log; default 30 s
	RetryDelay    time.Duration // between attempts to become controller; default 1 s

	Clock  clock.Clock
	Logger *zap.Logger
}

func (o ControllerOptions) withDefaults() ControllerOptions {
	if o.CommandsMax == 0 {
		o.CommandsMax = 1000
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.SubmitTimeout, 30 * time.Second},
		{&o.AppendTimeout, 30 * time.Second},
		{&o.RetryDelay, time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	return o
}

// ControllerOthers is what a node of several needs to be controller when it is its
// turn, and to hand commands to whoever is. All fields are required; none of the
// functions may block, but Remote.
type ControllerOthers struct {
	// Candidate reports whether this node may claim the metadata log now.
	Candidate func() bool
	// Remote has the controller on another node decide a command.
	Remote func(ctx context.Context, node messages.NodeID, command messages.ForwardedCommand) messages.Outcome
	// WaitFor waits until this node's image is at or above an offset.
	WaitFor func(ctx context.Context, offset int64) error
	// Duty is a command that the controller gives itself; nil: nothing is to be done.
	// It is asked every Interval.
	Duty     func(*metadata.Image) messages.Command
	Interval time.Duration
}

// Validate reports every fault of o.
func (o ControllerOptions) Validate() error {
	var errs []error
	for _, c := range []struct {
		bad  bool
		what string
	}{
		{o.Node < 0, fmt.Sprintf("node id %d", o.Node)},
		{o.ClusterID == "", "no cluster id"},
		{o.Store == nil, "no store"},
		{o.Live == nil, "no list of live nodes"},
		{o.Clock == nil, "no clock"},
		{o.Logger == nil, "no logger"},
		{o.CommandsMax < 0, fmt.Sprintf("CommandsMax %d", o.CommandsMax)},
	} {
		if c.bad {
			errs = append(errs, fmt.Errorf("controller options: %s", c.what))
		}
	}
	return errors.Join(errs...)
}

// Controller is the Go face of the controller actor of a node: it claims the
// metadata log and turns commands into records, one atomic batch per command.
// All methods may be called from any goroutine.
type Controller struct {
	opts    ControllerOptions
	root    *actor.RootContext
	pid     *actor.PID
	credits chan struct{} // one per command on its way
	closing atomic.Bool
	closed  chan struct{} // closed at the end of Close
	claimed chan struct{} // closed after the first claim
	jobs    atomic.Uint64 // numbers appends across restarts of the actor
}

// errControllerClosed: Submit after Close.
var errControllerClosed = fmt.Errorf("%w: the controller is stopped", messages.ErrNotController)

// NewController starts the actor, which at once begins to claim the metadata log.
// ctx carries values only. The caller closes the controller before the store.
func NewController(ctx context.Context, system *actor.ActorSystem, opts ControllerOptions) (*Controller, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	c := &Controller{
		opts: opts, root: system.Root,
		credits: make(chan struct{}, opts.CommandsMax), closed: make(chan struct{}), claimed: make(chan struct{}),
	}
	base := context.WithoutCancel(ctx)
	log := opts.Logger.Named("controller")
	pid, err := system.Root.SpawnNamed(props(opts.Clock, log, func() actor.Actor {
		return &controllerActor{c: c, log: log, base: func() context.Context { return base }}
	}), "controller")
	if err != nil {
		return nil, fmt.Errorf("spawn controller: %w", err)
	}
	c.pid = pid
	return c, nil
}

// WaitClaimed waits until this node has become controller for the first time.
func (c *Controller) WaitClaimed(ctx context.Context) error {
	select {
	case <-c.claimed:
		return nil
	case <-c.closed:
		return errControllerClosed
	case <-ctx.Done():
		return fmt.Errorf("wait to become controller: %w", context.Cause(ctx))
	}
}

// Submit has a command decided and made durable, by whichever node is controller,
// and returns its outcome once this node's image shows it. Without an answer in time the outcome's error wraps
// messages.ErrTimedOut, and whether the change was made is not known. The
// command must not be changed afterwards.
func (c *Controller) Submit(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, c.opts.SubmitTimeout, fmt.Errorf("%w: no answer of the controller within %s", messages.ErrTimedOut, c.opts.SubmitTimeout))
	defer cancel()
	if c.opts.Others != nil {
		return c.submitAnywhere(ctx, who, cmd)
	}
	return c.submitHere(ctx, who, cmd)
}

// submitHere has this node's actor decide.
func (c *Controller) submitHere(ctx context.Context, who messages.Requester, cmd messages.Command) messages.Outcome {
	refused := func() messages.Outcome {
		err := context.Cause(ctx)
		if !errors.Is(err, messages.ErrTimedOut) {
			err = fmt.Errorf("%w: %w", messages.ErrTimedOut, err)
		}
		return messages.Outcome{Err: err, Offset: messages.NoOffset}
	}
	if c.closing.Load() {
		return messages.Outcome{Err: errControllerClosed, Offset: messages.NoOffset}
	}
	select {
	case c.credits <- struct{}{}:
	case <-ctx.Done():
		return refused()
	case <-c.closed:
		return messages.Outcome{Err: errControllerClosed, Offset: messages.NoOffset}
	}
	defer func() { <-c.credits }()
	reply := make(chan messages.Outcome, 1)
	c.root.Send(c.pid, &controllerSubmit{cmd: cmd, who: who, gone: ctx.Done(), reply: reply})
	select {
	case out := <-reply:
		return out
	case <-ctx.Done():
		return refused()
	case <-c.closed:
		// The actor answers what it had when it stopped, if it still could.
		select {
		case out := <-reply:
			return out
		default:
			return messages.Outcome{Err: errControllerClosed, Offset: messages.NoOffset}
		}
	}
}

// Commands is how many commands are on their way now, at most CommandsMax: for
// the metric of the controller's queue.
func (c *Controller) Commands() int { return len(c.credits) }

// Close stops the actor and waits for the append that is under way. It may be
// called twice.
func (c *Controller) Close() error {
	if !c.closing.CompareAndSwap(false, true) {
		<-c.closed
		return nil
	}
	defer close(c.closed)
	if err := c.root.StopFuture(c.pid).Wait(); err != nil {
		return fmt.Errorf("stop controller: %w", err)
	}
	return nil
}
