package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// Limits of catching up: what one request brings.
const (
	catchUpMessages = 2048
	catchUpBytes    = 4 << 20
	// catchUpTries is how often a message that must be there isn't, before the
	// leader itself is asked for it. Any replica answers a direct get, one that
	// lags has less.
	catchUpTries = 3
	// catchUpTriesMax is how often the leader has less than is due before that is
	// looked at as such.
	catchUpTriesMax = 10
)

// Follow calls f with every message from a sequence on, exactly once, in order
// and without a gap, until ctx ends or f fails; it returns ctx's cause or f's
// error. It runs in the caller's goroutine and starts none; payload belongs to f.
//
// New messages come by the stream's republish, a copy that the leader sends when
// a message is stored by a quorum. It may lose some (a slow follower, an
// election, a reconnect), so the sequence decides: what is missing is read by
// direct gets, and a follower that hears nothing compares its place with the
// stream's bounds every CheckInterval.
//
// It returns a *HoleError if the next message was purged, also when nothing
// comes after it, and ErrJournalWentBack if the stream ends below sequence-1.
func (st *Stream) Follow(ctx context.Context, from uint64, f func(sequence uint64, payload []byte) error) error {
	sub, err := st.streams.read.SubscribeSync(st.follow)
	if err != nil {
		return st.followError(ctx, err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			st.streams.log.Debug("end follower", zap.String("journal", st.name), zap.Error(err))
		}
	}()
	if err := sub.SetPendingLimits(nats.DefaultSubPendingMsgsLimit, st.streams.opts.FollowBytesMax); err != nil {
		return st.followError(ctx, err)
	}
	fo := &follower{stream: st, streams: st.streams, sub: sub, next: max(from, 1), apply: f}
	return st.followError(ctx, fo.run(ctx))
}

func (st *Stream) followError(ctx context.Context, err error) error {
	var hole *HoleError
	switch {
	case errors.As(err, &hole):
		return err
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrBadSubscription):
		err = ErrClosed
	}
	return fmt.Errorf("follow journal %s: %w", st.name, err)
}

// follower is one Follow; its fields belong to that call's goroutine.
type follower struct {
	stream  *Stream
	streams *Streams
	sub     *nats.Subscription
	apply   func(uint64, []byte) error
	next    uint64 // sequence that is due
	checkAt time.Time
	dropped bool // the subscription dropped messages
	// back counts looks in a row that saw the stream end at backLast, below next-1.
	back     int
	backLast uint64
}

// backLooks prove that the journal went back. One doesn't: a replica may have
// applied more than its leader, and the messages of a replica were read.
const backLooks = 3

func (fo *follower) run(ctx context.Context) error {
	for {
		m, err := fo.receive(ctx)
		switch {
		case errors.Is(err, nats.ErrSlowConsumer):
			fo.dropped = true // what wasn't dropped is still there
			continue
		case err != nil:
			return err
		case m == nil:
			if err := fo.check(ctx); err != nil {
				return err
			}
			continue
		}
		sequence, ok := fo.sequence(m)
		if !ok || sequence < fo.next {
			continue // seen already: read as a hole was filled, or sent late by a former leader
		}
		if sequence > fo.next {
			if err := fo.catchUp(ctx, sequence-1); err != nil {
				return err
			}
			if sequence != fo.next {
				continue // it came with the others, or what is before it can't be had
			}
		}
		if err := fo.take(sequence, m.Data); err != nil {
			return err
		}
	}
}

// receive waits until the next check at most; no message says that it is due.
// It never is while messages wait here: those may be purged by now, and count.
func (fo *follower) receive(ctx context.Context) (*nats.Msg, error) {
	n, _, err := fo.sub.Pending()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if n > 0 {
		return fo.sub.NextMsg(time.Minute) // it is there; no timer
	}
	due := fo.checkAt.Sub(fo.streams.opts.Clock.Now())
	if fo.dropped || due <= 0 {
		fo.dropped = false
		return nil, nil //nolint:nilnil // nothing new is a result
	}
	wait, cancel := context.WithTimeout(ctx, due)
	defer cancel()
	m, err := fo.sub.NextMsgWithContext(wait)
	if err != nil && wait.Err() != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, nil //nolint:nilnil // nothing new is a result
	}
	return m, err
}

func (fo *follower) sequence(m *nats.Msg) (uint64, bool) {
	// Not Header.Get: the header is as the server wrote it, and this is the one
	// look-up per message.
	values := m.Header[jetstream.SequenceHeader]
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[len(values)-1], 10, 64)
	return n, err == nil
}

// take hands the due message over.
func (fo *follower) take(sequence uint64, payload []byte) error {
	if err := fo.apply(sequence, payload); err != nil {
		return err
	}
	fo.next, fo.back = sequence+1, 0
	fo.checkAt = fo.streams.opts.Clock.Now().Add(fo.streams.opts.CheckInterval)
	return nil
}

