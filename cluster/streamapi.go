package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"kagami/messages"
)

// Codes of JetStream's API that we act on.
const (
	codeNoPeers        jetstream.ErrorCode = 10005 // not enough servers for the replicas, yet
	codeNotAvailable   jetstream.ErrorCode = 10008 // no meta leader
	codeNotLeader      jetstream.ErrorCode = 10009
	codeNoResources    jetstream.ErrorCode = 10023
	codeNoMessage      jetstream.ErrorCode = 10037
	codeStreamExists   jetstream.ErrorCode = 10058 // with a different configuration
	codeStreamNotFound jetstream.ErrorCode = 10059
	codeWrongLast      jetstream.ErrorCode = 10071
	codeStoreFailed    jetstream.ErrorCode = 10077 // among others: maximum bytes exceeded
	codeStreamOffline  jetstream.ErrorCode = 10118
	codeWrongLastToo   jetstream.ErrorCode = 10164
	codeTooMany        jetstream.ErrorCode = 10167
)

// isAPIError reports whether err is one of those answers.
func isAPIError(err error, codes ...jetstream.ErrorCode) bool {
	var e *jetstream.APIError
	return errors.As(err, &e) && slices.Contains(codes, e.ErrorCode)
}

// retriable tells what goes away by itself: no leader, no quorum, peers that
// aren't connected yet, no answer, a connection that is made anew.
func retriable(err error) bool {
	return isAPIError(err, codeNoPeers, codeNotAvailable, codeNotLeader, codeNoResources, codeStreamOffline) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, errTry) || errors.Is(err, errNoLeader) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

var (
	errTry      = errors.New("no answer in time")
	errNoLeader = errors.New("the journal has no leader that hears a quorum")
)

// Waits between two tries.
const (
	retryWaitMin = 20 * time.Millisecond
	retryWaitMax = 500 * time.Millisecond
	retryTell    = 5 * time.Second // longer than most elections
)

// retry calls f until it succeeds, fails for good, or ctx ends; then the error
// has both the cause and the last failure.
func (s *Streams) retry(ctx context.Context, f func(ctx context.Context) error) error {
	began, told := s.opts.Clock.Now(), false
	for wait := retryWaitMin; ; wait = min(2*wait, retryWaitMax) {
		err := f(ctx)
		if err == nil || !retriable(err) {
			return err
		}
		if !told && s.opts.Clock.Now().Sub(began) > retryTell {
			told = true
			s.log.Warn("the journal doesn't do what it is asked for, tried again", zap.Error(err))
		}
		if cause := s.opts.Clock.Sleep(ctx, wait); cause != nil {
			return fmt.Errorf("%w (last: %w)", cause, err)
		}
	}
}

// api asks JetStream's API and repeats what is retriable. answer may be nil.
func (s *Streams) api(ctx context.Context, subject string, request, answer any) error {
	return s.retry(ctx, func(ctx context.Context) error { return s.tryAPI(ctx, subject, request, answer) })
}

func (s *Streams) tryAPI(ctx context.Context, subject string, request, answer any) error {
	var payload []byte
	if request != nil {
		var err error
		if payload, err = json.Marshal(request); err != nil {
			return fmt.Errorf("encode request %s: %w", subject, err)
		}
	}
	reply, err := s.request(ctx, &nats.Msg{Subject: "$JS.API." + subject, Data: payload})
	if err != nil {
		return err
	}
	var outcome struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &outcome); err != nil {
		return fmt.Errorf("read answer to %s: %w", subject, err)
	}
	if outcome.Error != nil {
		return outcome.Error
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("read answer to %s: %w", subject, err)
	}
	return nil
}

// request is one try.
func (s *Streams) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	try, cancel := context.WithTimeoutCause(ctx, s.opts.RequestTimeout, errTry)
	defer cancel()
	reply, err := s.read.RequestMsgWithContext(try, m)
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case try.Err() != nil, errors.Is(err, nats.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", m.Subject, errTry)
	case errors.Is(err, nats.ErrConnectionClosed):
		return nil, ErrClosed
	default:
		return nil, err // no responders
	}
}

func (st *Stream) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	info := new(jetstream.StreamInfo)
	if err := st.streams.api(ctx, "STREAM.INFO."+st.stream, nil, info); err != nil {
		return nil, err
	}
	return info, nil
}

// led is the info of the stream's leader. Others answer too: any peer while
// there is no leader, and for 10 s after its start the peer that the stream's
// assignment prefers, before it has caught up.
func (st *Stream) led(ctx context.Context) (*jetstream.StreamInfo, error) {
	return st.infoIf(ctx, fromLeader)
}

// trusted is the info of a leader that heard a quorum lately: one that was cut
// off or paused doesn't know yet that it was deposed.
func (st *Stream) trusted(ctx context.Context) (*jetstream.StreamInfo, error) {
	return st.infoIf(ctx, func(info *jetstream.StreamInfo) bool { return fromLeader(info) && hearsQuorum(info) })
}

func (st *Stream) infoIf(ctx context.Context, accept func(*jetstream.StreamInfo) bool) (*jetstream.StreamInfo, error) {
	info := new(jetstream.StreamInfo)
	err := st.streams.retry(ctx, func(ctx context.Context) error {
		*info = jetstream.StreamInfo{}
		if err := st.streams.tryAPI(ctx, "STREAM.INFO."+st.stream, nil, info); err != nil {
			return err
		}
		if !accept(info) {
			return errNoLeader
		}
		return nil
	})
	if isAPIError(err, codeStreamNotFound) {
		return nil, ErrNoStream
	}
	if err != nil {
		return nil, err
	}
	return info, nil
}

// fromLeader: the replicas of an info are the peers but the one that answers.
func fromLeader(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Leader != "" &&
		!slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return p.Name == info.Cluster.Leader })
}

// quorumAge is how old an answer of a peer may be. Leaders send something every
// second; an election takes four at least.
const quorumAge = 3500 * time.Millisecond

func hearsQuorum(info *jetstream.StreamInfo) bool {
	heard, peers := 1, len(info.Cluster.Replicas)+1
	for _, p := range info.Cluster.Replicas {
		if !p.Offline && p.Active < quorumAge {
			heard++
		}
	}
	return heard > peers/2
}

// StreamState describes a stream for metrics and queries.
type StreamState struct {
	First, Last  uint64
	Bytes        uint64
	Leader       messages.NodeID
	Replicas     int               // as many as there shall be
	Current      []messages.NodeID // those that have everything, the leader too
	Moving       bool              // replicas are being added or removed
	MessageCount uint64
}

// State asks the stream's leader for its numbers.
func (st *Stream) State(ctx context.Context) (StreamState, error) {
	info, err := st.led(ctx)
	if err != nil {
		return StreamState{}, fmt.Errorf("read state of journal %s: %w", st.name, err)
	}
	out := StreamState{Bytes: info.State.Bytes, Replicas: info.Config.Replicas, MessageCount: info.State.Msgs, Moving: info.Cluster.Desired != nil}
	out.First, out.Last = bounds(info)
	var isNode bool
	if out.Leader, isNode = natsNode(info.Cluster.Leader); !isNode {
		out.Leader = messages.NoNode // of an external cluster
	}
	if isNode {
		out.Current = []messages.NodeID{out.Leader}
	}
	for _, p := range info.Cluster.Replicas {
		if id, ok := natsNode(p.Name); ok && p.Current && !p.Offline && !p.Pending {
			out.Current = append(out.Current, id)
		}
	}
	slices.Sort(out.Current)
	return out, nil
}
