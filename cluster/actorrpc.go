package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"kagami/messages"
	pb "kagami/messages/proto"
)

// ActorHandler hands a message to the local actor of that name and returns its
// answer. Errors that cross to the asking node keep their meaning if they wrap
// ErrUnknownActor, ErrNotReady, messages.ErrNotLeader, messages.ErrInvalidRequest
// or messages.ErrTimedOut.
type ActorHandler func(ctx context.Context, actor string, msg []byte) ([]byte, error)

// ActorRPC asks actors of any node by name, over the bus. Placement isn't its
// business: the caller takes the node from the metadata image, and a stale
// address answers messages.ErrNotLeader.
type ActorRPC struct {
	bus  *Bus
	node messages.NodeID

	mu      sync.Mutex
	handler ActorHandler
	stop    func()
}

// NewActorRPC is for the node of that bus.
func NewActorRPC(bus *Bus) *ActorRPC { return &ActorRPC{bus: bus, node: bus.opts.Node} }

// RegisterActorHandler starts to answer for this node's actors. It is called
// once; stop it by Close.
func (a *ActorRPC) RegisterActorHandler(h func(ctx context.Context, actor string, msg []byte) ([]byte, error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.handler != nil {
		return errors.New("register actor handler: there is one already")
	}
	stop, err := a.bus.Serve(a.bus.NodeActor(a.node), func(ctx context.Context, payload []byte) []byte {
		return answerActor(ctx, h, payload)
	})
	if err != nil {
		return fmt.Errorf("register actor handler: %w", err)
	}
	a.handler, a.stop = h, stop
	return nil
}

// Close stops answering and waits for running requests. It may be called twice.
func (a *ActorRPC) Close() {
	a.mu.Lock()
	stop := a.stop
	a.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// AskActor sends msg to an actor of a node and waits for its answer. Besides
// the errors of [Bus.Request] (ErrNoResponders: no such node at the moment) it
// returns those of [ActorHandler].
func (a *ActorRPC) AskActor(ctx context.Context, node messages.NodeID, actor string, msg []byte) ([]byte, error) {
	request, err := proto.Marshal(&pb.ActorRequest{Actor: actor, Payload: msg})
	if err != nil {
		return nil, fmt.Errorf("ask actor %s of node %d: %w", actor, node, err)
	}
	reply, err := a.bus.Request(ctx, a.bus.NodeActor(node), request)
	if err != nil {
		return nil, fmt.Errorf("ask actor %s of node %d: %w", actor, node, err)
	}
	var response pb.ActorResponse
	if err := proto.Unmarshal(reply, &response); err != nil {
		return nil, fmt.Errorf("ask actor %s of node %d: read answer: %w", actor, node, err)
	}
	if err := statusError(response.GetStatus()); err != nil {
		return nil, fmt.Errorf("ask actor %s of node %d: %w", actor, node, err)
	}
	return response.GetPayload(), nil
}

// Query is AskActor with a query of messages/proto.
func (a *ActorRPC) Query(ctx context.Context, node messages.NodeID, actor string, q *pb.Query) (*pb.QueryResult, error) {
	msg, err := proto.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode query to %s: %w", actor, err)
	}
	reply, err := a.AskActor(ctx, node, actor, msg)
	if err != nil {
		return nil, err
	}
	result := new(pb.QueryResult)
	if err := proto.Unmarshal(reply, result); err != nil {
		return nil, fmt.Errorf("read result of query to %s: %w", actor, err)
	}
	return result, nil
}

func answerActor(ctx context.Context, h ActorHandler, payload []byte) []byte {
	var request pb.ActorRequest
	response := &pb.ActorResponse{}
	if err := proto.Unmarshal(payload, &request); err != nil {
		response.Status = &pb.Status{Code: pb.Code_CODE_BAD_REQUEST, Message: err.Error()}
	} else {
		out, err := h(ctx, request.GetActor(), request.GetPayload())
		response.Status = errorStatus(err)
		if err == nil {
			response.Payload = out
		}
	}
	b, err := proto.Marshal(response)
	if err != nil { // a text that isn't UTF-8
		b, _ = proto.Marshal(&pb.ActorResponse{Status: &pb.Status{Code: pb.Code_CODE_INTERNAL, Message: "answer can't be encoded"}})
	}
	return b
}

// actorErrors are the errors that keep their meaning across nodes.
var actorErrors = []struct {
	code pb.Code
	err  error
}{
	{pb.Code_CODE_UNKNOWN_ACTOR, ErrUnknownActor},
	{pb.Code_CODE_NOT_READY, ErrNotReady},
	{pb.Code_CODE_NOT_LEADER, messages.ErrNotLeader},
	{pb.Code_CODE_NOT_LEADER, messages.ErrNotCoordinator},
	{pb.Code_CODE_NOT_READY, messages.ErrCoordinatorLoading},
	{pb.Code_CODE_BAD_REQUEST, messages.ErrInvalidRequest},
	{pb.Code_CODE_TIMED_OUT, messages.ErrTimedOut},
	{pb.Code_CODE_TIMED_OUT, context.DeadlineExceeded},
}

// ErrorStatus is an error as it crosses nodes, and StatusError what it is there.
func ErrorStatus(err error) *pb.Status { return errorStatus(err) }

// StatusError is the error of a status, nil if there is none.
func StatusError(s *pb.Status) error {
	if s == nil {
		return nil
	}
	return statusError(s)
}

func errorStatus(err error) *pb.Status {
	if err == nil {
		return &pb.Status{Code: pb.Code_CODE_OK}
	}
	for _, e := range actorErrors {
		if errors.Is(err, e.err) {
			return &pb.Status{Code: e.code, Message: err.Error()}
		}
	}
	return &pb.Status{Code: pb.Code_CODE_INTERNAL, Message: err.Error()}
}

func statusError(s *pb.Status) error {
	if s.GetCode() == pb.Code_CODE_OK {
		return nil
	}
	for _, e := range actorErrors {
		if e.code == s.GetCode() {
			return remoteError{text: s.GetMessage(), is: e.err}
		}
	}
	return remoteError{text: s.GetMessage(), is: ErrHandler}
}

// remoteError is another node's error: its text, and the sentinel it wrapped.
type remoteError struct {
	text string
	is   error
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) Unwrap() error { return e.is }