// checkWait bounds a look at the bounds: without a leader there is no answer, and
// messages of the next leader wait meanwhile.
const checkWait = 500 * time.Millisecond

// check compares the place with the stream's bounds and reads what is missing.
func (fo *follower) check(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, checkWait)
	first, last, err := fo.stream.Bounds(look)
	cancel()
	now := fo.streams.opts.Clock.Now()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		fo.checkAt = now.Add(min(checkWait, fo.streams.opts.CheckInterval))
		return nil
	case err != nil:
		return err
	}
	fo.checkAt = now.Add(fo.streams.opts.CheckInterval)
	switch {
	case last+1 < fo.next:
		return fo.wentBack(last)
	case first > fo.next:
		return fo.hole(first)
	}
	fo.back = 0
	return fo.catchUp(ctx, last)
}

func (fo *follower) wentBack(last uint64) error {
	if last != fo.backLast {
		fo.back, fo.backLast = 0, last
	}
	if fo.back++; fo.back < backLooks {
		return nil
	}
	return fmt.Errorf("%w: it ends at %d, %d was seen", ErrJournalWentBack, last, fo.next-1)
}

func (fo *follower) hole(first uint64) error {
	return &HoleError{Journal: fo.stream.name, Next: fo.next, First: first}
}

// catchUp reads what is due up to a sequence that the stream has had. It may
// read more.
func (fo *follower) catchUp(ctx context.Context, upTo uint64) error {
	wait := retryWaitMin
	for fruitless := 0; fo.next <= upTo; {
		before := fo.next
		jump, err := fo.batch(ctx)
		if err != nil {
			return err
		}
		if fo.next > before {
			fruitless, wait = 0, retryWaitMin
			continue
		}
		first, last, err := fo.stream.Bounds(ctx)
		if err != nil {
			return err
		}
		if first > fo.next {
			return fo.hole(first)
		}
		if fruitless++; fruitless >= catchUpTriesMax && last < fo.next {
			fo.checkAt = time.Time{} // the journal may have gone back
			return nil
		}
		if fruitless >= catchUpTries {
			if err := fo.fromLeader(ctx, jump); err != nil {
				return err
			}
		}
		if fo.next > before {
			continue
		}
		if err := fo.streams.opts.Clock.Sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, retryWaitMax)
	}
	return nil
}

// batch asks any replica for what is due and takes what comes. jump is the first
// sequence that came instead of the one that was due, or 0.
func (fo *follower) batch(ctx context.Context) (jump uint64, err error) {
	inbox := fo.streams.read.NewRespInbox()
	sub, err := fo.streams.read.SubscribeSync(inbox)
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe()                              //nolint:errcheck // fails on a closed connection only, which the next request tells
	if err := sub.SetPendingLimits(-1, -1); err != nil { // the request has limits
		return 0, err
	}
	request, err := json.Marshal(map[string]uint64{"seq": fo.next, "batch": catchUpMessages, "max_bytes": catchUpBytes})
	if err != nil {
		return 0, fmt.Errorf("encode request for messages: %w", err)
	}
	if err := fo.streams.read.PublishRequest("$JS.API.DIRECT.GET."+fo.stream.stream, inbox, request); err != nil {
		return 0, err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, fo.streams.opts.RequestTimeout)
		m, err := sub.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrBadSubscription):
			return 0, err
		case err != nil:
			return 0, nil // no answer in time, or no replica: asked again
		case m.Header.Get("Status") != "":
			return jump, nil // end of batch, not found, nobody there
		}
		sequence, ok := fo.sequence(m)
		switch {
		case !ok || sequence < fo.next:
		case sequence > fo.next:
			return sequence, nil
		default:
			if err := fo.take(sequence, m.Data); err != nil {
				return 0, err
			}
		}
	}
}

// fromLeader reads the due message from the leader. If even the leader doesn't
// have it although it should, it is lost inside the stream: a hole like any
// other, up to jump.
func (fo *follower) fromLeader(ctx context.Context, jump uint64) error {
	var answer struct {
		Message struct {
			Sequence uint64 `json:"seq"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	err := fo.streams.tryAPI(ctx, "STREAM.MSG.GET."+fo.stream.stream, map[string]uint64{"seq": fo.next}, &answer)
	switch {
	case isAPIError(err, codeNoMessage):
		first, last, err := fo.stream.Bounds(ctx)
		if err != nil {
			return err
		}
		if first <= fo.next && fo.next <= last {
			return fo.hole(max(jump, fo.next+1))
		}
		return nil
	case err != nil && retriable(err):
		return nil
	case err != nil:
		return err
	case answer.Message.Sequence != fo.next:
		return fmt.Errorf("read message %d: got %d", fo.next, answer.Message.Sequence)
	}
	return fo.take(fo.next, answer.Message.Data)
}
