package actors

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"kagami/internal/clock"
)

// System is an actor system; a node has one.
type System = actor.ActorSystem

// NewSystem makes the actor system of a node, with its log bridged to log. The
// caller shuts it down. Dead letters aren't logged: a timer or an answer for an
// actor that has ended is ordinary here.
func NewSystem(log *zap.Logger) *System {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(zapslog.NewHandler(log.Named("protoactor").Core()))
	}), actor.WithDeadLetterRequestLogging(false))
}

// Delays between restarts of an actor that panicked. protoactor's own strategy
// restarts at once and gives up at the 11th time in 10 s; an actor here stands
// for a partition that must come back by itself.
const (
	restartDelayFirst = 100 * time.Millisecond
	restartDelayMax   = 30 * time.Second
	restartsForgotten = time.Minute // failures older than this don't count
)

// backoffStrategy restarts a failed child after a growing delay, for ever.
type backoffStrategy struct{ clock clock.Clock }

var _ actor.SupervisorStrategy = backoffStrategy{}

// HandleFailure is called by the system. While it waits, the child's mailbox is
// suspended: senders see their deadline.
func (s backoffStrategy) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, rs *actor.RestartStatistics, _, _ any) {
	if rs.NumberOfFailures(restartsForgotten) == 0 {
		rs.Reset()
	}
	rs.Fail()
	s.clock.AfterFunc(restartDelay(rs.FailureCount()), func() { sup.RestartChildren(child) })
}

func restartDelay(failures int) time.Duration {
	d := restartDelayFirst
	for range failures - 1 {
		if d *= 2; d >= restartDelayMax {
			return restartDelayMax
		}
	}
	return d
}

// askFailed is sent to who asked for what an actor panicked on: it would wait
// for ever.
type askFailed struct{ err error }

// errPanicked: the actor panicked on the message and is restarted.
var errPanicked = errors.New("actor panicked")

// recovering logs a panic with its stack before supervision sees it: protoactor
// itself would log the reason only.
func recovering(log *zap.Logger) actor.ReceiverMiddleware {
	return func(next actor.ReceiverFunc) actor.ReceiverFunc {
		return func(c actor.ReceiverContext, env *actor.MessageEnvelope) {
			defer func() {
				if reason := recover(); reason != nil {
					log.Error("actor panicked, it is restarted",
						zap.String("actor", c.Self().GetId()),
						zap.String("message", fmt.Sprintf("%T", env.Message)),
						zap.Any("reason", reason),
						zap.ByteString("stack", debug.Stack()))
					if env.Sender != nil {
						c.ActorSystem().Root.Send(env.Sender, askFailed{err: fmt.Errorf("%w on %T", errPanicked, env.Message)})
					}
					panic(reason)
				}
			}()
			next(c, env)
		}
	}
}

// errEnding: the actor is stopping or restarting.
var errEnding = errors.New("actor is ending")

// ending drops what comes after Stopping or Restarting. protoactor delivers
// messages to an actor that waits for its children to stop; one that spawned a
// child then was never told to stop it, and never ended (measured: the close of a
// node hung until its limit). Who asked gets an answer.
func ending() actor.ReceiverMiddleware {
	over := false // of this actor: props are made for each
	return func(next actor.ReceiverFunc) actor.ReceiverFunc {
		return func(c actor.ReceiverContext, env *actor.MessageEnvelope) {
			switch env.Message.(type) {
			case *actor.Started:
				over = false
			case *actor.Stopping, *actor.Restarting:
				over = true
			case *actor.Stopped, *actor.Terminated:
			default:
				if over {
					if env.Sender != nil {
						c.ActorSystem().Root.Send(env.Sender, askFailed{err: errEnding})
					}
					return
				}
			}
			next(c, env)
		}
	}
}

// props are the properties that every actor of a node has: an unbounded mailbox
// (flow control is by credits), a log of panics, and restarts with a backoff. Each
// actor needs props of its own.
func props(c clock.Clock, log *zap.Logger, make actor.Producer) *actor.Props {
	return actor.PropsFromProducer(make,
		actor.WithReceiverMiddleware(recovering(log), ending()),
		actor.WithSupervisor(backoffStrategy{clock: c}))
}
