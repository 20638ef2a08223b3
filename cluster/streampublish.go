package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// publish is a message whose answer is awaited.
type publish struct {
	done    func(sequence uint64, err error)
	expires time.Time
}

// statusNoResponders: no leader of the stream was there to take the message.
const statusNoResponders = "503"

// Publish sends a message and returns; done is called once, from a goroutine of
// Streams or by Streams.Close, when the outcome is known, and must not block.
// Messages of one goroutine reach the stream in the order of their calls if all
// do. A message with an id that the stream remembers isn't stored again; its
// sequence is the first one's. Errors:
//
//   - ErrOutcomeUnknown: it may be stored or not, now or soon. Repeat it with the
//     same id and bytes, or look what comes by Follow. Without a leader the error
//     also wraps ErrNoResponders, and it isn't stored.
//   - ErrJournalFull: refused, not stored.
//   - ErrTooLarge: not sent.
//   - ErrClosed: Close was called; outcome unknown.
func (st *Stream) Publish(id string, payload []byte, done func(sequence uint64, err error)) {
	st.streams.publish(st, id, "", payload, done)
}

func (s *Streams) publish(st *Stream, id, expectLast string, payload []byte, done func(uint64, error)) {
	done = named(st, done)
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	number, ok := s.register(done)
	if !ok {
		s.work.Go(func() { done(0, ErrClosed) })
		return
	}
	m := &nats.Msg{Subject: st.subject, Reply: s.acks + strconv.FormatUint(number, 10), Data: payload, Header: nats.Header{}}
	if id != "" {
		m.Header[jetstream.MsgIDHeader] = []string{id}
	}
	if expectLast != "" {
		m.Header[jetstream.ExpectedLastSeqHeader] = []string{expectLast}
	}
	err := s.send.PublishMsg(m)
	if err == nil {
		return
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: %d bytes", ErrTooLarge, len(payload))
	case errors.Is(err, nats.ErrConnectionClosed):
		err = ErrClosed
	default:
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if s.take(number) != nil {
		s.work.Go(func() { done(0, err) })
	}
}

func named(st *Stream, done func(uint64, error)) func(uint64, error) {
	return func(sequence uint64, err error) {
		if err != nil {
			err = fmt.Errorf("publish to journal %s: %w", st.name, err)
		}
		done(sequence, err)
	}
}

func (s *Streams) register(done func(uint64, error)) (number uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false
	}
	s.last++
	s.waiting[s.last] = &publish{done: done, expires: s.opts.Clock.Now().Add(s.opts.PublishTimeout)}
	return s.last, true
}

func (s *Streams) take(number uint64) *publish {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.waiting[number]
	delete(s.waiting, number)
	return p
}

func (s *Streams) receiveAcks() error {
	s.acks = s.send.NewRespInbox() + "."
	sub, err := s.send.Subscribe(s.acks+"*", s.acknowledged)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1) // one small answer per publish that waits
	}
	if err == nil {
		err = s.send.Flush()
	}
	if err != nil {
		return fmt.Errorf("receive acknowledgements: %w", err)
	}
	return nil
}

// acknowledged runs in the subscription's goroutine.
func (s *Streams) acknowledged(m *nats.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.acks), 10, 64)
	if err != nil {
		s.log.Warn("acknowledgement of an unknown form", zap.String("subject", m.Subject))
		return
	}
	p := s.take(number)
	if p == nil {
		return // given up
	}
	p.done(outcome(m))
}

// outcome is the one place that reads answers to publishes.
func outcome(m *nats.Msg) (uint64, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == statusNoResponders {
		return 0, fmt.Errorf("%w: no leader: %w", ErrOutcomeUnknown, ErrNoResponders)
	}
	var ack struct {
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return 0, fmt.Errorf("%w: read answer: %w", ErrOutcomeUnknown, err)
	}
	e := ack.Error
	switch {
	case e == nil && ack.Sequence > 0:
		return ack.Sequence, nil
	case e == nil:
		return 0, fmt.Errorf("%w: answer without a sequence", ErrOutcomeUnknown)
	case e.ErrorCode == codeWrongLast, e.ErrorCode == codeWrongLastToo:
		return 0, errWrongLast
	case e.ErrorCode == codeTooMany, e.ErrorCode == codeStoreFailed && e.Description == "maximum bytes exceeded":
		return 0, fmt.Errorf("%w: %s", ErrJournalFull, e.Description)
	default:
		return 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, e)
	}
}

// errWrongLast: somebody else has published; two codes, one meaning.
var errWrongLast = errors.New("the journal's last sequence is another one")

func (s *Streams) disconnected(err error) {
	s.failWaiting(fmt.Errorf("%w: disconnected (%w)", ErrOutcomeUnknown, orClosed(err)), func(*publish) bool { return true })
}

func orClosed(err error) error {
	if err == nil {
		return ErrClosed
	}
	return err
}

// expire ends publishes that got no answer.
func (s *Streams) expire(ctx context.Context) {
	for s.opts.Clock.Sleep(ctx, s.opts.PublishTimeout/8) == nil {
		now := s.opts.Clock.Now()
		s.failWaiting(fmt.Errorf("%w: no answer in %v", ErrOutcomeUnknown, s.opts.PublishTimeout), func(p *publish) bool { return now.After(p.expires) })
	}
}

// failWaiting ends those publishes, in their order.
func (s *Streams) failWaiting(err error, which func(*publish) bool) {
	var failed []*publish
	s.mu.Lock()
	if len(s.waiting) > 0 {
		for _, number := range sortedKeys(s.waiting) {
			if p := s.waiting[number]; which(p) {
				failed = append(failed, p)
				delete(s.waiting, number)
			}
		}
	}
	s.mu.Unlock()
	for _, p := range failed {
		p.done(0, err)
	}
}
