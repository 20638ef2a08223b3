package actors

import (
	"context"
	"errors"
	"fmt"

	"kagami/cluster"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// Kafka's codes in answers to BumpLeaderEpochs.
const (
	codeUnknown          int16 = -1
	codeUnknownPartition int16 = 3
	codeTimedOut         int16 = 7
	codeUnsupported      int16 = 35
	codeNotController    int16 = 41
	codeInvalidRequest   int16 = 42
	codeStorage          int16 = 56
	codeUnknownTopicID   int16 = 100
)

// bumpErrors pairs the codes with what they stand for, both ways.
var bumpErrors = []struct {
	code int16
	err  error
}{
	{codeUnknownPartition, messages.ErrUnknownTopicOrPartition},
	{codeTimedOut, messages.ErrTimedOut},
	{codeUnsupported, messages.ErrUnsupportedVersion},
	{codeNotController, messages.ErrNotController},
	{codeInvalidRequest, messages.ErrInvalidRequest},
	{codeStorage, messages.ErrStorage},
	{codeUnknownTopicID, messages.ErrUnknownTopicID},
}

func bumpCode(err error) int16 {
	if err == nil {
		return 0
	}
	for _, e := range bumpErrors {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return codeUnknown
}

func bumpError(code int16) error {
	if code == 0 {
		return nil
	}
	for _, e := range bumpErrors {
		if e.code == code {
			return fmt.Errorf("bump leader epoch: %w", e.err)
		}
	}
	return fmt.Errorf("bump leader epoch: error code %d", code)
}

// HandleBump serves BumpLeaderEpochs on the bus (subject ControllerBump): the
// body of a request of version 0 comes in, the body of a response goes out.
// Entries answer in the order of the request.
func (c *Controller) HandleBump(ctx context.Context, payload []byte) []byte {
	resp := wire.NewPtrBumpLeaderEpochsResponse()
	req := wire.NewPtrBumpLeaderEpochsRequest()
	if err := req.ReadFrom(payload); err != nil {
		resp.ErrorCode = codeInvalidRequest
		return resp.AppendTo(nil)
	}
	var cmd messages.BumpLeaderEpochs
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			cmd.Bumps = append(cmd.Bumps, messages.EpochBump{TopicID: t.TopicID, Partition: p.PartitionIndex, MinLeaderEpoch: p.MinLeaderEpoch})
		}
	}
	who := messages.Requester{Principal: "User:node", RequestID: "bus"}
	if req.NodeID >= 0 { // a node of an older build doesn't say
		who.Principal = fmt.Sprintf("User:node-%d", req.NodeID)
	}
	out := c.Submit(ctx, who, cmd)
	if out.Err != nil {
		resp.ErrorCode = bumpCode(out.Err)
		return resp.AppendTo(nil)
	}
	n := 0
	for _, t := range req.Topics {
		rt := wire.NewBumpLeaderEpochsResponseTopicResult()
		for _, p := range t.Partitions {
			rp := wire.NewBumpLeaderEpochsResponsePartitionResult()
			rp.PartitionIndex, rp.ErrorCode = p.PartitionIndex, bumpCode(out.Items[n].Err)
			rt.TopicName = out.Items[n].Name
			rt.Partitions = append(rt.Partitions, rp)
			n++
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp.AppendTo(nil)
}

// bumpServer is the bus as ServeBumps needs it; *cluster.Bus is one.
type bumpServer interface {
	Serve(subject string, h func(ctx context.Context, payload []byte) []byte) (stop func(), err error)
}

// ServeBumps answers on the bus until stop is called.
func (c *Controller) ServeBumps(bus bumpServer, subject string) (stop func(), err error) {
	stop, err = bus.Serve(subject, c.HandleBump)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, err)
	}
	return stop, nil
}

// bumpRequester is what bumpAnywhere needs of the bus. *cluster.Bus is one.
type bumpRequester interface {
	ControllerBump(node messages.NodeID) string
	Request(ctx context.Context, subject string, payload []byte) ([]byte, error)
}

// errControllerMoved: another node has become the controller, and what the one before
// it made of a request isn't known.
var errControllerMoved = errors.New("another node has become the controller")

// bumpAnywhere is RequestBumps to the controller of the image. While nobody is it, or it
// is succeeded, that is tried again until ctx ends.
func bumpAnywhere(ctx context.Context, bus bumpRequester, image func() *metadata.Image, c clock.Clock, node messages.NodeID, bumps []messages.EpochBump) ([]error, error) {
	for {
		to := image().Controller()
		errs, err := RequestBumps(ctx, func(ctx context.Context, payload []byte) ([]byte, error) {
			return requestWhile(ctx, c, func() bool { return image().Controller() == to }, errControllerMoved, func(ctx context.Context) ([]byte, error) {
				return bus.Request(ctx, bus.ControllerBump(to), payload)
			})
		}, node, bumps)
		again := errors.Is(err, cluster.ErrNoResponders) || errors.Is(err, errControllerMoved) || errors.Is(err, messages.ErrNotController)
		if !again || c.Sleep(ctx, requestLook) != nil {
			return errs, err
		}
	}
}

// RequestBumps is the other side: it sends bumps by request (a bus request to
// the controller's subject) in the name of a node and returns one error per bump,
// in order, or an error for all of them.
func RequestBumps(ctx context.Context, request func(ctx context.Context, payload []byte) ([]byte, error), node messages.NodeID, bumps []messages.EpochBump) ([]error, error) {
	req := wire.NewPtrBumpLeaderEpochsRequest()
	req.NodeID = int32(node)
	for _, b := range bumps { // one entry per bump: the answer keeps the order
		t := wire.NewBumpLeaderEpochsRequestTopicBump()
		t.TopicID = b.TopicID
		p := wire.NewBumpLeaderEpochsRequestPartitionBump()
		p.PartitionIndex, p.MinLeaderEpoch = b.Partition, b.MinLeaderEpoch
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	payload, err := request(ctx, req.AppendTo(nil))
	if err != nil {
		return nil, fmt.Errorf("bump leader epochs: %w", err)
	}
	resp := wire.NewPtrBumpLeaderEpochsResponse()
	if err := resp.ReadFrom(payload); err != nil {
		return nil, fmt.Errorf("bump leader epochs: %w", err)
	}
	if resp.ErrorCode != 0 {
		return nil, bumpError(resp.ErrorCode)
	}
	errs := make([]error, 0, len(bumps))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			errs = append(errs, bumpError(p.ErrorCode))
		}
	}
	if len(errs) != len(bumps) {
		return nil, fmt.Errorf("bump leader epochs: %d answers to %d bumps", len(errs), len(bumps))
	}
	return errs, nil
}
