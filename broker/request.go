package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// request is one decoded request and who sent it. Handlers read it, and never
// keep it after they return.
type request struct {
	api      *api
	version  int16
	body     kmsg.Request
	who      messages.Requester
	listener string
	conn     *conn // for requests about the connection itself

	// throttle is what a quota makes the client wait for, waited how long handling it was
	// no work; handlers add to them.
	throttle, waited time.Duration

	// gone is closed when nobody waits for the answer any more or the server
	// closes: long polls end, changes that have begun go on.
	gone <-chan struct{}
	log  *zap.Logger
}

// reply is a handler's answer: exactly one field is set. silent means that the
// client expects nothing (acks=0). drop closes the connection without an answer, last, beside
// resp, after it.
type reply struct {
	resp   kmsg.Response
	fetch  *fetchReply
	silent bool
	drop   error
	last   error
}

func answer(resp kmsg.Response) reply { return reply{resp: resp} }

// code is errorCode, with a log line for what no client can act on.
func (r *request) code(err error) int16 {
	c := errorCode(err)
	if c == kerr.UnknownServerError.Code {
		r.log.Error("request failed", zap.String("api", r.api.name), zap.Error(err))
	}
	return c
}

// allowed asks the authorizer.
func (s *Server) allowed(r *request, op Operation, kind ResourceKind, name string) bool {
	ok := s.deps.Authorizer.Allowed(r.who, op, kind, name)
	if !ok && r.log.Core().Enabled(zap.DebugLevel) {
		r.log.Debug("not allowed", zap.String("api", r.api.name), zap.String(messages.FieldPrincipal, r.who.Principal), zap.Stringer("operation", op), zap.Stringer("resource_type", kind), zap.String("resource", name))
	}
	return ok
}

func (s *Server) allowedCluster(r *request, op Operation) bool {
	return s.allowed(r, op, KindCluster, ClusterResourceName)
}

// unknown is the answer about a topic that wasn't found by the name given ("" by its id):
// who has no right to a topic isn't told whether it is there.
func (s *Server) unknown(r *request, op Operation, name string, err error) error {
	if name != "" && !s.allowed(r, op, KindTopic, name) {
		return messages.ErrTopicNotAuthorized
	}
	return err
}

// allowedAny asks whether there can be a resource of the kind that it is allowed on.
func (s *Server) allowedAny(r *request, op Operation, kind ResourceKind) bool {
	return s.deps.Authorizer.AllowedAny(r.who, op, kind)
}

func (s *Server) image() *metadata.Image { return s.deps.Images.Image() }

// submit asks the controller, and waits for the change to show in this node's
// image, so that a client sees its own change in the next answer.
func (s *Server) submit(ctx context.Context, r *request, timeout time.Duration, cmd messages.Command) messages.Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, clampTimeout(timeout), messages.ErrTimedOut)
	defer cancel()
	out := s.deps.Controller.Submit(ctx, r.who, cmd)
	if out.Err != nil {
		if errors.Is(out.Err, context.DeadlineExceeded) {
			out.Err = messages.ErrTimedOut
		}
		return out
	}
	if out.Offset > 0 {
		if err := s.deps.Images.WaitFor(ctx, out.Offset); err != nil {
			r.log.Warn("wait for metadata", zap.Int64(messages.FieldOffset, out.Offset), zap.Error(err))
		}
	}
	return out
}

const (
	adminTimeoutDefault = 30 * time.Second
	adminTimeoutMax     = 10 * time.Minute
)

func clampTimeout(d time.Duration) time.Duration {
	if d <= 0 {
		return adminTimeoutDefault
	}
	return min(d, adminTimeoutMax)
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// endpointOf is the address of a node on the listener that was asked; ok is false
// where the node is dead or doesn't have that listener.
func (s *Server) endpointOf(n *messages.Node, listener string) (e messages.Endpoint, ok bool) {
	if n == nil || s.cfg.Live != nil && !s.cfg.Live(n.ID) {
		return messages.Endpoint{}, false
	}
	for _, e := range n.Endpoints {
		if e.Listener == listener {
			return e, true
		}
	}
	return messages.Endpoint{}, false
}

// rackOf is the rack as the protocol has it: null for none.
func rackOf(n *messages.Node) *string {
	if n.Rack == "" {
		return nil
	}
	return &n.Rack
}

// checkPartition finds the leader's replica and checks the leader epoch that the
// client believes in (KIP-320), negative for none. On a refusal with a known
// topic the partition's metadata comes back as well, for the leader hints.
func (s *Server) checkPartition(t *metadata.Topic, partition, epoch int32) (Partition, error) {
	if _, ok := t.Partition(partition); !ok {
		return nil, messages.ErrUnknownTopicOrPartition
	}
	p, err := s.deps.Partitions.Partition(messages.TopicPartition{Topic: t.Name, Partition: partition}, t.ID)
	if err != nil {
		return nil, err
	}
	if epoch < 0 {
		return p, nil
	}
	switch own := p.State().LeaderEpoch; {
	case epoch < own:
		return nil, messages.ErrFencedLeaderEpoch
	case epoch > own:
		return nil, messages.ErrUnknownLeaderEpoch
	default:
		return p, nil
	}
}
